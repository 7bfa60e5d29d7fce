"""Sections of a study's page on what comes of it: what to deploy, where, from which space."""

from __future__ import annotations

import math
import shlex
from itertools import pairwise
from typing import TYPE_CHECKING

from bench.model.study import TrialState, of_their_configuration
from bench.provenance.redaction import REDACTED
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
_LIMITS = {
    "ttft_p99_ms": "p99 TTFT at most {:g} ms",
    "tpot_p99_ms": "p99 TPOT at most {:g} ms",
    "memory_headroom_gib": "at least {:g} GiB free on the fullest GPU",
}
_MEASURED_OR_ESTIMATED = (
    "Measured: the geometric mean over the launches of the baseline, of the deployed, and the "
    "ratio of the two. Estimated: what all launches say together, those of neighbouring settings "
    "included and drift taken out; it need not be that ratio, and it decides which is best there."
)


def deploy_blocks(study: Study) -> list[Block]:
    """The command and the environment, ready to copy."""
    c = study.conclusion
    if c is None:
        return ["Nothing is to be deployed yet: only the final says what holds up."]
    chosen = study.configurations[c.deploy]
    title = f"{_TITLES.get(c.answer, 'Deploy')}: {chosen.label}"
    told = study.environment
    variables = chosen.environment if told is None else told
    beside = "" if told is not None else " beside those of the scenario"
    blocks: list[Block] = []
    if variables:
        lines = "\n".join(_export(name, value) for name, value in variables)
        blocks.append(Command(title=f"Environment variables{beside}", text=lines))
    if study.argv:
        blocks.append(Command(title=title, text=_command(study.argv)))
    else:
        blocks.append(f"{title}. Its command is not stored with this study.")
    if study.argv and not variables:
        blocks.append(f"It needs no environment variables{beside}.")
    if study.argv and study.simulated:
        blocks.append("This is the command as it was simulated, not one for hardware.")
    blocks.append(Command(title="More forms of it", text=f"tuner export {study.study_id}"))
    return blocks


def _export(name: str, value: str) -> str:
    if REDACTED in value:
        return f"# {name} holds a secret: export it before."
    return f"export {name}={shlex.quote(value)}"


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
            Column(name="baseline_value", label="baseline, measured"),
            Column(name="deployed_value", label="deployed, measured"),
            Column(name="ln_gain", label="its gain, measured"),
            Column(name="estimated_ln_gain", label="its gain, estimated"),
            Column(name="best", label="best there", numeric=False),
            Column(name="best_estimated_ln_gain", label="the best's gain, estimated"),
            Column(name="within_noise", label="how sure", numeric=False),
        ),
        rows=tuple(_cell_row(study, c, cell) for cell in c.cells),
    )
    kept = ("load", "estimated_ln_gain", "best", "within_noise")
    if not c.cells:
        return ["No cell has an answer."]
    return [without_empty_columns(table, kept), _MEASURED_OR_ESTIMATED]


def _cell_row(study: Study, c: StudyConclusion, at: StudyCellConclusion) -> tuple[Value, ...]:
    cell = study.cells[at.cell]
    best = study.configurations[at.best]
    if at.best == c.deploy:
        sure = "none is better by more than noise" if at.within_noise else "it is the best here"
    else:
        sure = "within noise of the deployed" if at.within_noise else "better by more than noise"
    # Stored gains are over the first configuration; the answer is over the better baseline.
    over = (study.configurations[c.baseline].cell_gain or (0.0,) * len(study.cells))[at.cell]
    alone = None if best.cell_gain is None else best.cell_gain[at.cell] - over
    baseline, deployed = (_log_value(study, place, at.cell) for place in (c.baseline, c.deploy))
    gain = None if baseline is None or deployed is None else deployed - baseline
    estimated = at.gain - over
    other = at.best != c.deploy and not at.within_noise
    return (
        text(cell.workload),
        text(cell.load),
        share(cell.weight),
        figure_number(None if baseline is None else math.exp(baseline), 1),
        figure_number(None if deployed is None else math.exp(deployed), 1),
        gain_value(gain, tone="bad" if gain is not None and gain < 0 else ""),
        gain_value(estimated, tone="bad" if estimated < 0 else ""),
        text(best.label, tone="warn" if other else ""),
        gain_value(alone),
        text(sure),
    )


def _log_value(study: Study, place: int, cell: int) -> float | None:
    """Mean log of the objective's metric over the launches of one configuration."""
    told = [
        math.log(value)
        for t in of_their_configuration(study.trials)
        if t.configuration == place and t.state is TrialState.MEASURED
        for value in (t.value[cell],)
        if value is not None and value > 0
    ]
    return math.fsum(told) / len(told) if told else None


# --- the space


def space_blocks(study: Study) -> list[Block]:
    """How large it was: raw, legal, distinct, launched."""
    trials = of_their_configuration(study.trials)
    launched = len({t.configuration for t in trials if t.state is TrialState.MEASURED})
    rows = [*_counted(study), ("measured", launched)]
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


def _counted(study: Study) -> list[tuple[str, int]]:
    """From raw points to distinct configurations."""
    illegal = ("the server would refuse or fail", sum(count for _, count, _ in study.illegal))
    doubles = ("doubles of others", sum(count for _, count in study.aliases))
    counts = study.counts
    if counts is None:
        return [
            ("points of the axes", study.raw),
            illegal,
            ("legal", study.raw - illegal[1]),
            doubles,
            ("distinct", len(study.configurations)),
        ]
    without = "without speculation counted"
    beside = len(study.configurations) - counts.distinct
    if counts.looked_at < counts.raw or study.raw != counts.raw:  # a part of it is held
        least = "" if counts.looked_at == counts.raw else ", at least"
        return [
            ("points of the axes", counts.raw),
            ("looked at", counts.looked_at),
            (f"legal{least}", counts.legal),
            (f"distinct{least} ({without})", counts.distinct),
            ("held to be weighed against one another", len(study.configurations)),
        ]
    return [
        ("points of the axes", counts.raw),
        illegal,
        ("legal", counts.legal),
        doubles,
        (f"distinct ({without})", counts.distinct),
        *([("for comparison alone: SGLang's adaptive mode", beside)] if beside > 0 else []),
    ]


def _asked(study: Study) -> list[Block]:
    cells = f"{len(study.cells)} cell{'s' if len(study.cells) != 1 else ''}"
    counts = (
        f"What counts is {objective_words(study)}, as the weighted mean of log ratios over "
        f"{cells}; within ±{100 * study.margin:g} % of the baseline is SAME."
    )
    lines: list[Block] = [counts]
    if study.constraints:
        told = ", ".join(
            _LIMITS.get(name, f"{name} {{:g}}").format(limit) for name, limit in study.constraints
        )
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
