"""A study in words: its answer, its launches, all studies."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import msgspec
import typer
from rich.table import Table

from bench.cli.output import Printer, many, print_json, shown_path
from bench.errors import StoreError
from bench.model import Verdict
from bench.model.study import TrialState
from bench.store.study import find_study, read_study, studies_in

if TYPE_CHECKING:
    from pathlib import Path

    from bench.model.study import Study, StudyConclusion, StudyTrial

_MOST_CHARS = 100  # of a failure in the table of launches; `--json` and the page have all of it


def percent(gain: float) -> str:
    """A log ratio as a change in per cent: `+5.1 %`."""
    return f"{round(math.expm1(gain) * 100, 1) + 0.0:+.1f} %"  # + 0.0: no -0.0


def answer(study: Study) -> list[str]:
    """The study's answer in sentences."""
    told = study.conclusion
    if told is None:
        return [_no_answer(study)]
    label = {c.place: c.label for c in study.configurations}
    sentences = [_ratio(study, told), _verdict(told, label)]
    if told.search_gain is not None:
        luck = percent(told.optimism).removeprefix("+")
        of_it = "" if luck == "0.0 %" else f", of which {luck} is expected to be luck"
        sentences.append(f"The search alone said {percent(told.search_gain)}{of_it}.")
    if told.present is not None and told.over_present is not None and told.best != told.present:
        gain, sd = told.over_present
        within = ", no more than noise" if told.deploy == told.present else ""
        sentences.append(
            f"{label[told.best]} over what is in use now ({label[told.present]}): "
            f"{percent(gain)} (± {2 * sd * 100:.1f}){within}."
        )
    if told.reason is not None:
        sentences.append(f"{told.reason[0].upper()}{told.reason[1:]}.")
    return sentences


def _no_answer(study: Study) -> str:
    measured = sum(t.state is TrialState.MEASURED for t in study.trials)
    if study.status != "complete":
        return (
            f"No answer yet: {many(measured, 'launch')} measured of at most "
            f"{study.launches_budget}, and the final has not been held."
        )
    baseline = next((t.breaks[0] for t in study.trials if t.configuration == 0 and t.breaks), None)
    also = "" if baseline is None else f" The baseline breaks a limit too: {baseline}."
    return (
        f"No final: whatever was to be compared with the baseline failed or breaks a limit.{also}"
    )


def _ratio(study: Study, told: StudyConclusion) -> str:
    label = {c.place: c.label for c in study.configurations}
    against = "no speculation" if label[told.baseline] == "off" else label[told.baseline]
    if told.verdict is None:
        return (
            f"{label[told.best]} was {math.exp(told.gain):.3f}x as fast as {against}, "
            "without repeats."
        )
    low, high = math.exp(told.ci95_low), math.exp(told.ci95_high)
    return (
        f"{label[told.best]} is {math.exp(told.gain):.3f}x as fast as {against} "
        f"[{low:.3f}, {high:.3f}], re-tested in {many(told.blocks, 'block')} of neighbouring "
        "launches."
    )


def _verdict(told: StudyConclusion, label: dict[int, str]) -> str:
    name = "No verdict" if told.verdict is None else told.verdict.value.upper()
    what = {
        "deploy": f"Deploy {label[told.deploy]}.",
        "leave_off": "Leave speculation off"
        + ("." if label[told.deploy] == "off" else f", with {label[told.deploy]}."),
        "keep_present": f"Keep what you have: {label[told.deploy]}.",
        "undecided": f"{label[told.deploy]} is the best guess; nothing is proven. More launches "
        "would tell.",
    }[told.answer]
    same = " A gain of this size is worth no draft model." if told.verdict is Verdict.SAME else ""
    return f"{name}. {what}{same}"


def trial_result(trial: StudyTrial) -> str:
    """What became of a launch, in a line."""
    if trial.state is TrialState.MEASURED:
        is_other = trial.gain is not None and trial.configuration != 0
        gain = f"{percent(trial.gain or 0.0)} over the baseline" if is_other else ""
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
    """The answer, the launches, what is left out, where it is."""
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
        printer.print_text(f"`tuner export {study.study_id}` writes what to deploy.")


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
            f"  {cell.workload} load {cell.load}: {percent(found.gain)} with "
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
        rest = "" if is_measured else _short(trial_result(trial))
        part = (_part(trial).removeprefix(" "),) if is_measured and _part(trial) else ()
        marks = ", ".join((*part, *trial.breaks[:1], *trial.marks))
        why = trial.why if trial.block is None else f"{trial.why} {trial.block + 1}"
        table.add_row(
            str(trial.number + 1),
            why,
            labels[trial.configuration],
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
            rows.append(_status_row(folder))
        except StoreError as error:  # the others are listed nevertheless
            damaged.append(str(error))
    for text in damaged:
        typer.echo(text, err=True)
    if as_json:
        print_json(rows)
        return
    printer = Printer()
    if not folders:
        printer.print_text(f"No study in {shown_path(out)}. `tuner sweep SCENARIO` makes one.")
        return
    for row in rows:
        marked = " (simulated)" if row["simulated"] else ""
        done = f"{row['launches']} of {many(row['budget'], 'launch')}"
        printer.print_text(f"{row['study']}  {row['status']}{marked}, {done}")
        printer.print_text(f"  {row['answer']}")


def _status_row(folder: Path) -> dict[str, Any]:
    from bench.store.reader import writer_pid

    study = read_study(folder)
    pid = writer_pid(folder)
    status = study.status
    if status == "running" and pid is None:
        status = "interrupted"  # whoever wrote it was killed
    return {
        "study": study.study_id,
        "scenario": study.scenario,
        "simulated": study.simulated,
        "status": status,
        "pid": pid,
        "launches": sum(
            t.state is not TrialState.STALE or any(v is not None for v in t.value)
            for t in study.trials
        ),
        "budget": study.launches_budget,
        "answer": answer(study)[0],
        "folder": str(folder),
    }
