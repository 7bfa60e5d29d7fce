"""The parquet files: how they are written, and read so that a damaged one is told."""

from __future__ import annotations

from typing import IO, TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from bench.errors import StoreError
from bench.store.columns import STORED_TABLES
from bench.store.schema import VERSION_KEY, arrow_schema
from bench.store.upgrade import checked_version, upgrade_table

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

_BATCH_ROWS = 4096  # read at once; with the next this bounds the memory of `concatenate`
_GROUP_BYTES = 32 * 2**20  # of a row group in memory: many small ones are slow to read


def write_table(name: str, table: Any, file: IO[bytes]) -> None:  # noqa: ANN401  # pyarrow has no types
    """Write a table of `STORED_TABLES`."""
    pq.write_table(table, file, **_options(name))


def concatenate(name: str, paths: Iterable[Path], file: IO[bytes]) -> None:
    """Write one table from files of this schema version, some rows at a time.

    Raises:
        StoreError: A file is damaged.
    """
    schema = arrow_schema(STORED_TABLES[name])
    with pq.ParquetWriter(file, schema, **_options(name)) as writer:
        group: list[Any] = []
        for path in paths:
            try:
                with pq.ParquetFile(path) as part:
                    for batch in part.iter_batches(batch_size=_BATCH_ROWS):
                        group.append(pa.Table.from_batches([batch]).cast(schema))
                        if sum(table.nbytes for table in group) >= _GROUP_BYTES:
                            writer.write_table(pa.concat_tables(group))
                            group = []
            except pa.ArrowException as error:
                raise StoreError(f"{path} is damaged: {error}") from error
        if group:
            writer.write_table(pa.concat_tables(group))


def read_table(name: str, path: Path) -> Any:  # noqa: ANN401  # likewise
    """Read a table of this or an older schema version.

    Raises:
        StoreError: It is missing, damaged, or of a newer version.
    """
    try:
        with pq.ParquetFile(path) as file:
            table = file.read()
        version = (table.schema.metadata or {}).get(VERSION_KEY, b"").decode()
        number = checked_version(int(version) if version.isdigit() else None, where=str(path))
        return upgrade_table(name, table, version=number).cast(arrow_schema(STORED_TABLES[name]))
    except OSError as error:
        raise StoreError(f"cannot read {path}: {error.strerror or error}") from error
    except (pa.ArrowException, ValueError) as error:
        raise StoreError(f"{path} is damaged: {error}") from error


def row_ct(path: Path) -> int:
    """Number of rows of a parquet file, from its footer.

    Raises:
        StoreError: It is missing or damaged.
    """
    try:
        rows: int = pq.read_metadata(path).num_rows
    except OSError as error:
        raise StoreError(f"cannot read {path}: {error.strerror or error}") from error
    except pa.ArrowException as error:
        raise StoreError(f"{path} is damaged: {error}") from error
    return rows


def _options(name: str) -> dict[str, Any]:
    options: dict[str, Any] = {"compression": "zstd"}
    if name == "samples":
        # Times of events are nearly all of the file; packed as differences they take a third less.
        # Parquet wants the encoded column left out of the ones with a dictionary.
        leaves = [
            f"{column.name}.list.element" if column.base_kind.startswith("list") else column.name
            for column in STORED_TABLES[name]
        ]
        packed = "event_ns_delta.list.element"
        options["use_dictionary"] = [leaf for leaf in leaves if leaf != packed]
        options["column_encoding"] = {packed: "DELTA_BINARY_PACKED"}
    return options
