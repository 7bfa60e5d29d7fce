"""The figure of two runs: after / before of every arm at every place, with intervals."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reports.plots.style import INK, drawing, new_figure, series_style, short

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from matplotlib.figure import Figure

    from bench.metrics.between_runs import Change

MOST_ROWS = 40


def draw_changes(
    changes: Sequence[Change], numbers: Mapping[str, int], *, simulated: bool
) -> Figure | None:
    """A row a cell; right of the line it became faster.

    Args:
        changes: From `reports.compare_page.changes_of`.
        numbers: Series number by arm.
        simulated: Whether simulated servers were measured.
    """
    rows = [c for c in changes if c.ratio is not None][:MOST_ROWS]
    if not rows:
        return None
    with drawing():
        figure = new_figure(7.2, 1.0 + 0.26 * len(rows), simulated=simulated)
        axes = figure.add_subplot()
        axes.axvline(1.0, color=INK, linewidth=1.0)
        for y, c in enumerate(rows):
            style, gid = series_style(numbers[c.arm]), f"series-{numbers[c.arm]}"
            if c.ci95_low is not None and c.ci95_high is not None:
                bar = axes.hlines(y, c.ci95_low, c.ci95_high, color=style.colour, linewidth=1.8)
                bar.set_gid(gid)
            (mark,) = axes.plot([c.ratio or 1.0], [y], color=style.colour, marker=style.marker)
            mark.set_gid(gid)
        several = len({c.workload for c in rows}) > 1
        names = [
            " · ".join(filter(None, (short(c.arm), short(c.workload) if several else "", c.load)))
            for c in rows
        ]
        axes.set_yticks(range(len(rows)), names)
        axes.invert_yaxis()
        axes.margins(x=0.15)
        axes.set_xlabel("output tok/s, after / before")
    return figure
