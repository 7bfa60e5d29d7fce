"""Speed figures: speedup against load, what it takes to pay, the limit, the trade-off."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from bench.model import CellStatus
from reports.plots.style import (
    BAD,
    GRID,
    INK,
    MUTED,
    drawing,
    load_axis,
    new_figure,
    series_style,
    short,
)
from reports.view import arms_of, comparisons_at, load_order, load_value, places_of
from reports.wording import crossover

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from bench.model import Comparison
    from bench.store import StoredRun
    from reports.view import Place, Pooled

MOST_PANELS = 6
MOST_BARS = 24
_PANEL_WIDTH_IN = 5.6
_PANEL_HEIGHT_IN = 3.1


def draw_speedup(stored: StoredRun, numbers: Mapping[str, int]) -> Figure | None:
    """Speedup against load, a panel a workload, with 95 % intervals and the line of no gain.

    Args:
        stored: The run.
        numbers: Series number by arm.
    """
    with_speedup = {c.workload for c in stored.comparisons if c.speedup is not None}
    shown = [w for w in _workloads(stored) if w in with_speedup]
    workloads = shown[:MOST_PANELS]
    if not workloads:
        return None
    with drawing():
        figure = _panels(len(workloads), simulated=stored.simulated)
        for axes, workload in zip(figure.axes, workloads, strict=True):
            _speedup_panel(axes, stored, workload, numbers)
        figure.axes[0].set_ylabel("speedup over the baseline")
    return figure


def _speedup_panel(
    axes: Axes, stored: StoredRun, workload: str, numbers: Mapping[str, int]
) -> None:
    loads = _loads(stored, workload)
    position = load_axis(axes, loads)
    axes.axhline(1.0, color=INK, linewidth=1.0)
    for arm in arms_of(stored):
        points = [c for c in comparisons_at(stored, arm, workload) if c.speedup is not None]
        if not points:
            continue
        style = series_style(numbers[arm])
        x = [position[c.load] for c in points]
        y = [c.speedup or math.nan for c in points]
        (line,) = axes.plot(x, y, color=style.colour, linestyle=style.dashes)
        line.set_gid(f"series-{numbers[arm]}")
        _with_intervals(axes, points, x, number=numbers[arm])
        _mark_crossover(axes, points, number=numbers[arm])
    axes.set_title(short(workload))


def _mark_crossover(axes: Axes, points: Sequence[Comparison], *, number: int) -> None:
    """The load at which an arm begins or ceases to pay, at the foot of the panel."""
    at = crossover(points)
    if at is None or any(load_value(c.load) is None for c in points):
        return
    colour = series_style(number).colour
    line = axes.axvline(at, color=colour, linewidth=1.0, linestyle=(0, (1, 2)))
    name = axes.text(
        at,
        0.02,
        f" {at:.{0 if at >= 10 else 1}f}",
        transform=axes.get_xaxis_transform(),
        color=MUTED,
        fontsize=8,
    )
    for part in (line, name):
        part.set_gid(f"series-{number}")


def _with_intervals(
    axes: Axes, points: Sequence[Comparison], x: Sequence[float], *, number: int
) -> None:
    style = series_style(number)
    for at, c in zip(x, points, strict=True):
        assert c.speedup is not None
        if c.ci95_low is not None and c.ci95_high is not None:
            bars = axes.vlines(at, c.ci95_low, c.ci95_high, color=style.colour, linewidth=1.6)
            bars.set_gid(f"series-{number}")
        hollow = c.status is not CellStatus.VALID
        (mark,) = axes.plot(
            [at],
            [c.speedup],
            color=style.colour,
            marker=style.marker,
            markerfacecolor="none" if hollow else style.colour,
        )
        mark.set_gid(f"series-{number}")


def draw_break_even(stored: StoredRun, numbers: Mapping[str, int]) -> Figure | None:
    """Accept length beside the accept length that would break even, for each arm and place."""
    rows = [
        c
        for workload in _workloads(stored)
        for arm in arms_of(stored)
        for c in comparisons_at(stored, arm, workload)
        if c.accept_len_tok is not None and c.break_even_accept_len_tok is not None
    ][:MOST_BARS]
    if not rows:
        return None
    with drawing():
        figure = new_figure(7.2, 0.9 + 0.3 * len(rows), simulated=stored.simulated)
        axes = figure.add_subplot()
        several = len({c.workload for c in rows}) > 1
        for y, c in enumerate(rows):
            number = numbers[c.arm]
            style = series_style(number)
            bars = axes.barh(y, c.accept_len_tok or 0, color=style.colour, height=0.55)
            for bar in bars:
                bar.set_gid(f"series-{number}")
            need = c.break_even_accept_len_tok or 0
            pays = (c.accept_len_tok or 0) >= need
            colour = INK if pays else BAD
            axes.plot([need, need], [y - 0.42, y + 0.42], color=colour, linewidth=2.2)
            axes.annotate(
                f"{c.accept_len_tok or 0:.2f} of {need:.2f}",
                (max(need, c.accept_len_tok or 0), y),
                xytext=(5, 0),
                textcoords="offset points",
                va="center",
                fontsize=8.5,
                color=colour,
            )
        names = [
            " · ".join(filter(None, (short(c.arm), short(c.workload) if several else "", c.load)))
            for c in rows
        ]
        axes.set_yticks(range(len(rows)), names)
        axes.invert_yaxis()
        axes.grid(visible=False, axis="y")
        axes.set_xlim(0, 1.22 * max(max(c.accept_len_tok or 0, _need(c)) for c in rows))
        axes.set_xlabel("accept length (bar) and break-even accept length (line), tokens")
    return figure


def _need(c: Comparison) -> float:
    return c.break_even_accept_len_tok or 0.0


def draw_limit(
    stored: StoredRun,
    cells: Sequence[Pooled],
    expectations: Mapping[tuple[str, Place], float],
    numbers: Mapping[str, int],
) -> Figure | None:
    """Measured tok/s inside the bar of what memory bandwidth would allow, the model's as a tick.

    Args:
        stored: The run.
        cells: Of the run.
        expectations: By arm and place: what the model expects, tok/s; may lack any.
        numbers: Series number by arm.
    """
    rows = [p for p in cells if p.limit_tok_per_s is not None and p.output_tok_per_s is not None][
        :MOST_BARS
    ]
    if not rows:
        return None
    with drawing():
        figure = new_figure(7.2, 0.9 + 0.3 * len(rows), simulated=stored.simulated)
        axes = figure.add_subplot()
        several = len({p.place.workload for p in rows}) > 1
        for y, p in enumerate(rows):
            limit, measured = p.limit_tok_per_s or 0.0, p.output_tok_per_s or 0.0
            axes.barh(y, 1.0, color=GRID, height=0.55)
            bars = axes.barh(
                y, measured / limit, color=series_style(numbers[p.arm]).colour, height=0.55
            )
            for bar in bars:
                bar.set_gid(f"series-{numbers[p.arm]}")
            model = expectations.get((p.arm, p.place))
            expected = ""
            if model is not None:
                axes.plot([model / limit] * 2, [y - 0.42, y + 0.42], color=INK, linewidth=2.2)
                expected = f", model {model:,.0f}"
            axes.annotate(
                f"{measured:,.0f} of {limit:,.0f} tok/s{expected}",
                (1.0, y),
                xytext=(5, 0),
                textcoords="offset points",
                va="center",
                fontsize=8.5,
            )
        names = [
            " · ".join(
                filter(
                    None,
                    (short(p.arm), short(p.place.workload) if several else "", p.place.load),
                )
            )
            for p in rows
        ]
        axes.set_yticks(range(len(rows)), names)
        axes.invert_yaxis()
        axes.grid(visible=False, axis="y")
        axes.set_xlim(0, 1.8 if expectations else 1.42)
        axes.set_xticks([0, 0.25, 0.5, 0.75, 1.0], ["0", "25 %", "50 %", "75 %", "100 %"])
        axes.set_xlabel("share of the memory-bandwidth limit that was reached")
    return figure


def draw_pareto(
    stored: StoredRun, cells: Sequence[Pooled], numbers: Mapping[str, int]
) -> Figure | None:
    """Throughput against a user's speed, an arm's loads joined: up and to the right is better."""
    per_gpu = all(
        p.output_tok_per_s_per_gpu is not None for p in cells if p.output_tok_per_s is not None
    )
    workloads = [
        w
        for w in _workloads(stored)
        if any(p.place.workload == w and p.output_tok_per_s_per_user is not None for p in cells)
    ][:MOST_PANELS]
    if not workloads:
        return None
    with drawing():
        figure = _panels(len(workloads), simulated=stored.simulated)
        for axes, workload in zip(figure.axes, workloads, strict=True):
            for arm in arms_of(stored):
                points = [
                    (p.output_tok_per_s_per_user, y, p.place.load)
                    for p in cells
                    if p.arm == arm and p.place.workload == workload
                    if p.output_tok_per_s_per_user is not None
                    if (y := p.output_tok_per_s_per_gpu if per_gpu else p.output_tok_per_s)
                ]
                if points:
                    _pareto_line(axes, points, number=numbers[arm])
            axes.set_title(short(workload))
            axes.set_xlabel("tok/s of a user")
            axes.margins(x=0.12, y=0.12)
            axes.set_xlim(left=0)
            axes.set_ylim(bottom=0)
        figure.axes[0].set_ylabel("tok/s a GPU" if per_gpu else "tok/s, all users")
    return figure


def _pareto_line(axes: Axes, points: Sequence[tuple[float, float, str]], *, number: int) -> None:
    style = series_style(number)
    (line,) = axes.plot(
        [x for x, _, _ in points],
        [y for _, y, _ in points],
        color=style.colour,
        linestyle=style.dashes,
        marker=style.marker,
    )
    line.set_gid(f"series-{number}")
    for x, y, load in points:
        axes.annotate(
            load, (x, y), xytext=(5, 4), textcoords="offset points", fontsize=8, color=MUTED
        )


def _panels(count: int, *, simulated: bool) -> Figure:
    columns = 1 if count == 1 else 2
    rows = math.ceil(count / columns)
    figure = new_figure(
        _PANEL_WIDTH_IN if columns == 1 else 4.1 * columns,
        _PANEL_HEIGHT_IN * rows + 0.2,
        simulated=simulated,
    )
    for number in range(1, count + 1):
        figure.add_subplot(rows, columns, number)
    return figure


def _workloads(stored: StoredRun) -> list[str]:
    return list(dict.fromkeys(place.workload for place in places_of(stored)))


def _loads(stored: StoredRun, workload: str) -> list[str]:
    loads = {p.load for p in places_of(stored) if p.workload == workload}
    return sorted(loads, key=lambda load: (load_order(load), load))
