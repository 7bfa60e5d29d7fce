"""The page of a run: the question, its answer, what weakens it, why, what exactly was run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bench.model import BASELINE, CellStatus, Verdict
from bench.store import faults_of
from bench.store.study import STUDY
from reports import plots
from reports.acceptance_section import acceptance_blocks
from reports.blocks import (
    Column,
    Drawing,
    Link,
    Page,
    Section,
    Table,
    Value,
    figure_number,
    text,
    without_empty_columns,
)
from reports.cell_tables import cell_table, failure_blocks
from reports.configuration import configuration_blocks
from reports.findings import finding_remarks
from reports.run_sections import (
    energy_blocks,
    latency_blocks,
    limit_blocks,
    timeline_blocks,
    tradeoff_blocks,
    why_blocks,
)
from reports.samples import request_views
from reports.study_page import STUDY_PAGE
from reports.view import arm_numbers, arms_of, comparisons_at, load_order, places_of, pooled
from reports.wording import answer_sentences, crossover, interval, metric_words, number

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from bench.model import Comparison
    from bench.store import StoredRun
    from reports.blocks import Block

_STUDY_ANSWER = (
    "These are the launches of a tuning study. What it found, and how sure that is, stands on the "
    "study's own page."
)
_VERDICT_TONES = {Verdict.FASTER: "good", Verdict.SLOWER: "bad"}


def run_page(stored: StoredRun) -> Page:
    """The page of a run, published or not.

    Args:
        stored: From `bench.store.load_run`; a part-run with its comparisons made.
    """
    numbers = arm_numbers(stored)
    cells = pooled(stored)
    views = request_views(stored)
    return Page(
        kind="run",
        title=stored.question,
        subtitle=_subtitle(stored),
        answer=(_STUDY_ANSWER,) if _is_study(stored) else tuple(answer_sentences(stored)),
        warnings=tuple(_warnings(stored)),
        series=tuple(numbers.items()),
        sections=(
            _section("findings", "What weakens it", finding_remarks(stored)),
            _section("speedup", "Speedup against load", _speedup(stored, numbers)),
            _section("why", "Why", why_blocks(stored, cells, numbers)),
            _section("limit", "How far from the limit", limit_blocks(stored, cells, numbers)),
            _section(
                "tradeoff", "Throughput against speed", tradeoff_blocks(stored, cells, numbers)
            ),
            _section("acceptance", "Acceptance", acceptance_blocks(stored, cells, views, numbers)),
            _section("latency", "Latency", latency_blocks(stored, views, numbers)),
            _section("timeline", "Timeline", timeline_blocks(stored, views, numbers)),
            _section("energy", "Energy", energy_blocks(stored, cells)),
            _section("failures", "Failures", failure_blocks(stored)),
            _section("cells", "Every cell", (cell_table(stored.measurements),)),
            _section("configuration", "What exactly was run", configuration_blocks(stored)),
        ),
        simulated=stored.simulated,
    )


def _section(anchor: str, title: str, blocks: Iterable[Block | None]) -> Section:
    return Section(anchor=anchor, title=title, blocks=tuple(b for b in blocks if b is not None))


def _subtitle(stored: StoredRun) -> str:
    manifest = stored.manifest
    engines = dict.fromkeys(
        f"{launch.effective.engine} {launch.effective.version or '(version unknown)'}"
        for launch in manifest.launches
        if launch.effective is not None
    )
    parts = (
        manifest.scenario,
        stored.run_id,
        manifest.started_at[:16].replace("T", " ") + " UTC",
        ", ".join(engines),
        f"specdyno {manifest.specdyno_version}",
    )
    return " · ".join(filter(None, parts))


def _warnings(stored: StoredRun) -> list[str]:
    planned = sum(len(launch.cells) for launch in stored.manifest.plan)
    measured = len(stored.measurements)
    lines = []
    if stored.simulated and stored.speed != 1:
        lines.append(f"The simulated clock ran at {stored.speed}× speed.")
    faults = faults_of(stored.manifest)
    if faults:
        lines.append(f"Faults on request: {faults}.")
    if not stored.published:
        lines.append(f"This run is not finished: {measured} of {planned} cells so far.")
    elif measured < planned:
        lines.append(
            f"Only {measured} of {planned} cells were measured; the failed launches are listed "
            "under “What exactly was run”."
        )
    return lines


# --- the answer


def _is_study(stored: StoredRun) -> bool:
    return (stored.folder / STUDY).is_file()


def _study_words(stored: StoredRun) -> list[Block]:
    if (stored.folder / STUDY_PAGE).is_file():
        return [Link(href=STUDY_PAGE, text="the study's page")]
    return [f"`tuner report {stored.run_id}` writes the study's page."]


def _speedup(stored: StoredRun, numbers: Mapping[str, int]) -> list[Block | None]:
    figure = plots.draw_speedup(stored, numbers)
    blocks: list[Block | None] = []
    if figure is not None:
        note = _speedup_note(stored)
        blocks.append(
            Drawing(
                name="speedup",
                title="Speedup over the baseline",
                note=note,
                figure=figure,
                wide=len(figure.axes) > 1,
            )
        )
    if stored.comparisons:
        blocks.append(_comparison_table(stored))
        reasons = dict.fromkeys(c.reason for c in stored.comparisons if c.reason)
        blocks += [f"No verdict: {reason}." for reason in reasons]
    elif _is_study(stored):
        blocks += _study_words(stored)
    elif len(arms_of(stored)) < 2 or BASELINE not in arms_of(stored):
        blocks.append("There is no speedup: the run has one arm alone.")
    else:
        blocks.append("There is no speedup: no arm was measured beside the baseline.")
    return blocks


def _speedup_note(stored: StoredRun) -> str:
    """What the figure's marks mean, of those that it has."""
    shown = [c for c in stored.comparisons if c.speedup is not None]
    if any(c.ci95_low is not None for c in shown):
        told = "Bars are 95 % intervals over pairs of launches"
    else:
        told = "There are no intervals: these take several pairs of launches"
    hollow = any(c.status is not CellStatus.VALID for c in shown)
    crosses = any(
        crossover(comparisons_at(stored, arm, workload)) is not None
        for arm, workload in dict.fromkeys((c.arm, c.workload) for c in shown)
    )
    marks = [
        *(["hollow marks are not VALID"] if hollow else []),
        *(["a dotted line is where an arm begins or ceases to pay"] if crosses else []),
    ]
    return "; ".join([told, *marks]) + "."


