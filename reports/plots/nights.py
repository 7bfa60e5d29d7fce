"""Nightly series of one place below one another: points, levels, changes, what was changed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bench.metrics.watched import metric_of
from bench.model.nightly import SeriesState
from reports.plots.style import (
    BAD,
    GOOD,
    GRID,
    INK,
    MUTED,
    WARN,
    drawing,
    new_figure,
    series_style,
    short,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import date

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from bench.model.nightly import SeriesJudgement

MOST_PANELS = 12
MOST_NIGHTS = 400
MOST_MARKS = 40  # environment changes drawn; more would hide the points


def draw_nights(
    series: Sequence[SeriesJudgement],
    numbers: Mapping[str, int],
    marks: Sequence[tuple[date, str]],
    *,
    simulated: bool,
) -> Figure | None:
    """A panel a series, all over the same nights.

    Args:
        series: Of one scenario, workload and load.
        numbers: Series number by arm.
        marks: (night, mark) of each change of the environment.
        simulated: Whether simulated servers were measured.
    """
    shown = list(series)[:MOST_PANELS]
    if not shown:
        return None
    with drawing():
        figure = new_figure(9.6, 0.7 + 1.35 * len(shown), simulated=simulated)
        panels = figure.subplots(len(shown), 1, sharex=True, squeeze=False)[:, 0]
        since = min(j.points[-MOST_NIGHTS:][0].night for j in shown)
        marks = [mark for mark in marks if mark[0] >= since][-MOST_MARKS:]
        for axes, judged in zip(panels, shown, strict=True):
            _panel(axes, judged, numbers.get(judged.key.arm, 1))
            for night, _ in marks:
                axes.axvline(night, color=GRID, linewidth=1.0, linestyle=(0, (1, 1.5)), zorder=1)
        top = panels[0]
        for night, mark in marks:
            top.annotate(
                mark,
                (night, 1.0),
                xycoords=("data", "axes fraction"),
                xytext=(2, -1),
                textcoords="offset points",
                fontsize=7.5,
                color=MUTED,
                ha="left",
                va="top",
            )
        figure.autofmt_xdate(rotation=0, ha="center")
    return figure


def _panel(axes: Axes, judged: SeriesJudgement, number: int) -> None:
    style, gid = series_style(number), f"series-{number}"
    begin = max(len(judged.points) - MOST_NIGHTS, 0)
    nights = [p.night for p in judged.points]
    values = [p.value for p in judged.points]
    odd = {i.index + k for i in judged.incidents for k in range(i.nights)}
    shown = [n for n in range(begin, len(values)) if n not in odd]
    plain = [n for n in shown if not judged.points[n].suspect]
    _dots(axes, [nights[n] for n in plain], [values[n] for n in plain], style.colour, gid)
    for places, marker, colour in (
        ([n for n in shown if judged.points[n].suspect], "o", style.colour),
        ([n for n in sorted(odd) if n >= begin], "x", WARN),
    ):
        if places:
            (marks,) = axes.plot(
                [nights[n] for n in places],  # type: ignore[arg-type]  # dates are a unit matplotlib knows
                [values[n] for n in places],
                linestyle="none",
                marker=marker,
                markersize=4,
                color=colour,
                fillstyle="none",
                zorder=4,
            )
            marks.set_gid(gid)
    for level in judged.levels:
        if level.stop <= begin:
            continue
        ends = [nights[max(level.start, begin)], nights[level.stop - 1]]
        line = [level.value_at_start, level.value]
        axes.plot(ends, line, color=INK, linewidth=1.4, zorder=5)  # type: ignore[arg-type]  # likewise
        if level.value == level.value_at_start:
            band = (level.ci95_low, level.ci95_high)
            axes.fill_between(ends, *band, color=MUTED, alpha=0.2, linewidth=0, zorder=2)  # type: ignore[arg-type]  # likewise
    for change in judged.changes:
        if change.index < begin:
            continue
        colour = MUTED if change.ack else BAD if change.worse else GOOD
        axes.axvline(change.night, color=colour, linewidth=1.2, zorder=2)  # type: ignore[arg-type]  # likewise
    metric = metric_of(judged.key.metric)
    bad = judged.state in {SeriesState.REGRESSION, SeriesState.DRIFT}
    axes.set_title(
        f"{short(judged.key.arm)}: {metric.label} ({judged.state.value})",
        fontsize=9,
        color=BAD if bad else INK,
    )
    axes.margins(x=0.01, y=0.15)


def _dots(
    axes: Axes, nights: Sequence[date], values: Sequence[float], colour: str, gid: str
) -> None:
    """Points as one path of strokes without length and with round ends: a mark each is large."""
    from matplotlib.dates import date2num  # noqa: PLC0415  # loads only when a page is made
    from matplotlib.patches import PathPatch  # noqa: PLC0415
    from matplotlib.path import Path  # noqa: PLC0415

    if not nights:
        return
    at = list(zip(date2num(list(nights)), values, strict=True))  # type: ignore[no-untyped-call]  # its stubs lack it
    ends = [end for point in at for end in (point, point)]
    path = Path(ends, [Path.MOVETO, Path.LINETO] * len(at))
    path.should_simplify = False
    patch = PathPatch(
        path, fill=False, edgecolor=colour, linewidth=2.6, capstyle="round", zorder=3
    )
    patch.set_gid(gid)
    axes.add_patch(patch)
    axes.xaxis_date()
    axes.autoscale_view()
