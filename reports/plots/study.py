"""Figures of a tuning study: its response surface, what each axis does, predictions, the order."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING

from bench.model.study import TrialState, of_their_configuration
from reports.plots.style import (
    BAD,
    GRID,
    INK,
    MUTED,
    SERIES,
    drawing,
    new_figure,
    series_style,
    short,
)
from reports.study_wording import Z95, points

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from bench.model.study import Study, StudyConfiguration, StudyTrial
    from reports.study_effects import Effect
    from reports.study_predictions import Prediction

MOST_EFFECTS = 48
MOST_CELLS = 12
MOST_PANELS = 9
MOST_LAUNCHES_NAMED = 40
_GAIN, _LOSS = SERIES[0], SERIES[1]
_STRONGEST = 0.5  # opacity: the numbers stay legible on it, in light and dark


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """All that is known at one algorithm and topk.

    Attributes:
        title: Which.
        best: By steps: the best configuration there.
    """

    title: str
    best: Mapping[int, StudyConfiguration]


def draw_surface(
    panels: Sequence[Panel], cells: Sequence[str], *, simulated: bool
) -> Figure | None:
    """Gain by steps and cell, a panel a topk: measured ones framed and strong, predicted pale.

    Args:
        panels: In order.
        cells: Names of the study's cells.
        simulated: Whether simulated servers were measured.
    """
    shown = list(panels)[:MOST_PANELS]
    steps = sorted({s for panel in shown for s in panel.best})
    rows = list(cells)[:MOST_CELLS]
    if not steps or not rows:
        return None
    largest = max(
        (abs(g) for p in shown for c in p.best.values() for g in c.cell_gain or ()), default=0.0
    )
    columns = min(len(shown), 2 if len(steps) > 5 else 3)
    lines = math.ceil(len(shown) / columns)
    with drawing():
        figure = new_figure(
            1.3 + columns * (0.4 + 0.52 * len(steps)),
            0.4 + lines * (0.75 + 0.36 * len(rows)),
            simulated=simulated,
        )
        grid = figure.subplots(lines, columns, squeeze=False, sharex=True, sharey=True)
        for place, axes in enumerate(grid.flat):
            if place >= len(shown):
                axes.set_axis_off()
                continue
            _surface_panel(axes, shown[place], steps, rows, largest or 1.0)
    return figure


def _surface_panel(
    axes: Axes, panel: Panel, steps: Sequence[int], cells: Sequence[str], largest: float
) -> None:
    from matplotlib.patches import Rectangle  # noqa: PLC0415  # loads only when a page is made

    for x, step in enumerate(steps):
        c = panel.best.get(step)
        for y in range(len(cells)):
            if c is None:
                continue
            gain = None if c.cell_gain is None else c.cell_gain[y]
            measured = c.launches > 0
            strength = 0.0 if gain is None else min(abs(gain) / largest, 1.0)
            axes.add_patch(
                Rectangle(
                    (x - 0.46, y - 0.44),
                    0.92,
                    0.88,
                    facecolor=_GAIN if (gain or 0.0) >= 0 else _LOSS,
                    alpha=_STRONGEST * strength * (1.0 if measured else 0.35),
                    linewidth=0,
                )
            )
            axes.add_patch(
                Rectangle(
                    (x - 0.46, y - 0.44),
                    0.92,
                    0.88,
                    fill=False,
                    edgecolor=INK if measured else GRID,
                    linewidth=1.3 if measured else 0.8,
                    linestyle="-" if measured else (0, (2, 2)),
                )
            )
            axes.text(
                x,
                y,
                _cell_words(c, gain),
                ha="center",
                va="center",
                fontsize=8,
                color=INK if measured else MUTED,
                fontweight="bold" if measured else "normal",
            )
    axes.set_xlim(-0.6, len(steps) - 0.4)
    axes.set_ylim(len(cells) - 0.4, -0.6)
    axes.set_xticks(range(len(steps)), [str(step) for step in steps])
    axes.set_yticks(range(len(cells)), [short(cell, 22) for cell in cells])
    axes.tick_params(length=0, labelbottom=True)
    axes.grid(visible=False)
    axes.spines[["left", "bottom"]].set_visible(False)
    axes.set_xlabel("draft steps")
    axes.set_title(panel.title)


def _cell_words(c: StudyConfiguration, gain: float | None) -> str:
    if c.excluded is not None and not c.launches:
        return "×"
    return "–" if gain is None else f"{points(gain):+.1f}".replace("-", "−")


def draw_effects(effects: Sequence[Effect], *, simulated: bool) -> Figure | None:
    """Gain of every value over its axis's reference, with intervals, axes one below the other."""
    rows = [e for e in effects if e.gain is not None or e.reference is None][:MOST_EFFECTS]
    told = {e.axis for e in rows if e.gain is not None}
    rows = [e for e in rows if e.axis in told]
    if not rows:
        return None
    with drawing():
        figure = new_figure(6.6, 0.9 + 0.25 * len(rows), simulated=simulated)
        axes = figure.add_subplot()
        axes.axvline(0.0, color=INK, linewidth=1.0)
        for y, e in enumerate(rows):
            if e.axis != rows[y - 1].axis and y:
                axes.axhline(y - 0.5, color=GRID, linewidth=0.8)
            if e.gain is None:
                axes.plot([0.0], [y], color=MUTED, marker="|", markersize=9)
                continue
            if e.half_width is not None:
                ends = points(e.gain - e.half_width), points(e.gain + e.half_width)
                axes.hlines(y, *ends, color=_GAIN, linewidth=1.8)
            axes.plot(
                [points(e.gain)],
                [y],
                color=_GAIN,
                marker="o",
                markerfacecolor=_GAIN if e.launches else "none",
            )
        axes.set_yticks(range(len(rows)), [f"{short(e.axis)} {short(e.value, 18)}" for e in rows])
        axes.set_ylim(len(rows) - 0.4, -0.6)
        axes.grid(visible=False, axis="y")
        axes.margins(x=0.08)
        axes.set_xlabel("gain over the axis's reference, %")
    return figure


