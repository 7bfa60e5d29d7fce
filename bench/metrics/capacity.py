"""The highest rate of arrivals that met the limits, from the probes of a capacity search."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench.metrics.series import Series

PROBE_RATE: Final = "probe_rate_per_s"
"""Client telemetry: a probe's rate, dated by its first due time."""
PROBE_MET: Final = "probe_met"
"""Client telemetry: 1 or 0, whether the probe met the limits, dated by its last response."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """One rate that was tried.

    Attributes:
        rate_per_s: Mean arrivals a second.
        met: Whether the limits were met (`bench.metrics.throughput.meets_limits`).
        began_ns: Its first due time.
        ended_ns: Its last response.
    """

    rate_per_s: float
    met: bool
    began_ns: int
    ended_ns: int


def probes(series: Series) -> list[Probe]:
    """The probes of a cell in the order they were made, from the client's own telemetry."""
    began, ended = series.ranks(PROBE_RATE).get(None), series.ranks(PROBE_MET).get(None)
    if began is None or ended is None:
        return []
    return [
        Probe(rate_per_s=float(rate), met=bool(met), began_ns=int(first), ended_ns=int(last))
        for first, rate, last, met in zip(
            began.t_ns, began.value, ended.t_ns, ended.value, strict=True
        )
    ]


def carried_rate(tried: Sequence[tuple[float, bool]]) -> float | None:
    """The highest rate that was carried below every one that was not; None when there is none.

    Args:
        tried: (rate a second, whether it met the limits) of each probe, in any order.
    """
    refused = min((rate for rate, met in tried if not met), default=math.inf)
    return max((rate for rate, met in tried if met and rate < refused), default=None)


def judged_probe(tried: Sequence[Probe]) -> Probe | None:
    """The probe whose numbers are the cell's: of the carried rate, else of the first; or none."""
    rate = carried_rate([(probe.rate_per_s, probe.met) for probe in tried])
    return next((p for p in tried if rate is None or p.rate_per_s == rate), None)
