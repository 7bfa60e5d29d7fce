"""The command `bench`: parse, call one library function, print, exit; nothing else happens."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["main", "run_command"]


def main() -> None:
    """Run the command line `bench`."""

    def bench() -> None:
        from bench.cli.commands import app

        app(prog_name="bench")

    run_command("bench", bench)


def run_command(name: str, command: Callable[[], None]) -> None:
    """Run a command line; a user's mistake ends in a message, never in a traceback."""
    from bench.errors import EXIT_INTERRUPTED, BenchError

    for stream in (sys.stdout, sys.stderr):
        # A terminal that has no × or – gets a question mark, not a crash.
        if stream is not None:
            stream.reconfigure(errors="replace")  # type: ignore[union-attr]  # they are text files
    try:
        command()
    except BenchError as error:
        from bench.http import redact

        said = "\n".join(filter(None, (str(error), error.hint)))
        with suppress(BrokenPipeError):  # nobody reads it
            for place, line in enumerate(redact(said).splitlines()):
                lead = f"{name}: " if not place else " " * (len(name) + 2)
                print(f"{lead}{line}".rstrip(), file=sys.stderr)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.exit(EXIT_INTERRUPTED)
    finally:
        _let_go_of_stderr()


def _let_go_of_stderr() -> None:
    """What nobody read of the progress must not become the exit status.

    Python flushes once more at its end, and exits with 120 where the reader has gone.
    """
    if sys.stderr is None:
        return
    try:
        sys.stderr.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())
