"""Checks on the server: configuration, queue, memory, graphs, clocks and cache."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

import numpy as np

from bench.metrics.cache import cache_use, cell_span_ns
from bench.metrics.configuration import speculative_setting
from bench.metrics.series import counter_delta, gauge_max, gauge_mean, went_backwards
from bench.metrics.window import Window
from bench.model import FindingKind, Severity

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.metrics.facts import CellFacts
    from bench.model import Finding

# A twentieth of the load waiting is a load of 95 %.
QUEUED_SHARE: Final = 0.05
# SGLang retracts when the pool is full; the last pages are never all used.
TOKEN_USAGE_FULL: Final = 0.98
# A step in twenty without a graph: more than the first steps after a start.
NO_GRAPH_SHARE: Final = 0.05
# NVML clock event reasons (nvml.h): hardware slowdown, software and hardware thermal slowdown,
# power brake.
THROTTLE_BITS: Final = 0x08 | 0x20 | 0x40 | 0x80
POWER_CAP_BIT: Final = 0x04
THROTTLED_SHARE: Final = 0.01
# GPUs under load touch their power cap; a tenth of the time is worth knowing, not distrusting.
POWER_CAP_SHARE: Final = 0.10
# The head of the chat template is the same in every prompt and always cached.
TEMPLATE_HEAD_TOK: Final = 32
CACHE_COLD_SHARE: Final = 0.05
CACHE_PRIMED_SHARE: Final = (
    0.80  # a cache holds whole pages, and the last token is always computed
)
CACHE_SHARED_TOLERANCE: Final = 0.10
# Of the window: what is late lengthens it by as much.
LATE_COUNTER: Final = "specdyno_simulated_late_seconds_total"
LATE_SHARE: Final = 0.02
LATE_SHARE_HOPELESS: Final = 0.2

COUNTERS: Final = (
    "sglang:generation_tokens_total",
    "sglang:prompt_tokens_total",
    "sglang:num_requests_total",
    "sglang:spec_verify_calls_total",
)


def telemetry_there(facts: CellFacts) -> Iterator[Finding]:
    """What could not be watched could not be checked, which is worth a note."""
    why = f" ({facts.unread})" if facts.unread else ""
    if not facts.series.scraped_ns:
        yield facts.finding(
            FindingKind.TELEMETRY_MISSING,
            Severity.NOTE,
            f"the server's metrics could not be read{why}: queueing, KV use, foreign traffic and "
            "counters were not checked.",
        )
    elif why:
        yield facts.finding(
            FindingKind.TELEMETRY_MISSING,
            Severity.NOTE,
            f"some of the server's metrics could not be read{why}: counts over the cell may lack "
            "its end.",
        )


def configuration(facts: CellFacts) -> Iterator[Finding]:
    """Whether the server speculates if, and only if, the arm asks for it."""
    if facts.effective is None or "algorithm" not in dict(facts.effective.speculative):
        return
    algorithm = speculative_setting(facts.effective, "algorithm")
    if bool(algorithm) != facts.cell.arm_is_speculative:
        asked = "speculation" if facts.cell.arm_is_speculative else "no speculation"
        yield facts.finding(
            FindingKind.CONFIG_NOT_AS_ASKED,
            Severity.INVALID,
            f"the arm asks for {asked}, the server's speculative algorithm is "
            f"{algorithm or 'none'}.",
        )


def restarted(facts: CellFacts) -> Iterator[Finding]:
    """Counters only grow while a server lives."""
    fell = went_backwards(facts.series, COUNTERS)
    if fell:
        yield facts.finding(
            FindingKind.SERVER_RESTARTED,
            Severity.INVALID,
            f"counters went backwards during the cell: {', '.join(fell)}.",
        )


def queued(facts: CellFacts) -> Iterator[Finding]:
    """Requests waiting in the server; in an open loop that is the load's doing, and a note."""
    load, busy = facts.cell.load, facts.measurement.window_busy_slots_mean
    if not isinstance(facts.window, Window):
        return
    waiting = gauge_mean(facts.series, "sglang:num_queue_reqs", facts.window)
    reference = load.concurrency if load.kind == "closed" else busy
    if waiting is not None and reference and waiting > QUEUED_SHARE * reference:
        yield facts.finding(
            FindingKind.SERVER_QUEUED,
            Severity.SUSPECT if load.kind == "closed" else Severity.NOTE,
            f"{waiting:.1f} requests waited in the server's queue on average, of {reference:.1f} "
            "in flight.",
        )


def memory_pressure(facts: CellFacts) -> Iterator[Finding]:
    """Retractions, by the requests' own counts and the server's counter, and a full KV cache."""
    told = sum(s.num_retractions or 0 for s in facts.samples)
    span = cell_span_ns(facts.samples)
    counted = (
        counter_delta(facts.series, "sglang:num_retracted_requests_total", *span) if span else None
    )
    retractions = max(told, round(counted or 0))
    if retractions:
        yield facts.finding(
            FindingKind.SERVER_RETRACTED,
            Severity.SUSPECT,
            f"the server threw requests out of the batch {retractions} times.",
        )
    if not isinstance(facts.window, Window):
        return
    usage = gauge_max(facts.series, "sglang:token_usage", facts.window)
    if usage is not None and usage > TOKEN_USAGE_FULL:
        yield facts.finding(
            FindingKind.KV_FULL,
            Severity.SUSPECT,
            f"the KV cache was {usage:.0%} full at its fullest.",
        )


