"""The sub-commands of `tuner`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from bench.cli.output import RESULTS, print_json, print_version, printing

app = typer.Typer(
    name="tuner",
    help="Searches for the speculative settings that really are faster (docs/tuning.md).",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

Scenario = Annotated[
    Path, typer.Argument(metavar="SCENARIO", help="The scenario with a tune: block, in YAML.")
]
StudyName = Annotated[
    str,
    typer.Argument(
        metavar="STUDY",
        help="A study: its id, the beginning or end of that, its folder, or `latest`.",
    ),
]
Sim = Annotated[
    bool,
    typer.Option("--sim", help="Launch bundled simulated servers; all results are marked so."),
]
SimHardware = Annotated[
    str | None,
    typer.Option("--sim-hardware", metavar="NAME", help="With --sim: another hardware card."),
]
Overrides = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="PATH=VALUE", help="Override a key of the scenario (repeatable)."
    ),
]
Launches = Annotated[
    int | None,
    typer.Option(
        "--launches", metavar="N", min=4, help="All launches, the final's included (tune.budget)."
    ),
]
Hours = Annotated[
    float | None,
    typer.Option("--hours", metavar="H", help="Hours that it may take (tune.budget)."),
]
Out = Annotated[Path, typer.Option("--out", metavar="DIR", help="Folder of all results.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="No progress on stderr.")]
NoReport = Annotated[bool, typer.Option("--no-report", help="Do not write the study's page.")]


@app.callback()
def _top(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=print_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
) -> None:
    pass


@app.command(short_help="Search a scenario's tune: block, and re-test the best.")
def sweep(
    scenario: Scenario,
    sim: Sim = False,
    sim_hardware: SimHardware = None,
    launches: Launches = None,
    hours: Hours = None,
    overrides: Overrides = None,
    workers: Annotated[
        int | None,
        typer.Option("--workers", metavar="N", min=1, help="Load worker processes."),
    ] = None,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run", help="Print the space, what is left out and the hours; start nothing."
        ),
    ] = False,
    out: Out = RESULTS,
    as_json: AsJson = False,
    quiet: Quiet = False,
    no_report: NoReport = False,
) -> None:
    """Search for the settings that really are faster, and hand over what a re-test confirms."""
    from tuner.cli.sweep_steps import run_sweep
    from tuner.sweep.beginning import Asked, prepare, start_sweep

    prepared = prepare(
        Asked(
            scenario=scenario,
            simulated=sim,
            sim_hardware=sim_hardware,
            overrides=tuple(overrides or ()),
            launches=launches,
            hours=_hours(hours),
            workers=workers,
        )
    )
    if dry_run:
        from tuner.cli.space_text import print_space

        with printing():
            print_space(prepared, as_json=as_json)
        return
    writer = start_sweep(prepared, out, command_line=sys.argv)
    run_sweep(prepared, writer, as_json=as_json, quiet=quiet, page=not no_report)


@app.command(short_help="Take up a sweep that was stopped.")
def resume(
    study: StudyName,
    launches: Launches = None,
    hours: Hours = None,
    out: Out = RESULTS,
    as_json: AsJson = False,
    quiet: Quiet = False,
    no_report: NoReport = False,
) -> None:
    """Take up a sweep that was stopped or killed; what it measured counts."""
    from tuner.cli.sweep_steps import run_sweep
    from tuner.sweep.beginning import resume_sweep

    prepared, writer = resume_sweep(
        study, out, command_line=sys.argv, launches=launches, hours=_hours(hours)
    )
    run_sweep(prepared, writer, as_json=as_json, quiet=quiet, page=not no_report)


@app.command(short_help="List the studies and how far they are.")
def status(
    study: Annotated[
        str | None, typer.Argument(metavar="STUDY", help="One study, or `latest`; none: all.")
    ] = None,
    out: Out = RESULTS,
    as_json: AsJson = False,
) -> None:
    """List the studies, how far each is, and what is known so far."""
    from tuner.cli.study_text import print_status

    with printing():
        print_status(out, study, as_json=as_json)


@app.command(short_help="Print a study's answer and its launches.")
def show(study: StudyName, out: Out = RESULTS, as_json: AsJson = False) -> None:
    """Print a study's answer, its launches and what failed."""
    from bench.cli.output import shown_path
    from bench.store.study import find_study
    from reports.study_page import STUDY_PAGE
    from tuner.cli.study_text import print_study, study_json

    folder, found = find_study(out, study)
    with printing():
        if as_json:
            print_json(study_json(found, folder))
        else:
            print_study(found, folder)
            if (page := folder / STUDY_PAGE).is_file():
                print(f"Page: {shown_path(page)}")


@app.command(short_help="Write what to deploy: command, adaptive configuration, scenario.")
def export(
    study: StudyName,
    to: Annotated[
        Path | None,
        typer.Option(
            "--to", metavar="DIR", help="Folder of the files.", show_default="SCENARIO-tuned"
        ),
    ] = None,
    out: Out = RESULTS,
) -> None:
    """Write the launch command, SGLang's adaptive configuration and a scenario of the winner."""
    from bench.store.study import find_study
    from tuner.export import default_folder, export_study, export_text

    folder, found = find_study(out, study)
    exported = export_study(folder, found, to or default_folder(found))
    with printing():
        print(export_text(exported))


@app.command(short_help="Write a study's page again.")
def report(study: StudyName, out: Out = RESULTS) -> None:
    """Write a study's page (study.html in its folder); also of one that is not finished."""
    from bench.cli.output import shown_path
    from bench.store.study import find_study
    from reports.study_page import write_study_page

    folder, _ = find_study(out, study)
    page = write_study_page(folder)
    with printing():
        print(shown_path(page))


@app.command(short_help="Rank communication settings without the model.")
def nccl(
    scenario: Annotated[Path, typer.Argument(metavar="SCENARIO", help="The scenario, in YAML.")],
    rounds: Annotated[
        int, typer.Option("--rounds", metavar="N", min=2, help="Interleaved rounds of all.")
    ] = 5,
    nccl_tests: Annotated[
        Path | None,
        typer.Option(
            "--nccl-tests",
            metavar="PATH",
            help="all_reduce_perf of nccl-tests, or its folder.",
            show_default="PyTorch of the server's Python; without one all_reduce_perf on PATH",
        ),
    ] = None,
    overrides: Overrides = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Rank communication settings at this model's message sizes, in minutes, without the model."""
    from bench.scenario import load_scenario
    from tuner.nccl import rank_nccl, ranking_json, ranking_text

    ranking = rank_nccl(
        load_scenario(scenario, tuple(overrides or ())),
        rounds=rounds,
        nccl_tests=nccl_tests,
        say=lambda line: None if quiet else typer.echo(line, err=True),
    )
    with printing():
        if as_json:
            print_json(ranking_json(ranking))
        else:
            print(ranking_text(ranking))


def _hours(hours: float | None) -> float | None:
    from bench.errors import InputError
    from tuner.space.schema import MOST_HOURS

    if hours is not None and not 0 < hours <= MOST_HOURS:
        raise InputError(
            f"--hours {hours:g}: wanted more than 0 and at most {MOST_HOURS:,}.",
            hint="Write e.g. --hours 6.",
        )
    return hours
