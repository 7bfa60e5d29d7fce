"""A history's points as Parquet: one row a point, the format's version in the file's metadata."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from bench.errors import StoreError
from bench.model.nightly import Point, SeriesKey

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

FORMAT: Final = 1
"""Raised when a reader of this version would misread what is written."""

_VERSION_KEY: Final = b"specdyno_nightly"

KEY_COLUMNS: Final = ("hardware", "scenario", "workload", "load", "arm", "metric")


class NewerHistoryError(StoreError):
    """The history was written to by a newer specdyno."""


def checked_version(version: int, path: Path) -> None:
    """Refuse what a newer specdyno has written.

    Raises:
        NewerHistoryError: Naming the file.
    """
    if version > FORMAT:
        raise NewerHistoryError(
            f"{path} has format {version} of the nightly history; this specdyno knows up to "
            f"{FORMAT}.",
            hint="Update specdyno. Nothing was changed.",
        )


def _schema() -> Any:  # noqa: ANN401  # pyarrow has no types
    import pyarrow as pa  # noqa: PLC0415  # loads only where points are read or written

    fields = [
        pa.field("night", pa.date32(), nullable=False),
        pa.field("at", pa.timestamp("us", tz="UTC"), nullable=False),
        *(pa.field(name, pa.string(), nullable=False) for name in KEY_COLUMNS),
        pa.field("value", pa.float64(), nullable=False),
        pa.field("suspect", pa.bool_(), nullable=False),
        pa.field("simulated", pa.bool_(), nullable=False),
        pa.field("fingerprint", pa.string(), nullable=False),
        pa.field("source", pa.string(), nullable=False),
        pa.field("source_id", pa.string(), nullable=False),
    ]
    return pa.schema(fields, metadata={_VERSION_KEY: str(FORMAT).encode()})


def points_bytes(points: Sequence[Point]) -> bytes:
    """Points as a Parquet file."""
    import pyarrow as pa  # noqa: PLC0415
    import pyarrow.parquet as pq  # noqa: PLC0415

    columns = {
        "night": [p.night for p in points],
        "at": [p.at for p in points],
        **{name: [getattr(p.key, name) for p in points] for name in KEY_COLUMNS},
        **{
            name: [getattr(p, name) for p in points]
            for name in ("value", "suspect", "simulated", "fingerprint", "source", "source_id")
        },
    }
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table(columns, schema=_schema()), sink, compression="zstd")
    content: bytes = sink.getvalue().to_pybytes()
    return content


def read_points(path: Path) -> list[Point]:
    """The points of a file.

    Raises:
        NewerHistoryError: A newer specdyno has written it.
        StoreError: It is damaged.
    """
    import pyarrow as pa  # noqa: PLC0415
    import pyarrow.parquet as pq  # noqa: PLC0415

    try:
        with pq.ParquetFile(path) as file:
            table = file.read()
        checked_version(int((table.schema.metadata or {}).get(_VERSION_KEY, b"0")), path)
        table = table.select(_schema().names).cast(_schema())
    except OSError as error:
        raise StoreError(str(error.strerror or error)) from error
    except (pa.ArrowException, ValueError, KeyError) as error:
        raise StoreError(f"damaged: {error}") from error
    columns = {name: table.column(name).to_pylist() for name in table.column_names}
    keys: dict[tuple[str, ...], SeriesKey] = {}
    points = []
    names = zip(*(columns[name] for name in KEY_COLUMNS), strict=True)
    rest = ("night", "at", "value", "suspect", "simulated", "fingerprint", "source", "source_id")
    for parts, values in zip(names, zip(*(columns[n] for n in rest), strict=True), strict=True):
        key = keys.get(parts)
        if key is None:
            named = dict(zip(KEY_COLUMNS, parts, strict=True))
            key = keys[parts] = SeriesKey(**named)
        points.append(Point(key=key, **dict(zip(rest, values, strict=True))))
    return points
