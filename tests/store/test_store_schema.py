"""Columns follow the records, and the docs follow the columns."""

import types
import typing
from dataclasses import fields
from pathlib import Path

import pytest

from bench.model import (
    ClientStats,
    Comparison,
    Distribution,
    Finding,
    Measurement,
    RequestSample,
    TelemetryPoint,
)
from bench.store import columns as c
from bench.store.schema import arrow_schema

DOCS = Path(__file__).parents[2] / "docs" / "results.md"
STORED_OTHERWISE = {"event_ns": "event_ns_delta", "event_tok": "event_tok_delta"}
PAIRS = [
    (c.SAMPLES, RequestSample),
    (c.TELEMETRY[2:], TelemetryPoint),
    (c.MEASUREMENTS, Measurement),
    (c.CLIENT, ClientStats),
    (c.COMPARISONS, Comparison),
    (c.FINDINGS, Finding),
]


@pytest.mark.parametrize(
    ("columns", "record"), PAIRS, ids=lambda value: getattr(value, "__name__", "")
)
def test_columns_are_the_fields_of_the_record(columns, record):
    names = [STORED_OTHERWISE.get(field.name, field.name) for field in fields(record)]
    assert [column.name for column in columns] == names


@pytest.mark.parametrize(
    ("columns", "record"), PAIRS, ids=lambda value: getattr(value, "__name__", "")
)
def test_a_column_may_be_null_exactly_when_the_field_may_be_none(columns, record):
    hints = typing.get_type_hints(record)
    for column, field in zip(columns, fields(record), strict=True):
        hint = hints[field.name]
        may_be_none = isinstance(hint, types.UnionType) and type(None) in typing.get_args(hint)
        assert column.optional == may_be_none, column.name


def test_distribution_columns_are_its_fields():
    assert [field.name for field in fields(Distribution)] == list(c.DISTRIBUTION_FIELDS)


def test_every_stored_field_carries_its_meaning_and_the_file_its_version():
    for columns in c.STORED_TABLES.values():
        schema = arrow_schema(columns)
        assert [schema.field(column.name).metadata[b"doc"].decode() for column in columns] == [
            x.doc for x in columns
        ]
        assert schema.metadata[b"specdyno_schema_version"] == str(c.SCHEMA_VERSION).encode()


def markdown_row(column: c.Column) -> str:
    kind = column.base_kind + (", may be null" if column.optional else "")
    return f"| `{column.name}` | {kind} | {column.doc} |"


@pytest.mark.parametrize(
    "name",
    [
        "IDENTITY",
        "ENGINE",
        "CELL_KEYS",
        "SAMPLES",
        "TELEMETRY",
        "MEASUREMENTS",
        "CLIENT",
        "RUNS",
        "COMPARISONS",
        "FINDINGS",
    ],
)
def test_docs_say_what_every_column_is(name):
    rows = [markdown_row(column) for column in getattr(c, name)]
    table = "\n".join(rows)
    assert table in DOCS.read_text(), (
        f"docs/results.md should have these rows for {name}:\n{table}"
    )
