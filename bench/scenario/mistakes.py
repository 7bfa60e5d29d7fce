"""Mistakes in a scenario, each told as `file:line key: what was found. What to do`."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bench.errors import ScenarioError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

MAX_TOLD = 20
_MAX_FOUND_CHARS = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Mistake:
    """One thing that is wrong.

    Attributes:
        position: `file:line`, or `--set PATH` for an override.
        key: The dotted key; empty for the file as a whole.
        text: What was found, and what to do.
    """

    position: str
    key: str = ""
    text: str

    def __str__(self) -> str:
        if self.position.startswith("--set ") and self.key:
            of_set = self.position.removeprefix("--set ")
            # An element below what was set is named on its own, its ancestor not again.
            is_below = f"{self.key}.".startswith(f"{of_set}.")
            where = f"--set {self.key}" if is_below else f"{self.position} {self.key}"
        else:
            where = f"{self.position} {self.key}" if self.key else self.position
        return _printable(f"{where}: {self.text}")


def scenario_error(mistakes: Sequence[Mistake]) -> ScenarioError:
    """All mistakes as one error, a line each, in the order of the file."""
    lines = list(dict.fromkeys(str(mistake) for mistake in sorted(mistakes, key=_order)))
    if len(lines) > MAX_TOLD:
        lines[MAX_TOLD:] = [f"… and {len(lines) - MAX_TOLD} more"]
    return ScenarioError("\n".join(lines))


def _order(mistake: Mistake) -> tuple[str, int]:
    name, _, line = mistake.position.rpartition(":")
    return (name, int(line)) if line.isdigit() else (mistake.position, 0)


def nearest(asked: str, valid: Iterable[str]) -> str:
    """What to do about a name that does not exist: the nearest right one, or all there are."""
    names = list(valid)
    close = difflib.get_close_matches(asked, names, n=1, cutoff=0.6)
    if not close:  # an abbreviation or a part of the name is near as well
        close = [
            name for name in names if asked and (name.startswith(asked) or asked.startswith(name))
        ][:1]
    if close:
        return f"Did you mean {close[0]}?"
    return f"Valid: {', '.join(names)}" if names else "None is valid here"


def found(value: object) -> str:
    """A value as it is told to the user: its kind and a short form of it."""
    match value:
        case None:
            return "nothing (null)"
        case bool():
            return f"the boolean {str(value).lower()}"
        case int() | float():
            return f"the number {value}"
        case str():
            return f"the text {_short(repr(value))}"
        case Mapping():
            return (
                f"a mapping ({_short(', '.join(map(str, value)))})"
                if value
                else "an empty mapping"
            )
        case list() | tuple():
            return "a list" if value else "an empty list"
        case _:
            return _short(repr(value))


def _short(text: str) -> str:
    return text if len(text) <= _MAX_FOUND_CHARS else text[: _MAX_FOUND_CHARS - 1] + "…"


def _printable(text: str) -> str:
    """A text on one line: what a terminal would not show is escaped."""
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)
