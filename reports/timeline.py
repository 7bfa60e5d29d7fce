"""A run's telemetry and acceptance as series on one time axis, thinned for a figure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from bench.metrics.checks_server import THROTTLE_BITS
from reports.samples import check_columns, whole

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    from bench.store import StoredRun

MOST_POINTS = 400  # of one series of one launch
_ACCEPT_BINS = 40  # of one launch

_GPU_ROWS = (
    ("power_w", "power, W\n(all GPUs)", "sum"),
    ("sm_clock_mhz", "SM clock, MHz\n(slowest)", "min"),
    ("temperature_c", "temperature, °C\n(hottest)", "max"),
    ("throttle_reasons", "GPUs throttled", "count"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """One line of a panel: one launch's.

    Attributes:
        arm: Whose launch.
        t_s: Seconds since the first cell began, shape (points,).
        value: In the row's unit, shape (points,).
        second: Whether it is the panel's second quantity (drawn dashed).
    """

    arm: str
    t_s: NDArray[np.float64]
    value: NDArray[np.float64]
    second: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One panel.

    Attributes:
        label: What its axis says.
        series: Its lines.
        from_zero: Whether the axis starts at 0.
    """

    label: str
    series: tuple[Series, ...]
    from_zero: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class CellSpan:
    """When a cell was measured; seconds since the first cell began."""

    arm: str
    launch_start_s: float
    start_s: float
    end_s: float


def cell_spans(stored: StoredRun) -> tuple[CellSpan, ...]:
    """The windows of the cells in time order; cells without one are left out."""
    origin = _origin_ns(stored)
    if origin is None:
        return ()
    first: dict[str, int] = {}
    windows = [
        (m, m.window_start_ns, m.window_end_ns)
        for m in stored.measurements
        if m.window_start_ns is not None and m.window_end_ns is not None
    ]
    for m, start, _ in windows:
        first[m.launch_id] = min(first.get(m.launch_id, start), start)
    spans = [
        CellSpan(
            arm=m.arm,
            launch_start_s=(first[m.launch_id] - origin) / 1e9,
            start_s=(start - origin) / 1e9,
            end_s=(end - origin) / 1e9,
        )
        for m, start, end in windows
    ]
    return tuple(sorted(spans, key=lambda span: span.start_s))


def timeline_rows(
    stored: StoredRun, acceptance: Mapping[str, NDArray[np.int64]]
) -> tuple[Row, ...]:
    """The panels that have points, from top to bottom.

    Args:
        stored: The run.
        acceptance: By launch, from `reports.samples.request_views`.
    """
    origin = _origin_ns(stored)
    if origin is None:
        return ()
    arms = {m.launch_id: m.arm for m in stored.measurements}
    readings = _readings(stored)

    def gauge(name: str, combine: str = "sum", *, second: bool = False) -> list[Series]:
        return [
            Series(arm=arms[launch], t_s=t, value=v, second=second)
            for (launch, reading), (t_ns, rank, value) in readings.items()
            if reading == name and launch in arms
            for t, v in [_combined(t_ns - origin, rank, value, combine)]
            if len(t)
        ]

    rows = [
        Row(label="tok/s\n(server's gauge)", series=tuple(gauge("sglang:gen_throughput"))),
        Row(
            label="accept length\n(requests ended)",
            series=tuple(_accept_series(acceptance, arms, origin)),
            from_zero=False,
        ),
        Row(
            label="requests running\n(dashed: queued)",
            series=(
                *gauge("sglang:num_running_reqs"),
                *gauge("sglang:num_queue_reqs", second=True),
            ),
        ),
        *(
            Row(label=label, series=tuple(gauge(name, combine)), from_zero=combine == "count")
            for name, label, combine in _GPU_ROWS
        ),
    ]
    return tuple(row for row in rows if any(len(series.t_s) for series in row.series))


def has_gpu_readings(stored: StoredRun) -> bool:
    """Whether a GPU told its power at any time."""
    return any(name == "power_w" for _, name in _readings(stored))


