"""The steps of `tuner sweep` and `tuner resume`: the sweep, its progress, its answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

import typer

from bench.cli.output import Printer, duration, many, print_json, printing, shown_path
from bench.errors import EXIT_NO_VALID_CELL, BenchError, DiskError, Interrupted
from bench.model import CellStatus
from bench.model.study import IN_TURN, TrialState
from tuner.cli.answer_text import gain_of
from tuner.cli.space_text import few_launches
from tuner.cli.study_text import launched, of_out, print_study, study_json, trial_result
from tuner.confirm.final import FEWEST

if TYPE_CHECKING:
    from pathlib import Path

    from bench.runner import Event
    from bench.store import RunWriter
    from tuner.sweep.beginning import Prepared
    from tuner.sweep.events import SweepEvent

_WHY = {
    "baseline": "without speculation, against drift",
    "first": "first, to learn from",
    "search": "search",
    "final": "final",
    "guest": "for comparison",
    IN_TURN: "inside one launch",
}


def run_sweep(
    prepared: Prepared, writer: RunWriter, *, as_json: bool, quiet: bool, page: bool
) -> None:
    """Run a sweep, print its answer and exit with its code."""
    import uvloop

    from bench.store.study import read_study
    from tuner.sweep.running import Sweep

    study_id, out = writer.run_id, writer.folder.parent.parent
    with writer, SweepProgress(prepared, study_id, quiet=quiet) as progress:
        try:
            sweep = Sweep(prepared, writer, on_event=progress.on_event, on_trial=progress.on_trial)
            folder = uvloop.run(sweep.run())
        except BenchError as error:
            hint = "make room on the disk" if isinstance(error, DiskError) else error.hint
            error.hint = "\n".join(filter(None, (hint, _going_on(writer, study_id, out))))
            raise
        except KeyboardInterrupt:
            raise Interrupted("stopped as asked.", hint=_going_on(writer, study_id, out)) from None
    study = read_study(folder)
    with printing():
        if as_json:
            print_json(study_json(study, folder))
        else:
            print_study(study, folder)
        if page:
            _write_page(folder, quiet=as_json)
    raise typer.Exit(EXIT_NO_VALID_CELL if study.conclusion is None else 0)


def _write_page(folder: Path, *, quiet: bool) -> None:
    """Write the study's page; one that cannot be made changes nothing of the study."""
    from reports.study_page import write_study_page

    try:
        page = write_study_page(folder)
    except Exception as error:  # noqa: BLE001  # whatever it is, the study is stored and told
        typer.echo(f"the page was not made: {type(error).__name__}: {error}", err=True)
        return
    if not quiet:
        print(f"Page: {shown_path(page)}")


def _going_on(writer: RunWriter, study_id: str, out: Path) -> str:
    """What is stored, and the command that takes it up."""
    done = len(writer.finished_cells())
    return f"{many(done, 'cell')} stored; `tuner resume {study_id}{of_out(out)}` goes on."


class SweepProgress:
    """A line a launch begun and ended; on a terminal also one live line below them."""

    def __init__(self, prepared: Prepared, study_id: str, *, quiet: bool) -> None:
        self._prepared = prepared
        self._study_id = study_id
        self._objective = prepared.tune.objective
        self._printer: Printer | None = None if quiet else Printer(stderr=True)
        self._failure: str | None = None

    def __enter__(self) -> Self:
        prepared = self._prepared
        searched, ground = prepared.candidates.searched, prepared.candidates.ground
        takes = duration(prepared.launch_s * prepared.launches)
        self._say(
            f"{self._study_id}: {many(len(searched), 'configuration')}, at most "
            f"{many(prepared.launches, 'launch')} of {many(len(ground.points), 'cell')}, about "
            f"{takes}"
        )
        if prepared.launches < FEWEST:
            self._say(few_launches(prepared.launches))
        if ground.simulated:
            self._say(
                f"SIMULATED servers at {ground.speed}× speed: "
                "nothing below was measured on hardware.",
                style="bold yellow",
            )
        return self

    def __exit__(self, *_exception: object) -> None:
        pass

    def on_event(self, event: Event) -> None:
        """What the bench says that is worth a line."""
        from bench.runner import CellFinished, LaunchEnded, LaunchStarting, Noted

        match event:
            case Noted(text=text):
                self._say(f"  {text}", style="bold yellow")
            case LaunchEnded(record=record):
                self._failure = record.failure
            case LaunchStarting() if self._failure is not None:
                self._say(f"  {self._failure}; it is started once more", style="bold yellow")
                self._failure = None
            case CellFinished(measurement=m):
                value = "no figure" if m.output_tok_per_s is None else f"{m.output_tok_per_s:.1f}"
                length = (
                    "" if m.accept_len_tok is None else f", accept length {m.accept_len_tok:.2f}"
                )
                status = "" if m.status is CellStatus.VALID else f", {m.status.value}"
                self._say(f"    {m.workload} load {m.load}: {value} tok/s{length}{status}")
            case _:
                pass

    def on_trial(self, event: SweepEvent) -> None:
        """A launch begun or ended."""
        from tuner.sweep.events import TrialStarting

        trial = event.trial
        self._failure = None
        if isinstance(event, TrialStarting):
            told = (
                ""
                if trial.predicted_gain is None or not trial.configuration
                else f", {gain_of(trial.predicted_gain, self._objective)} expected"
            )
            why = _WHY.get(trial.why, trial.why)
            if trial.block is not None:
                why += f", block {trial.block + 1}"
            self._say(
                f"[{trial.number + 1}/{self._prepared.launches + event.cut_off}] "
                f"{launched(trial, event.label)} ({why}{told})"
            )
            return
        style = None if trial.state is TrialState.MEASURED else "bold red"
        self._say(f"  {trial_result(trial, self._objective)}", style=style)

    def _say(self, text: str, *, style: str | None = None) -> None:
        """Print a line; a terminal that has gone away ends the talking, not the measuring."""
        if self._printer is None:
            return
        try:
            self._printer.print(text, style=style, soft_wrap=True)
        except OSError:
            self._printer = None