def cuda_graphs(facts: CellFacts) -> Iterator[Finding]:
    """Whether decoding replays CUDA graphs, by the passes counted, else by captured sizes."""
    if facts.gpus < 1:
        return
    sizes = facts.effective.decode_graph_batch_sizes if facts.effective else None
    batch = _batch_per_rank(facts)
    span = cell_span_ns(facts.samples)
    without = with_graph = None
    if span:
        name = "sglang:cuda_graph_passes_total{mode=%s}"
        without = counter_delta(facts.series, name % "decode_none", *span)
        with_graph = counter_delta(facts.series, name % "decode_cuda_graph", *span)
    passes = (without or 0) + (with_graph or 0)
    if without and without > NO_GRAPH_SHARE * passes:
        yield facts.finding(
            FindingKind.NO_CUDA_GRAPH,
            Severity.SUSPECT,
            f"{without / passes:.0%} of decode passes ran without a CUDA graph.",
        )
    elif without is None and sizes and batch is not None and batch > max(sizes):
        yield facts.finding(
            FindingKind.NO_CUDA_GRAPH,
            Severity.SUSPECT,
            f"batches of {batch} are beyond the captured CUDA graphs (up to {max(sizes)}).",
        )


def _batch_per_rank(facts: CellFacts) -> int | None:
    concurrency = facts.cell.load.concurrency
    if concurrency is None:
        return None
    resolved = dict(facts.effective.other) if facts.effective else {}
    # Replicas and, since SGLang 0.5.23, attention ranks by a name of their own.
    sizes = [resolved.get(name, "1") for name in ("dp_size", "attn_dp_size")]
    ranks = max(int(size) if size.isdigit() else 1 for size in sizes)
    return math.ceil(concurrency / max(1, ranks))


def throttled(facts: CellFacts) -> Iterator[Finding]:
    """NVML's clock event reasons inside the window."""
    if not isinstance(facts.window, Window):
        return
    parts = [
        readings.between(facts.window.start_ns, facts.window.end_ns)
        for readings in facts.series.ranks("throttle_reasons").values()
    ]
    reasons = np.concatenate(parts).astype(np.int64) if parts else np.array([], dtype=np.int64)
    if not reasons.size:
        return
    slowed = float(np.mean((reasons & THROTTLE_BITS) != 0))
    capped = float(np.mean((reasons & POWER_CAP_BIT) != 0))
    if slowed > THROTTLED_SHARE:
        yield facts.finding(
            FindingKind.THROTTLED,
            Severity.SUSPECT,
            f"GPUs were slowed for heat or by hardware in {slowed:.0%} of readings.",
        )
    elif capped > POWER_CAP_SHARE:
        yield facts.finding(
            FindingKind.THROTTLED,
            Severity.NOTE,
            f"GPUs were at their power cap in {capped:.0%} of readings.",
        )


def cache_as_stated(facts: CellFacts) -> Iterator[Finding]:
    """The prefix cache's hits against the workload's `cache`."""
    use = cache_use(facts.ok, facts.samples, facts.series)
    ratio = use.hit_ratio if use else None
    if use is None or ratio is None:
        return
    workload = facts.cell.workload
    beyond_head = max(0.0, use.cached_tok - TEMPLATE_HEAD_TOK * use.requests)
    as_stated = {
        "cold": beyond_head <= CACHE_COLD_SHARE * use.prompt_tok,
        "primed": ratio >= CACHE_PRIMED_SHARE,
        "shared-prefix": abs(ratio - workload.shared_prefix_share) <= CACHE_SHARED_TOLERANCE,
    }[workload.cache]
    if not as_stated:
        share = (
            f" of {workload.shared_prefix_share:.0%}" if workload.cache == "shared-prefix" else ""
        )
        yield facts.finding(
            FindingKind.CACHE_NOT_AS_STATED,
            Severity.SUSPECT,
            f"{ratio:.0%} of prompt tokens came from the prefix cache, the workload states "
            f"`{workload.cache}`{share}.",
        )


def simulation_late(facts: CellFacts) -> Iterator[Finding]:
    """Whether the simulated server kept to its own time."""
    if not facts.simulated or not isinstance(facts.window, Window):
        return
    first_ns, last_ns = facts.window.start_ns, facts.window.end_ns
    late_s = counter_delta(facts.series, LATE_COUNTER, first_ns, last_ns)
    share = (late_s or 0.0) / facts.window.length_s
    if share > LATE_SHARE:
        yield facts.finding(
            FindingKind.SIMULATION_LATE,
            Severity.INVALID if share > LATE_SHARE_HOPELESS else Severity.SUSPECT,
            f"the simulated server served {late_s:.1f} s of its time late, {share:.0%} of the "
            "window: this machine did not give it the processor it needs.",
        )


def simulated(facts: CellFacts) -> Iterator[Finding]:
    """A simulator's figures, wherever they appear, and how fast its clock ran."""
    if facts.simulated:
        yield facts.finding(
            FindingKind.SIMULATED,
            Severity.NOTE,
            "the server is a simulator; nothing here was measured on hardware.",
        )
