"""Reads what older versions wrote, one schema version after the other.

To change the format: raise `SCHEMA_VERSION`, add a line to its history, and put the step from the
version before into `MANIFEST_STEPS` and `TABLE_STEPS` (one that changes nothing is left out). Runs
stay as they were written; they are upgraded each time they are read. tests/golden/store keeps a
run of every version.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bench.errors import StoreError
from bench.store.columns import SCHEMA_VERSION

if TYPE_CHECKING:
    from collections.abc import Callable

MANIFEST_STEPS: dict[int, Callable[[dict[str, Any]], dict[str, Any]]] = {}
"""Key: the version that a step starts from."""

TABLE_STEPS: dict[int, Callable[[str, Any], Any]] = {}
"""The same for tables; a step gets the name (a key of `STORED_TABLES`) and the pyarrow table."""


class NewerSchemaError(StoreError):
    """The run was written by a newer specdyno."""


def checked_version(version: object, *, where: str) -> int:
    """The schema version, when it is one that can be read.

    Raises:
        StoreError: It is no version.
        NewerSchemaError: It is that of a newer specdyno.
    """
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise StoreError(f"{where}: no valid schema_version (found {version!r})")
    if version > SCHEMA_VERSION:
        raise NewerSchemaError(
            f"{where} has schema version {version}; this specdyno reads up to {SCHEMA_VERSION}",
            hint="update specdyno to read this run",
        )
    return version


def upgrade_manifest(stored: dict[str, Any], *, where: str) -> dict[str, Any]:
    """A manifest as read from JSON, brought to this version; `schema_version` stays as on disk."""
    version = checked_version(stored.get("schema_version"), where=where)
    for before in range(version, SCHEMA_VERSION):
        step = MANIFEST_STEPS.get(before)
        stored = step(stored) if step else stored
    return {**stored, "schema_version": version}


def upgrade_table(name: str, table: Any, *, version: int) -> Any:  # noqa: ANN401  # pyarrow has no types
    """A table as read from parquet, brought from `version` to this one."""
    for before in range(version, SCHEMA_VERSION):
        step = TABLE_STEPS.get(before)
        table = step(name, table) if step else table
    return table
