"""Sections of a study's page on what comes of it: what to deploy, where, from which space."""

from __future__ import annotations

import math
import shlex
from itertools import pairwise
from typing import TYPE_CHECKING

from bench.model.study import TrialState
from bench.store.study import STUDY
from reports.blocks import (
    Column,
    Command,
    Link,
    Table,
    Value,
    figure_number,
    share,
    text,
    without_empty_columns,
)
from reports.configuration import file_links, fingerprint_table
from reports.study_known import gain_value
from reports.study_wording import objective_words

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench.model.study import Study, StudyCellConclusion, StudyConclusion
    from bench.store import StoredRun
    from reports.blocks import Block

_TITLES = {
    "deploy": "Deploy",
    "leave_off": "Without speculation",
    "keep_present": "What you have",
    "undecided": "Until it is decided",
}


def deploy_blocks(study: Study) -> list[Block]:
    """The command and the environment, ready to copy."""
    c = study.conclusion
    if c is None:
        return ["Nothing is to be deployed yet: only the final says what holds up."]
    chosen = study.configurations[c.deploy]
    title = f"{_TITLES.get(c.answer, 'Deploy')}: {chosen.label}"
    blocks: list[Block] = []
    if chosen.environment:
        lines = "\n".join(
            f"export {name}={shlex.quote(value)}" for name, value in chosen.environment
        )
        blocks.append(Command(title="Environment, beside what the scenario sets", text=lines))
    if study.argv:
        blocks.append(Command(title=title, text=_command(study.argv)))
    else:
        blocks.append(f"{title}. Its command is not stored with this study.")
    if study.argv and not chosen.environment:
        blocks.append("It needs no environment variables beside those of the scenario.")
    if study.argv and study.simulated:
        blocks.append("This is the command as it was simulated, not one for hardware.")
    blocks.append(Command(title="More forms of it", text=f"tuner export {study.study_id}"))
    return blocks


def _command(argv: Sequence[str]) -> str:
    """The command with an option a line, as a shell takes it."""
    words = [shlex.quote(word) for word in argv]
    starts = [at for at, word in enumerate(argv) if at and word.startswith("--")]
    ends = [*starts, len(words)]
    lines = [words[: ends[0]], *(words[a:b] for a, b in pairwise(ends))]
    return " \\\n  ".join(" ".join(line) for line in lines)


# --- by cell


def cell_blocks(study: Study) -> list[Block]:
    """Which configuration is best at each workload and load, within noise or not."""
    c = study.conclusion
    if c is None:
        return ["Which setting is best at which load is told after the final."]
    deploy = study.configurations[c.deploy].label
    table = Table(
        name="study_cells",
        caption=f"{deploy} at each workload and load ({objective_words(study)}), and what is best "
        "there",
        columns=(
            Column(name="workload", label="workload", numeric=False),
            Column(name="load", label="load"),
            Column(name="weight", label="weight"),
            Column(name="baseline_value", label="baseline"),
            Column(name="deployed_value", label="deployed"),
            Column(name="ln_gain", label="its gain"),
            Column(name="best", label="best there", numeric=False),
            Column(name="best_ln_gain", label="the best's gain"),
            Column(name="within_noise", label="how sure", numeric=False),
        ),
        rows=tuple(_cell_row(study, c, cell) for cell in c.cells),
    )
    kept = ("load", "ln_gain", "best", "within_noise")
    return [without_empty_columns(table, kept)] if c.cells else ["No cell has an answer."]


def _cell_row(study: Study, c: StudyConclusion, at: StudyCellConclusion) -> tuple[Value, ...]:
    cell = study.cells[at.cell]
    best = study.configurations[at.best]
    if at.best == c.deploy:
        sure = "none is better by more than noise" if at.within_noise else "it is the best here"
    else:
        sure = "within noise of the deployed" if at.within_noise else "better by more than noise"
    alone = None if best.cell_gain is None else best.cell_gain[at.cell]
    other = at.best != c.deploy and not at.within_noise
    return (
        text(cell.workload),
        text(cell.load),
        share(cell.weight),
        figure_number(_value(study, c.baseline, at.cell), 1),
        figure_number(_value(study, c.deploy, at.cell), 1),
        gain_value(at.gain, tone="bad" if at.gain < 0 else ""),
        text(best.label, tone="warn" if other else ""),
        gain_value(alone),
        text(sure),
    )


def _value(study: Study, place: int, cell: int) -> float | None:
    """Mean of the objective's metric over the launches of one configuration."""
    told = [
        value
        for t in study.trials
        if t.configuration == place and t.state is TrialState.MEASURED
        for value in (t.value[cell],)
        if value is not None
    ]
    return math.fsum(told) / len(told) if told else None


# --- the space


def space_blocks(study: Study) -> list[Block]:
    """How large it was: raw, legal, distinct, launched."""
    illegal = sum(count for _, count, _ in study.illegal)
    doubles = sum(count for _, count in study.aliases)
    distinct = len(study.configurations)
    launched = len({t.configuration for t in study.trials if t.state is TrialState.MEASURED})
    rows: list[tuple[str, int]] = [
        ("points of the axes", study.raw),
        ("the server would refuse or fail", illegal),
        ("legal", study.raw - illegal),
        ("doubles of others", doubles),
        ("distinct", distinct),
        ("measured", launched),
    ]
    table = Table(
        name="space",
        caption="From the axes of `tune:` to what was measured",
        columns=(
            Column(name="what", label="what", numeric=False),
            Column(name="count", label="configurations"),
        ),
        rows=tuple((text(what), figure_number(count, 0)) for what, count in rows),
    )
    return [table, *_asked(study)]


def _asked(study: Study) -> list[Block]:
    cells = f"{len(study.cells)} cell{'s' if len(study.cells) != 1 else ''}"
    counts = (
        f"What counts is {objective_words(study)}, as the weighted mean of log ratios over "
        f"{cells}; within ±{100 * study.margin:g} % of the baseline is SAME."
    )
    lines: list[Block] = [counts]
    if study.constraints:
        told = ", ".join(f"{name} {limit:g}" for name, limit in study.constraints)
        lines.append(f"Limits to keep: {told}.")
    return lines


def provenance_blocks(study: Study, run: StoredRun | None) -> list[Block]:
    """The command, machine and software, the files."""
    blocks: list[Block] = []
    if study.command_line:
        blocks.append(
            Command(title="The command that made this study", text=shlex.join(study.command_line))
        )
    if run is not None:
        blocks += [fingerprint_table(run), Link(href=STUDY, text="everything about the study")]
        blocks += file_links(run)
    return blocks
