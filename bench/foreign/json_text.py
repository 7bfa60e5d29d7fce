"""JSON as other tools write it, NaN and Infinity in it, and as it should be written."""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from bench.errors import InputError
from bench.sglang.log_text import read_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
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
        text = read_text(path)
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
_MOST_DEPTH: Final = 100


def parse_rows(text: str) -> Rows:
    """The rows of a text: one JSON object or a list of them, else one object a line (JSONL).

    Objects over several lines, one behind another, are read too. NaN, Infinity and numbers beyond
    a double's range are None.
    """
    text = text.removeprefix("\ufeff")
    try:
        whole = _parse(text)
    except ValueError:
        rows = _lines(text)
        return rows if rows.rows else _one_behind_another(text) or rows
    found = whole if isinstance(whole, list) else [whole]
    return Rows(rows=tuple(row for row in found if isinstance(row, dict)), damaged=())


# As Python's own, without the separators of Unicode: these may stand in a JSON text.
_LINE_END: Final = re.compile(r"\r\n|\n|\r")


def _one_behind_another(text: str) -> Rows | None:
    """Objects printed over several lines and appended to one file; None: it has anything else."""
    # An object ends with a brace at the margin where the next line begins another one.
    parts = re.split(r"(?<=^\})\s*(?=^\{)", text, flags=re.MULTILINE)
    try:
        found = [_parse(part) for part in parts]
    except ValueError:
        return None
    return Rows(rows=tuple(row for row in found if isinstance(row, dict)), damaged=())


def _lines(text: str) -> Rows:
    rows, damaged = [], []
    for number, line in enumerate(_LINE_END.split(text), start=1):
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
        value = json.loads(text, parse_constant=no_number, parse_float=number, parse_int=whole)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if _is_deep(value):
        raise ValueError("nested too deeply")
    return value


def _is_deep(value: object) -> bool:
    level = [value]
    for _ in range(_MOST_DEPTH):
        level = [part for whole in level for part in _parts(whole)]
        if not level:
            return False
    return True


def _parts(value: object) -> Iterator[object]:
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return (part for part in parts if isinstance(part, dict | list))


def strict_json(value: object) -> str:
    """JSON of a value, in one line, with null wherever a number is none.

    Half of a pair of surrogates, which is no text, stays the escape that it came as.
    """
    text = json.dumps(_finite(value), ensure_ascii=False, allow_nan=False)
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


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
