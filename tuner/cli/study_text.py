"""A study in words: its answer, its launches, all studies."""

from __future__ import annotations

import shlex
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec
import typer
from rich.table import Table

from bench.cli.output import RESULTS, Printer, many, print_json, shown_path
from bench.errors import StoreError
from bench.model.study import IN_TURN, TrialState, step_counts_in_turn
from bench.store.study import find_study, read_study, studies_in
from tuner.cli.answer_text import (
    answer,
    done_launches,
    gain_of,
    in_short,
    percent,
    progress,
)

if TYPE_CHECKING:
    from pathlib import Path

    from bench.model.study import Study, StudyTrial

_MOST_CHARS = 100  # of a failure in the table of launches; `--json` and the page have all of it


def as_found(study: Study, folder: Path) -> Study:
    """The study as it stands: what nobody writes any more is not running, but was stopped."""
    from bench.store.reader import writer_pid

    if study.status == "complete" or writer_pid(folder) is not None:
        return study
    trials = tuple(
        replace(t, state=TrialState.STALE) if t.state is TrialState.RUNNING else t
        for t in study.trials
    )
    return replace(study, status="interrupted", trials=trials)


def going_on(study: Study, folder: Path) -> str | None:
    """What is stored of a study that was stopped, and the command that takes it up."""
    from bench.store.cells import finished_cell_ids

    if study.status != "interrupted":
        return None
    spent = study.conclusion is None and done_launches(study) >= study.launches_budget
    more = " --launches N" if spent else ""
    return (
        f"{many(len(finished_cell_ids(folder)), 'cell')} stored; "
        f"`tuner resume {study.study_id}{of_out(folder.parent.parent)}{more}` goes on."
    )


def of_out(out: Path) -> str:
    """` --out DIR` of a command about a study, where that is not the usual results folder."""
    is_usual = out.absolute() == RESULTS.absolute()
    return "" if is_usual else f" --out {shlex.quote(shown_path(out))}"


def launched(trial: StudyTrial, label: str) -> str:
    """What a launch is of, `label` its configuration's."""
    if trial.why != IN_TURN:
        return label
    counts = step_counts_in_turn(trial)
    of = f"{label} and its neighbour" if counts is None else f"{counts[0]} and {counts[1]}"
    return f"two step counts in turn ({of})"


def trial_result(trial: StudyTrial, objective: str) -> str:
    """What became of a launch, in a line; `objective` is what its gain is of."""
    if trial.state is TrialState.MEASURED:
        is_other = trial.gain is not None and trial.configuration != 0
        gain = f"{gain_of(trial.gain or 0.0, objective)} over the baseline" if is_other else ""
        gain += _part(trial)
        marks = f"; marked: {', '.join(trial.marks)}" if trial.marks else ""
        breaks = f"; breaks a limit: {trial.breaks[0]}" if trial.breaks else ""
        return f"{gain or 'measured'}{breaks}{marks}"
    kind = "cut off" if trial.state is TrialState.STALE else trial.state.value
    if trial.failure_class is not None and trial.failure_class not in (trial.failure or ""):
        kind = trial.failure_class
    return kind if trial.failure is None else f"{kind}: {trial.failure}"


def _part(trial: StudyTrial) -> str:
    """That only some of a launch's cells have a figure: its gain is of these alone."""
    have = sum(value is not None for value in trial.value)
    return "" if have == len(trial.value) else f" in {have} of {many(len(trial.value), 'cell')}"


def print_study(study: Study, folder: Path) -> None:
    """The answer, the launches, what is left out, where it is and how to go on."""
    study = as_found(study, folder)
    printer = Printer()
    if study.simulated:
        printer.print_text(
            "SIMULATED: nothing here was measured on hardware.", style="bold yellow"
        )
    for sentence in answer(study):
        printer.print_text(sentence)
    for line in _by_cell(study):
        printer.print_text(line)
    printer.print_table(_trials(study))
    for note in study.notes:
        printer.print_text(f"Note: {note}")
    left_out = [c for c in study.configurations if c.excluded is not None]
    for c in left_out[:12]:
        printer.print_text(f"Not launched any more: {c.label}: {c.excluded}")
    if len(left_out) > 12:
        printer.print_text(f"and {len(left_out) - 12} more")
    printer.print_text(f"Study: {shown_path(folder)}")
    if study.conclusion is not None:
        place = of_out(folder.parent.parent)
        exporting = f"`tuner export {study.study_id}{place}` writes what to deploy."
        printer.print(exporting, soft_wrap=True)  # a command is copied: it is not folded
    if (more := going_on(study, folder)) is not None:
        printer.print(more, soft_wrap=True)


