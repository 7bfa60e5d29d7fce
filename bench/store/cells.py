"""The parts of a run that is being written: one folder a finished cell.

A cell's folder is written under another name, flushed to the disk and renamed to `cells/<cell_id>`
last. So a cell is finished exactly when that folder exists, and then all of it is there:
measurement, samples, telemetry, findings.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from bench.errors import StoreError
from bench.model import Finding, Measurement
from bench.store.disk import flush_folder, write_flushed, writing
from bench.store.layout import CELL, CELLS, checked_name, table_file
from bench.store.manifest import json_bytes, read_json
from bench.store.parquet import read_table, write_table
from bench.store.records import (
    measurements_of,
    measurements_table,
    samples_of,
    samples_table,
    telemetry_of,
    telemetry_table,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from bench.model import RequestSample, TelemetryPoint

_UNFINISHED = ".tmp-"


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishedCell:
    """A cell that is on disk, without its samples and telemetry.

    Attributes:
        measurement: Its numbers; `measurement.cell_id` is its id.
        findings: What is to be distrusted about them.
    """

    measurement: Measurement
    findings: tuple[Finding, ...]


def finished_cell_ids(run: Path) -> set[str]:
    """Ids of the finished cells of a part-run."""
    return {entry.name for entry in (run / CELLS).glob("*/") if not entry.name.startswith(".")}


def drop_unfinished(run: Path) -> None:
    """Remove what a killed writer left half-written."""
    for entry in (run / CELLS).glob(f"{_UNFINISHED}*"):
        shutil.rmtree(entry, ignore_errors=True)


def write_cell(
    run: Path,
    cell: FinishedCell,
    *,
    samples: Sequence[RequestSample],
    telemetry: Sequence[TelemetryPoint],
) -> None:
    """Put a finished cell on the disk, whole or not at all.

    Raises:
        StoreError: The cell is there already.
        DiskError: The disk refused; nothing of the cell is left.
    """
    cell_id, launch_id = cell.measurement.cell_id, cell.measurement.launch_id
    place = run / CELLS / checked_name(cell_id)
    if place.exists():
        raise StoreError(f"cell {cell_id} is in {run} already")
    tables = {
        "samples": samples_table(samples),
        "telemetry": telemetry_table(telemetry, launch_id=launch_id, cell_id=cell_id),
        "measurements": measurements_table([cell.measurement]),
    }
    part = place.with_name(_UNFINISHED + cell_id)
    with writing(f"cell {cell_id}", place):
        try:
            part.mkdir(parents=True)
            for name, table in tables.items():
                write_flushed(part / table_file(name), partial(write_table, name, table))
            findings = json_bytes({"findings": cell.findings})
            write_flushed(part / CELL, lambda file: file.write(findings))
            flush_folder(part)
            part.rename(place)
        except BaseException:
            shutil.rmtree(part, ignore_errors=True)
            raise
        flush_folder(place.parent)


def read_cell(run: Path, cell_id: str) -> FinishedCell:
    """Read back a finished cell.

    Raises:
        StoreError: It is not there, or damaged.
    """
    folder = run / CELLS / cell_id
    path = folder / CELL
    try:
        about = msgspec.convert(read_json(path), dict[str, tuple[Finding, ...]])
        findings = about["findings"]
    except (msgspec.ValidationError, KeyError) as error:
        raise StoreError(f"{path} is damaged: {error}") from error
    rows = measurements_of(read_table("measurements", folder / table_file("measurements")))
    if len(rows) != 1:
        raise StoreError(f"{folder} is damaged: {len(rows)} measurements in place of one")
    return FinishedCell(measurement=rows[0], findings=findings)


def read_cell_telemetry(run: Path, cell_id: str) -> list[TelemetryPoint]:
    """Read back the telemetry of a finished cell.

    Raises:
        StoreError: It is not there, or damaged.
    """
    return telemetry_of(read_table("telemetry", run / CELLS / cell_id / table_file("telemetry")))


def read_cell_samples(run: Path, cell_id: str) -> list[RequestSample]:
    """Read back the samples of a finished cell.

    Raises:
        StoreError: They are not there, or damaged.
    """
    return samples_of(read_table("samples", run / CELLS / cell_id / table_file("samples")))
