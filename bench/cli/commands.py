"""The sub-commands of `bench`."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from bench.cli import card, doctor, nightly, report, selftest
from bench.cli.output import RESULTS, print_json, print_version, printing
from bench.cli.run_steps import attached, key_source, measure, taken

app = typer.Typer(
    name="bench",
    help="Measures what speculative decoding really gains on an SGLang server, and why.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

Out = Annotated[Path, typer.Option("--out", metavar="DIR", help="Folder of all results.")]
AsJson = Annotated[
    bool, typer.Option("--json", help="Print the answer as one JSON object on stdout.")
]
Quiet = Annotated[bool, typer.Option("--quiet", help="No progress on stderr.")]
NoReport = Annotated[bool, typer.Option("--no-report", help="Do not write the run's page.")]
ApiKeyEnv = Annotated[
    str | None,
    typer.Option(
        "--api-key-env",
        metavar="NAME",
        help="With --attach: the environment variable that holds the servers' API key.",
    ),
]
ApiKeyFile = Annotated[
    Path | None,
    typer.Option(
        "--api-key-file",
        metavar="PATH",
        help="With --attach: the file that holds the servers' API key.",
    ),
]
AdminApiKeyEnv = Annotated[
    str | None,
    typer.Option(
        "--admin-api-key-env",
        metavar="NAME",
        help="With --attach: the variable that holds their admin key, for abort and flush.",
    ),
]
AdminApiKeyFile = Annotated[
    Path | None,
    typer.Option(
        "--admin-api-key-file",
        metavar="PATH",
        help="With --attach: the file that holds their admin key.",
    ),
]


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


@app.command(short_help="Measure a scenario and say what speculation gains.")
def run(
    scenario: Annotated[
        Path, typer.Argument(metavar="SCENARIO", help="The question, in YAML (docs/scenario.md).")
    ],
    sim: Annotated[
        bool,
        typer.Option(
            "--sim", help="Measure the bundled simulated server; every result is marked simulated."
        ),
    ] = False,
    sim_hardware: Annotated[
        str | None,
        typer.Option("--sim-hardware", metavar="NAME", help="With --sim: another hardware card."),
    ] = None,
    attach: Annotated[
        list[str] | None,
        typer.Option(
            "--attach",
            metavar="[ARM=]URL",
            help="Measure a running server instead of starting one (repeatable).",
        ),
    ] = None,
    exclusive: Annotated[
        bool,
        typer.Option(
            "--exclusive",
            help="Nobody else uses the attached servers: abort and flush there between cells.",
        ),
    ] = False,
    api_key_env: ApiKeyEnv = None,
    api_key_file: ApiKeyFile = None,
    admin_api_key_env: AdminApiKeyEnv = None,
    admin_api_key_file: AdminApiKeyFile = None,
    only: Annotated[
        list[str] | None,
        typer.Option(
            "--only",
            metavar="KEY=VALUE",
            help="Only these cells: arm=, workload=, load=, pair= (repeatable).",
        ),
    ] = None,
    overrides: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="PATH=VALUE",
            help="Override a key of the scenario, e.g. measure.pairs=5.",
        ),
    ] = None,
    add_pairs: Annotated[
        int, typer.Option("--add-pairs", metavar="N", help="N more pairs than it asks for.")
    ] = 0,
    budget: Annotated[
        str | None,
        typer.Option(
            "--budget",
            metavar="TIME",
            help="Measure what is worth most in this time (90s, 45m, 3h), say what is dropped.",
        ),
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option(
            "--workers",
            metavar="N",
            min=1,
            help="Load worker processes, instead of as many as the load needs.",
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print cells, launches and hours; start nothing.")
    ] = False,
    out: Out = RESULTS,
    as_json: AsJson = False,
    quiet: Quiet = False,
    no_doctor: Annotated[
        bool, typer.Option("--no-doctor", help="Do not examine the drafts' files first.")
    ] = False,
    no_report: NoReport = False,
) -> None:
    """Measure a scenario and say what speculation gains at each load, and why."""
    from bench import runner
    from bench.plan import parse_budget

    asked = runner.Asked(
        scenario=scenario,
        simulated=sim,
        sim_hardware=sim_hardware,
        attach=attached(attach or []),
        only=tuple(only or ()),
        overrides=tuple(overrides or ()),
        add_pairs=add_pairs,
        exclusive=exclusive,
        api_key=key_source("--api-key", api_key_env, api_key_file),
        admin_api_key=key_source("--admin-api-key", admin_api_key_env, admin_api_key_file),
        budget_s=parse_budget(budget) if budget is not None else None,
        workers=workers,
    )
    if dry_run:
        from bench.cli.tables import print_plan

        with printing():
            plan, told_by = runner.own_answer(*runner.plan_of(asked))
            print_plan(plan, told_by=told_by, budget_s=asked.budget_s, as_json=as_json)
        if asked.budget_s is not None:
            runner.require_fit(plan, asked.budget_s)
        return
    if not no_doctor:
        doctor.warn_of_drafts(runner.plan_of(asked)[0])
    measure(
        *runner.start_run(asked, out, command_line=sys.argv),
        as_json=as_json,
        quiet=quiet,
        page=not no_report,
    )


@app.command(short_help="Take up a run that was interrupted.")
def resume(
    run_name: Annotated[
        str,
        typer.Argument(
            metavar="RUN",
            help="A part-run: its id, the beginning or end of that, its folder, or `latest`.",
        ),
    ],
    retry_failed: Annotated[
        bool,
        typer.Option(
            "--retry-failed",
            help="Take up a published run too, and try the launches again that failed in it.",
        ),
    ] = False,
    api_key_env: ApiKeyEnv = None,
    api_key_file: ApiKeyFile = None,
    admin_api_key_env: AdminApiKeyEnv = None,
    admin_api_key_file: AdminApiKeyFile = None,
    out: Out = RESULTS,
    as_json: AsJson = False,
    quiet: Quiet = False,
    no_report: NoReport = False,
) -> None:
    """Take up a run that was interrupted: measure the cells that are missing, then answer."""
    from bench import runner

    plan, writer = runner.resume_run(
        run_name,
        out,
        command_line=sys.argv,
        retry_failed=retry_failed,
        api_key=key_source("--api-key", api_key_env, api_key_file),
        admin_api_key=key_source("--admin-api-key", admin_api_key_env, admin_api_key_file),
    )
    if run_name == runner.LATEST and not quiet:
        print(taken(plan, writer, out), file=sys.stderr)
    measure(plan, writer, as_json=as_json, quiet=quiet, page=not no_report)


@app.command("list", short_help="List the runs in the results folder.")
def list_(out: Out = RESULTS, as_json: AsJson = False) -> None:
    """List the runs below the results folder, part-runs and damaged ones included."""
    from bench.cli.tables import print_runs
    from bench.store import list_runs

    with printing():
        print_runs(list_runs(out), out=out, as_json=as_json)


@app.command(short_help="Print a stored run's answer again.")
def show(
    run_name: Annotated[
        str,
        typer.Argument(
            metavar="RUN",
            help="A run: its id, the beginning or end of that, its folder, or `latest`.",
        ),
    ] = "latest",
    out: Out = RESULTS,
    as_json: AsJson = False,
) -> None:
    """Print a stored run's answer again; of a part-run what is known so far."""
    from bench import runner
    from bench.cli.answer import print_answer
    from bench.store import find_run, load_run

    stored = runner.answer_so_far(load_run(find_run(out, run_name)))
    with printing():
        print_answer(stored, as_json=as_json)


