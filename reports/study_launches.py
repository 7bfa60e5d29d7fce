"""Sections of a study's page on its launches: their order, what failed, what they cost."""

from __future__ import annotations

from collections import Counter
from datetime import datetime
from typing import TYPE_CHECKING

from bench.model.study import IN_TURN, TrialState
from reports import plots
from reports.blocks import (
    Column,
    Drawing,
    Table,
    Value,
    figure_number,
    text,
    without_empty_columns,
)
from reports.study_known import cell_names, gain_value
from reports.study_wording import STATES, launched_words, objective_words

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from bench.model.study import Study, StudyTrial
    from reports.blocks import Block

MOST_NAMED = 3
_TONES = {TrialState.FAILED: "bad", TrialState.STALE: "warn"}
_WHY = {
    "baseline": "baseline, against drift",
    "first": "first",
    "search": "search",
    "final": "final",
    IN_TURN: "two step counts in turn",
}


def order_blocks(study: Study, numbers: Mapping[str, int]) -> list[Block]:
    """Every launch in order, with the best so far."""
    if not study.trials:
        return ["Nothing was launched."]
    blocks: list[Block] = []
    figure = plots.draw_order(study, numbers)
    if figure is not None:
        blocks.append(
            Drawing(
                name="order",
                title="Gain of each launch, in order",
                note="Grey line: the best single launch of the search so far, which luck "
                "flatters. Diamonds: the baseline, launched again against drift. Grey band: the "
                "final, with the confirmed gain and its interval. Hollow: a limit was not kept. "
                "×: failed.",
                figure=figure,
                wide=True,
            )
        )
    else:
        blocks.append("No order is drawn: no launch was measured.")
    blocks.append(_launch_table(study))
    in_turn = [str(t.number + 1) for t in study.trials if t.why == IN_TURN]
    if in_turn:
        blocks.append(
            f"In launch {', '.join(in_turn)} two step counts took turns: its figures are of both, "
            "and count for no configuration. What it is for, the comparison of the two, is among "
            "the notes of “What weakens it”."
        )
    return blocks


def _launch_table(study: Study) -> Table:
    cells = cell_names(study)
    table = Table(
        name="launches",
        caption=f"Every launch; the figures of the cells are {objective_words(study)}",
        columns=(
            Column(name="number", label="launch"),
            Column(name="configuration", label="configuration", numeric=False),
            Column(name="why", label="why", numeric=False),
            Column(name="block", label="block"),
            Column(name="state", label="became", numeric=False),
            Column(name="predicted_ln_gain", label="predicted"),
            Column(name="ln_gain", label="gain"),
            *(
                Column(name=f"value_{at}", label=cell if len(cells) > 1 else f"at {cell}")
                for at, cell in enumerate(cells, start=1)
            ),
            Column(name="memory_headroom_gib", label="free GiB"),
            Column(name="duration_s", label="minutes"),
            Column(name="breaks", label="limits not kept", numeric=False),
            Column(name="marks", label="marks", numeric=False),
        ),
        rows=tuple(_launch_row(study, t) for t in study.trials),
    )
    return without_empty_columns(table, ("number", "configuration", "why", "state", "ln_gain"))


def _launch_row(study: Study, t: StudyTrial) -> tuple[Value, ...]:
    seconds = _seconds(study, t)
    return (
        figure_number(t.number + 1, 0),
        text(launched_words(study, t)),
        text(_WHY.get(t.why, t.why)),
        figure_number(None if t.block is None else t.block + 1, 0),
        text(STATES[t.state], tone=_TONES.get(t.state, "")),
        gain_value(None if t.why == IN_TURN else t.predicted_gain),  # of one step count
        gain_value(t.gain),
        *(figure_number(value, 1) for value in t.value),
        figure_number(t.memory_headroom_gib, 1),
        Value(text="–" if seconds is None else f"{seconds / 60:.1f}", raw=seconds),
        text("; ".join(t.breaks) or None),
        text(", ".join(dict.fromkeys(t.marks)).replace("_", " ") or None),
    )


# --- failures


def failure_blocks(study: Study) -> list[Block]:
    """Failed launches, and everything that was never launched, with the reasons."""
    blocks: list[Block] = []
    failed = [t for t in study.trials if t.failure is not None or t.state is TrialState.FAILED]
    if failed:
        blocks.append(_failed_table(study, failed))
    else:
        blocks.append("No launch failed." if study.trials else "Nothing was launched.")
    excluded = [c for c in study.configurations if c.excluded is not None]
    if excluded:
        reasons: dict[str, list[str]] = {}
        for c in excluded:
            reasons.setdefault(c.excluded or "", []).append(c.label)
        blocks.append(_reasons("excluded", "Not launched any more", reasons))
    if study.illegal:
        blocks.append(
            Table(
                name="illegal",
                caption="Never launched: the server would refuse or fail",
                columns=(
                    Column(name="rule", label="rule", numeric=False),
                    Column(name="points", label="points"),
                    Column(name="reason", label="why", numeric=False),
                ),
                rows=tuple(
                    (text(rule), figure_number(count, 0), text(reason))
                    for rule, count, reason in study.illegal
                ),
            )
        )
    if study.aliases:
        blocks.append(
            Table(
                name="aliases",
                caption="Doubles: the server makes the same of them, so one is launched "
                "(docs/arguments.md has the rules)",
                columns=(
                    Column(name="why", label="why", numeric=False),
                    Column(name="points", label="points"),
                ),
                rows=tuple((text(why), figure_number(count, 0)) for why, count in study.aliases),
            )
        )
    return blocks


