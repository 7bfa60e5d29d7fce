"""Names in a results folder, and how runs are found in it.

    results/<scenario>/<run_id>/            a published run, never changed again
    results/<scenario>/.partial-<run_id>/   a run that is being written, or was stopped

In both: manifest.json, scenario.yaml, logs/<launch_id>.log. Published: the three parquet tables
and, later, report.html.
Partial: cells/<cell_id>/ (one folder a finished cell, renamed into place) and the writer's lock.
"""

from __future__ import annotations

import re
import secrets
from typing import TYPE_CHECKING

from bench.clock import utc_now
from bench.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime
    from pathlib import Path

PARTIAL = ".partial-"
MANIFEST = "manifest.json"
SCENARIO = "scenario.yaml"
LOGS = "logs"
CELLS = "cells"
CELL = "cell.json"
LOCK = "lock"

_RUN_ID = re.compile(r"\d{8}T\d{6}Z-.+-[0-9a-f]{6}")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_DEPTH = 3  # results/<scenario>/<run_id>, and one more for results/reference


def new_run_id(scenario: str, *, now: datetime | None = None) -> str:
    """A fresh run id: UTC time, scenario, six random hex digits.

    E.g. `20261129T160346Z-kimi-1a2b3c`.

    Args:
        scenario: The scenario's name.
        now: The time to put in; None: the present.
    """
    return f"{now or utc_now():%Y%m%dT%H%M%SZ}-{scenario}-{secrets.token_hex(3)}"


def checked_name(name: str) -> str:
    """A name that is part of a path, when it is safe as one.

    Raises:
        StoreError: It is not.
    """
    if not _NAME.fullmatch(name):
        raise StoreError(
            f"{name!r} cannot be part of a path: letters, digits, '.', '_' and '-' can"
        )
    return name


def table_file(name: str) -> str:
    """The file of a stored table."""
    return f"{name}.parquet"


def is_partial(path: Path) -> bool:
    """Whether a run's folder is that of a part-run."""
    return path.name.startswith(PARTIAL)


def run_id_of(path: Path) -> str:
    """The run id that a run's folder is named after."""
    return path.name.removeprefix(PARTIAL)


def is_run(path: Path) -> bool:
    """Whether a folder is a run's, damaged or not."""
    return (
        is_partial(path) or (path / MANIFEST).is_file() or _RUN_ID.fullmatch(path.name) is not None
    )


def run_folders(path: Path) -> Iterator[Path]:
    """Every run's folder at or below `path`, part-runs included, in the order of their names.

    Raises:
        StoreError: There is no such folder, or it cannot be read.
    """
    if not path.is_dir():
        raise StoreError(
            f"no results folder {path}", hint="name the folder that `bench run --out` wrote to"
        )
    yield from _walk(path.absolute(), _DEPTH)


def _walk(path: Path, depth: int) -> Iterator[Path]:
    if is_run(path):
        yield path
    elif depth:
        try:
            folders = sorted(entry for entry in path.iterdir() if entry.is_dir())
        except OSError as error:
            raise StoreError(f"cannot read {path}: {error.strerror}") from error
        for folder in folders:
            yield from _walk(folder, depth - 1)
