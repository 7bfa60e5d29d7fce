"""Acceptance on a run's page: by position, histogram, along the output, by workload, category."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bench.model import BASELINE
from reports import plots
from reports.blocks import (
    Column,
    Drawing,
    Table,
    figure_number,
    share,
    text,
    without_empty_columns,
)
from reports.run_sections import PLACE, place_table, where_cells
from reports.view import summed_histogram

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bench.store import StoredRun
    from reports.blocks import Block, Value
    from reports.samples import RequestViews
    from reports.view import Place, Pooled

MOST_HISTOGRAMS = 8  # arms whose bars stand side by side


def acceptance_blocks(
    stored: StoredRun,
    cells: Sequence[Pooled],
    views: RequestViews,
    numbers: Mapping[str, int],
) -> list[Block]:
    """By position, histogram, along the output, by workload."""
    arms = _drafting(stored, numbers)
    if not arms or not cells:
        return []
    summed = {arm: summed_histogram([p.histogram for p in cells if p.arm == arm]) for arm in arms}
    histograms = {arm: h for arm, h in summed.items() if h}
    at_least = {
        arm: [sum(h[k:]) / sum(h) for k in range(1, len(h))]
        for arm, h in histograms.items()
        if len(h) > 1
    }
    blocks: list[Block] = []
    simulated = stored.simulated
    figure = plots.draw_acceptance(at_least, numbers, simulated=simulated)
    if figure is not None:
        note = "Share of verify steps that accepted at least this many draft tokens."
        title = "Acceptance by position"
        blocks.append(Drawing(name="acceptance", title=title, note=note, figure=figure))
    barred = dict(list(histograms.items())[:MOST_HISTOGRAMS])
    figure = plots.draw_histogram(barred, numbers, simulated=simulated)
    if figure is not None:
        note = "Share of verify steps by what they accepted; all workloads and loads together."
        if len(barred) < len(histograms):
            note += f" The first {len(barred)} of {len(histograms)} arms."
        title = "Accepted draft tokens a step"
        blocks.append(Drawing(name="histogram", title=title, note=note, figure=figure))
    blocks += _along(stored, cells, views, {arm: numbers[arm] for arm in arms})
    if not histograms:
        blocks.append(
            "The server told no histogram of accepted drafts, so acceptance by position is not "
            "known (SGLang reports it with `return_meta_info`; docs/metrics.md)."
        )
    rows = [
        (*where_cells(p), figure_number(p.accept_len_tok, 3), *_positions(p))
        for p in cells
        if p.accept_len_tok is not None
    ]
    if rows:
        deepest = max(len(row) for row in rows)
        padded = [row + (text(None),) * (deepest - len(row)) for row in rows]
        columns = (
            Column(name="accept_len_tok", label="accept length"),
            *(
                Column(name=f"accept_at_{k}", label=f"≥ {k}")
                for k in range(1, deepest - len(PLACE))
            ),
        )
        caption = "Accept length, and the share of steps that accepted at least k draft tokens"
        blocks.append(place_table("acceptance", caption, columns, padded))
    return blocks + _category_blocks(stored, views, arms, numbers)


def _drafting(stored: StoredRun, numbers: Mapping[str, int]) -> list[str]:
    """Arms beside the baseline that speculate: a study has arms without, too."""
    resolved = {
        launch.arm: dict(launch.effective.speculative)
        for launch in stored.manifest.launches
        if launch.effective is not None
    }
    off = {arm for arm, told in resolved.items() if told.get("algorithm", "unknown") is None}
    return [arm for arm in numbers if arm != BASELINE and arm not in off]


def _category_blocks(
    stored: StoredRun, views: RequestViews, arms: Sequence[str], numbers: Mapping[str, int]
) -> list[Block]:
    """By category of the generated prompts, all loads together; one category is no comparison."""
    counted = {
        key: (requests, 1 + correct / steps, steps)
        for key, (requests, correct, steps) in views.categories.items()
        if key[0] in arms and steps
    }
    names = sorted({category for _, _, category in counted})
    if len(names) < 2:
        return []
    blocks: list[Block] = []
    drawn: dict[str, dict[str, float]] = {}
    for arm in arms[:MOST_HISTOGRAMS]:
        told = {
            category: sums
            for category in names
            if (sums := _over_workloads(views, arm, category)) is not None
        }
        if told:
            drawn[arm] = told
    figure = plots.draw_categories(drawn, names, numbers, simulated=stored.simulated)
    if figure is not None:
        note = "1 + accepted drafts / verify steps of the prompts of a category, all loads and "
        note += "workloads together; the table counts them."
        title = "Accept length by category of prompt"
        blocks.append(Drawing(name="categories", title=title, note=note, figure=figure))
    table = Table(
        name="categories",
        caption="Accept length by category of the generated prompts, all loads together",
        columns=(
            Column(name="workload", label="workload", numeric=False),
            Column(name="category", label="category", numeric=False),
            Column(name="arm", label="arm", numeric=False),
            Column(name="accept_len_tok", label="accept length"),
            Column(name="requests", label="requests"),
            Column(name="spec_verify_ct", label="verify steps"),
        ),
        rows=tuple(
            (
                text(workload),
                text(category),
                text(arm),
                figure_number(accept_len, 2),
                figure_number(requests, 0),
                figure_number(steps, 0),
            )
            for (arm, workload, category), (requests, accept_len, steps) in sorted(
                counted.items(), key=lambda row: (row[0][1], row[0][2], arms.index(row[0][0]))
            )
        ),
    )
    return [*blocks, without_empty_columns(table, ("arm", "category"))]


def _over_workloads(views: RequestViews, arm: str, category: str) -> float | None:
    """The accept length of one arm and category: a ratio of sums."""
    sums = [
        (correct, steps)
        for (of_arm, _, of), (_, correct, steps) in views.categories.items()
        if (of_arm, of) == (arm, category)
    ]
    steps = sum(verify for _, verify in sums)
    return 1 + sum(correct for correct, _ in sums) / steps if steps else None


def _positions(p: Pooled) -> tuple[Value, ...]:
    return tuple(share(value, 1) for value in p.accept_at_position or ())


def _along(
    stored: StoredRun,
    cells: Sequence[Pooled],
    views: RequestViews,
    numbers: Mapping[str, int],
) -> list[Block]:
    """Along the output, at the place whose speculative arms have the longest answers."""
    reach: dict[Place, float] = {}
    for (arm, place), along in views.along_output.items():
        if arm in numbers:
            reach[place] = max(reach.get(place, 0.0), float(along.tok[-1]))
    if not reach:
        return []
    place = max(reach, key=lambda p: reach[p])
    chosen = {
        arm: views.along_output[arm, place]
        for arm in numbers
        if (arm, place) in views.along_output
    }
    figure = plots.draw_along_output(chosen, numbers, simulated=stored.simulated)
    if figure is None:
        return []
    several = len({p.place for p in cells}) > 1
    at = f" ({place.workload}, load {place.load})" if several else ""
    note = "An event is a step, unless the server joined several; the first and last are left out."
    title = f"Tokens an event along the output{at}"
    return [Drawing(name="along-output", title=title, note=note, figure=figure)]
