"""Steps of `bench nightly`: a verdict judged, printed, drawn and sent."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from bench.cli.output import Printer, many, print_json, printing, shown_path
from bench.errors import BenchError, DiskError

if TYPE_CHECKING:
    from bench.model.nightly import NightlyVerdict, SeriesState
    from bench.nightly import Reruns, Suite

PAGE = "index.html"
LINES = "series.jsonl"
_STEP_SUMMARY = "GITHUB_STEP_SUMMARY"
_MOST_SHOWN = 20


def judge_and_tell(suite: Suite | None, history: Path, *, as_json: bool, page: bool) -> bool:
    """Judge, print, write page and lines, tell whoever wants to know.

    Args:
        suite: What is watched; None: everything.
        history: Its folder.
        as_json: Whether the verdict is printed as JSON.
        page: Whether page and lines are written.

    Returns:
        Whether a regression stands.
    """
    from bench import clock
    from bench.nightly import Watch, read_history, verdict_json, watch_of
    from bench.nightly import judge as judged

    watch = Watch(suite="everything") if suite is None else watch_of(suite)
    verdict = judged(read_history(history), watch, judged_at=clock.utc_now())
    if page and verdict.series:
        _write_page(verdict, history, quiet=as_json)
    _tell(verdict, suite)
    with printing():
        if as_json:
            print_json(verdict_json(verdict))
        else:
            _print_verdict(verdict, history)
    return bool(verdict.regressions)


def _print_verdict(verdict: NightlyVerdict, history: Path) -> None:
    from bench.metrics.change_words import group_line, grouped, headline, warnings
    from bench.model.nightly import SeriesState

    printer = Printer()
    none_yet = "" if verdict.newest else f" in {shown_path(history.absolute())}"
    printer.print_text(f"{verdict.suite}: {headline(verdict)}{none_yet}")
    groups = grouped(verdict.regressions)
    for group in groups[:_MOST_SHOWN]:
        printer.print_text(f"  {group_line(*group)}", style="bold red")
    if len(groups) > _MOST_SHOWN:
        printer.print_text(f"  and {len(groups) - _MOST_SHOWN} more (on the page)")
    for state in SeriesState:
        count = sum(judged.state is state for judged in verdict.series)
        if count:
            printer.print_text(f"  {state.value}: {count} series{_wanted(verdict, state)}")
    for warning in warnings(verdict):
        printer.print_text(f"  {warning}", style="yellow")


def _wanted(verdict: NightlyVerdict, state: SeriesState) -> str:
    """How many nights series without a verdict still take."""
    from bench.model.nightly import SeriesState

    if state is not SeriesState.NOT_ENOUGH:
        return ""
    wanted = [judged.nights_wanted for judged in verdict.series if judged.state is state]
    return f" ({many(max(wanted), 'more night')})"


def _write_page(verdict: NightlyVerdict, history: Path, *, quiet: bool) -> None:
    """The page and its lines; one that fails is told, and changes nothing else."""
    from bench.nightly import series_lines
    from reports import nightly_page, write_page

    try:
        file = write_page(nightly_page(verdict), history / PAGE)
        lines = (json.dumps(line, allow_nan=False) for line in series_lines(verdict))
        _replace(history / LINES, "".join(f"{line}\n" for line in lines))
    except Exception as error:  # noqa: BLE001  # the history is stored and judged: no page may spoil that
        reason = str(error) if isinstance(error, BenchError) else repr(error)
        print(
            f"bench: no page could be made of {history}: {reason}\n"
            "       `bench nightly judge` tries again.",
            file=sys.stderr,
        )
    else:
        if not quiet:
            print(f"Page:    {shown_path(file.absolute())}")


def _replace(path: Path, text: str) -> None:
    part = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        part.write_text(text)
        part.replace(path)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise DiskError(f"cannot write {path}: {error.strerror}") from error


def _tell(verdict: NightlyVerdict, suite: Suite | None) -> None:
    """GitHub's step summary and the suite's webhook; neither changes how the night ends."""
    from bench.nightly import post, summary_markdown, verdict_json

    summary = os.environ.get(_STEP_SUMMARY)
    if summary:
        try:
            with Path(summary).open("a", encoding="utf-8") as file:
                file.write(summary_markdown(verdict))
        except OSError as error:
            print(f"bench: no step summary: {error.strerror}", file=sys.stderr)
    variable = None if suite is None else suite.webhook_env
    if variable is None:
        return
    url = os.environ.get(variable)
    if not url:
        print(f"bench: no webhook: {variable} is not set", file=sys.stderr)
        return
    body = {"text": summary_markdown(verdict), "verdict": verdict_json(verdict)}
    try:
        post(url, body)
    except BenchError as error:
        print(f"bench: {str(error).replace(url, '[the webhook]')}", file=sys.stderr)


def print_reruns(reruns: Reruns) -> None:
    """Old against new, a line a place."""
    simulated = " SIMULATED" if reruns.simulated else ""
    print(f"output tok/s, new / old [95 %], over all launches:{simulated}")
    for change, suspect_ct in zip(reruns.changes, reruns.suspect_ct, strict=True):
        ratio = "no ratio" if change.ratio is None else f"{change.ratio:.3f}"
        if change.ci95_low is not None and change.ci95_high is not None:
            ratio += f" [{change.ci95_low:.3f}, {change.ci95_high:.3f}]"
        verdict = change.reason or (change.verdict and change.verdict.value) or "no verdict"
        old, new = change.launches
        suspect = f", {suspect_ct} of {old + new} launches SUSPECT" if suspect_ct else ""
        place = f"{change.workload} load {change.load} {change.arm}"
        print(f"  {place}: {ratio}, {verdict}{suspect}")
