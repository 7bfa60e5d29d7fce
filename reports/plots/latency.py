"""Latency figures: how TTFT, TPOT and the gaps between events are distributed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reports.plots.style import drawing, new_figure, series_style
from reports.samples import QUANTILES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from numpy.typing import NDArray

    from reports.samples import Latencies

_KINDS = (("ttft_ms", "TTFT, ms"), ("tpot_ms", "TPOT, ms"), ("chunk_gap_ms", "chunk gap, ms"))


def draw_latencies(
    latencies: Mapping[str, Latencies], numbers: Mapping[str, int], *, simulated: bool
) -> Figure | None:
    """Cumulative distributions at one place: share of requests (of gaps) up to so many ms.

    Args:
        latencies: By arm.
        numbers: Series number by arm.
        simulated: Whether simulated servers were measured.
    """
    kinds = [
        (name, label)
        for name, label in _KINDS
        if any(getattr(latency, name) is not None for latency in latencies.values())
    ]
    if not kinds:
        return None
    with drawing():
        figure = new_figure(8.2, 2.7, simulated=simulated)
        for place, (name, label) in enumerate(kinds, start=1):
            axes = figure.add_subplot(1, len(kinds), place)
            top = 0.0
            for arm, latency in latencies.items():
                values: NDArray | None = getattr(latency, name)  # type: ignore[type-arg]  # of float64
                if values is not None:
                    _line(axes, list(values), number=numbers[arm])
                    top = max(top, float(values[-3]))
            axes.set_xlim(0, 1.05 * top or 1.0)
            axes.set_ylim(0, 1.01)
            axes.set_yticks([0, 0.5, 0.9, 1.0], ["0", "50 %", "90 %", "100 %"])
            axes.set_xlabel(label)
    return figure


def _line(axes: Axes, values: Sequence[float], *, number: int) -> None:
    style = series_style(number)
    (line,) = axes.plot(values, QUANTILES, color=style.colour, linestyle=style.dashes)
    line.set_gid(f"series-{number}")