def _ordered(stored: StoredRun) -> list[Comparison]:
    workloads = list(dict.fromkeys(place.workload for place in places_of(stored)))
    return [
        c
        for workload in workloads
        for load in sorted({c.load for c in stored.comparisons}, key=load_order)
        for arm in arms_of(stored)
        for c in comparisons_at(stored, arm, workload)
        if c.load == load
    ]


def _comparison_table(stored: StoredRun) -> Table:
    table = Table(
        name="comparisons",
        caption="Every arm against the baseline",
        columns=(
            Column(name="workload", label="workload", numeric=False),
            Column(name="load", label="load"),
            Column(name="arm", label="arm", numeric=False),
            Column(name="metric", label="compared", numeric=False),
            Column(name="baseline_value", label="baseline"),
            Column(name="arm_value", label="arm's"),
            Column(name="speedup", label="speedup [95 %]"),
            Column(name="verdict", label="verdict", numeric=False),
            Column(name="accept_len_tok", label="accept length"),
            Column(name="break_even_accept_len_tok", label="break-even"),
            Column(name="cycle_ms", label="cycle ms"),
            Column(name="baseline_step_ms", label="baseline step ms"),
            Column(name="pairs", label="pairs"),
        ),
        rows=tuple(_comparison_row(c) for c in _ordered(stored)),
    )
    kept = ("load", "arm", "baseline_value", "arm_value", "speedup", "verdict")
    return without_empty_columns(table, kept)


def _comparison_row(c: Comparison) -> tuple[Value, ...]:
    verdict = "no verdict" if c.verdict is None else str(c.verdict)
    marked = verdict if c.status is CellStatus.VALID else f"{verdict}, {c.status}"
    marked += f", same server as {', '.join(c.same_server_as)}" if c.same_server_as else ""
    tone = _VERDICT_TONES.get(c.verdict, "") if c.verdict else ""
    shown = number(c.speedup, 3) + interval(c.ci95_low, c.ci95_high, 3)
    return (
        text(c.workload),
        text(c.load),
        text(c.arm),
        text(metric_words(c.metric)),
        figure_number(c.baseline_value, 1),
        figure_number(c.arm_value, 1),
        Value(text=shown, raw=c.speedup),
        text(marked, tone=tone if c.status is CellStatus.VALID else "warn"),
        figure_number(c.accept_len_tok, 2),
        figure_number(c.break_even_accept_len_tok, 2),
        figure_number(c.cycle_ms, 2),
        figure_number(c.baseline_step_ms, 2),
        figure_number(c.pairs, 0),
    )
