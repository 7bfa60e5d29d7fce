"""`bench nightly`: suites measured night after night, and judged over their history."""

from __future__ import annotations

import getpass
import shutil
import signal
import sys
from contextlib import contextmanager
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bench.cli.nightly_steps import judge_and_tell, print_reruns
from bench.cli.output import RESULTS, many, printing
from bench.errors import EXIT_ANSWERED, EXIT_INPUT, EXIT_MACHINE, EXIT_REGRESSION, InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager
    from types import FrameType

    from bench.model import Plan
    from bench.runner import Event

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

HISTORY = RESULTS / "nightly"

SuiteFile = Annotated[
    Path, typer.Argument(metavar="SUITE", help="The suite, in YAML (docs/nightly.md).")
]
HistoryFolder = Annotated[
    Path, typer.Option("--history", metavar="DIR", help="Folder of the history.")
]
Out = Annotated[Path, typer.Option("--out", metavar="DIR", help="Folder of all results.")]
AsJson = Annotated[
    bool, typer.Option("--json", help="Print the verdict as one JSON object on stdout.")
]
NoReport = Annotated[bool, typer.Option("--no-report", help="Do not write the page.")]
Night = Annotated[
    str,
    typer.Argument(metavar="DATE", help="First night of the new level, as the page shows it."),
]
SeriesText = Annotated[
    str,
    typer.Option(
        "--series", metavar="TEXT", help="Only series whose name has this in it, e.g. an arm."
    ),
]


@app.callback()
def _top() -> None:
    """Measure suites night after night; find what became slower, when and why."""


@app.command(short_help="Measure a suite once, add to its history, judge it.")
def run(
    suite_file: SuiteFile,
    history: HistoryFolder = HISTORY,
    out: Out = RESULTS,
    as_json: AsJson = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress on stderr.")] = False,
    no_report: NoReport = False,
) -> None:
    """Measure every scenario of a suite, add to its history, judge it and write its page.

    Ends with 0, with 5 when a regression stands, or with 3 when something could not be measured.
    """
    from bench.nightly import load_suite, run_night

    suite = load_suite(suite_file)
    signal.signal(signal.SIGTERM, _interrupt)
    outcome = run_night(
        suite,
        history=history,
        out=out,
        command_line=sys.argv,
        watching=_watching(quiet=quiet),
    )
    for line in outcome.left_out:
        print(f"bench: no point from {line}", file=sys.stderr)
    for scenario, reason in outcome.failures:
        print(f"bench: {scenario} was not measured: {reason}", file=sys.stderr)
    regressed = judge_and_tell(suite, history, as_json=as_json, page=not no_report)
    code = EXIT_MACHINE if outcome.failures else EXIT_ANSWERED
    raise typer.Exit(EXIT_REGRESSION if regressed else code)


@app.command(short_help="Judge a history without measuring.")
def judge(
    suite_file: Annotated[
        Path | None,
        typer.Argument(
            metavar="SUITE",
            help="The suite: what is watched; without it everything.",
            show_default=False,
        ),
    ] = None,
    history: HistoryFolder = HISTORY,
    as_json: AsJson = False,
    no_report: NoReport = False,
) -> None:
    """Judge a history without measuring, and write its page.

    Ends with 0, or with 5 when a regression stands.
    """
    from bench.nightly import load_suite

    suite = None if suite_file is None else load_suite(suite_file)
    regressed = judge_and_tell(suite, history, as_json=as_json, page=not no_report)
    raise typer.Exit(EXIT_REGRESSION if regressed else EXIT_ANSWERED)


@app.command("import", short_help="Take past runs into a history.")
def import_(
    paths: Annotated[
        list[Path],
        typer.Argument(
            metavar="PATH…",
            help="Results folders or runs of ours; result files of bench_serving or vLLM, or "
            "folders of them.",
        ),
    ],
    scenario: Annotated[
        str, typer.Option("--scenario", metavar="NAME", help="Of a file: its scenario's name.")
    ] = "imported",
    arm: Annotated[
        str, typer.Option("--arm", metavar="NAME", help="Of a file: the arm it is of.")
    ] = "baseline",
    hardware: Annotated[
        str | None,
        typer.Option(
            "--hardware",
            metavar="NAME",
            help="The hardware class, where a run or file cannot tell it.",
            show_default=False,
        ),
    ] = None,
    night: Annotated[
        str | None,
        typer.Option(
            "--date",
            metavar="DATE",
            help="Of a file: its night (else the date in its name, else its own).",
            show_default=False,
        ),
    ] = None,
    history: HistoryFolder = HISTORY,
) -> None:
    """Take past runs of ours and other tools' result files into a history.

    What is in already is left alone. Other tools' figures are series of their own, since their
    throughput has ramp and tail in it.
    """
    from bench.nightly import ForeignNames, import_runs

    names = ForeignNames(
        scenario=scenario,
        arm=arm,
        hardware=hardware or "unknown hardware",
        night=None if night is None else _date(night, "--date"),
    )
    done = import_runs(paths, history, names=names, hardware=hardware)
    with printing():
        print(
            f"{many(done.sources, 'source')} taken in ({many(done.points, 'point')}), "
            f"{done.known} known already, {len(done.refused)} refused."
        )
        places: dict[str, list[str]] = {}
        for where, why in done.refused:
            places.setdefault(why, []).append(where)
        for why, alike in places.items():
            more = f" and {len(alike) - 1} more" if len(alike) > 1 else ""
            print(f"  {alike[0]}{more}: {why}", file=sys.stderr)
    if done.refused and not done.sources and not done.known:
        raise typer.Exit(EXIT_INPUT)


