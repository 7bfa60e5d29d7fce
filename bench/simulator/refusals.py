"""What a start that SGLang refuses ends in: its last words and its status, as recorded of 0.5.23.

What argparse refuses ends with 2, everything later with 1. A line of our own follows, which tells
what to do.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final, NoReturn

from bench.sglang.arguments import known_options, option_of, whole_number

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bench.sglang.arguments import AskedValue, Option, Rejection

_ERROR: Final = "sglang serve: error:"
_OF_ARGPARSE: Final = frozenset({"name", "number", "value"})
_PYTHONS_OWN: Final = {
    "C1": "TypeError: '>' not supported between instances of 'NoneType' and 'int'",
    "C2": "AssertionError",
    "C4": "TypeError: unsupported operand type(s) for -: 'NoneType' and 'int'",
    "C30": "AssertionError",
    "C32": "AssertionError",
    "C35": "AssertionError: chunked_prefill_size must be divisible by page_size",
    "tree": "RuntimeError: selected index k out of range",
}
"""Failures that are no ValueError of SGLang's."""


class StartFailure(Exception):  # noqa: N818  # it is what SGLang's start ends in, not ours
    """The start fails as SGLang's does; the message is what goes to the log."""

    def __init__(self, message: str, *, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code


def refuse(rejection: Rejection, asked: Mapping[str, AskedValue]) -> NoReturn:
    """End the start as SGLang does for what a rule rejects."""
    advice = f"simulator: {rejection.reason} {rejection.fix}"
    if rejection.rule in _OF_ARGPARSE:
        said = _argparse_error(asked) or f"{_ERROR} {rejection.reason}"
        raise StartFailure(f"{said}\n{advice}", exit_code=2)
    said = _PYTHONS_OWN.get(rejection.rule, f"ValueError: {rejection.reason}")
    raise StartFailure(f"{said}\n{advice}", exit_code=1)


def refuse_missing(options: str) -> NoReturn:
    """Options that must be there are not."""
    said = f"{_ERROR} the following arguments are required: {options}"
    raise StartFailure(said, exit_code=2)


def refuse_word(dest: str, value: AskedValue) -> NoReturn:
    """An option was given a word that is not of its kind."""
    raise StartFailure(_argparse_error({dest: value}) or f"{_ERROR} {dest}", exit_code=2)


def refuse_strays(words: Sequence[str]) -> None:
    """Words of the command line that belong to no option."""
    if words:
        raise StartFailure(f"{_ERROR} unrecognized arguments: {' '.join(words)}", exit_code=2)


def refuse_size(dest: str, value: float, wanted: str) -> NoReturn:
    """An option was given a number that it cannot have."""
    said = f"ValueError: {option_of(dest)} must be {wanted}, got {value:g}"
    raise StartFailure(said, exit_code=1)


def _argparse_error(asked: Mapping[str, AskedValue]) -> str | None:
    """What argparse says of the first option that it does not take; else of all it does not know.

    None: it takes them all.
    """
    options = {option.dest: option for option in known_options()}
    for dest, value in asked.items():
        option = options.get(dest)
        wrong = None if option is None else _wrong(option, value)
        if option is not None and wrong is not None:
            return f"{_ERROR} argument {'/'.join(option.spellings)}: {wrong}"
    unknown = {dest: value for dest, value in asked.items() if dest not in options}
    return _unknown_names(unknown) if unknown else None


def _unknown_names(unknown: Mapping[str, AskedValue]) -> str:
    words: list[str] = []
    for dest, value in unknown.items():
        written = option_of(dest)
        possible = [
            spelling
            for option in known_options()
            for spelling in option.spellings
            if spelling.startswith(written)
        ]
        if possible:
            return f"{_ERROR} ambiguous option: {written} could match {', '.join(possible)}"
        words += [written] if value is True else [written, str(value)]
    return f"{_ERROR} unrecognized arguments: {' '.join(words)}"


def _wrong(option: Option, value: AskedValue) -> str | None:
    """What is wrong with an option's value, in argparse's words; None: nothing."""
    if option.kind == "flag":
        given = value not in {True, "false"} if not isinstance(value, list) else True
        return f"ignored explicit argument {value!r}" if given else None
    words = [] if value is True else [value] if isinstance(value, str) else value
    if not words and not option.may_be_bare:
        return "expected at least one argument" if option.takes_many else "expected one argument"
    kind = option.kind.removesuffix("s")
    for word in words:
        if not _is_of(kind, word):
            return _not_of(kind, word)
        if option.choices and word not in option.choices:
            known = ", ".join(repr(choice) for choice in option.choices)
            return f"invalid choice: {word!r} (choose from {known})"
    return None


def _not_of(kind: str, word: str) -> str:
    if kind == "size":
        return (
            f"Invalid integer value: {word!r}. Use a plain integer, SI suffixes (1k, 1M), or IEC "
            "suffixes (1Ki, 1Mi). Suffixes are case-sensitive."
        )
    return f"invalid {'loads' if kind == 'json' else kind} value: {word!r}"


def _is_of(kind: str, word: str) -> bool:
    try:
        if kind == "float":
            float(word)
        elif kind == "int":
            int(word)
        elif kind == "json":
            json.loads(word)
        elif kind == "size":
            return whole_number(word) is not None
    except ValueError:
        return False
    return True
