"""`bench doctor`: why a draft is accepted badly, found before a night is lost to it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bench.cli.doctor_output import print_examination, print_findings, print_probe, print_wiring
from bench.cli.output import Printer, many, print_json, printing
from bench.errors import EXIT_NO_VALID_CELL, InputError

if TYPE_CHECKING:
    from bench.model import Plan

app = typer.Typer(
    help="Find out why a draft is accepted badly (docs/draft-doctor.md).",
    no_args_is_help=True,
    rich_markup_mode=None,
)

AsJson = Annotated[
    bool, typer.Option("--json", help="Print the answer as one JSON object on stdout.")
]
ApiKeyEnv = Annotated[
    str | None,
    typer.Option(
        "--api-key-env",
        metavar="NAME",
        help="The environment variable that holds the server's API key.",
    ),
]
_DRAFT = "speculative_draft_model_path"
DraftName = Annotated[
    str,
    typer.Argument(metavar="DRAFT", help="The draft's folder, or its Hugging Face id."),
]


@app.command(short_help="Examine a draft from its files alone.")
def draft(
    draft_name: DraftName,
    target: Annotated[
        str | None,
        typer.Option(
            "--target",
            metavar="TARGET",
            help="The target's folder or Hugging Face id; its config.json is enough.",
        ),
    ] = None,
    launch_args: Annotated[
        str | None,
        typer.Option(
            "--launch-args",
            metavar="ARGS",
            help="The command line it is to be served with, as one word; NAME=VALUE may precede.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Examine a draft from its files alone: what SGLang will really do with it, and what is wrong.

    Exit status 0: clean. 4: something is wrong, or looks wrong.
    """
    from bench.draft import as_json as for_programs
    from bench.draft import examine, launch_arguments

    launch = None if launch_args is None else launch_arguments(launch_args)
    examined = examine(draft_name, target=target, launch=launch)
    with printing():
        if as_json:
            print_json(for_programs(examined))
        else:
            print_examination(examined)
    if not examined.is_clean:
        raise typer.Exit(EXIT_NO_VALID_CELL)


@app.command(short_help="Make a draft in speculators' form into one that SGLang reads.")
def convert(
    source: Annotated[
        str,
        typer.Argument(metavar="SRC", help="A draft in speculators' form: folder or id."),
    ],
    destination: Annotated[
        str, typer.Argument(metavar="DST", help="The new folder; it must not be there yet.")
    ],
    target: Annotated[
        str | None,
        typer.Option(
            "--target",
            metavar="TARGET",
            help="The target's folder or id, if the draft does not name its class.",
        ),
    ] = None,
) -> None:
    """Make a draft in speculators' form into one that SGLang reads.

    Tensors stay bit for bit; what was written is read again and compared. What SGLang's class
    cannot compute is refused, with the reasons, and nothing is written.
    """
    from bench.draft import convert as convert_draft

    made = convert_draft(source, destination, target=target)
    with printing():
        printer = Printer()
        renamed = sum(old != new for old, new in made.names.items())
        printer.print_text(
            f"{destination}: {many(len(made.names), 'tensor')} bit for bit as in {source}, "
            f"{renamed} renamed, {len(made.dropped)} left out."
        )
        if made.notes:
            print_findings(made.notes, printer)


@app.command(short_help="Probe a running server: how are its drafts accepted, and why so.")
def server(
    url: Annotated[str, typer.Argument(metavar="URL", help="The server: http://host:port.")],
    train_acc: Annotated[
        str | None,
        typer.Option(
            "--train-acc",
            metavar="A1,A2,…",
            help="The draft's accuracy at step 1, 2, … of its training, e.g. 0.747,0.71,0.68.",
        ),
    ] = None,
    training: Annotated[
        Path | None,
        typer.Option(
            "--training",
            metavar="FILE",
            help="Prompts like those of the training (JSON Lines, docs/prompts.md).",
        ),
    ] = None,
    serving: Annotated[
        Path | None,
        typer.Option("--serving", metavar="FILE", help="Prompts as they are served, likewise."),
    ] = None,
    api_key_env: ApiKeyEnv = None,
    as_json: AsJson = False,
) -> None:
    """Send a running server some short greedy requests, and name the pattern of acceptance.

    The server is only read: nothing is flushed, aborted or set. Exit status 0: healthy, or too
    little to tell. 4: the pattern points to a fault.
    """
    import asyncio

    from bench.doctor.probing import Asked, probe
    from bench.doctor.probing import as_json as for_programs

    asked = Asked(
        url=url,
        api_key=None if api_key_env is None else _key(api_key_env),
        train_accuracy=_accuracies(train_acc),
        training=training,
        serving=serving,
    )
    found = asyncio.run(probe(asked))
    with printing():
        if as_json:
            print_json(for_programs(found))
        else:
            print_probe(found)
    if found.is_suspect:
        raise typer.Exit(EXIT_NO_VALID_CELL)


