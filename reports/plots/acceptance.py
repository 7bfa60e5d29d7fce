"""Acceptance figures: by position in the draft, its histogram, along the output, by category."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reports.plots.style import drawing, new_figure, series_style, short

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from matplotlib.figure import Figure

    from reports.samples import AlongOutput


def draw_acceptance(
    at_least: Mapping[str, Sequence[float]], numbers: Mapping[str, int], *, simulated: bool
) -> Figure | None:
    """Share of verify steps that accepted at least k draft tokens, for k from 1.

    Args:
        at_least: By arm; element k-1 for k.
        numbers: Series number by arm.
        simulated: Whether simulated servers were measured.
    """
    if not at_least:
        return None
    with drawing():
        figure = new_figure(4.6, 3.1, simulated=simulated)
        axes = figure.add_subplot()
        for arm, shares in at_least.items():
            style = series_style(numbers[arm])
            (line,) = axes.plot(
                range(1, len(shares) + 1),
                shares,
                color=style.colour,
                linestyle=style.dashes,
                marker=style.marker,
            )
            line.set_gid(f"series-{numbers[arm]}")
        longest = max(map(len, at_least.values()))
        axes.set_xticks(range(1, longest + 1))
        axes.set_ylim(0, 1.02)
        axes.set_yticks([0, 0.25, 0.5, 0.75, 1.0], ["0", "25 %", "50 %", "75 %", "100 %"])
        axes.set_xlabel("position in the draft")
        axes.set_ylabel("steps that accepted it")
    return figure


def draw_histogram(
    histograms: Mapping[str, Sequence[int]], numbers: Mapping[str, int], *, simulated: bool
) -> Figure | None:
    """Share of verify steps by the number of draft tokens accepted, bars side by side.

    Args:
        histograms: By arm; element k: steps that accepted exactly k.
        numbers: Series number by arm.
        simulated: Whether simulated servers were measured.
    """
    if not histograms:
        return None
    with drawing():
        figure = new_figure(4.6, 3.1, simulated=simulated)
        axes = figure.add_subplot()
        width = 0.8 / len(histograms)
        for place, (arm, counts) in enumerate(histograms.items()):
            total = sum(counts)
            style = series_style(numbers[arm])
            bars = axes.bar(
                [k - 0.4 + width * (place + 0.5) for k in range(len(counts))],
                [count / total for count in counts],
                width=0.92 * width,
                color=style.colour,
            )
            for bar in bars:
                bar.set_gid(f"series-{numbers[arm]}")
        axes.set_xticks(range(max(map(len, histograms.values()))))
        axes.grid(visible=False, axis="x")
        axes.yaxis.set_major_formatter(lambda share, _: f"{100 * share:.0f} %")
        axes.set_xlabel("draft tokens accepted in a step")
        axes.set_ylabel("steps")
    return figure


def draw_along_output(
    along: Mapping[str, AlongOutput], numbers: Mapping[str, int], *, simulated: bool
) -> Figure | None:
    """Tokens an event by position in the output: whether acceptance falls as the answer grows.

    Args:
        along: By speculative arm.
        numbers: Series number by arm.
        simulated: Whether simulated servers were measured.
    """
    if not along:
        return None
    with drawing():
        figure = new_figure(4.6, 3.1, simulated=simulated)
        axes = figure.add_subplot()
        for arm, series in along.items():
            style = series_style(numbers[arm])
            (line,) = axes.plot(
                series.tok,
                series.tok_per_event,
                color=style.colour,
                linestyle=style.dashes,
                marker=style.marker if len(series.tok) <= 40 else None,
            )
            line.set_gid(f"series-{numbers[arm]}")
        axes.set_ylim(
            0, 1.08 * max(float(series.tok_per_event.max()) for series in along.values())
        )
        axes.set_xlabel("position in the output, tokens")
        axes.set_ylabel("tokens an event")
    return figure


def draw_categories(
    accept_lens: Mapping[str, Mapping[str, float]],
    categories: Sequence[str],
    numbers: Mapping[str, int],
    *,
    simulated: bool,
) -> Figure | None:
    """Accept length by category of prompt, a mark an arm.

    Args:
        accept_lens: Tokens by arm and category.
        categories: From top to bottom.
        numbers: Series number by arm.
        simulated: Whether simulated servers were measured.
    """
    if not accept_lens:
        return None
    with drawing():
        figure = new_figure(4.6, 0.9 + 0.27 * len(categories), simulated=simulated)
        axes = figure.add_subplot()
        for arm, told in accept_lens.items():
            style = series_style(numbers[arm])
            (marks,) = axes.plot(
                list(told.values()),
                [categories.index(category) for category in told],
                color=style.colour,
                linestyle="none",
                marker=style.marker,
            )
            marks.set_gid(f"series-{numbers[arm]}")
        axes.set_yticks(range(len(categories)), [short(category) for category in categories])
        axes.set_ylim(len(categories) - 0.5, -0.5)
        axes.set_xlim(left=1.0)
        axes.set_xlabel("accept length, tokens")
    return figure
