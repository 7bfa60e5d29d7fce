"""JSON as other tools write it, NaN and Infinity in it, and as it should be written."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from bench.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

Row = dict[str, Any]
"""One JSON object; numbers that are none are None."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """The objects of a file.

    Attributes:
        rows: In the file's order.
        damaged: Numbers (from 1) of lines that are no JSON object, such as one cut by a crash.
    """

    rows: tuple[Row, ...]
    damaged: tuple[int, ...]


def read_rows(path: Path) -> Rows:
    """The rows of a result file.

    Raises:
        InputError: It cannot be read, or has no row at all.
    """
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise InputError(f"asked to read the results in {path}: {error.strerror}.") from error
    rows = parse_rows(text)
    if not rows.rows:
        raise InputError(
            f"asked to read the results in {path}, which has no JSON object.",
            hint="JSON Lines, one object or a list of objects is wanted.",
        )
    return rows


_MOST_DIGITS: Final = 300  # of a whole number: what a double still holds


def parse_rows(text: str) -> Rows:
    """The rows of a text: one JSON object or a list of them, else one object a line (JSONL).

    NaN, Infinity and numbers beyond a double's range are None.
    """
    try:
        whole = _parse(text)
    except ValueError:
        return _lines(text)
    found = whole if isinstance(whole, list) else [whole]
    return Rows(rows=tuple(row for row in found if isinstance(row, dict)), damaged=())


def _lines(text: str) -> Rows:
    rows, damaged = [], []
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip():
            continue
        try:
            row = _parse(line)
        except ValueError:
            row = None
        if isinstance(row, dict):
            rows.append(row)
        else:
            damaged.append(number)
    return Rows(rows=tuple(rows), damaged=tuple(damaged))


def _parse(text: str) -> Any:  # noqa: ANN401  # it is JSON
    def no_number(_name: str) -> None:
        return None

    def number(digits: str) -> float | None:
        value = float(digits)
        return value if math.isfinite(value) else None

    def whole(digits: str) -> int | None:
        return int(digits) if len(digits.lstrip("-")) <= _MOST_DIGITS else None

    try:
        return json.loads(text, parse_constant=no_number, parse_float=number, parse_int=whole)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def strict_json(value: object) -> str:
    """JSON of a value, in one line, with null wherever a number is none."""
    return json.dumps(_finite(value), ensure_ascii=False, allow_nan=False)


def _finite(value: object) -> object:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(key): _finite(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(part) for part in value]
    return value


def number_in(row: Mapping[str, Any], *names: str) -> float | None:
    """The first of several fields that is a finite number; text such as `inf` is none."""
    for name in names:
        value = row.get(name)
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            return float(value) if math.isfinite(value) else None
    return None


def count_in(row: Mapping[str, Any], *names: str) -> int | None:
    """The same, as a count."""
    number = number_in(row, *names)
    return None if number is None else int(number)
