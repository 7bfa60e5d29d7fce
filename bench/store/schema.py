"""The pyarrow schemas, built from `bench.store.columns`."""

from __future__ import annotations

from functools import cache
from typing import Any

import pyarrow as pa

from bench.store.columns import CLIENT, DISTRIBUTION_FIELDS, SCHEMA_VERSION, Column

VERSION_KEY = b"specdyno_schema_version"


@cache
def arrow_types() -> dict[str, Any]:
    """The pyarrow type of every kind of column."""
    text, integer, real = pa.string(), pa.int64(), pa.float64()
    scalar = {"text": text, "int64": integer, "float64": real, "bool": pa.bool_()}
    return {
        **scalar,
        "timestamp": pa.timestamp("us", tz="UTC"),
        "list<text>": pa.list_(text),
        "list<int64>": pa.list_(integer),
        "list<uint64>": pa.list_(pa.uint64()),
        "list<float64>": pa.list_(real),
        "map<text,int64>": pa.map_(text, integer),
        "distribution": pa.struct(
            [
                pa.field(name, integer if name == "n" else real, nullable=False)
                for name in DISTRIBUTION_FIELDS
            ]
        ),
        "client": pa.struct(
            [
                pa.field(column.name, scalar[column.base_kind], nullable=column.optional)
                for column in CLIENT
            ]
        ),
        "differences": pa.list_(
            pa.struct([pa.field(name, text) for name in ("name", "baseline", "arm")])
        ),
    }


@cache
def arrow_schema(columns: tuple[Column, ...]) -> Any:  # noqa: ANN401  # pyarrow has no types
    """The schema of a table, with each column's meaning as field metadata `doc`."""
    types = arrow_types()
    return pa.schema(
        [
            pa.field(
                column.name,
                types[column.base_kind],
                nullable=column.optional,
                metadata={"doc": column.doc},
            )
            for column in columns
        ],
        metadata={VERSION_KEY: str(SCHEMA_VERSION)},
    )
