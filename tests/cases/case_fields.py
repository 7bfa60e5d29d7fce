"""Comparing what a case expects with what was found."""

from __future__ import annotations

import json
import re
from typing import Any, Self

EXPLANATIONS = re.compile(r"wrong_.*|naive_.*|.*_wrong|.*_naive|why|note|reason")
RELATIVE_TOLERANCE = 0.005


class AnyOf(tuple[Any, ...]):
    """What was found, by each of the names or shapes that a case may give it."""


class AnyOrder(frozenset[str]):
    """Names found, in no order."""


class Printed(float):
    """A number of expected.json that knows its last printed place."""

    unit: float

    def __new__(cls, text: str) -> Self:
        number = super().__new__(cls, text)
        mantissa, _, exponent = text.lower().partition("e")
        decimals = len(mantissa.partition(".")[2])
        number.unit = 10.0 ** (int(exponent or 0) - decimals)
        return number


def read_expected(text: str) -> dict[str, Any]:
    return json.loads(text, parse_float=Printed)


def mistakes(expected: dict[str, Any], found: dict[str, Any]) -> list[str]:
    """What differs; a field that is expected and that no check finds is a mistake too."""
    said = []
    for name, want in expected.items():
        if EXPLANATIONS.fullmatch(name):
            continue
        if name not in found:
            said.append(f"{name}: no check finds it (known: {', '.join(sorted(found))})")
        elif not agrees(want, found[name]):
            said.append(f"{name}: expected {want!r}, found {found[name]!r}")
    return said


def agrees(want: Any, found: Any) -> bool:
    if isinstance(found, (AnyOf, frozenset)):
        return agrees_with_some(want, found)
    if isinstance(want, list):
        return (
            isinstance(found, (list, tuple))
            and len(want) == len(found)
            and all(agrees(a, b) for a, b in zip(want, found, strict=True))
        )
    if isinstance(want, dict):
        return isinstance(found, dict) and not mistakes(want, found)
    if isinstance(want, (bool, str)) or isinstance(found, (bool, str, dict, list, tuple)):
        return type(want) is type(found) and want == found
    if want is None or found is None:
        return want is found
    if isinstance(want, int) and isinstance(found, int):
        return want == found  # counts
    unit = want.unit if isinstance(want, Printed) else 1.0
    tolerance = max(RELATIVE_TOLERANCE * abs(want), unit) * (1 + 1e-9)
    return abs(want - found) <= tolerance


def agrees_with_some(want: Any, found: AnyOf | frozenset[str]) -> bool:
    if isinstance(found, AnyOf):
        return any(agrees(want, one) for one in found)
    if isinstance(found, AnyOrder):
        return isinstance(want, list) and sorted(want) == sorted(found)
    return want in found  # several names of the same thing