def draw_predictions(
    gains: Sequence[Prediction],
    accept_lens: Sequence[Prediction],
    numbers: Mapping[str, int],
    *,
    simulated: bool,
) -> Figure | None:
    """Predicted against measured: on the line they agree; bars are the prediction's 95 %.

    Args:
        gains: Of launches.
        accept_lens: Of launches and cells.
        numbers: Series number by why it was launched.
        simulated: Whether simulated servers were measured.
    """
    shown = [
        (predictions, label, scale)
        for predictions, label, scale in (
            (gains, "gain, %", points),
            (accept_lens, "accept length, tokens", float),
        )
        if predictions
    ]
    if not shown:
        return None
    with drawing():
        figure = new_figure(4.1 * len(shown), 3.5, simulated=simulated)
        for place, (predictions, label, scale) in enumerate(shown, start=1):
            axes = figure.add_subplot(1, len(shown), place)
            values = [scale(v) for p in predictions for v in (p.predicted, p.measured)]
            ends = [min(values), max(values)]
            axes.plot(ends, ends, color=MUTED, linewidth=1.0, linestyle=(0, (3, 2)))
            for why in dict.fromkeys(p.why for p in predictions):
                told = [p for p in predictions if p.why == why]
                _predictions(axes, told, scale=scale, number=numbers[why])
            axes.set_xlabel(f"predicted {label}")
            axes.set_ylabel(f"measured {label}")
            axes.margins(0.08)
    return figure


def _predictions(
    axes: Axes, told: Sequence[Prediction], *, scale: Callable[[float], float], number: int
) -> None:
    style, gid = series_style(number), f"series-{number}"
    spread = [(p, Z95 * p.sd) for p in told if p.sd is not None]
    if spread:
        bars = axes.hlines(
            [scale(p.measured) for p, _ in spread],
            [scale(p.predicted - half) for p, half in spread],
            [scale(p.predicted + half) for p, half in spread],
            color=style.colour,
            linewidth=1.0,
        )
        bars.set_gid(gid)
    for first in (True, False):
        group = [p for p in told if p.first is first]
        if group:
            (marks,) = axes.plot(
                [scale(p.predicted) for p in group],
                [scale(p.measured) for p in group],
                linestyle="none",
                color=style.colour,
                marker=style.marker,
                markersize=4.5,
                markerfacecolor=style.colour if first else "none",
            )
            marks.set_gid(gid)


