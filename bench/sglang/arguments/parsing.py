"""SGLang's command line read as its argparse reads it: names, shortened names, values."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Literal

from bench.sglang.arguments.options import Option, find_option

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

AskedValue = str | Literal[True] | list[str]
"""What one option was given: its word, True for a flag, or all words of one that takes many.

A flag turned off by its `--no-` form has the word `false`."""

_SIZE = re.compile(r"(\d+)(?:(\.\d+)?([kMGT])|([KMGT])i)?")
_SI = {"k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_IEC = {"K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


def parse_arguments(arguments: Sequence[str]) -> Mapping[str, AskedValue]:
    """What a command line asks for, by the name SGLang reports it under.

    Both forms, `--tp-size 8` and `--tp-size=8`, are read, and names shortened as far as they stay
    clear (`--speculative-algo`); of a repeated option the last counts: all as in argparse. An
    option that SGLang 0.5.23 has not, or a shortened one that could be several, keeps its own name
    and takes the next word unless that begins with `--`. Words that belong to no option are left
    out.

    Args:
        arguments: The command line, one word an element, without the program.

    Returns:
        In the order asked, for example
        `{"tp_size": "8", "disable_radix_cache": True, "cuda_graph_bs_decode": ["1", "2"]}`.
    """
    asked: dict[str, AskedValue] = {}
    words = list(arguments)
    while words:
        word = words.pop(0)
        if not word.startswith("--") or word == "--":
            continue
        written, has_value, value = word.partition("=")
        option = find_option(written)
        if not isinstance(option, Option):
            option = Option(dest=written[2:].replace("-", "_"), kind="text", spellings=(written,))
        asked.pop(option.dest, None)
        if has_value:
            asked[option.dest] = [value] if option.takes_many else value
        elif option.takes_many:
            asked[option.dest] = _take_values(words)
        elif option.kind == "flag":
            asked[option.dest] = "false" if written.startswith("--no-") else True
        elif words and not words[0].startswith("--"):
            asked[option.dest] = words.pop(0)
        else:
            asked[option.dest] = True
    return asked


def _take_values(words: list[str]) -> list[str]:
    values = []
    while words and not words[0].startswith("--"):
        values.append(words.pop(0))
    return values


def asked_text(asked: Mapping[str, AskedValue], dest: str) -> str | None:
    """The word an option was given; None when it was not asked for or was given none."""
    value = asked.get(dest)
    return value if isinstance(value, str) else None


def is_speculative(arguments: Sequence[str]) -> bool:
    """Whether a command line turns speculation on (`--speculative-algo` and the like included)."""
    return asked_text(parse_arguments(arguments), "speculative_algorithm") is not None


def whole_number(text: str) -> int | None:
    """A whole number as SGLang's `int` and size options read it: `8`, `-1`, `1_000`, `32k`, `4Ki`.

    None when it is none. A suffix is read wherever it stands; `bad_number` tells where it may.
    """
    text = text.strip()
    size = _SIZE.fullmatch(text)
    if size is not None:
        whole, fraction, si, iec = size.groups()
        if si is not None:
            return round(float(whole + (fraction or "")) * _SI[si])
        if iec is not None:
            return int(whole) * _IEC[iec]
    try:
        return int(text)
    except ValueError:
        return None


def bad_number(option: Option, value: AskedValue) -> str | None:
    """The word that argparse would not take for this option's number; None: it takes them all.

    Returns:
        The word, empty for an option that was given none.
    """
    kind = option.kind.removesuffix("s")
    if kind not in {"int", "float", "size"}:
        return None
    words = [""] if value is True else [value] if isinstance(value, str) else value or [""]
    return next((word for word in words if not _is_number(kind, word)), None)


def _is_number(kind: str, word: str) -> bool:
    try:
        if kind == "float":
            float(word)
        elif kind == "int":
            int(word)
        else:
            return whole_number(word) is not None
    except ValueError:
        return False
    return True
