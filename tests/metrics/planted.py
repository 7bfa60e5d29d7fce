"""A planted violation for every kind of finding: what the product finds where it was planted.

A new kind of finding needs one here, or `test_metrics_planted` fails.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from metrics_cells import (
    MS,
    T0,
    S,
    changed,
    healthy_samples,
    healthy_telemetry,
    make_cell,
    make_client,
    make_effective,
    make_sample,
    make_workload,
    point,
    run_summarize,
    with_counter,
    with_series,
)

from bench.errors import ServerError
from bench.metrics.machines import different_machines
from bench.metrics.run_checks import run_findings
from bench.model import (
    Finding,
    FindingKind,
    LauncherTemplate,
    RequestStatus,
    Sampling,
    ServerConfig,
    TokenSource,
)
from bench.plan import make_plan
from bench.runner import runs
from bench.runner.asking import Asking
from bench.runner.budgeting import Remaining
from bench.scenario import load_scenario
from bench.server import launch as launching
from bench.server.running import refused
from bench.sglang.own_resolution import OwnResolution, judge

K = FindingKind
Planted = Callable[[Path], Iterable[Finding]]
CHAIN = {"algorithm": "EAGLE3", "num_steps": 3, "eagle_topk": 1, "num_draft_tokens": 4}


# -- one cell


def cell(make: Callable[[], dict[str, Any]]) -> Planted:
    """A healthy cell but for what is given to `summarize`."""
    return lambda _: run_summarize(**make())[1]


def drifting_samples() -> list[Any]:
    samples = []
    for s in healthy_samples():
        start, factor = s.event_ns[0], 0.85 if s.index < 12 else 1.0
        events = tuple(start + round((t - start) * factor) for t in s.event_ns)
        samples.append(dataclasses.replace(s, event_ns=events))
    return samples


def spaced_samples() -> list[Any]:
    """Each slot waits as long again after each of its requests."""
    return [later(s, s.index // 2 * 900 * MS) for s in healthy_samples()]


def later(s: Any, by_ns: int) -> Any:
    return dataclasses.replace(
        s,
        due_ns=s.due_ns + by_ns,
        sent_ns=s.sent_ns + by_ns,
        first_byte_ns=s.first_byte_ns + by_ns,
        ended_ns=s.ended_ns + by_ns,
        event_ns=tuple(t + by_ns for t in s.event_ns),
        first_visible_ns=s.first_visible_ns + by_ns,
    )


def restarted_telemetry() -> list[Any]:
    points = healthy_telemetry(healthy_samples())
    middle = sorted({p.t_ns for p in points})[4]
    return [
        dataclasses.replace(p, value=0.0)
        if p.name == "sglang:prompt_tokens_total" and p.t_ns == middle
        else p
        for p in points
    ]


def eager_telemetry() -> list[Any]:
    samples = healthy_samples()
    return [
        *with_counter(samples, "sglang:cuda_graph_passes_total{mode=decode_none}", 500),
        *(p for p in healthy_telemetry(samples, gpus=1) if p.source == "gpu"),
    ]


def collapsed_telemetry(samples: list[Any]) -> list[Any]:
    """The accept length is 1 from the third to the ninth of some ten seconds."""
    points = [p for p in healthy_telemetry(samples) if p.name != "sglang:spec_accept_length"]
    times = sorted({p.t_ns for p in points})
    return points + [
        point("sglang:spec_accept_length", t, 1.0 if 2 <= k <= 8 else 2.3, rank=0)
        for k, t in enumerate(times)
    ]


def stalled_samples() -> list[Any]:
    return [
        dataclasses.replace(
            s,
            event_ns=tuple(t + (300 * MS if k > 20 else 0) for k, t in enumerate(s.event_ns)),
            ended_ns=s.ended_ns + 300 * MS,
        )
        for s in healthy_samples(speculative=True)
    ]


def hung() -> dict[str, Any]:
    """A request at the end that waits for a token while the GPUs spin."""
    done = healthy_samples()
    begins_ms = (max(s.ended_ns for s in done) - T0) / MS
    stuck = make_sample(
        len(done),
        start_ms=begins_ms,
        events_ms=(),
        ended_ms=40_000.0,
        output_tok=None,
        status=RequestStatus.TIMEOUT,
    )
    telemetry = [
        point(name, T0 + k * S, value, rank=0, source="gpu")
        for k in range(60)
        for name, value in (
            ("utilisation_pct", 100.0),
            ("power_w", 140.0),
            ("power_limit_w", 600.0),
            ("memory_used_bytes", 2.0**34),
        )
    ]
    return {"samples": [*done, stuck], "telemetry": telemetry, "gpus": 1}


def merged_samples() -> list[Any]:
    return [
        dataclasses.replace(s, event_ns=s.event_ns[::2], event_tok=s.event_tok[::2])
        for s in healthy_samples(speculative=True)
    ]


SILENT = dict.fromkeys(
    (
        "spec_verify_ct",
        "spec_num_correct_drafts",
        "spec_num_proposed_drafts",
        "spec_correct_drafts_histogram",
    )
)


def measured(which: slice, **changes: Any) -> dict[str, Any]:
    return {"samples": changed(healthy_samples(), which, **changes)}


def series(name: str, value: float, **more: Any) -> dict[str, Any]:
    samples = healthy_samples()
    telemetry = with_series(samples, name, value, **more)
    return {"samples": samples, "telemetry": telemetry, "gpus": more.get("gpus", 0)}


IN_A_CELL: dict[FindingKind, Planted] = {
    K.CLIENT_LATE: cell(lambda: {"client": make_client(send_late_p99_ms=900.0)}),
    K.CLIENT_SATURATED: cell(lambda: {"client": make_client(cpu_share=0.99)}),
    K.CLIENT_NOT_PROVEN: cell(
        lambda: {"client": make_client(events_per_s=3000.0, proven_event_per_s=2000.0)}
    ),
    K.READS_COALESCED: cell(lambda: {"client": make_client(events_per_read=1.6)}),
    K.REQUESTS_RESENT: cell(lambda: {"client": make_client(resent_ct=3)}),
    K.CONCURRENCY_NOT_REACHED: cell(lambda: {"samples": spaced_samples()}),
    K.SERVER_QUEUED: cell(lambda: series("sglang:num_queue_reqs", 1.0)),
    K.SERVER_RETRACTED: cell(lambda: measured(slice(3, 4), num_retractions=1)),
    K.KV_FULL: cell(lambda: series("sglang:token_usage", 0.99)),
    K.FOREIGN_TRAFFIC: cell(
        lambda: {"telemetry": with_counter(healthy_samples(), "sglang:num_requests_total", 30)}
    ),
    K.WINDOW_TOO_SHORT: cell(lambda: {"cell": make_cell(steady_s=60.0)}),
    K.NO_WINDOW: cell(lambda: {"samples": [s for s in healthy_samples() if s.slot == 0]}),
    K.FEW_REQUESTS: cell(lambda: {"samples": healthy_samples(each=2)}),
    K.DRIFTING: cell(lambda: {"samples": drifting_samples()}),
    K.CACHE_NOT_AS_STATED: cell(lambda: measured(slice(None), cached_tok=900)),
    K.ERROR_RATE: cell(lambda: measured(slice(2, 4), status=RequestStatus.HTTP_ERROR)),
    K.THROTTLED: cell(lambda: series("throttle_reasons", 64.0, gpus=1, source="gpu")),
    K.OUTPUT_DEGENERATE: cell(lambda: measured(slice(None), distinct_bigram_ct=5)),
    K.COUNTERS_DISAGREE: cell(
        lambda: {
            "telemetry": with_counter(
                healthy_samples(), "sglang:generation_tokens_total", 1.5 * 41 * 22
            )
        }
    ),
    K.SIMULATION_LATE: cell(
        lambda: {
            "simulated": True,
            "telemetry": with_counter(
                healthy_samples(), "specdyno_simulated_late_seconds_total", 3.0
            ),
        }
    ),
    K.STREAM_COALESCED: cell(lambda: {"speculative": True, "samples": merged_samples()}),
    K.TOKENS_HIDDEN: cell(lambda: measured(slice(3, 5), tokens_before_first_event=True)),
    K.TOKENS_RETOKENIZED: cell(
        lambda: measured(slice(3, 4), token_source=TokenSource.RETOKENIZED)
    ),
    K.TOKENS_UNKNOWN: cell(
        lambda: measured(slice(3, 4), output_tok=None, event_tok=None, token_source=None)
    ),
    K.LENGTHS_CENSORED: cell(lambda: measured(slice(0, 10), finish_reason="length")),
    K.IGNORE_EOS: cell(lambda: {"cell": make_cell(workload=make_workload(ignore_eos=True))}),
    K.SERVER_RESTARTED: cell(lambda: {"telemetry": restarted_telemetry()}),
    K.CONFIG_NOT_AS_ASKED: cell(lambda: {"effective": make_effective(speculative=True)}),
    K.NO_CUDA_GRAPH: cell(lambda: {"telemetry": eager_telemetry(), "gpus": 1}),
    K.ACCEPTANCE_MISSING: cell(
        lambda: {
            "speculative": True,
            "samples": changed(healthy_samples(speculative=True), slice(3, 5), **SILENT),
        }
    ),
    K.ACCEPT_COLLAPSED: cell(
        lambda: {
            "speculative": True,
            "telemetry": collapsed_telemetry(healthy_samples(speculative=True)),
        }
    ),
    K.CYCLE_DISAGREES: cell(lambda: {"speculative": True, "samples": stalled_samples()}),
    K.GPU_SPIN_HANG: cell(hung),
    K.TELEMETRY_MISSING: cell(lambda: {"telemetry": []}),
    K.SIMULATED: cell(lambda: {"simulated": True}),
}


# -- a run


def run_of(
    arms: dict[str, list[Any]], *, effective: dict[str, Any] | None = None, **more: Any
) -> tuple[Finding, ...]:
    """What is found over the cells of launches given as `arm-pair`: the requests of its cell."""
    cells, samples = [], {}
    for name, own in arms.items():
        arm, pair = name.split("-")
        asked = make_cell(
            arm=arm,
            pair=int(pair),
            workload=make_workload(sampling=Sampling(temperature=0.0)),
        )
        measurement, _ = run_summarize(speculative=arm != "baseline", cell=asked, samples=own)
        cells.append((asked, dataclasses.replace(measurement, launch_id=name)))
        samples[asked.cell_id] = own
    asked_of_it = {"pairs_planned": 2, **more}
    return run_findings(cells, samples.__getitem__, effective or {}, **asked_of_it)


def clean_arms() -> dict[str, list[Any]]:
    return {
        f"{arm}-{pair}": healthy_samples(speculative=arm != "baseline")
        for pair in (0, 1)
        for arm in ("baseline", "eagle3")
    }


def parting(s: Any) -> Any:
    return dataclasses.replace(
        s, text_block_hashes=(-1,) * len(s.text_block_hashes), text_sha256=f"other{s.index}"
    )


def diverging_arms() -> dict[str, list[Any]]:
    arms = clean_arms()
    return {**arms, "eagle3-0": [parting(s) for s in arms["eagle3-0"]]}


def other_arms() -> dict[str, list[Any]]:
    arms = clean_arms()
    return {**arms, "eagle3-1": changed(arms["eagle3-1"], slice(3, 4), prompt_sha256="another")}


def other_backend() -> dict[str, Any]:
    triton = (("attention_backend", "triton"),)
    return {
        "baseline-0": make_effective(),
        "eagle3-0": make_effective(speculative=True, other=triton),
    }


def on_two_hosts(_: Path) -> Iterable[Finding]:
    cells = [(make_cell(arm=arm), run_summarize()[0]) for arm in ("baseline", "eagle3")]
    return different_machines(cells, {"baseline": "http://one:1", "eagle3": "http://two:1"})


IN_A_RUN: dict[FindingKind, Planted] = {
    K.OUTPUT_DIVERGES: lambda _: run_of(diverging_arms()),
    K.WORK_NOT_THE_SAME: lambda _: run_of(other_arms()),
    K.CONFIG_DIFFERS_BESIDE_SPECULATION: lambda _: run_of(clean_arms(), effective=other_backend()),
    K.NO_REPEATS: lambda _: run_of(clean_arms(), pairs_planned=1),
    K.SIMULATION_SPEED: lambda _: run_of(clean_arms(), simulated=True, speed=7),
    K.DIFFERENT_MACHINES: on_two_hosts,
}


# -- plan, launch and budget


def plan(folder: Path, **changes: Any) -> Any:
    """A plan with a baseline and a chain, changed."""
    scenario = {
        "name": "planted",
        "question": "What is found?",
        "target": {"path": "org/model", "revision": "main"},
        "draft": {"path": "org/draft", "revision": "main"},
        "server": {"gpus": 1, "arguments": "--max-running-requests 8"},
        "arms": {"baseline": {}, "eagle3": {"speculative": CHAIN}},
        "workloads": {
            "chat": {"input_tok": 64, "max_output_tok": 32, "sampling": {"temperature": 0}}
        },
        "loads": {"concurrency": [1]},
        **changes,
    }
    path = folder / "planted.yaml"
    path.write_text(json.dumps(scenario), encoding="utf-8")
    return make_plan(load_scenario(path))


def asked_sglang(_: Path) -> Iterable[Finding]:
    """SGLang makes another draft of the arguments than our rules do."""
    arguments = ("--model-path", "m", "--speculative-algorithm", "EAGLE3")
    arguments += ("--speculative-num-steps", "3", "--speculative-eagle-topk", "1")
    own = OwnResolution(version="0.5.23", resolved={"speculative_num_draft_tokens": 7})
    asking = Asking(lambda _: None)
    asking._judged["key"] = judge(arguments, own, environment={})
    return asking.findings("key", "cell")


def split_launch(folder: Path) -> Iterable[Finding]:
    made = plan(folder, loads={"concurrency": [1, 2]})
    first, second = made.launches[0].cells
    return runs._split_launches(made, {first.cell_id: "L00", second.cell_id: "L00-r2"})


def failed_launch(folder: Path) -> Iterable[Finding]:
    made = plan(folder)
    writer: Any = SimpleNamespace(folder=folder)
    return [runs.launch_failed(writer, made.launches[0], ServerError("it ended", hint=None))]


def too_small_a_budget(folder: Path) -> Iterable[Finding]:
    made = plan(folder, measure={"pairs": 3})
    enough_for_one_pair_s = sum(launch.estimated_s for launch in made.launches[:2]) + 1
    writer: Any = SimpleNamespace(
        finished_cells=set,
        manifest=SimpleNamespace(plan_arguments={"budget_s": enough_for_one_pair_s}, speed=1),
        launches=list,
    )
    remaining = Remaining(made, writer, lambda _: None)
    remaining.next()
    return remaining.findings()


def remarks(environ: tuple[str, ...]) -> Planted:
    """A server behind a launcher, which asks for A=1 and prints an environment as told."""

    def look(_: Path) -> Iterable[Finding]:
        template = LauncherTemplate(kind="template", start=("{argv}",), stop=("true",))
        config = ServerConfig(arguments=(), launcher="template", template=template)
        start: Any = SimpleNamespace(
            environ=environ, process_environment={}, base_url="http://127.0.0.1:1"
        )
        log: Any = SimpleNamespace(all_lines=list)
        found = asyncio.run(launching._environment_remarks(config, start, {"A": "1"}, 1, log))
        return [as_finding(remark) for remark in found]

    return look


def as_finding(remark: Any) -> Finding:
    kind, severity, message = remark
    return Finding(kind=kind, severity=severity, message=message, advice="")


PRINTS_ANOTHER = (sys.executable, "-c", "print('A=2\\0PATH=/bin', end='\\0')")

AROUND_A_RUN: dict[FindingKind, Planted] = {
    K.ARGUMENTS_ADVICE: lambda folder: (
        plan(
            folder,
            arms={"baseline": {}, "eagle3": {"speculative": {**CHAIN, "num_draft_tokens": 9}}},
        ).findings
    ),
    K.ARMS_ALIKE: lambda folder: plan(folder, arms={"baseline": {}, "again": {}}).findings,
    K.ARGUMENTS_DISAGREE: asked_sglang,
    K.LAUNCH_SPLIT: split_launch,
    K.LAUNCH_FAILED: failed_launch,
    K.BUDGET_DROPPED: too_small_a_budget,
    K.ENVIRONMENT_LOST: remarks(PRINTS_ANOTHER),
    K.ENVIRONMENT_NOT_PROVED: remarks(()),
    K.ACCESS_REFUSED: lambda _: [as_finding(refused("flush its cache", 403))],
}

PLANTED: dict[FindingKind, Planted] = {**IN_A_CELL, **IN_A_RUN, **AROUND_A_RUN}
