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
        for axes, judged in zip(panels, shown, strict=True):
            _panel(axes, judged, numbers.get(judged.key.arm, 1))
            for night, _ in marks[-MOST_MARKS:]:
                axes.axvline(night, color=GRID, linewidth=1.0, linestyle=(0, (1, 1.5)), zorder=1)
        top = panels[0]
        for night, mark in marks[-MOST_MARKS:]:
            top.annotate(
                mark,
                (night, 1.0),
                xycoords=("data", "axes fraction"),
                xytext=(0, 1),
                textcoords="offset points",
                fontsize=7.5,
                color=MUTED,
                ha="center",
            )
        figure.autofmt_xdate(rotation=0, ha="center")
    return figure


def _panel(axes: Axes, judged: SeriesJudgement, number: int) -> None:
    style, gid = series_style(number), f"series-{number}"
    nights = [p.night for p in judged.points]
    values = [p.value for p in judged.points]
    odd = {i.index + k for i in judged.incidents for k in range(i.nights)}
    groups = (
        ([n for n in range(len(values)) if n not in odd and not judged.points[n].suspect], True),
        ([n for n in range(len(values)) if n not in odd and judged.points[n].suspect], False),
    )
    for places, filled in groups:
        if places:
            (dots,) = axes.plot(
                [nights[n] for n in places],  # type: ignore[arg-type]  # dates are a unit matplotlib knows
                [values[n] for n in places],
                linestyle="none",
                marker="o",
                markersize=2.6,
                color=style.colour,
                fillstyle="full" if filled else "none",
                zorder=3,
            )
            dots.set_gid(gid)
    if odd:
        axes.plot(
            [nights[n] for n in sorted(odd)],  # type: ignore[arg-type]  # likewise
            [values[n] for n in sorted(odd)],
            linestyle="none",
            marker="x",
            markersize=5,
            color=WARN,
            zorder=4,
        )
    for level in judged.levels:
        ends = [nights[level.start], nights[level.stop - 1]]
        line = [level.value_at_start, level.value]
        axes.plot(ends, line, color=INK, linewidth=1.4, zorder=5)  # type: ignore[arg-type]  # likewise
        if level.value == level.value_at_start:
            band = (level.ci95_low, level.ci95_high)
            axes.fill_between(ends, *band, color=MUTED, alpha=0.2, linewidth=0, zorder=2)  # type: ignore[arg-type]  # likewise
    for change in judged.changes:
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
