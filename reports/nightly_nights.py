"""Night by night: figures, incidents, what was changed, nights without figures."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from bench.metrics.change_words import changed_facts, percent
from bench.metrics.watched import metric_of
from bench.model import BASELINE
from reports.blocks import Column, Drawing, Table, Value, figure_number, text
from reports.plots.nights import MOST_PANELS, draw_nights
from reports.view import load_order

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import date

    from bench.model.nightly import NightlyVerdict, SeriesJudgement
    from reports.blocks import Block

MOST_ROWS = 60
MOST_FIELDS = 12
MOST_FIGURES = 24

_HOW_TO_READ = (
    "Lines are levels with their 95 % band; red and green mark changes, grey ones that were "
    "expected, crosses incidents, hollow points SUSPECT cells; the numbers in the "
    "first panel are changes of the environment, listed below. A figure has the newest 400 nights."
)

Place = tuple[str, str, str, str]
"""(scenario, workload, load, hardware)."""


def nights_blocks(verdict: NightlyVerdict, numbers: dict[str, int]) -> tuple[Block, ...]:
    """A figure a place, the last change first."""
    places: dict[Place, list[SeriesJudgement]] = {}
    for judged in verdict.series:  # the last change first
        key = judged.key
        place = (key.scenario, key.workload, key.load, key.hardware)
        places.setdefault(place, []).append(judged)
    blocks: list[Block] = []
    changed = _environment_changes(verdict)
    for count, (place, series) in enumerate(list(places.items())[:MOST_FIGURES]):
        ordered = sorted(series, key=lambda j: (j.key.metric, j.key.arm != BASELINE, j.key.arm))
        first = [j for j in ordered if j.changes or j.incidents]
        shown = sorted(
            [*first, *(j for j in ordered if j not in first)][:MOST_PANELS],
            key=lambda j: (j.key.metric, j.key.arm != BASELINE, j.key.arm),
        )
        marks = [(night, str(mark)) for mark, night, _ in changed.get((place[0], place[3]), ())]
        simulated = any(p.simulated for j in shown for p in j.points)
        figure = draw_nights(shown, numbers, marks, simulated=simulated)
        if figure is None:
            continue
        scenario, workload, load, hardware = place
        missing = len(ordered) - len(shown)
        blocks.append(
            Drawing(
                name=f"nights-{count}",
                title=f"{scenario}, {workload}, load {load}, on {hardware}",
                note=_HOW_TO_READ
                + (f" {missing} more series are in the table alone." if missing else ""),
                figure=figure,
                wide=True,
            )
        )
    left = len(places) - MOST_FIGURES
    if left > 0:
        blocks.append(f"{left} more places are in the tables alone.")
    return tuple(blocks)


def incidents_blocks(verdict: NightlyVerdict) -> tuple[Block, ...]:
    """Every incident, the last first."""
    rows = sorted(
        ((i, j) for j in verdict.series for i in j.incidents),
        key=lambda pair: pair[0].night,
        reverse=True,
    )[:MOST_ROWS]
    if not rows:
        return ()
    table = Table(
        name="incidents",
        caption="Nights far off with the old level after them: they are in no level",
        columns=(
            Column(name="night", label="night", numeric=False),
            Column(name="scenario", label="scenario", numeric=False),
            Column(name="workload", label="workload", numeric=False),
            Column(name="load", label="load"),
            Column(name="arm", label="arm", numeric=False),
            Column(name="metric", label="metric", numeric=False),
            Column(name="nights", label="nights"),
            Column(name="ln_change", label="off by"),
            Column(name="ended", label="over", numeric=False),
        ),
        rows=tuple(
            (
                text(i.night.isoformat()),
                text(j.key.scenario),
                text(j.key.workload),
                Value(text=j.key.load, raw=load_order(j.key.load)[1]),
                text(j.key.arm),
                text(metric_of(j.key.metric).label),
                figure_number(i.nights, 0),
                Value(text=percent(i.ln_change), raw=i.ln_change),
                text("yes" if i.ended else "the next night tells"),
            )
            for i, j in rows
        ),
    )
    return (table,)


def _environment_changes(
    verdict: NightlyVerdict,
) -> dict[tuple[str, str], list[tuple[int, date, list[str]]]]:
    """(mark, night, lines) of every night whose facts are not those before.

    By scenario and hardware, oldest first.
    """
    nights: dict[tuple[str, str], dict[date, str]] = {}
    for judged in verdict.series:
        by_night = nights.setdefault((judged.key.scenario, judged.key.hardware), {})
        by_night.update((point.night, point.fingerprint) for point in judged.points)
    return {
        where: [
            (mark, night, _fact_lines(verdict, a, b))
            for mark, (a, night, b) in enumerate(
                (
                    (a, night, b)
                    for (_, a), (night, b) in pairwise(sorted(of.items()))
                    if a != b and _fact_lines(verdict, a, b)
                ),
                start=1,
            )
        ]
        for where, of in nights.items()
    }


def _fact_lines(verdict: NightlyVerdict, before: str, after: str) -> list[str]:
    x, y = verdict.environments.get(before, {}), verdict.environments.get(after, {})
    return [f"{name}: {old} → {new}" for name, old, new in changed_facts(x, y)]


def environment_blocks(verdict: NightlyVerdict) -> tuple[Block, ...]:
    """Recorded facts that changed, the last first."""
    rows = [
        (scenario, hardware, mark, night, line)
        for (scenario, hardware), changes in _environment_changes(verdict).items()
        for mark, night, lines in changes
        for line in (*lines[:MOST_FIELDS], *_more(lines))
    ]
    if not rows:
        return ("No recorded fact has changed.",)
    table = Table(
        name="environment",
        caption="Recorded facts that changed from one night to the next, the last first",
        columns=(
            Column(name="scenario", label="scenario", numeric=False),
            Column(name="hardware", label="hardware", numeric=False),
            Column(name="mark", label="mark"),
            Column(name="night", label="night", numeric=False),
            Column(name="change", label="change", numeric=False),
        ),
        rows=tuple(
            (
                text(scenario),
                text(hardware),
                figure_number(mark, 0),
                text(night.isoformat()),
                text(line),
            )
            for scenario, hardware, mark, night, line in sorted(
                rows, key=lambda row: (row[3], row[0]), reverse=True
            )
        ),
    )
    return (table,)


def _more(lines: Sequence[str]) -> tuple[str, ...]:
    more = len(lines) - MOST_FIELDS
    return (f"and {more} more",) if more > 0 else ()


def failures_blocks(verdict: NightlyVerdict) -> tuple[Block, ...]:
    """Nights that could not be measured, the last first."""
    if not verdict.failures:
        return ()
    table = Table(
        name="failures",
        caption="Nights, or scenarios of one, that could not be measured",
        columns=(
            Column(name="night", label="night", numeric=False),
            Column(name="scenario", label="scenario", numeric=False),
            Column(name="reason", label="why", numeric=False),
        ),
        rows=tuple(
            (text(f.night.isoformat()), text(f.scenario or "all"), text(f.reason))
            for f in reversed(verdict.failures)
        ),
    )
    return (table,)
