"""Result files of SpecForge's benchmarks, of both its tools.

`benchmarks/bench_eagle3.py` writes one object: `model`, and for each task a list of runs.
`specforge benchmark` writes a report: `model`, `draft_model`, `sampling`, and a list `runs`.
Fields: https://github.com/sgl-project/SpecForge, `benchmarks/bench_eagle3.py` (1d66672) and
`specforge/benchmarks/report.py` and `config.py` (3a6c8d7).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from bench.errors import InputError
from bench.foreign.json_text import count_in, number_in, read_rows

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class SpecForgeRun:
    """One task under one configuration. Every number is as told there; None where it is missing.

    Attributes:
        tool: Which of the two wrote it.
        model: `specforge benchmark`: the target. `bench_eagle3`: the draft, which it calls model.
        draft_model: The draft.
        task: Name of the data set.
        batch_size: Requests in flight, and the server's running limit where the tool started it.
        num_steps: Draft steps; 0 without speculation. None: a server that ran already.
        topk: Branches a draft step.
        num_draft_tokens: Tokens verified a step.
        samples_ct: Conversations.
        request_ct: Requests: more than conversations where these have several turns.
        output_tok: Generated tokens.
        duration_s: Of the whole batch, ramp and tail in it.
        output_tok_per_s: Generated tokens / duration.
        verify_ct: Verify steps.
        accept_len_tok: Generated tokens / verify steps: the token of prefill is in it. The tools
            write 1 or nothing without speculation.
        accuracy: Share of answers that were right; None where they were not judged.
        temperature: What was sampled with.
        top_k: Likewise; its default there is 1, which is greedy at any temperature.
    """

    tool: Literal["bench_eagle3", "specforge benchmark"]
    model: str | None
    draft_model: str | None
    task: str
    batch_size: int | None
    num_steps: int | None
    topk: int | None
    num_draft_tokens: int | None
    samples_ct: int | None
    request_ct: int | None
    output_tok: int | None
    duration_s: float | None
    output_tok_per_s: float | None
    verify_ct: int | None
    accept_len_tok: float | None
    accuracy: float | None
    temperature: float | None
    top_k: int | None


def read_specforge(path: Path) -> list[SpecForgeRun]:
    """The runs in a result file of SpecForge.

    Raises:
        InputError: It cannot be read, or is no such file.
    """
    runs = [run for row in read_rows(path).rows for run in specforge_runs(row)]
    if not runs:
        raise InputError(
            f"asked to read SpecForge's results in {path}: it holds none.",
            hint="Files of bench_eagle3.py and of `specforge benchmark` are read.",
        )
    return runs


def specforge_runs(report: Mapping[str, Any]) -> list[SpecForgeRun]:
    """The runs of one report, of either tool."""
    return list(_of_report(report) if isinstance(report.get("runs"), list) else _of_tasks(report))


def _of_tasks(report: Mapping[str, Any]) -> Iterator[SpecForgeRun]:
    draft = _text(report, "model")
    for task, runs in report.items():
        for run in runs if isinstance(runs, list) else ():
            repeats = run.get("metrics") if isinstance(run, dict) else None
            for metrics in repeats if isinstance(repeats, list) else ():
                yield SpecForgeRun(
                    tool="bench_eagle3",
                    model=draft,
                    draft_model=draft,
                    task=task,
                    batch_size=count_in(run, "batch_size"),
                    num_steps=count_in(run, "steps"),
                    topk=count_in(run, "topk"),
                    num_draft_tokens=count_in(run, "num_draft_tokens"),
                    samples_ct=count_in(metrics, "num_questions"),
                    request_ct=None,
                    output_tok=None,
                    duration_s=number_in(metrics, "latency"),
                    output_tok_per_s=number_in(metrics, "output_throughput"),
                    verify_ct=None,
                    accept_len_tok=number_in(metrics, "accept_length"),
                    accuracy=number_in(metrics, "accuracy"),
                    temperature=None,
                    top_k=None,
                )


def _of_report(report: Mapping[str, Any]) -> Iterator[SpecForgeRun]:
    sampling = _part(report, "sampling")
    for run in report["runs"]:
        if not isinstance(run, dict):
            continue
        config, task, metrics = (_part(run, name) for name in ("config", "task", "metrics"))
        yield SpecForgeRun(
            tool="specforge benchmark",
            model=_text(report, "model"),
            draft_model=_text(report, "draft_model"),
            task=_text(task, "name") or "",
            batch_size=count_in(config, "batch_size") or count_in(report, "concurrency"),
            num_steps=count_in(config, "steps"),
            topk=count_in(config, "topk"),
            num_draft_tokens=count_in(config, "draft_tokens"),
            samples_ct=count_in(metrics, "num_samples"),
            request_ct=count_in(metrics, "num_requests"),
            output_tok=count_in(metrics, "output_tokens"),
            duration_s=number_in(metrics, "latency_seconds"),
            output_tok_per_s=number_in(metrics, "throughput_tokens_per_second"),
            verify_ct=count_in(metrics, "spec_verify_count"),
            accept_len_tok=number_in(metrics, "accept_length"),
            accuracy=number_in(metrics, "accuracy"),
            temperature=number_in(sampling, "temperature"),
            top_k=count_in(sampling, "top_k"),
        )


def _part(row: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    part = row.get(name)
    return part if isinstance(part, dict) else {}


def _text(row: Mapping[str, Any], name: str) -> str | None:
    value = row.get(name)
    return value if isinstance(value, str) else None