def _failed_table(study: Study, failed: Sequence[StudyTrial]) -> Table:
    return Table(
        name="failed_launches",
        caption=f"{len(failed)} of {len(study.trials)} launches failed",
        columns=(
            Column(name="number", label="launch"),
            Column(name="configuration", label="configuration", numeric=False),
            Column(name="class", label="kind", numeric=False),
            Column(name="failure", label="what was said", numeric=False),
            Column(name="also_excluded", label="also left out", numeric=False),
        ),
        rows=tuple(
            (
                figure_number(t.number + 1, 0),
                text(launched_words(study, t)),
                text(None if t.failure_class is None else t.failure_class.replace("_", " ")),
                text(t.failure),
                text(_listed(study.configurations[c].label for c in t.also_excluded) or None),
            )
            for t in failed
        ),
    )


def _reasons(name: str, caption: str, reasons: Mapping[str, Sequence[str]]) -> Table:
    return Table(
        name=name,
        caption=caption,
        columns=(
            Column(name="reason", label="why", numeric=False),
            Column(name="configurations", label="configurations"),
            Column(name="which", label="which", numeric=False),
        ),
        rows=tuple(
            (text(reason), figure_number(len(labels), 0), text(_listed(labels)))
            for reason, labels in reasons.items()
        ),
    )


def _listed(labels: Iterable[str]) -> str:
    told = list(labels)
    more = f" and {len(told) - MOST_NAMED} more" if len(told) > MOST_NAMED else ""
    return "; ".join(told[:MOST_NAMED]) + more


# --- cost


def cost_blocks(study: Study) -> list[Block]:
    """Launches, hours and GPU hours by what they were for."""
    if not study.trials:
        return []
    groups = {
        why: [t for t in study.trials if t.why == why]
        for why in Counter(t.why for t in study.trials)
    }
    rows = [_cost_row(study, _WHY.get(why, why), trials) for why, trials in groups.items()]
    rows.append(_cost_row(study, "all", study.trials))
    clock = "the simulated servers' clock" if study.simulated else "the servers' clock"
    table = Table(
        name="cost",
        caption=f"By what they were for; hours of {clock}",
        columns=(
            Column(name="why", label="for", numeric=False),
            Column(name="launches", label="launches"),
            Column(name="failed", label="failed"),
            Column(name="stale", label="lost"),
            Column(name="starting_h", label="starting h"),
            Column(name="measuring_h", label="measuring h"),
            Column(name="hours", label="hours"),
            Column(name="gpu_hours", label="GPU hours"),
        ),
        rows=tuple(rows),
    )
    budget = f"The budget was {study.launches_budget} launches"
    if study.hours_budget is not None:
        budget += f" and {study.hours_budget:g} hours"
    blocks: list[Block] = [f"{budget}.", without_empty_columns(table, ("why", "launches"))]
    if not study.gpus:
        blocks.append("No GPU hours are told: the servers ran without GPUs.")
    return blocks


def _cost_row(study: Study, name: str, trials: Sequence[StudyTrial]) -> tuple[Value, ...]:
    told = [s for t in trials if (s := _seconds(study, t)) is not None]
    hours = sum(told) / 3600 if told else None
    failed = sum(t.state is TrialState.FAILED for t in trials)
    stale = sum(t.state is TrialState.STALE for t in trials)
    return (
        text(name),
        figure_number(len(trials), 0),
        figure_number(failed, 0),
        figure_number(stale or None, 0),
        figure_number(_hours(t.launch_s for t in trials), 2),
        figure_number(_hours(t.measured_s for t in trials), 2),
        figure_number(hours, 2),
        figure_number(None if hours is None or not study.gpus else hours * study.gpus, 1),
    )


def _hours(seconds: Iterable[float | None]) -> float | None:
    told = [s for s in seconds if s is not None]
    return sum(told) / 3600 if told else None


def _seconds(study: Study, t: StudyTrial) -> float | None:
    """Of the server's clock; of a launch without both parts, by when it began and ended."""
    if t.launch_s is not None and t.measured_s is not None:
        return t.launch_s + t.measured_s
    if t.ended_at is None:
        return None
    began, ended = datetime.fromisoformat(t.started_at), datetime.fromisoformat(t.ended_at)
    return (ended - began).total_seconds() * study.speed
