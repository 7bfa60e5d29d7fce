"""Published figures as rows that the simulator can be asked for.

The tables are in benchmarks/data, their origin in benchmarks/data/SOURCES.md. Taken from them are
what was run, the accept length, and the figure to meet. What they do not say (the GPU of
SpecBundle, lengths of prompts and answers, accept lengths of the EAGLE-3 paper's batches) is
assumed, and said in SOURCES.md.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path

from bench.physics import SGLANG_0_4_4, SGLANG_0_5_SPEC_V1, Engine, Speculation

DATA = Path(__file__).parent / "data"
TARGETS = {
    "Llama-3.1-8B-Instruct": "llama-3.1-8b",
    "Qwen3-30B-A3B-Instruct-2507": "qwen3-30b-a3b",
}

# CUDA graphs of SGLang 0.4.4 on one H100 (cuda_graph_runner.py): fewer while speculating.
_GRAPHS_0_4_4 = (1, 2, 4, *range(8, 161, 8))
_GRAPHS_0_4_4_SPECULATIVE = (*range(1, 9), *range(9, 33, 2), 64, 96, 128, 160)
# The EAGLE-3 paper's batches are of chains of three drafts on MT-bench and give no accept length.
_PAPER_CHAIN = Speculation(num_steps=3, topk=1, num_draft_tokens=4)
_PAPER_ACCEPT_LEN = {"eagle": 2.02, "eagle3": 2.9307}
_PAPER_BASELINE_TOK_PER_S = 158.34
# The pull request leaves out topk and draft tokens; SGLang's examples of the time had these.
_PR_TOPK, _PR_DRAFT_TOKENS = 8, 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """Mean tokens of a request.

    Attributes:
        prompt_tok: Of the prompt, to be computed.
        cached_tok: Of the prompt, found in the prefix cache.
        output_tok: Of the answer.
    """

    prompt_tok: int
    cached_tok: int
    output_tok: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One published speedup, and what to simulate for it.

    Attributes:
        table: The file it is from.
        label: What was run, for people.
        target: Target card.
        draft: Draft card; None: the target's.
        hardware: Hardware card.
        tp: Tensor-parallel size.
        engine: The version of SGLang.
        batch: Requests in flight.
        workload: Their lengths.
        speculation: What drafts.
        accept_len_tok: Published, or assumed where the table has none.
        graph_batches: CUDA graphs while speculating; empty: none.
        baseline_graph_batches: Those of the baseline.
        speedup: Published: with speculation over without.
        tok_per_s: Published, of all requests together; None: only the speedup is.
        baseline_tok_per_s: The same without speculation.
    """

    table: str
    label: str
    target: str
    draft: str | None = None
    hardware: str
    tp: int = 1
    engine: Engine
    batch: int
    workload: Workload
    speculation: Speculation
    accept_len_tok: float
    graph_batches: tuple[int, ...]
    baseline_graph_batches: tuple[int, ...]
    speedup: float
    tok_per_s: float | None = None
    baseline_tok_per_s: float | None = None


def read_rows(folder: Path = DATA) -> list[Row]:
    """The rows of the three tables of `folder`, sorted by table and label."""
    workloads = {
        line["dataset"]: Workload(
            prompt_tok=int(line["prompt_tok"]),
            cached_tok=int(line["cached_tok"]),
            output_tok=int(line["output_tok"]),
        )
        for line in read_csv(DATA / "workloads.csv")
    }
    rows = [
        *_paper(folder / "eagle3_sglang_h100_batch.csv", workloads["mtbench"]),
        *_pull_request(folder / "sglang_eagle3_num_steps_llama31_8b.csv", workloads["mtbench"]),
        *_specbundle(folder / "specbundle.csv", workloads),
    ]
    return sorted(rows, key=lambda row: (row.target, row.table, row.label))


def read_csv(path: Path) -> list[dict[str, str]]:
    """The lines of a table."""
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def _paper(path: Path, workload: Workload) -> list[Row]:
    return [
        Row(
            table=path.stem,
            label=f"{method} 3-1-4, batch {int(line['batch']):>2}",
            target="llama-3.1-8b",
            draft=f"llama-3.1-8b-{method}",
            hardware="h100-x1",
            engine=SGLANG_0_4_4,
            batch=int(line["batch"]),
            workload=workload,
            speculation=_PAPER_CHAIN,
            accept_len_tok=_PAPER_ACCEPT_LEN[method],
            graph_batches=_GRAPHS_0_4_4_SPECULATIVE,
            baseline_graph_batches=_GRAPHS_0_4_4,
            speedup=float(line[method]),
        )
        for line in read_csv(path)
        for method in ("eagle", "eagle3")
    ]


def _pull_request(path: Path, workload: Workload) -> list[Row]:
    rows = []
    for line in read_csv(path):
        method, _, suffix = line["method"].partition("_")
        steps, tok_per_s = int(line["num_steps"]), float(line["tok_s"])
        note = ", no CUDA graphs" if suffix else ""
        rows.append(
            Row(
                table=path.stem,
                label=f"{method} {steps}-{_PR_TOPK}-{_PR_DRAFT_TOKENS}{note}",
                target="llama-3.1-8b",
                draft=f"llama-3.1-8b-{'eagle3' if method == 'eagle3' else 'eagle'}",
                hardware="h100-x1",
                engine=SGLANG_0_4_4,
                batch=1,
                workload=workload,
                speculation=Speculation(
                    num_steps=steps, topk=_PR_TOPK, num_draft_tokens=_PR_DRAFT_TOKENS
                ),
                accept_len_tok=float(line["accept_len"]),
                graph_batches=() if suffix else _GRAPHS_0_4_4_SPECULATIVE,
                baseline_graph_batches=_GRAPHS_0_4_4,
                speedup=tok_per_s / _PAPER_BASELINE_TOK_PER_S,
                tok_per_s=tok_per_s,
                baseline_tok_per_s=_PAPER_BASELINE_TOK_PER_S,
            )
        )
    return rows


def _specbundle(path: Path, workloads: dict[str, Workload]) -> list[Row]:
    rows = []
    for line in read_csv(path):
        if line["target"] not in TARGETS:
            continue
        target, batch = TARGETS[line["target"]], int(line["batch_size"])
        numbers = tuple(int(line[key]) for key in ("num_steps", "eagle_topk", "num_draft_tokens"))
        tok_per_s, baseline = float(line["tok_s"]), float(line["baseline_tok_s"])
        draft = "SpecForge" if line["draft"].endswith("SpecForge") else "LLaMA3.1"
        shape = "-".join(map(str, numbers))
        rows.append(
            Row(
                table=path.stem,
                label=f"{shape} {line['dataset']}, draft {draft}, batch {batch}",
                target=target,
                hardware="h200-x8",
                tp=1 if target == "llama-3.1-8b" else 4,
                engine=SGLANG_0_5_SPEC_V1,
                batch=batch,
                workload=workloads[line["dataset"]],
                speculation=Speculation(
                    num_steps=numbers[0], topk=numbers[1], num_draft_tokens=numbers[2]
                ),
                accept_len_tok=float(line["accept_length"]),
                graph_batches=(batch,),  # bench_eagle3.py: --cuda-graph-max-bs BATCH
                baseline_graph_batches=(batch,),
                speedup=tok_per_s / baseline,
                tok_per_s=tok_per_s,
                baseline_tok_per_s=baseline,
            )
        )
    return rows
