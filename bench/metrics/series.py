"""Telemetry as arrays: gauges in a window and counters around a cell, over every rank."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from bench.sglang.metric_meanings import may_be_averaged

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    import numpy.typing as npt

    from bench.metrics.window import Window
    from bench.model import TelemetryPoint


@dataclass(frozen=True, slots=True, kw_only=True)
class Readings:
    """The readings of one rank (or GPU) of one series, sorted by time; shapes (readings,)."""

    t_ns: npt.NDArray[np.int64]
    value: npt.NDArray[np.float64]

    def between(self, start_ns: int, end_ns: int) -> npt.NDArray[np.float64]:
        """The values read from `start_ns` to `end_ns`, both included."""
        return self.value[(self.t_ns >= start_ns) & (self.t_ns <= end_ns)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """All telemetry of a cell by metric name and rank.

    Attributes:
        by_name: Metric name to rank (None where there is just one) to its readings; readings
            without a value are left out.
        scraped_ns: Moments of the server's scrapes, sorted.
    """

    by_name: Mapping[str, Mapping[int | None, Readings]]
    scraped_ns: tuple[int, ...]

    def ranks(self, name: str) -> Mapping[int | None, Readings]:
        """The readings of a series by rank; empty when it was never read."""
        return self.by_name.get(name, {})


def group_series(points: Iterable[TelemetryPoint]) -> Series:
    """Group telemetry; label sets of one name and rank in one scrape are added up."""
    sums: dict[str, dict[int | None, dict[int, float]]] = defaultdict(
        lambda: defaultdict(lambda: defaultdict(float))
    )
    scraped_ns: set[int] = set()
    for point in points:
        if point.source == "server":
            scraped_ns.add(point.t_ns)
        if point.value is not None:
            sums[point.name][point.rank][point.t_ns] += point.value
    return Series(
        by_name={
            name: {rank: _readings(values) for rank, values in ranks.items()}
            for name, ranks in sums.items()
        },
        scraped_ns=tuple(sorted(scraped_ns)),
    )


def gauge_mean(series: Series, name: str, window: Window) -> float | None:
    """Mean of a gauge over the window, added up over ranks; None when a rank was not read.

    Raises:
        ValueError: It is no gauge of how things stand: a counter, or a figure of the last log
            interval, whose readings have no mean that means something.
    """
    if not may_be_averaged(name):
        raise ValueError(f"{name} is no state: its readings must not be averaged")
    parts = [r.between(window.start_ns, window.end_ns) for r in series.ranks(name).values()]
    if not parts or not all(part.size for part in parts):
        return None
    return float(sum(part.mean() for part in parts))


def gauge_max(series: Series, name: str, window: Window) -> float | None:
    """Highest reading of a gauge in the window, on any rank; None when there is none."""
    parts = [r.between(window.start_ns, window.end_ns) for r in series.ranks(name).values()]
    return max((float(part.max()) for part in parts if part.size), default=None)


def counter_delta(series: Series, name: str, first_ns: int, last_ns: int) -> float | None:
    """How much a counter grew around [first_ns, last_ns], added up over ranks.

    Taken from the last scrape at or before `first_ns` to the last one of all, which must not be
    before `last_ns`. A counter that a scrape does not list yet is 0 there, as Prometheus counters
    with labels are until they first count.

    Returns:
        None when the counter was never read, when scrapes do not enclose the span, or when it went
        backwards.
    """
    ranks = series.ranks(name)
    if not ranks or not series.scraped_ns or series.scraped_ns[0] > first_ns:
        return None
    total = 0.0
    for readings in ranks.values():
        if readings.t_ns[-1] < last_ns:
            return None
        before = readings.value[readings.t_ns <= first_ns]
        delta = float(readings.value[-1]) - (float(before[-1]) if before.size else 0.0)
        if delta < 0:
            return None
        total += delta
    return total


def went_backwards(series: Series, names: Iterable[str]) -> tuple[str, ...]:
    """Those of the named counters that fell between readings: their server started anew."""
    return tuple(
        name
        for name in names
        if any(np.any(np.diff(r.value) < 0) for r in series.ranks(name).values())
    )


def _readings(values: Mapping[int, float]) -> Readings:
    times = sorted(values)
    return Readings(
        t_ns=np.array(times, dtype=np.int64),
        value=np.array([values[t] for t in times], dtype=np.float64),
    )
