"""A run's folder taken hold of: a new one, a part-run, a published run that lacks cells."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

from bench.errors import StoreError
from bench.store.cells import drop_unfinished, finished_cell_ids
from bench.store.columns import SCHEMA_VERSION
from bench.store.disk import flush_folder, replace_file, take_lock, writing
from bench.store.layout import (
    CELLS,
    LOCK,
    LOGS,
    MANIFEST,
    PARTIAL,
    SCENARIO,
    checked_name,
    is_partial,
)
from bench.store.manifest import (
    missing_cell_ids,
    planned_cell_ids,
    read_manifest,
    write_manifest,
)
from bench.store.writer import RunWriter

if TYPE_CHECKING:
    from pathlib import Path

    from bench.store.manifest import Manifest


def create_run(out: Path, *, scenario_text: str, manifest: Manifest) -> RunWriter:
    """Begin a run in a folder of its own.

    Args:
        out: The results folder; made when it is not there.
        scenario_text: The scenario, verbatim.
        manifest: From `new_manifest`.

    Raises:
        StoreError: A run of this id is there already.
        DiskError: The folder cannot be written.
    """
    run_id = checked_name(manifest.run_id)
    folder = out.absolute() / checked_name(manifest.scenario)
    path = folder / f"{PARTIAL}{run_id}"
    with writing("a run", path):
        folder.mkdir(parents=True, exist_ok=True)
        try:
            path.mkdir()  # of two runs of one id, one gets no further
        except FileExistsError:
            raise StoreError(f"run {run_id} is in {folder} already") from None
    try:
        return _filled(path, scenario_text=scenario_text, manifest=manifest)
    except BaseException:
        shutil.rmtree(path, ignore_errors=True)
        raise


def _filled(path: Path, *, scenario_text: str, manifest: Manifest) -> RunWriter:
    if path.with_name(manifest.run_id).exists():
        raise StoreError(f"run {manifest.run_id} is in {path.parent} already")
    lock = take_lock(path / LOCK)
    try:
        with writing("a run", path):
            (path / LOGS).mkdir()
            (path / CELLS).mkdir()
            replace_file(path / SCENARIO, lambda file: file.write(scenario_text.encode()))
        write_manifest(path, manifest)
        with writing("a run", path):
            flush_folder(path.parent)
    except BaseException:
        os.close(lock)
        raise
    return RunWriter(path, manifest, lock)


def open_part_run(path: Path) -> RunWriter:
    """Take hold of a part-run, to go on with it; `check_resumable` and `begin_session` come next.

    Args:
        path: Its folder, e.g. from `find_run`.

    Raises:
        StoreError: It is published, being written (the message names the process), damaged, of
            another schema version, or not there.
        DiskError: The folder cannot be written.
    """
    path = path.absolute()
    if not is_partial(path):
        raise _not_resumable(path)
    _resumable_manifest(path)  # before the lock: a folder without a run gets no lock file
    lock = take_lock(path / LOCK)
    try:
        manifest = _resumable_manifest(path)
        drop_unfinished(path)
    except BaseException:
        os.close(lock)
        raise
    return RunWriter(path, manifest, lock)


def reopen_run(path: Path) -> RunWriter:
    """Make a published run with cells missing a part-run again; its finished cells stay.

    Args:
        path: Its folder.

    Raises:
        StoreError: It has all its cells, or was published without what it takes to add some.
        DiskError: The folder cannot be written.
    """
    path = path.absolute()
    if not is_reopenable(path):
        raise _not_resumable(path)
    place = path.with_name(f"{PARTIAL}{path.name}")
    if place.exists():
        raise StoreError(f"{path} cannot be reopened: {place} is there already")
    with writing("the reopened run", place):
        path.rename(place)
        flush_folder(place.parent)
    return open_part_run(place)


def is_reopenable(path: Path) -> bool:
    """Whether a published run lacks cells and still has the parts of the others."""
    if is_partial(path) or not (path / CELLS).is_dir():
        return False
    manifest = read_manifest(path)
    return bool(missing_cell_ids(manifest, finished_cell_ids(path)))


def _not_resumable(path: Path) -> StoreError:
    if not (path / MANIFEST).is_file():
        return StoreError(f"{path} is no run", hint="`bench list` shows which runs can be resumed")
    if is_reopenable(path):
        manifest = read_manifest(path)
        missing = missing_cell_ids(manifest, finished_cell_ids(path))
        return StoreError(
            f"{path} is published, with {len(missing)} of {len(planned_cell_ids(manifest))} cells "
            "missing",
            hint=f"`bench resume {manifest.run_id} --retry-failed` reopens it and tries these "
            "again; what is measured stays",
        )
    return StoreError(
        f"{path} is published: there is nothing to resume",
        hint="`bench list` shows which runs can be resumed",
    )


def _resumable_manifest(path: Path) -> Manifest:
    manifest = read_manifest(path)
    if manifest.schema_version != SCHEMA_VERSION:
        raise StoreError(
            f"cannot resume {manifest.run_id}: its schema_version is {manifest.schema_version}, "
            f"this specdyno writes {SCHEMA_VERSION}",
            hint="resume it with the specdyno that began it, or begin a new run",
        )
    return manifest