@app.command(short_help="Print the JSON Schema of a scenario.")
def schema() -> None:
    """Print the JSON Schema of a scenario, for editors that complete and check YAML."""
    from bench.scenario import json_schema

    with printing():
        print_json(json_schema())


@app.command(
    short_help="Run the simulated server by hand.",
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
)
def simulate(context: typer.Context) -> None:
    """Run the simulated server by hand, with SGLang's arguments and a few of its own.

    At least --model-path is needed. Its own are --sim-hardware NAME, --sim-target NAME,
    --sim-acceptance NAME or 0.7,0.4,0.3, --sim-seed N, --sim-truth FILE (docs/simulator.md) and
    --sim-faults FAULT,… (docs/faults.md).
    """
    os.execv(sys.executable, [sys.executable, "-m", "bench.simulator", *context.args])  # noqa: S606  # it takes this process's place


app.command("report", short_help="Write a stored run's page.")(report.report)
app.command("compare", short_help="Compare two runs of the same work.")(report.compare)
app.command("selftest", short_help="Try how exact the load client is on this machine.")(
    selftest.selftest
)
app.add_typer(card.app, name="card", short_help="Write a card of your model or machine.")
app.add_typer(doctor.app, name="doctor", short_help="Find out why a draft is accepted badly.")
app.add_typer(nightly.app, name="nightly", short_help="Find regressions, night after night.")