@app.command(short_help="Try every plausible wiring of a draft on captured hidden states.")
def wiring(
    draft_name: DraftName,
    captures: Annotated[
        str,
        typer.Option(
            "--captures",
            metavar="DIR",
            help="Captured states: of bench doctor capture, speculators or SpecForge.",
        ),
    ],
    target: Annotated[
        str | None,
        typer.Option("--target", metavar="TARGET", help="The target's folder, with its weights."),
    ] = None,
    served: Annotated[
        str | None,
        typer.Option(
            "--served",
            metavar="DIR",
            help="What the server feeds for the same token ids, by bench doctor capture.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Run an EAGLE-3 head on captured states, outside any server, in every plausible wiring.

    The best is a hypothesis; only a served run confirms it. Exit status 4: another wiring than
    the served one fits better, and not by chance, or the trainer's captures are not what the
    server feeds.
    """
    from bench.doctor.wiring import as_json as for_programs
    from bench.doctor.wiring import examine_wiring

    report = examine_wiring(draft_name, captures, target=target, served=served)
    with printing():
        if as_json:
            print_json(for_programs(report))
        else:
            print_wiring(report)
    if report.is_suspect:
        raise typer.Exit(EXIT_NO_VALID_CELL)


@app.command(short_help="Write the hidden states that a server would feed a draft.")
def capture(
    url: Annotated[str, typer.Argument(metavar="URL", help="The server: http://host:port.")],
    out: Annotated[Path, typer.Argument(metavar="DIR", help="The new folder.")],
    tokens: Annotated[
        str | None,
        typer.Option(
            "--tokens",
            metavar="DIR",
            help="Send the token ids of these captures, the first 256 of 16 sequences; else the "
            "target writes its own text.",
        ),
    ] = None,
    target: Annotated[
        str | None,
        typer.Option("--target", metavar="TARGET", help="The target's folder or id."),
    ] = None,
    api_key_env: ApiKeyEnv = None,
) -> None:
    """Write the hidden states that a server would feed a draft.

    The server is SGLang with --enable-return-aux-hidden-states --speculative-algorithm EAGLE3 and
    no draft; --return-aux-hidden-state-layer-ids names other layers than the default.
    """
    import asyncio

    from bench.doctor.captures import read_captures
    from bench.doctor.capturing import capture as ask
    from bench.doctor.capturing import write_captures
    from bench.draft.target import read_target

    if out.expanduser().exists():
        raise InputError(f"{out} is there already.", hint="Give a folder that is not there yet.")
    known = None if target is None else read_target(target)
    ids = []
    if tokens is not None:
        hidden = None if known is None else known.hidden
        if hidden is None:
            raise InputError("--tokens needs the states' width.", hint="Give --target TARGET.")
        ids = [sample.token_ids for sample in read_captures(tokens, hidden=hidden)]
    captured = asyncio.run(
        ask(
            url,
            layers=None if known is None else known.layers,
            token_ids=ids,
            api_key=None if api_key_env is None else _key(api_key_env),
        )
    )
    write_captures(out.expanduser(), captured)
    with printing():
        numbers = captured.numbers
        what = "states not known (--target)" if numbers is None else f"states {list(numbers)}"
        print(f"{out}: {many(len(captured.sequences), 'sequence')}, {what}")


def _key(name: str) -> str:
    key = os.environ.get(name)
    if not key:
        raise InputError(
            f"--api-key-env {name}: the variable is not set.", hint=f"export {name}=…"
        )
    return key


def _accuracies(text: str | None) -> tuple[float, ...]:
    try:
        found = tuple(float(word) for word in (text or "").split(",") if text)
    except ValueError:
        found = (-1.0,)
    if all(0 <= accuracy <= 1 for accuracy in found):
        return found
    raise InputError(
        f"--train-acc {text}: wanted shares between 0 and 1, separated by commas.",
        hint="For example 0.747,0.71,0.68: of step 1, 2 and 3.",
    )


def warn_of_drafts(plan: Plan) -> None:
    """Examine the drafts that a plan names in local folders, and say on stderr what is wrong.

    It never stops a run: a draft that is served badly may be the very question.
    """
    from bench.draft import Level, examine, is_folder, launch_of

    printer = Printer(stderr=True)
    servers = {launch.arm: launch.server for launch in plan.launches}
    for arm, server in servers.items():
        launch = launch_of(server.arguments, environment=dict(server.environment))
        draft = launch.text(_DRAFT)
        if server.launcher not in {"local", "template"} or draft is None or not is_folder(draft):
            continue
        try:
            found = examine(draft, launch=launch).findings
        except InputError as error:
            printer.print_text(f"arm {arm}: its draft could not be examined: {error}")
            continue
        wrong = [finding for finding in found if finding.level is not Level.NOTE]
        if wrong:
            printer.print_text(f"arm {arm}, draft {draft} (--no-doctor skips this):")
            print_findings(wrong, printer)
