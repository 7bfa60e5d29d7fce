"""Records of `bench.model` to pyarrow tables and back: the identity, None included.

Two things are mended on the way in rather than refused, since refusing would lose a finished cell:
a float that is not finite becomes null (it says no more than "absent"), and text that is not valid
Unicode has its broken parts replaced.
"""

from __future__ import annotations

import math
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
import pyarrow as pa

from bench.errors import StoreError
from bench.model import Measurement, RequestSample, TelemetryPoint
from bench.store.columns import CLIENT, DISTRIBUTION_FIELDS, MEASUREMENTS, SAMPLES, TELEMETRY
from bench.store.schema import arrow_schema

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from bench.store.columns import Column

Record = TypeVar("Record", RequestSample, TelemetryPoint, Measurement)


def samples_table(samples: Sequence[RequestSample]) -> Any:  # noqa: ANN401  # pyarrow has no types
    """The samples of a cell as a pyarrow table."""
    arrays: dict[str, list[Any]] = {
        "event_ns_delta": [deltas(s.event_ns, start=s.sent_ns or 0) for s in samples],
        "event_tok_delta": [None if s.event_tok is None else deltas(s.event_tok) for s in samples],
    }
    return _table(SAMPLES, samples, arrays)


def telemetry_table(points: Sequence[TelemetryPoint], *, launch_id: str, cell_id: str) -> Any:  # noqa: ANN401  # likewise
    """The telemetry of a cell as a pyarrow table."""
    arrays: dict[str, list[Any]] = {
        "launch_id": [launch_id] * len(points),
        "cell_id": [cell_id] * len(points),
    }
    return _table(TELEMETRY, points, arrays)


def measurements_table(measurements: Sequence[Measurement]) -> Any:  # noqa: ANN401  # likewise
    """Measurements, a row a cell, as a pyarrow table."""
    return _table(MEASUREMENTS, measurements, {})


def samples_of(table: Any) -> list[RequestSample]:  # noqa: ANN401  # likewise
    """The samples of a table made by `samples_table`."""
    rows = table.to_pylist()
    for row in rows:
        row["event_ns"] = undo_deltas(row["event_ns_delta"], start=row["sent_ns"] or 0)
        tok = row["event_tok_delta"]
        row["event_tok"] = None if tok is None else undo_deltas(tok)
    return _records(rows, RequestSample)


def telemetry_of(table: Any) -> list[TelemetryPoint]:  # noqa: ANN401  # likewise
    """The telemetry of a table made by `telemetry_table`."""
    return _records(table.to_pylist(), TelemetryPoint)


def measurements_of(table: Any) -> list[Measurement]:  # noqa: ANN401  # likewise
    """The measurements of a table made by `measurements_table`."""
    return _records(table.to_pylist(), Measurement)


def deltas(values: Sequence[int], *, start: int = 0) -> list[int]:
    """Each value less the one before it; the first less `start`."""
    return [after - before for before, after in pairwise((start, *values))]


def undo_deltas(differences: Iterable[int], *, start: int = 0) -> list[int]:
    """The inverse of `deltas`."""
    return list(accumulate(differences, initial=start))[1:]


def finite(value: float | None) -> float | None:
    """The value, or None when it is not a finite number."""
    return value if value is None or math.isfinite(value) else None


def _records(rows: list[dict[str, Any]], kind: type[Record]) -> list[Record]:
    try:
        return msgspec.convert(rows, list[kind])  # type: ignore[valid-type]  # a variable type
    except msgspec.ValidationError as error:
        raise StoreError(f"stored rows are not {kind.__name__} records: {error}") from error


def _table(
    columns: tuple[Column, ...], records: Sequence[Any], given: dict[str, list[Any]]
) -> Any:  # noqa: ANN401  # likewise
    schema = arrow_schema(columns)
    arrays = []
    for column in columns:
        values = given.get(column.name)
        if values is None:
            values = [getattr(record, column.name) for record in records]
            mend = _MEND.get(column.base_kind)
            values = values if mend is None else [None if v is None else mend(v) for v in values]
        arrays.append(pa.array(values, schema.field(column.name).type))
    return pa.table(arrays, schema=schema)


def _text(value: str) -> str:
    return value if value.isascii() else value.encode("utf-8", "replace").decode("utf-8")


def _distribution(value: Any) -> dict[str, float] | None:  # noqa: ANN401  # a Distribution
    parts = {name: getattr(value, name) for name in DISTRIBUTION_FIELDS}
    return parts if all(map(math.isfinite, parts.values())) else None


def _client(value: Any) -> dict[str, float | None]:  # noqa: ANN401  # a ClientStats
    return {column.name: finite(getattr(value, column.name)) for column in CLIENT}


_MEND: dict[str, Callable[[Any], Any]] = {
    "text": _text,
    "float64": finite,
    "distribution": _distribution,
    "client": _client,
    "list<float64>": lambda values: [finite(value) for value in values],
}
