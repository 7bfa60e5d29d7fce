"""What a plain YAML scalar means: the core schema of YAML 1.2, and what its versions disagree on.

https://yaml.org/spec/1.2.2/#103-core-schema, with what people expect beside it: `1e3` is the whole
number 1000, and so is `1_000`.
"""

from __future__ import annotations

import math
import re

MAX_INT = 2**63 - 1
_MAX_CHARS = 25  # of a number; Python refuses to convert endless digits

_INT = re.compile(r"[-+]?(0|[1-9][0-9_]*)\Z")
_INT_EXPONENT = re.compile(r"([-+]?[0-9]+)[eE]\+?([0-9]{1,2})\Z")
_BASED_INT = re.compile(r"0o[0-7]+\Z|0x[0-9a-fA-F]+\Z")
_LEADING_ZERO = re.compile(r"[-+]?0[0-9_]+\Z")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9][0-9_]*(\.[0-9]*)?)([eE][-+]?[0-9]+)?\Z")
_NOT_FINITE = re.compile(r"[-+]?\.(inf|Inf|INF)\Z|\.(nan|NaN|NAN)\Z")
_TWO_MEANINGS = re.compile(r"(yes|Yes|YES|no|No|NO|on|On|ON|off|Off|OFF)\Z")
_BOOLS = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
NULLS = frozenset({"", "~", "null", "Null", "NULL"})


class NoScalarError(ValueError):
    """A plain scalar that is refused; says what was found and what to write."""


def plain_scalar(text: str) -> str | int | float | bool | None:
    """The value of a scalar that is written without quotes.

    Raises:
        NoScalarError: The versions of YAML read it differently, or it is no finite number below
            2^63.
    """
    if text in NULLS:
        return None
    if text in _BOOLS:
        return _BOOLS[text]
    _refuse_two_meanings(text)
    value = _number(text)
    if isinstance(value, float) and not math.isfinite(value):
        raise NoScalarError(f"found {text}, which is no finite number. Give a finite one")
    if isinstance(value, int) and abs(value) > MAX_INT:
        raise NoScalarError(f"found a number of {len(text)} characters. Give one below 2^63")
    return text if value is None else value


def _refuse_two_meanings(text: str) -> None:
    if _TWO_MEANINGS.match(text):
        boolean = "true" if text.lower() in ("yes", "on") else "false"
        raise NoScalarError(
            f"found {text}, a boolean in YAML 1.1 and a text in YAML 1.2. "
            f'Write {boolean}, or "{text}" for the text'
        )
    if _LEADING_ZERO.match(text):
        digits = text.lstrip("+-").replace("_", "").lstrip("0") or "0"
        raise NoScalarError(
            f"found {text}, octal in YAML 1.1 and decimal in YAML 1.2. "
            f'Write {digits[:_MAX_CHARS]} without the zero, or "{text[:_MAX_CHARS]}" for the text'
        )


def _number(text: str) -> int | float | None:
    """The number that a scalar writes, or None; infinity for all that is not finite."""
    if _NOT_FINITE.match(text):
        return math.inf
    whole = _INT.match(text) or _BASED_INT.match(text) or _INT_EXPONENT.match(text)
    if whole and len(text) > _MAX_CHARS:
        return MAX_INT + 1
    if _INT.match(text):
        return int(text.replace("_", ""))
    if _BASED_INT.match(text):
        return int(text, 0)
    if power := _INT_EXPONENT.match(text):
        return int(power[1]) * int(10 ** int(power[2]))
    if _FLOAT.match(text):
        return float(text.replace("_", ""))
    return None