def _by_cell(study: Study) -> list[str]:
    told = study.conclusion
    if told is None or len(study.cells) < 2:
        return []
    label = {c.place: c.label for c in study.configurations}
    lines = []
    for found in told.cells:
        cell = study.cells[found.cell]
        best = (
            "none is better beyond noise" if found.within_noise else f"{label[found.best]} is best"
        )
        lines.append(
            f"  {cell.workload} load {cell.load}: {gain_of(found.gain, study.objective)} with "
            f"{label[told.deploy]}; {best}"
        )
    return lines


def _trials(study: Study) -> Table:
    table = Table(box=None, pad_edge=False)
    for column in ("launch", "why", "configuration", "expected", "measured", ""):
        table.add_column(column, no_wrap=bool(column))  # where the last is long, it wraps
    labels = {c.place: c.label for c in study.configurations}
    for trial in study.trials:
        expected = "" if trial.predicted_gain is None else percent(trial.predicted_gain)
        gain = "" if trial.gain is None else percent(trial.gain)
        is_measured = trial.state is TrialState.MEASURED
        rest = "" if is_measured else _short(trial_result(trial, study.objective))
        part = (_part(trial).removeprefix(" "),) if is_measured and _part(trial) else ()
        marks = ", ".join((*part, *trial.breaks[:1], *trial.marks))
        why = trial.why if trial.block is None else f"{trial.why} {trial.block + 1}"
        table.add_row(
            str(trial.number + 1),
            why,
            launched(trial, labels[trial.configuration]),
            expected,
            gain,
            rest or marks,
        )
    return table


def _short(text: str) -> str:
    return text if len(text) <= _MOST_CHARS else f"{text[: _MOST_CHARS - 1]}…"


def study_json(study: Study, folder: Path) -> dict[str, Any]:
    """The study as JSON, with its answer in words."""
    from bench.store.manifest import strict

    study = as_found(study, folder)
    told: dict[str, Any] = {"study": study.study_id, "folder": str(folder)}
    told |= {"answer": answer(study)}
    told |= strict(msgspec.to_builtins(study))
    return told


def print_status(out: Path, name: str | None, *, as_json: bool) -> None:
    """All studies below a results folder, or one, a line each."""
    folders = studies_in(out) if name is None else [find_study(out, name)[0]]
    rows, damaged = [], []
    for folder in folders:
        try:
            study = as_found(read_study(folder), folder)
            rows.append((study, _status_row(study, folder)))
        except StoreError as error:  # the others are listed nevertheless
            damaged.append(str(error))
    for text in damaged:
        typer.echo(text, err=True)
    if as_json:
        print_json([row for _, row in rows])
        return
    printer = Printer()
    if not folders:
        printer.print_text(f"No study in {shown_path(out)}. `tuner sweep SCENARIO` makes one.")
        return
    for study, _ in rows:
        marked = " (simulated)" if study.simulated else ""
        printer.print_text(f"{study.study_id}  {study.status}{marked}, {progress(study)}")
        printer.print_text(f"  {in_short(study)}")


def _status_row(study: Study, folder: Path) -> dict[str, Any]:
    from bench.store.reader import writer_pid

    return {
        "study": study.study_id,
        "scenario": study.scenario,
        "simulated": study.simulated,
        "status": study.status,
        "pid": writer_pid(folder),
        "launches": done_launches(study),
        "budget": study.launches_budget,
        "answer": in_short(study),
        "folder": str(folder),
    }
