"""The steps of `bench run` and `bench resume`: what they are given, the run itself, its end."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import typer

from bench.cli import report
from bench.cli.output import many, printing, resume_command
from bench.errors import BenchError, InputError, Interrupted

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from types import FrameType

    from bench.model import KeySource, Plan
    from bench.runner import Event
    from bench.store import RunWriter


def key_source(option: str, name: str | None, path: Path | None) -> KeySource | None:
    """Where a key of the attached servers is read from; it is read when it is needed."""
    from bench.model import KeySource

    if name is not None and path is not None:
        raise InputError(
            f"{option}-env and {option}-file: a key is read from one place.",
            hint="Leave one of them out.",
        )
    if name is not None:
        return KeySource(kind="env", place=name)
    return KeySource(kind="file", place=str(path.absolute())) if path is not None else None


def attached(values: list[str]) -> tuple[tuple[str, str], ...]:
    """`[ARM=]URL` values as (arm, url); an empty arm is left for the plan to decide."""
    urls: dict[str, str] = {}
    for value in values:
        arm, separator, url = value.partition("=")
        if not separator or "://" in arm:
            arm, url = "", value
        if not url.startswith(("http://", "https://")):
            raise InputError(
                f"--attach: `{url.rpartition('@')[2]}` is not a URL.",
                hint="Give http://host:port or https://host:port, with ARM= before it.",
            )
        if arm in urls:
            raise InputError(
                f"--attach gives {f'arm `{arm}`' if arm else 'no arm'} twice.",
                hint="Give each arm one URL: --attach ARM=URL.",
            )
        urls[arm] = url.rstrip("/")
    return tuple(urls.items())


def taken(plan: Plan, writer: RunWriter, out: Path) -> str:
    """Which run `latest` is, and that it is not the newest where that is so."""
    from bench.store import list_runs

    begun = writer.manifest.started_at
    total = sum(len(launch.cells) for launch in plan.launches)
    newer = [run for run in list_runs(out) if (run.started_at or "") > begun]
    than = f"; {many(len(newer), 'run')} begun later cannot be taken up" if newer else ""
    when = begun[:16].replace("T", " ")
    cells = f"{len(writer.finished_cells())} of {many(total, 'cell')} stored"
    return f"latest is {writer.run_id}, begun {when} UTC, {cells}{than}"


def measure(plan: Plan, writer: RunWriter, *, as_json: bool, quiet: bool, page: bool) -> None:
    """Run a plan, print its answer and exit with its code."""
    import uvloop

    from bench.cli.answer import exit_code, print_answer
    from bench.cli.progress import Progress
    from bench.store import load_run

    finished = writer.finished_cells()
    with writer, Progress(plan, writer.run_id, finished=finished, quiet=quiet) as progress:
        _on_signals(_interrupt)
        try:
            folder = uvloop.run(_run(plan, writer, progress.on_event))
        except BenchError as error:
            error.hint = "\n".join(filter(None, (error.hint, _going_on(plan, writer))))
            raise
        except KeyboardInterrupt:  # while the answer was being made, which does no harm
            raise Interrupted("stopped as asked.", hint=_going_on(plan, writer)) from None
    stored = load_run(folder)
    with printing():
        print_answer(stored, as_json=as_json)
        if page:
            report.write_report(stored, quiet=as_json)
    raise typer.Exit(exit_code(stored))


async def _run(plan: Plan, writer: RunWriter, on_event: Callable[[Event], None]) -> Path:
    from bench import runner

    try:
        return await runner.run(plan, writer, on_event=on_event)
    finally:
        # What is left takes a moment: closing the event loop, printing the answer.
        _on_signals(signal.SIG_IGN)


def _on_signals(action: Callable[[int, FrameType | None], None] | signal.Handlers) -> None:
    """What Ctrl-C and TERM do when no bench is open; nothing where they were ignored before."""
    for number in (signal.SIGINT, signal.SIGTERM):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, action)


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _going_on(plan: Plan, writer: RunWriter) -> str:
    """What is stored of a part-run, and the command that takes it up."""
    if not writer.folder.exists():
        return "Nothing was measured, and nothing is kept of this run."
    total = sum(len(launch.cells) for launch in plan.launches)
    done = len(writer.finished_cells())
    command = resume_command(writer.run_id, writer.folder.parent.parent)
    what = "makes the answer" if done == total else "measures the rest" if done else "tries again"
    return f"{done} of {many(total, 'cell')} stored; `{command}` {what}."
