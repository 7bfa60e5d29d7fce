"""`bench selftest`: how exact the load client is on this machine (docs/instrument.md)."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bench.cli.output import Printer, print_json, printing

if TYPE_CHECKING:
    from bench.selftest.examining import Examination
    from bench.selftest.trial import TrialResult


def selftest(
    scenario: Annotated[
        Path | None,
        typer.Argument(
            metavar="SCENARIO",
            help="The scenario whose load the client is to be good for (docs/scenario.md).",
            show_default="64 streams, 5000 events/s",
        ),
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option(
            "--workers",
            metavar="N",
            min=1,
            help="Load worker processes.",
            show_default="as many as the load needs",
        ),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the answer as one JSON object on stdout.")
    ] = False,
) -> None:
    """Try the load client against a server that knows the truth: its errors, and up to which load.

    Takes about 20 seconds and needs nothing but this machine. What it proves, later runs rely on.
    """
    import uvloop

    from bench.selftest.examining import examine
    from bench.selftest.need import DEFAULT, need_of, workers_for

    need = DEFAULT
    if scenario is not None:
        from bench import runner

        plan, _ = runner.plan_of(runner.Asked(scenario=scenario))
        need = need_of(plan.launches)

    def say(what: str) -> None:
        print(f"trying {what}", file=sys.stderr)

    examination = uvloop.run(
        examine(need, workers=workers or workers_for(need.event_per_s), on_step=say)
    )
    with printing():
        if as_json:
            print_json(_as_json(examination))
        else:
            _print(examination)


def _as_json(found: Examination) -> dict[str, object]:
    return {
        "need": asdict(found.need),
        "workers": found.workers,
        "ground_truth_server": "c" if found.at_need.is_compiled else "python",
        "why_not_compiled": found.at_need.why_not_compiled,
        **{
            name: {
                "event_per_s": result.event_per_s,
                "cpu_us_per_event": result.cpu_us_per_event,
                "event_per_read": result.client.events_per_read,
                "loop_lag_p99_ms": result.client.loop_lag_p99_ms,
                **asdict(result.accuracy),
            }
            for name, result in _trials(found).items()
        },
        "proven_event_per_s": found.proven_event_per_s,
        "refused_event_per_s": found.refused_event_per_s,
        "faults": list(found.faults),
        "is_good_enough": found.is_good_enough,
        "is_remembered": found.is_remembered,
    }


def _trials(found: Examination) -> dict[str, TrialResult]:
    return {
        "light": found.light,
        "at_need": found.at_need,
        "at_rate": found.at_rate,
        "at_most": found.at_most,
    }


_LINES = (
    ("events/s", "event_per_s", "{:.0f}"),
    ("µs CPU per event", "cpu_us_per_event", "{:.1f}"),
    ("events per read", "event_per_read", "{:.2f}"),
    ("TTFT error, mean (ms)", "ttft_error_mean_ms", "{:.2f}"),
    ("TTFT error, p99", "ttft_error_p99_ms", "{:.2f}"),
    ("chunk gap error, p50 (ms)", "gap_error_p50_ms", "{:.2f}"),
    ("chunk gap error, p99", "gap_error_p99_ms", "{:.2f}"),
    ("chunk gap p99 beyond true", "gap_p99_excess_ms", "{:.2f}"),
    ("time per token off by", "tpot_error_share", "{:+.2%}"),
    ("throughput off by", "span_error_share", "{:+.2%}"),
    ("send lateness, p50 (ms)", "late_p50_ms", "{:.2f}"),
    ("send lateness, p99", "late_p99_ms", "{:.2f}"),
    ("rate of sends off by", "rate_error_share", "{:+.2%}"),
    ("server's own lateness, p99", "server_late_p99_ms", "{:.2f}"),
    ("server slowed by", "server_slow_share", "{:+.2%}"),
)


def _print(found: Examination) -> None:
    from rich.table import Table

    out = Printer()
    need, values = found.need, _as_json(found)
    out.print_text(
        f"Needed: {need.streams} streams, {need.event_per_s:.0f} events/s"
        + (f", {need.rate_per_s:g} requests/s" if need.rate_per_s else "")
        + f". Workers: {found.workers}."
    )
    table = Table(box=None, pad_edge=False)
    table.add_column("")
    names = {"light": "8 streams", "at_need": "as needed", "at_rate": "open", "at_most": "unpaced"}
    for name in names.values():
        table.add_column(name, justify="right")
    for title, field, form in _LINES:
        row = [values[name] for name in names]
        cells = [one.get(field) for one in row if isinstance(one, dict)]
        table.add_row(title, *("–" if cell is None else form.format(cell) for cell in cells))
    out.print_table(table)
    for line in _verdict(found):
        out.print_text(line)


def _verdict(found: Examination) -> list[str]:
    proven, refused = found.proven_event_per_s, found.refused_event_per_s
    lines = []
    if proven is not None:
        lines.append(f"Errors stay under 1 ms and 1 % up to {proven:.0f} events/s.")
    if refused is not None:
        lines.append(f"At {refused:.0f} events/s: {', '.join(found.faults)}.")
    slow = found.at_need.accuracy.server_slow_share
    if slow is not None:
        slowed = "slows" if slow > 0.01 else "does not slow"
        lines.append(
            f"At the load needed the client {slowed} the server: its answers take {slow:+.2%} of "
            "what its schedule says."
        )
    if not found.at_need.is_compiled:
        lines.append(
            f"The ground-truth server ran in Python ({found.at_need.why_not_compiled}): it is "
            "late itself, and these errors are upper limits."
        )
    if proven is not None and not found.is_remembered:
        lines.append("No later run will know this: the cache folder cannot be written.")
    lines.append(
        "GOOD ENOUGH for the load that is needed."
        if found.is_good_enough
        else "NOT PROVEN for the load that is needed: cells beyond what is proven are marked "
        "SUSPECT. Free the machine, or run bench on another."
    )
    return lines
