"""The command `tuner`: it cannot search yet, and says so instead of pretending."""

from __future__ import annotations

import sys

import typer

from bench.errors import InputError

app = typer.Typer(
    name="tuner",
    help="Searches for the speculative settings that really are faster (not in this version).",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


@app.callback()
def _top() -> None:
    pass


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def sweep() -> None:
    """Not in this version."""
    raise InputError(
        "`tuner sweep` was asked for; this version cannot search yet.",
        hint="Write the settings as arms of a scenario and run `bench run` (docs/scenario.md).",
    )


def main() -> None:
    """Run the command line."""
    try:
        app()
    except InputError as error:
        typer.echo(f"tuner: {error}\n       {error.hint}", err=True)
        sys.exit(error.exit_code)