@app.command(short_help="Mark a night's changes as expected.")
def ack(
    night: Night,
    reason: Annotated[
        str, typer.Option("--reason", metavar="TEXT", help="Why they are expected.")
    ],
    series: SeriesText = "",
    by: Annotated[
        str | None,
        typer.Option("--by", metavar="NAME", help="Who says so.", show_default="you"),
    ] = None,
    history: HistoryFolder = HISTORY,
) -> None:
    """Mark the changes of one night as expected: they stay in sight and sound no alarm."""
    from bench.metrics.change_words import change_line
    from bench.nightly import acknowledge

    who = by or getpass.getuser()
    changes = acknowledge(history, _date(night, "DATE"), series=series, reason=reason, by=who)
    with printing():
        for change in changes:
            print(f"expected: {change_line(change)}")


@app.command(short_help="Print the commands that re-run old against new.")
def bisect(
    suite_file: Annotated[
        Path | None, typer.Argument(metavar="SUITE", help="The suite.", show_default=False)
    ] = None,
    night: Annotated[
        str | None,
        typer.Argument(metavar="DATE", help="First night of the new level.", show_default=False),
    ] = None,
    series: SeriesText = "",
    runs: Annotated[
        Path | None,
        typer.Option(
            "--runs",
            metavar="DIR",
            help="Where the runs go.",
            show_default="results/bisect-DATE",
        ),
    ] = None,
    compare: Annotated[
        Path | None,
        typer.Option(
            "--compare",
            metavar="DIR",
            help="Compare what the script has measured there.",
            show_default=False,
        ),
    ] = None,
    history: HistoryFolder = HISTORY,
) -> None:
    """Print a shell script that measures the environment before a change against the one after.

    The two alternate (old new new old old new), and its last line compares them.
    """
    from bench import clock
    from bench.nightly import bisect_script, compare_reruns, load_suite, read_history, watch_of
    from bench.nightly import judge as judged

    if compare is not None:
        with printing():
            print_reruns(compare_reruns(compare))
        return
    if suite_file is None or night is None:
        raise InputError(
            "bisect wants a suite and the date of a change.",
            hint="bench nightly bisect SUITE.yaml 2026-11-03; or --compare DIR afterwards.",
        )
    suite = load_suite(suite_file)
    verdict = judged(read_history(history), watch_of(suite), judged_at=clock.utc_now())
    script = bisect_script(
        verdict,
        suite,
        _date(night, "DATE"),
        series=series,
        runs=runs or RESULTS / f"bisect-{night}",
        commands=_commands(),
    )
    with printing():
        print(script, end="")


# ----------------------------------------------------------------------------------------- steps


def _commands() -> Path | None:
    """The folder of the `bench` that runs, where its name alone finds none or another one."""
    typed = Path(sys.argv[0])
    found = shutil.which("bench")
    if typed.name != "bench" or not typed.is_file() or (found and typed.samefile(found)):
        return None
    return typed.absolute().parent


@contextmanager
def _no_progress(_plan: Plan, _run_id: str) -> Iterator[Callable[[Event], None]]:
    yield lambda _event: None


def _watching(
    *, quiet: bool
) -> Callable[[Plan, str], AbstractContextManager[Callable[[Event], None]]]:
    if quiet:
        return _no_progress

    @contextmanager
    def watching(plan: Plan, run_id: str) -> Iterator[Callable[[Event], None]]:
        from bench.cli.progress import Progress

        with Progress(plan, run_id, finished=set(), quiet=False) as progress:
            yield progress.on_event

    return watching


def _date(text: str, what: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise InputError(f"{what}: {text!r} is no date.", hint="Write 2026-11-03.") from None


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt
