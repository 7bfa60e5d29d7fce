"""The timeline: what server, GPUs and acceptance did, on one time axis with the cells marked."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from reports.plots.style import GRID, MUTED, drawing, new_figure, series_style, short

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from reports.timeline import CellSpan, Row

_MOST_NAMES = 14


def draw_timeline(
    rows: Sequence[Row],
    spans: Sequence[CellSpan],
    numbers: Mapping[str, int],
    *,
    simulated: bool,
) -> Figure | None:
    """Small panels one above the other: tok/s, accept length, requests, power, clocks, heat.

    Args:
        rows: From `reports.timeline.timeline_rows`; those without points are left out before.
        spans: The cells, in time order.
        numbers: Series number by arm.
        simulated: Whether simulated servers were measured.
    """
    if not rows or not spans:
        return None
    with drawing():
        figure = new_figure(10.5, 0.7 + 1.25 * len(rows), simulated=simulated)
        axes_of = figure.subplots(len(rows), 1, sharex=True, squeeze=False)[:, 0]
        for axes, row in zip(axes_of, rows, strict=True):
            _mark_cells(axes, spans)
            for series in row.series:
                style = series_style(numbers[series.arm])
                (line,) = axes.plot(
                    series.t_s,
                    series.value,
                    color=style.colour,
                    linewidth=1.1,
                    linestyle=(0, (2, 1)) if series.second else "-",
                )
                line.set_gid(f"series-{numbers[series.arm]}")
            axes.set_ylabel(row.label, fontsize=8.5)
            if row.from_zero:
                axes.set_ylim(bottom=0)
        _name_cells(axes_of[0], spans)
        axes_of[-1].set_xlabel("seconds since the first cell began")
        figure.align_ylabels(list(axes_of))
    return figure


def _mark_cells(axes: Axes, spans: Sequence[CellSpan]) -> None:
    for number, span in enumerate(spans):
        if number % 2 == 0:
            axes.axvspan(span.start_s, span.end_s, color=GRID, alpha=0.45, linewidth=0)
    launches = np.unique([span.launch_start_s for span in spans])
    for start in launches[1:]:
        axes.axvline(float(start), color=MUTED, linewidth=0.8, linestyle=(0, (2, 2)))


def _name_cells(axes: Axes, spans: Sequence[CellSpan]) -> None:
    """The launches' arms above the panels, as long as there is room."""
    firsts = {span.launch_start_s: span for span in reversed(spans)}
    if len(firsts) > _MOST_NAMES:
        return
    for start, span in firsts.items():
        axes.annotate(
            short(span.arm, 18),
            (start, 1.0),
            xycoords=("data", "axes fraction"),
            xytext=(2, 3),
            textcoords="offset points",
            fontsize=7.5,
            color=MUTED,
        )
