"""The load client against a ground-truth server, beside other load generators' recorded figures.

    python -m benchmarks.load [--runs 5] [--workers 1] [TEST ...]

Six tests, the first four with the server and the client on the processors of this machine:

- D: 512 streams, first event after 50 ms, then one every 20 ms, 128 tokens, two answers a stream
- L: 64 streams as fast as they are read, 3,200 answers of 256 tokens
- C: 32 streams, first event after 50 ms, then 4 tokens every 10 ms, 128 tokens, ten answers each
- E: Poisson arrivals, 200 a second for 10 s, 8 tokens, first after 10 ms, then one every 5 ms
- W: two workers against one at the loads of D and L; what they record must be the same
- S: starting: a worker, and `bench run` of a simulation until its worker has started; beside that
  the most memory that this run ever takes

CPU per event is all that the load workers use, less that of a run of 64 answers of 2 tokens.
Figures are medians over the runs, with their spread. What others reach was measured on two cores
of a busy machine with the same tests (docs/instrument.md): compare CPU, and times only in order of
size.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import math
import os
import statistics
import sys
import tempfile
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

import psutil
from rich.console import Console
from rich.table import Table

from bench.load.process import start_worker
from bench.model import Load
from bench.selftest.accuracy import Accuracy, accuracy
from bench.selftest.serving import Pace
from bench.selftest.trial import Trial, TrialRecord, record_trial


def closed(streams: int, answers: int, tokens: int, pace: Pace) -> Trial:
    load = Load(kind="closed", concurrency=streams)
    return Trial(load=load, requests=answers, output_tok=tokens, pace=pace)


def pace(ttft_ms: int, interval_ms: int, tokens: int = 1) -> Pace:
    # Counts come once at the end, as they did when the others were measured.
    return Pace(
        ttft_us=ttft_ms * 1000,
        interval_us=interval_ms * 1000,
        tok_per_event=tokens,
        usage_on_events=False,
    )


TESTS = {
    "D": closed(512, 1024, 128, pace(50, 20)),
    "L": closed(64, 3200, 256, pace(0, 0)),
    "C": closed(32, 320, 128, pace(50, 10, 4)),
    "E": Trial(
        load=Load(kind="open", rate_per_s=200.0), requests=2000, output_tok=8, pace=pace(10, 5)
    ),
}
SMALL = closed(64, 64, 2, pace(0, 0))
OTHER_TESTS = ("W", "S")
BENCH = Path(sys.executable).with_name("bench")
SCENARIO = Path(__file__).parents[1] / "scenarios" / "quick.yaml"
POLL_S = 0.05

# SGLang's Rust client unless named; measured on two cores that other work shared.
PEERS: dict[tuple[str, str], str] = {
    ("D", "cpu"): "13–16 (SGLang's Python client 40–52)",
    ("D", "ttft_mean"): "14–22",
    ("D", "ttft_p99"): "59–63",
    ("D", "gap"): "1",
    ("D", "span"): "+2",
    ("L", "cpu"): "6.7",
    ("C", "ttft_p50"): "0.37–0.46",
    ("C", "ttft_p99"): "0.7–3.7",
    ("E", "rate"): "−19 to −20",
    ("E", "late_p50"): "not told",
    ("E", "late_p99"): "not told",
    ("E", "ks"): "0.14",
    ("S", "worker_cpu"): "6",
    ("S", "worker_memory"): "829",
}
TO_REACH: dict[tuple[str, str], float] = {
    ("D", "cpu"): 12.0,
    ("D", "ttft_mean"): 1.0,
    ("D", "ttft_p99"): 4.0,
    ("D", "gap"): 2.0,
    ("D", "span"): 1.0,
    ("L", "cpu"): 6.7,
    ("C", "ttft_p50"): 0.3,
    ("C", "ttft_p99"): 1.0,
    ("E", "rate"): 0.5,
    ("E", "late_p50"): 0.3,
    ("E", "late_p99"): 3.0,
    ("E", "ks"): 0.04,
    ("W", "two_d"): 1.1,
    ("W", "two_l"): 1.1,
    ("S", "worker_cpu"): 0.6,
    ("S", "worker_memory"): 80.0,
    ("S", "run_cpu"): 1.5,
    ("S", "run_memory"): 250.0,
}
NAMES = {
    "cpu": "CPU per event (µs)",
    "ttft_mean": "TTFT error, mean (ms)",
    "ttft_p50": "TTFT error, p50 (ms)",
    "ttft_p99": "TTFT error, p99 (ms)",
    "gap": "chunk gap p99 beyond true (ms)",
    "span": "span beyond ideal (%)",
    "rate": "rate beyond the schedule's (%)",
    "late_p50": "send lateness, p50 (ms)",
    "late_p99": "send lateness, p99 (ms)",
    "ks": "KS distance of arrivals",
    "wrong": "requests miscounted",
    "two_d": "CPU of two workers over that of one, D",
    "two_l": "CPU of two workers over that of one, L",
    "worker_cpu": "CPU of starting a worker (s)",
    "worker_memory": "memory of a worker (MB)",
    "run_cpu": "CPU of starting bench and its worker (s)",
    "run_memory": "memory of the same (MB)",
    "run_most": "most memory of both over the run (MB)",
}


@dataclass(frozen=True)
class Run:
    """One run of one test: what both sides wrote down, errors, CPU of all workers, events."""

    record: TrialRecord
    accuracy: Accuracy
    cpu_s: float
    event_ct: int


async def one(trial: Trial, workers: int) -> Run:
    record = await record_trial(trial, workers=workers)
    event_ct = sum(len(sample.event_ns) for sample in record.samples)
    client = record.client
    cpu_s = (client.cpu_share or 0.0) * event_ct / (client.events_per_s or math.inf)
    found = accuracy(record.samples, record.answers, trial.pace, is_open=trial.load.kind == "open")
    return Run(record, found, cpu_s, event_ct)


def figures(test: str, run: Run, small_s: float) -> dict[str, float]:
    a = run.accuracy
    cpu = (run.cpu_s - small_s) / run.event_ct * 1e6
    found: dict[str, float | None] = {"cpu": cpu, "wrong": float(a.wrong)}
    if test == "D":
        found |= {"ttft_mean": a.ttft_error_mean_ms, "ttft_p99": a.ttft_error_p99_ms}
        found |= {"gap": a.gap_p99_excess_ms, "span": 100 * (span_s(run) / 5.18 - 1)}
    if test == "C":
        found |= {"ttft_p50": a.ttft_error_p50_ms, "ttft_p99": a.ttft_error_p99_ms}
    if test == "E":
        found |= {"rate": 100 * (a.rate_error_share or 0.0), "ks": ks_distance(run)}
        found |= {"late_p50": a.late_p50_ms, "late_p99": a.late_p99_ms}
    return {name: value for name, value in found.items() if value is not None}


def span_s(run: Run) -> float:
    samples = run.record.samples
    first = min(s.sent_ns for s in samples if s.sent_ns is not None)
    return (max(s.event_ns[-1] for s in samples if s.event_ns) - first) / 1e9


def ks_distance(run: Run) -> float:
    """Of the gaps between arrivals at the server from an exponential distribution of mean 5 ms."""
    arrivals = sorted(answer.received_ns for answer in run.record.answers)
    gaps = sorted((later - earlier) / 1e6 for earlier, later in pairwise(arrivals))
    n = len(gaps)
    expected = [1 - math.exp(-gap / 5.0) for gap in gaps]
    return max(
        max(abs(place / n - e), abs((place + 1) / n - e)) for place, e in enumerate(expected)
    )


async def small(workers: int) -> float:
    return statistics.median([(await one(SMALL, workers)).cpu_s for _ in range(3)])


async def measure(tests: list[str], runs: int, workers: int) -> dict[str, list[dict[str, float]]]:
    small_s = await small(workers)
    found: dict[str, list[dict[str, float]]] = {test: [] for test in tests}
    for number in range(runs):
        for test in tests:
            print(f"run {number + 1}/{runs} of {test}", file=sys.stderr)
            if test == "W":
                found[test].append({f"two_{of.lower()}": await shared(of) for of in ("D", "L")})
            elif test == "S":
                found[test].append(await starting())
            else:
                found[test].append(figures(test, await one(TESTS[test], workers), small_s))
    return found


def show(found: dict[str, list[dict[str, float]]], workers: int) -> None:
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    cores = len(os.sched_getaffinity(0))
    title = f"{workers} worker(s), {cores} cores, load average {load}"
    table = Table("test", "figure", "median", "spread", "to reach", "others", title=title)
    for test, runs in found.items():
        for name in runs[0]:
            values = [run[name] for run in runs]
            limit = TO_REACH.get((test, name))
            table.add_row(
                test,
                NAMES[name],
                f"{statistics.median(values):.3g}",
                f"{min(values):.3g} – {max(values):.3g}",
                "–" if limit is None else f"{limit:g}",
                PEERS.get((test, name), "–"),
            )
    Console(width=140).print(table)


async def shared(test: str) -> float:
    """CPU of two workers over that of one at the same load, whose records must be equal."""
    alone, both = await one(TESTS[test], 1), await one(TESTS[test], 2)
    identity = [[replace_times(sample) for sample in run.record.samples] for run in (alone, both)]
    assert identity[0] == identity[1], "two workers record something else than one"
    return both.cpu_s / alone.cpu_s


async def starting() -> dict[str, float]:
    """What starting takes: CPU seconds, and MB of resident memory."""
    worker = await start_worker()
    cpu_s, memory_mb = used(psutil.Process(worker.pid))
    await worker.close()
    with tempfile.TemporaryDirectory() as folder:
        process = await asyncio.create_subprocess_exec(
            *(str(BENCH), "run", str(SCENARIO), "--sim", "--out", folder),
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
        )
        bench = psutil.Process(process.pid)
        run: tuple[float, float] | None = None
        most_mb = 0.0
        while process.returncode is None:
            with contextlib.suppress(psutil.Error):
                workers = list(filter(is_worker, bench.children()))
                if workers and run is None:
                    run = used(bench)
                most_mb = max(most_mb, sum(used(one)[1] for one in (bench, *workers)))
            await asyncio.sleep(POLL_S)
    assert run is not None, f"`bench run {SCENARIO} --sim` started no worker"
    return {
        "worker_cpu": cpu_s,
        "worker_memory": memory_mb,
        "run_cpu": run[0] + cpu_s,
        "run_memory": run[1] + memory_mb,
        "run_most": most_mb,
    }


def used(process: psutil.Process) -> tuple[float, float]:
    """(CPU seconds so far, MB resident now) of one process."""
    cpu = process.cpu_times()
    return cpu.user + cpu.system, process.memory_info().rss / 1e6


def is_worker(process: psutil.Process) -> bool:
    return "bench.load.worker" in process.cmdline()


def replace_times(sample: object) -> object:
    """What a record says but for when."""
    times = {"due_ns": 0, "sent_ns": 0, "first_byte_ns": 0, "ended_ns": 0, "event_ns": ()}
    times |= {"first_visible_ns": 0, "read_ct": 0, "slot": None}
    return replace(sample, **times)  # type: ignore[type-var]


def main() -> None:
    names = (*TESTS, *OTHER_TESTS)
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("tests", nargs="*", metavar="TEST", help=f"of {', '.join(names)}")
    options.add_argument("--runs", type=int, default=5)
    options.add_argument("--workers", type=int, default=1)
    asked = options.parse_args()
    tests = [name for name in names if name in (asked.tests or names)]
    show(asyncio.run(measure(tests, asked.runs, asked.workers)), asked.workers)


if __name__ == "__main__":
    main()
