"""SGLang's command line read as its argparse reads it: names, shortened names, values."""

from __future__ import annotations

import difflib
import json
import re
from dataclasses import dataclass
from decimal import Decimal
from functools import cache
from typing import TYPE_CHECKING, Final, Literal

from bench.sglang.arguments.options import Option, find_option, option_of, options_by_dest

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

AskedValue = str | Literal[True] | list[str]
"""What one option was given: its word, True for a flag, or all words of one that takes many.

A flag turned off by its `--no-` form has the word `false`."""

_SIZE = re.compile(r"(\d+)(\.\d+)?([kMGT])|(\d+)([KMGT])i")
_SI = {"k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_IEC = {"K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
_NEGATIVE = re.compile(r"-\d+|-\d*\.\d+")
_MOST: Final = 2**63 - 1
_MOST_DIGITS: Final = 40
_SHOWN_CHARS: Final = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """Something at which SGLang's argparse ends the server.

    Attributes:
        rule: `name`, `value` or `number`.
        reason: What was asked, and what is wrong with it.
        fix: What to do.
    """

    rule: str
    reason: str
    fix: str


class Asked(dict[str, AskedValue]):
    """What a command line asks for, by the name SGLang reports it under, in the order asked.

    Attributes:
        faults: What argparse would end the server for.
        strays: Words that belong to no option; faults too.
    """

    __slots__ = ("faults", "strays")

    def __init__(self) -> None:
        super().__init__()
        self.faults: list[Fault] = []
        self.strays: list[str] = []

    def stray(self, *words: str) -> None:
        """Words that belong to no option."""
        self.strays += words
        self.faults += map(_stray, words)


def parse_arguments(arguments: Sequence[str]) -> Asked:
    """What a command line asks for.

    Both forms, `--tp-size 8` and `--tp-size=8`, are read, and names shortened as far as they stay
    clear (`--speculative-algo`); of a repeated option the last counts: all as in argparse. An
    option that SGLang 0.5.23 has not, or a shortened one that could be several, keeps its own name
    and takes the next word unless that begins with a hyphen. Words that belong to no option are
    faults.

    Args:
        arguments: The command line, one word an element, without the program.

    Returns:
        For example
        `{"tp_size": "8", "disable_radix_cache": True, "cuda_graph_bs_decode": ["1", "2"]}`.
    """
    asked = Asked()
    words = list(reversed(arguments))
    known = True  # what follows an option that is not known may be its values
    while words:
        word = words.pop()
        if word == "--":
            asked.stray(word, *reversed(words))
            break
        if not word.startswith("--") or _is_value(word):
            asked.stray(*([word] if known else []))
            continue
        written, has_value, value = word.partition("=")
        option = find_option(written)
        known = isinstance(option, Option)
        if not isinstance(option, Option):
            asked.faults.append(_no_option(written, option))
            option = Option(dest=written[2:].replace("-", "_"), kind="text", spellings=(written,))
        asked.pop(option.dest, None)
        if has_value:
            asked[option.dest] = [value] if option.takes_many else value
        elif option.takes_many:
            asked[option.dest] = _take_values(words)
        elif option.kind == "flag":
            asked[option.dest] = "false" if written.startswith("--no-") else True
        elif words and _is_value(words[-1]):
            asked[option.dest] = words.pop()
        else:
            asked[option.dest] = True
        if known:
            fault = _fault_of(option, written, asked[option.dest], has_value=bool(has_value))
            asked.faults += [] if fault is None else [fault]
    return asked


def _is_value(word: str) -> bool:
    """Whether argparse takes a word for a value, and not for an option."""
    if not word.startswith("-") or word == "-":
        return True
    if word == "--" or word[:2] == "-h":
        return False
    if word.startswith("--") and find_option(word.partition("=")[0]) != ():
        return False
    return bool(_NEGATIVE.fullmatch(word)) or " " in word


def _take_values(words: list[str]) -> list[str]:
    values = []
    while words and _is_value(words[-1]):
        values.append(words.pop())
    return values


# ------------------------------------------------------------------------------------------ faults


def faults_of(asked: Mapping[str, AskedValue]) -> list[Fault]:
    """What argparse would end the server for, as far as a mapping of plain values tells."""
    if isinstance(asked, Asked):
        return asked.faults
    found: list[Fault | None] = []
    for dest, value in asked.items():
        written = option_of(dest)
        option = options_by_dest().get(dest)
        if option is None:
            could_be = find_option(written)
            found.append(_no_option(written, () if isinstance(could_be, Option) else could_be))
        else:
            is_given = option.kind == "flag" and value not in (True, "false")
            found.append(_fault_of(option, written, value, has_value=is_given))
    return [fault for fault in found if fault is not None]


def _stray(word: str) -> Fault:
    return Fault(
        rule="value",
        reason=f"{shown(word)} is no option and the value of none.",
        fix="Take it out, or quote a value that has blanks in it.",
    )


def _no_option(written: str, possible: Sequence[str]) -> Fault:
    near = difflib.get_close_matches(written, _all_spellings(), n=1, cutoff=0.7)
    could = f"could be {' or '.join(possible[:4])}{' or others' if possible[4:] else ''}"
    return Fault(
        rule="name",
        reason=f"{shown(written)} {could if possible else 'is no option of it'}.",
        fix="Write the whole name."
        if possible
        else f"Did you mean {near[0]}? Write it so."
        if near
        else "See `python -m sglang.launch_server --help`.",
    )


@cache
def _all_spellings() -> tuple[str, ...]:
    return tuple(name for option in options_by_dest().values() for name in option.spellings)


def _fault_of(option: Option, written: str, value: AskedValue, *, has_value: bool) -> Fault | None:
    """What argparse would not take of an option that is known."""
    if option.kind == "flag":
        return (
            _value_fault(written, "takes no value", value, "Give it alone, or leave it out.")
            if has_value
            else None
        )
    words = [] if value is True else [value] if isinstance(value, str) else value
    if not words:
        return None if option.may_be_bare else _wants(option, written, "")
    wrong = next((word for word in words if not _is_taken(option, word)), None)
    return None if wrong is None else _wants(option, written, wrong)


def _wants(option: Option, written: str, word: str) -> Fault:
    kind = option.kind.removesuffix("s")
    number = {"int": "a whole number", "size": "a whole number", "float": "a number"}.get(kind)
    if number is not None and not option.choices:
        fault = _value_fault(written, f"wants {number}", word, f"Write a number behind {written}.")
        return Fault(rule="number", reason=fault.reason, fix=fault.fix)
    if option.choices:
        what = f"takes {', '.join(option.choices[:-1])} or {option.choices[-1]}".replace(
            "takes  or", "takes only"
        )
        return _value_fault(written, what, word, "Give one of these.")
    if kind == "json":
        return _value_fault(written, "wants JSON", word, 'For example {"key": 1}.')
    return _value_fault(written, "wants a value", word, f"Write one behind {written}.")


def _value_fault(written: str, what: str, value: AskedValue, fix: str) -> Fault:
    given = shown(value) if isinstance(value, str) and value else "nothing"
    return Fault(rule="value", reason=f"{written} {what} and was given {given}.", fix=fix)


def shown(word: str) -> str:
    """A word of a command line for a message, shortened."""
    return repr(word if len(word) <= _SHOWN_CHARS else word[:_SHOWN_CHARS] + "…")


def _is_taken(option: Option, word: str) -> bool:
    kind = option.kind.removesuffix("s")
    try:
        if kind == "float":
            float(word)
        elif kind == "int":
            return whole_number(word, suffixes=False) is not None and _is_choice(option, word)
        elif kind == "size":
            return whole_number(word) is not None
        elif kind == "json":
            value = json.loads(word)
            return option.dest != "cuda_graph_config" or _is_graph_config(value)
    except (ValueError, RecursionError):
        return False
    return _is_choice(option, word)


def _is_choice(option: Option, word: str) -> bool:
    if not option.choices:
        return True
    written = str(whole_number(word)) if option.kind.startswith("int") else word
    return written in option.choices


_GRAPH_KEYS: Final = {
    "decode": ("backend", "max_bs", "bs"),
    "prefill": (
        *("backend", "max_bs", "bs", "max_context_size", "full_prefill_max_req"),
        *("full_prefill_prefix_chunk_tokens", "max_seq_len"),
    ),
}


def _is_graph_config(config: object) -> bool:
    """Source: SGLang 0.5.23, `model_executor/cuda_graph_config.py`."""
    return isinstance(config, dict) and all(
        phase in _GRAPH_KEYS
        and isinstance(settings, dict)
        and set(settings) <= set(_GRAPH_KEYS[phase])
        and settings.get("backend") != "tc_piecewise"
        for phase, settings in config.items()
    )


# ----------------------------------------------------------------------------------------- reading


def asked_text(asked: Mapping[str, AskedValue], dest: str) -> str | None:
    """The word an option was given; None when it was not asked for or was given none."""
    value = asked.get(dest)
    return value if isinstance(value, str) else None


def is_speculative(arguments: Sequence[str]) -> bool:
    """Whether a command line turns speculation on (`--speculative-algo` and the like included)."""
    return asked_text(parse_arguments(arguments), "speculative_algorithm") is not None


def whole_number(text: str, *, suffixes: bool = True) -> int | None:
    """A whole number as SGLang's `int` and size options read it: `8`, `-1`, `1_000`, `32k`, `4Ki`.

    None when it is none, or is more than 64 bits hold, with which no server starts.

    Args:
        text: The word.
        suffixes: Whether it may have one: those of `int` options may not.
    """
    text = text.strip()
    if len(text) > _MOST_DIGITS:
        return None
    size = _SIZE.fullmatch(text) if suffixes else None
    if size is not None:
        whole, fraction, si, iec_whole, iec = size.groups()
        number = (
            int(iec_whole) * _IEC[iec]
            if si is None
            else int(Decimal(whole + (fraction or "")) * _SI[si])
        )
    else:
        try:
            number = int(text)
        except ValueError:
            return None
    return number if -_MOST <= number <= _MOST else None
