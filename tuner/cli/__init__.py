"""The command `tuner`: parse, call one library function, print, exit; nothing else happens."""

from __future__ import annotations

__all__ = ["main"]


def main() -> None:
    """Run the command line `tuner`."""
    from bench.cli import run_command

    def tuner() -> None:
        from tuner.cli.commands import app

        app(prog_name="tuner")

    run_command("tuner", tuner)
