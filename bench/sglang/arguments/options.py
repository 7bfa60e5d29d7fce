"""The options of SGLang's command line, as its own parser of 0.5.23 declares them.

`options.txt` has a line an option: its name in `/server_info`, how it takes values (`?` where it
may have none), its spellings, and behind `=` the only values it takes. `tests/real_sglang` holds
the file against the parser of the real one.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal, get_args

Kind = Literal["flag", "text", "int", "float", "size", "json", "texts", "ints", "floats"]
"""`size` is a whole number that may end in k, M, G, T, Ki, Mi, Gi or Ti; a plural takes all words
up to the next option."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One option of SGLang.

    Attributes:
        dest: Its name in SGLang's server arguments and in `/server_info`.
        kind: How it takes values.
        spellings: Every way to write it in full; a flag may have a `--no-` form.
        may_be_bare: Whether it may stand without a value; a flag never has one.
        choices: The only values it takes; empty: any of its kind.
    """

    dest: str
    kind: Kind
    spellings: tuple[str, ...]
    may_be_bare: bool = False
    choices: tuple[str, ...] = ()

    @property
    def takes_many(self) -> bool:
        """Whether it takes all words up to the next option."""
        return self.kind.endswith("s")


def option_of(dest: str) -> str:
    """The command-line spelling of a server argument: `tp_size` is `--tp-size`."""
    return "--" + dest.replace("_", "-")


@cache
def known_options() -> tuple[Option, ...]:
    """Every option of SGLang 0.5.23."""
    text = Path(__file__).with_name("options.txt").read_text(encoding="ascii")
    return tuple(_option(line) for line in text.splitlines())


def _option(line: str) -> Option:
    dest, kind, *words = line.split()
    for known in get_args(Kind):
        if kind.removesuffix("?") == known:
            return Option(
                dest=dest,
                kind=known,
                spellings=tuple(word for word in words if word.startswith("--")),
                may_be_bare=kind.endswith("?"),
                choices=tuple(words[-1][1:].split(",")) if words[-1].startswith("=") else (),
            )
    raise ValueError(f"options.txt: {line!r} has an unknown kind")


@cache
def options_by_dest() -> dict[str, Option]:
    """Every option by its name in SGLang's server arguments."""
    return {option.dest: option for option in known_options()}


@cache
def _by_spelling() -> dict[str, Option]:
    return {spelling: option for option in known_options() for spelling in option.spellings}


def find_option(written: str) -> Option | tuple[str, ...]:
    """The option that a word means, as argparse finds it.

    Args:
        written: The word up to an equals sign, with its two hyphens.

    Returns:
        The option: written in full, or as the beginning of one spelling alone. Else the spellings
        it could be the beginning of: none for an option that SGLang has not.
    """
    options = _by_spelling()
    if written in options:
        return options[written]
    possible = tuple(spelling for spelling in options if spelling.startswith(written))
    return options[possible[0]] if len(possible) == 1 else possible
