"""GPUs that spin: busy by their own account, cold, and nothing comes of it.

A collective (NCCL) whose ranks wait for one another forever keeps every GPU at full utilisation,
for waiting is a loop on the GPU. Power tells it from work, at about a quarter of the limit; memory
stands still. Seen with peer-to-peer access across an IOMMU or ACS, and with a rank that died.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from bench.model import FindingKind, Severity

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from bench.metrics.facts import CellFacts
    from bench.metrics.series import Series
    from bench.model import Finding

LEAST_S: Final = 30.0
"""A shorter silence may be a long prefill or a slow disk."""

COVERED_SHARE: Final = 0.9
"""Readings over less of a silence say nothing of the rest of it."""

BUSY_PCT: Final = 99.0
BUSY_SHARE: Final = 0.95  # of readings: sampling may catch one between two kernels
COLD_SHARE: Final = 0.35  # of the power limit
STILL_BYTES: Final = 64 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuSpan:
    """One GPU's readings over a span of time.

    Attributes:
        utilisation_pct: Readings that have a value.
        power_w: The same.
        memory_bytes: Held memory, the same; empty where the GPU does not tell.
        power_limit_w: In force; None where the GPU does not tell.
    """

    utilisation_pct: Sequence[float]
    power_w: Sequence[float]
    memory_bytes: Sequence[float]
    power_limit_w: float | None


def is_spin_hang(gpus: Sequence[GpuSpan], *, silent_s: float) -> bool:
    """Whether a server's GPUs spin in a collective that will never end.

    No GPU works, and most are busy: a rank that hangs on the CPU leaves its own GPU idle while
    the others wait for it.

    Args:
        gpus: Each of its GPUs over the time in which nothing came of them.
        silent_s: How long that was: no log line while it starts, no token while it serves.

    Returns:
        False as well where a GPU tells too little.
    """
    if silent_s < LEAST_S or not gpus or not all(_is_cold(gpu) for gpu in gpus):
        return False
    return 2 * sum(_is_busy(gpu) for gpu in gpus) > len(gpus)


def _is_cold(gpu: GpuSpan) -> bool:
    """Drawing little power, its memory standing still."""
    if not gpu.power_w or gpu.power_limit_w is None:
        return False
    still = not gpu.memory_bytes or max(gpu.memory_bytes) - min(gpu.memory_bytes) <= STILL_BYTES
    return still and max(gpu.power_w) < COLD_SHARE * gpu.power_limit_w


def _is_busy(gpu: GpuSpan) -> bool:
    readings = gpu.utilisation_pct
    return bool(readings) and sum(u >= BUSY_PCT for u in readings) >= BUSY_SHARE * len(readings)


def gpu_spans(series: Series, start_ns: int, end_ns: int) -> list[GpuSpan]:
    """The readings of each GPU over a span of time; none where they cover too little of it."""

    def inside(name: str, gpu: int | None) -> list[float]:
        readings = series.ranks(name).get(gpu)
        if readings is None:
            return []
        at_ns = readings.t_ns[(readings.t_ns >= start_ns) & (readings.t_ns <= end_ns)]
        if not at_ns.size or at_ns[-1] - at_ns[0] < COVERED_SHARE * (end_ns - start_ns):
            return []
        return [float(value) for value in readings.between(start_ns, end_ns)]

    return [
        GpuSpan(
            utilisation_pct=inside("utilisation_pct", gpu),
            power_w=inside("power_w", gpu),
            memory_bytes=inside("memory_used_bytes", gpu),
            power_limit_w=max(inside("power_limit_w", gpu), default=None),
        )
        for gpu in series.ranks("utilisation_pct")
    ]


def spinning(facts: CellFacts) -> Iterator[Finding]:
    """The longest time without a token while requests waited for one, if the GPUs spun in it."""
    start_ns, end_ns = _longest_silence_ns(facts)
    silent_s = (end_ns - start_ns) / 1e9
    if silent_s < LEAST_S:
        return

    if is_spin_hang(gpu_spans(facts.series, start_ns, end_ns), silent_s=silent_s):
        yield facts.finding(
            FindingKind.GPU_SPIN_HANG,
            Severity.INVALID,
            f"the GPUs spun for {silent_s:.0f} s: full utilisation, under {COLD_SHARE:.0%} of "
            "their power limit, and no token.",
        )


def _longest_silence_ns(facts: CellFacts) -> tuple[int, int]:
    """The longest stretch between tokens of any request while one was in flight."""
    sent = [s for s in facts.samples if s.sent_ns is not None]
    if not sent:
        return 0, 0
    edges = np.array([(s.sent_ns, s.ended_ns) for s in sent], dtype=np.int64)
    events = [np.asarray(s.event_ns, dtype=np.int64) for s in sent]
    at = np.unique(np.concatenate([edges.ravel(), *events]))
    gaps = np.diff(at)
    waited = [
        i
        for i in np.flatnonzero(gaps >= LEAST_S * 1e9)
        if np.any((edges[:, 0] <= at[i]) & (at[i] < edges[:, 1]))
    ]
    longest = max(waited, key=lambda i: gaps[i], default=None)
    return (0, 0) if longest is None else (int(at[longest]), int(at[longest + 1]))
