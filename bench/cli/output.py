"""How things are printed: JSON, text cut to the terminal's width, durations."""

from __future__ import annotations

import json
import os
import shlex
import sys
import textwrap
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from bench.errors import DiskError

if TYPE_CHECKING:
    from collections.abc import Iterator

RESULTS = Path("results")
"""The results folder unless `--out` names another."""

PIPE_COLUMNS = 150
FEWEST_COLUMNS = 40
MOST_COLUMNS = 120
"""Longer lines of prose are hard to read; tables may be wider."""


class Printer(Console):
    """A rich console that takes text as it is, and stays calm when its reader has gone."""

    def __init__(self, *, stderr: bool = False) -> None:
        super().__init__(stderr=stderr, highlight=False, markup=False, emoji=False)
        if not self.is_terminal:
            self.width = PIPE_COLUMNS

    def on_broken_pipe(self) -> None:
        """Rich would end the process, and point stdout at nothing even when stderr broke."""
        raise BrokenPipeError

    def print_table(self, table: object) -> None:
        """A table as wide as it is: a line that a narrow terminal folds loses no figure."""
        columns, self.width = self.width, max(self.width, PIPE_COLUMNS)
        with self.capture() as captured:
            self.print(table, crop=False)
        self.width = columns
        for line in captured.get().splitlines():
            self.file.write(f"{line.rstrip()}\n")

    def print_text(self, text: str, *, style: str | None = None) -> None:
        """Text folded at words; what is folded hangs 4 columns in, or as far as its line does."""
        columns = min(max(self.width, FEWEST_COLUMNS), MOST_COLUMNS)
        for line in text.splitlines():
            indent = " " * (len(line) - len(line.lstrip()))
            folded = textwrap.fill(
                line,
                columns,
                subsequent_indent=indent or "    ",
                break_long_words=False,
                break_on_hyphens=False,
            )
            self.print(folded, style=style, soft_wrap=True)


def print_version(asked: bool) -> None:  # as typer calls it
    """What `--version` does."""
    if asked:
        import typer

        from bench import __version__

        print(f"specdyno {__version__}")
        raise typer.Exit


def print_json(value: object) -> None:
    """One strict JSON value on stdout: a missing number is null, never NaN."""
    print(json.dumps(value, indent=2, allow_nan=False))


@contextmanager
def printing() -> Iterator[None]:
    """Let the reader of stdout (`| head -1`) go: what else was to be said is dropped.

    Raises:
        DiskError: Stdout is a file, and the disk is full.
    """
    try:
        yield
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError as error:
        # Python flushes stdout once more at its end, and would complain.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if not isinstance(error, BrokenPipeError):
            raise DiskError(
                f"cannot print the answer: {error.strerror}.",
                hint="`bench show` prints a stored answer again.",
            ) from error


def duration(seconds: float) -> str:
    """`45 s`, `12 min`, `3.4 h`."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 90 * 60:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"


def many(count: int, what: str) -> str:
    """`1 cell`, `8 cells`, `2 launches`."""
    ending = "" if count == 1 else "es" if what.endswith("ch") else "s"
    return f"{count} {what}{ending}"


def shown_path(path: Path) -> str:
    """A path as one would type it here."""
    here = Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) else str(path)


def resume_command(run_id: str, out: Path) -> str:
    """The command that takes up a part-run again, to be pasted."""
    place = (
        "" if out.absolute() == RESULTS.absolute() else f" --out {shlex.quote(shown_path(out))}"
    )
    return f"bench resume {run_id}{place}"