def draw_order(study: Study, numbers: Mapping[str, int]) -> Figure | None:
    """Gain of every launch in order, the best so far, failures, and what was concluded.

    Args:
        study: The study.
        numbers: Series number by why it was launched.
    """
    trials = of_their_configuration(study.trials)
    measured = [t for t in trials if t.state is TrialState.MEASURED and t.gain is not None]
    if not measured:
        return None
    from matplotlib.ticker import MaxNLocator  # noqa: PLC0415  # loads only when a page is made

    with drawing():
        figure = new_figure(9.2, 3.6, simulated=study.simulated)
        axes = figure.add_subplot()
        axes.axhline(0.0, color=INK, linewidth=0.9)
        groups: dict[tuple[str, bool, bool], list[StudyTrial]] = {}
        for t in measured:
            groups.setdefault((t.why, t.configuration == 0, bool(t.breaks)), []).append(t)
        for (why, baseline, broken), told in groups.items():
            style = series_style(numbers[why])
            (marks,) = axes.plot(
                [t.number + 1 for t in told],
                [points(t.gain or 0.0) for t in told],
                linestyle="none",
                color=style.colour,
                marker="D" if baseline else style.marker,
                markerfacecolor="none" if broken else style.colour,
            )
            marks.set_gid(f"series-{numbers[why]}")
        _best_so_far(axes, [t for t in measured if not t.breaks and t.why != "final"], study)
        _failures(axes, study)
        _concluded(axes, study)
        axes.margins(x=0.03, y=0.12)
        axes.set_xlabel("launch")
        axes.set_ylabel("gain over the baseline, %")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    return figure


def _best_so_far(axes: Axes, trials: Sequence[StudyTrial], study: Study) -> None:
    """The highest single launch of the search until then; the final only repeats."""
    if not trials:
        return
    best = list(accumulate((points(t.gain or 0.0) for t in trials), max))
    launched = of_their_configuration(study.trials)
    end = next((t.number for t in launched if t.why == "final"), launched[-1].number) + 0.5
    axes.plot(
        [*(t.number + 1 for t in trials), end],
        [*best, best[-1]],
        color=MUTED,
        linewidth=1.2,
        drawstyle="steps-post",
        zorder=1,
    )
    axes.annotate(
        "best so far",
        (end, best[-1]),
        xytext=(-4, 6),
        textcoords="offset points",
        ha="right",
        fontsize=8,
        color=MUTED,
    )


def _failures(axes: Axes, study: Study) -> None:
    failed = [t.number + 1 for t in study.trials if t.state is TrialState.FAILED]
    if not failed:
        return
    axes.plot(
        failed,
        [0.03] * len(failed),
        linestyle="none",
        marker="x",
        color=BAD,
        transform=axes.get_xaxis_transform(),
    )
    if len(failed) <= MOST_LAUNCHES_NAMED:
        axes.annotate(
            "failed",
            (failed[0], 0.03),
            xycoords=("data", "axes fraction"),
            xytext=(6, 2),
            textcoords="offset points",
            fontsize=8,
            color=BAD,
        )


def _concluded(axes: Axes, study: Study) -> None:
    final = [t.number + 1 for t in study.trials if t.why == "final"]
    if final:
        axes.axvspan(final[0] - 0.5, final[-1] + 0.5, color=GRID, alpha=0.4, linewidth=0)
    c = study.conclusion
    if c is None or not final:
        return
    ends = [final[0] - 0.5, final[-1] + 0.5]
    low, high = points(c.ci95_low), points(c.ci95_high)
    axes.fill_between(ends, low, high, color=series_style(3).colour, alpha=0.22, linewidth=0)
    axes.plot(ends, [points(c.gain)] * 2, color=series_style(3).colour, linewidth=1.2)