def _origin_ns(stored: StoredRun) -> int | None:
    starts = [m.window_start_ns for m in stored.measurements if m.window_start_ns is not None]
    return min(starts) if starts else None


def _readings(
    stored: StoredRun,
) -> dict[tuple[str, str], tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]]:
    """(times in ns, rank or -1, values) by (launch, name); readings without a value left out."""
    import pyarrow.compute as pc  # noqa: PLC0415  # loads only when a page is made
    import pyarrow.parquet as pq  # noqa: PLC0415

    file = stored.folder / "telemetry.parquet"
    if not file.is_file():
        return {}
    wanted = [
        "sglang:gen_throughput",
        "sglang:num_running_reqs",
        "sglang:num_queue_reqs",
        *(name for name, _, _ in _GPU_ROWS),
    ]
    columns = ["launch_id", "t_ns", "name", "rank", "value"]
    with whole(file):
        check_columns(file, pq.read_schema(file).names, columns)
        table: Any = pq.read_table(
            file,
            columns=columns,
            filters=pc.field("name").isin(wanted) & pc.field("value").is_valid(),
        )
    frame = table.to_pandas()
    return {
        key: (
            group["t_ns"].to_numpy(dtype=np.int64),
            group["rank"].fillna(-1).to_numpy(dtype=np.int64),
            group["value"].to_numpy(dtype=np.float64),
        )
        for key, group in frame.groupby(["launch_id", "name"], sort=False)
    }


_COMBINE: dict[str, Callable[[NDArray[np.float64]], float]] = {
    "sum": lambda v: float(v.sum()),
    "min": lambda v: float(v.min()),
    "max": lambda v: float(v.max()),
    "count": lambda v: float(((v.astype(np.int64) & THROTTLE_BITS) != 0).sum()),
}


def _combined(
    t_ns: NDArray[np.int64],
    rank: NDArray[np.int64],
    value: NDArray[np.float64],
    combine: str,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Readings of all ranks made one series of at most `MOST_POINTS` points.

    Within a bin each rank's readings are averaged before ranks are combined, so that a rank that
    was read more often does not count more.
    """
    if not len(t_ns):
        return np.zeros(0), np.zeros(0)
    low, high = int(t_ns.min()), int(t_ns.max())
    per_rank = len(t_ns) / len(np.unique(rank))
    bins = max(1, min(MOST_POINTS, int(per_rank)))
    at = np.minimum((t_ns - low) * bins // max(1, high - low), bins - 1)
    points: dict[int, dict[int, list[float]]] = {}
    for where, which, reading in zip(at.tolist(), rank.tolist(), value.tolist(), strict=True):
        points.setdefault(where, {}).setdefault(which, []).append(reading)
    ordered = sorted(points)
    times = low + (np.array(ordered) + 0.5) * (high - low) / bins
    values = [
        _COMBINE[combine](np.array([np.mean(r) for r in points[where].values()]))
        for where in ordered
    ]
    return times / 1e9, np.array(values)


def _accept_series(
    acceptance: Mapping[str, NDArray[np.int64]], arms: Mapping[str, str], origin: int
) -> list[Series]:
    """Accept length of the requests that ended in each bin of a launch: a ratio of sums."""
    series = []
    for launch, rows in acceptance.items():
        if launch not in arms or not len(rows):
            continue
        t = rows[:, 0]
        low, high = int(t.min()), int(t.max())
        bins = max(1, min(_ACCEPT_BINS, len(rows) // 3))
        at = np.minimum((t - low) * bins // max(1, high - low), bins - 1)
        correct = np.bincount(at, weights=rows[:, 1], minlength=bins)
        verify = np.bincount(at, weights=rows[:, 2], minlength=bins)
        some = verify > 0
        times = (low - origin + (np.arange(bins) + 0.5) * (high - low) / bins) / 1e9
        series.append(
            Series(arm=arms[launch], t_s=times[some], value=1 + correct[some] / verify[some])
        )
    return series
