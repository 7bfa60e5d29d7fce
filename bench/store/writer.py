"""Writing a run: begun, filled cell by cell, published by one rename; taken up after a stop."""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import IO, TYPE_CHECKING, Literal, Self

from bench.clock import utc_now
from bench.errors import StoreError
from bench.store.cells import (
    FinishedCell,
    finished_cell_ids,
    read_cell,
    read_cell_samples,
    read_cell_telemetry,
    write_cell,
)
from bench.store.columns import STORED_TABLES
from bench.store.disk import flush_folder, replace_file, sha256_of, writing
from bench.store.layout import (
    CELLS,
    LOCK,
    LOGS,
    SCENARIO,
    checked_name,
    table_file,
)
from bench.store.manifest import (
    RunStatus,
    in_plan_order,
    missing_cell_ids,
    planned,
    write_manifest,
)
from bench.store.parquet import concatenate, write_table
from bench.store.records import measurements_table

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from bench.model import (
        Cell,
        Comparison,
        Finding,
        Launch,
        LaunchRecord,
        Measurement,
        RequestSample,
        TelemetryPoint,
    )
    from bench.store.manifest import Manifest, Session


class RunWriter:
    """The one writer of a run, which holds its lock until `publish` or `close`.

    Not for several threads at once.

    Attributes:
        folder: The run's folder: the part-run's until it is published.
        manifest: What manifest.json says now.
    """

    def __init__(self, folder: Path, manifest: Manifest, lock: int) -> None:
        self.folder = folder
        self.manifest = manifest
        self._lock: int | None = lock

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()

    @property
    def run_id(self) -> str:
        """The run's id."""
        return self.manifest.run_id

    @property
    def scenario_text(self) -> str:
        """The scenario, verbatim.

        Raises:
            StoreError: It is not there any more, or is no text.
        """
        path = self.folder / SCENARIO
        try:
            return path.read_bytes().decode()
        except (OSError, UnicodeDecodeError) as error:
            raise StoreError(f"cannot read {path}: {error}") from error

    def log_path(self, launch_id: str) -> Path:
        """Where the server's log of a launch goes; whoever writes there leaves secrets out."""
        return self.folder / LOGS / f"{checked_name(launch_id)}.log"

    def write_launch(self, record: LaunchRecord) -> None:
        """Put a launch into the manifest, or bring it up to date there.

        Raises:
            DiskError: The disk refused.
        """
        others = self.manifest.launches
        known = [launch.launch_id for launch in others]
        if record.launch_id in known:
            at = known.index(record.launch_id)
            launches = (*others[:at], record, *others[at + 1 :])
        else:
            launches = (*others, record)
        self._rewrite(replace(self.manifest, launches=launches))

    def plan_launch(self, launch: Launch) -> None:
        """Add a launch to the plan: a study's is made as it goes.

        Raises:
            DiskError: The disk refused.
        """
        plan = [*self.manifest.plan, *planned([launch])]
        self._rewrite(replace(self.manifest, plan=tuple(plan)))

    def write_cell(
        self,
        cell: Cell,
        launch_id: str,
        samples: Sequence[RequestSample],
        telemetry: Sequence[TelemetryPoint],
        measurement: Measurement,
        findings: Sequence[Finding],
    ) -> None:
        """Put a finished cell on the disk; once this returns, no crash loses it.

        Args:
            cell: What was asked.
            launch_id: The launch it was measured in.
            samples: A record a request, warm-up included.
            telemetry: Readings during the cell.
            measurement: The cell's numbers.
            findings: What is to be distrusted about them.

        Raises:
            StoreError: The cell is there already, or `measurement` is of another cell or launch.
            DiskError: The disk refused; nothing of the cell is left, and the cells before it are
                as they were.
        """
        if (measurement.cell_id, measurement.launch_id) != (cell.cell_id, launch_id):
            raise StoreError(
                f"cell {cell.cell_id} of launch {launch_id} came with the measurement of "
                f"cell {measurement.cell_id} of launch {measurement.launch_id}"
            )
        finished = FinishedCell(measurement=measurement, findings=tuple(findings))
        write_cell(self.folder, finished, samples=samples, telemetry=telemetry)

    def finished_cells(self) -> set[str]:
        """Ids of the cells that are on the disk."""
        return finished_cell_ids(self.folder)

    def measurements(self) -> list[Measurement]:
        """The measurements of the cells that are on the disk, in the plan's order.

        Raises:
            StoreError: One is damaged.
        """
        return [cell.measurement for cell in self._finished()]

    def findings(self) -> list[Finding]:
        """The findings stored with these cells, in the same order.

        Raises:
            StoreError: A cell is damaged.
        """
        return [finding for cell in self._finished() for finding in cell.findings]

    def cell(self, cell_id: str) -> tuple[Measurement, tuple[Finding, ...]] | None:
        """A finished cell's measurement and findings; None: it is not finished.

        Raises:
            StoreError: It is damaged.
        """
        if cell_id not in self.finished_cells():
            return None
        stored = read_cell(self.folder, checked_name(cell_id))
        return stored.measurement, stored.findings

    def samples_of_cell(self, cell_id: str) -> list[RequestSample]:
        """The samples of a finished cell: for findings that span cells.

        Raises:
            StoreError: The cell is not finished, or damaged.
        """
        return read_cell_samples(self.folder, checked_name(cell_id))

    def telemetry_of_cell(self, cell_id: str) -> list[TelemetryPoint]:
        """The telemetry of a finished cell.

        Raises:
            StoreError: The cell is not finished, or damaged.
        """
        return read_cell_telemetry(self.folder, checked_name(cell_id))

    def launches(self) -> tuple[LaunchRecord, ...]:
        """The launches recorded so far, in the order of their starts."""
        return self.manifest.launches

    def begin_session(self, session: Session) -> None:
        """Mark the part-run as running again, for `bench resume`.

        Raises:
            DiskError: The disk refused.
        """
        session = replace(session, first_launch=len(self.manifest.launches))
        self._rewrite(
            replace(
                self.manifest,
                status=RunStatus.RUNNING,
                sessions=(*self.manifest.sessions, session),
                comparisons=(),
                findings=(),
                finished_at=None,
                files={},
            )
        )

    def mark(self, status: Literal["interrupted", "failed"]) -> None:
        """Say in the manifest why the run stays a part-run.

        Raises:
            DiskError: The disk refused; the finished cells are as they were.
        """
        self._rewrite(replace(self.manifest, status=RunStatus(status)))

    def publish(
        self,
        measurements: Sequence[Measurement],
        comparisons: Sequence[Comparison],
        findings: Sequence[Finding],
    ) -> Path:
        """Make the three tables, write the final manifest, rename the folder, and let go of it.

        After a failure or a crash anywhere in it the part-run is whole and can be published again.

        Args:
            measurements: Those that the whole run made judge otherwise (another status): each
                takes the place of the stored one of its cell. Cells left out stay as they are.
            comparisons: The answers.
            findings: Findings of the whole run; those stored with cells are put before them
                (once, if given again).

        Returns:
            The published folder.

        Raises:
            StoreError: A cell is damaged, or a run of this name is published already.
            DiskError: The disk refused.
        """
        judged = {measurement.cell_id: measurement for measurement in measurements}
        rows = [judged.get(stored.cell_id, stored) for stored in self.measurements()]
        of_cells = self.findings()
        self._write_table(
            "measurements", partial(write_table, "measurements", measurements_table(rows))
        )
        for name in ("samples", "telemetry"):
            parts = [
                self.folder / CELLS / cell_id / table_file(name)
                for cell_id in self._ordered_cell_ids()
            ]
            self._write_table(name, partial(concatenate, name, parts))
        self._rewrite(
            replace(
                self.manifest,
                status=RunStatus.COMPLETE,
                finished_at=utc_now().isoformat(),
                comparisons=tuple(comparisons),
                findings=tuple(dict.fromkeys([*of_cells, *findings])),
                files=self._hashes(),
            )
        )
        place = self.folder.with_name(self.manifest.run_id)
        if place.exists():
            raise StoreError(f"{place} is published already; its part-run is {self.folder}")
        with writing("the published run", place):
            self.folder.rename(place)
            self.folder = place
            flush_folder(place.parent)
        # From here on the run is published; what is removed now is no part of it. With cells
        # missing their parts stay, so that the run can be reopened for the rest.
        if not missing_cell_ids(self.manifest, self.finished_cells()):
            shutil.rmtree(place / CELLS, ignore_errors=True)
        with suppress(OSError):
            (place / LOCK).unlink()
        self.close()
        return place

    def discard(self) -> None:
        """Remove a part-run in which nothing was measured, and let go of it."""
        shutil.rmtree(self.folder, ignore_errors=True)
        with suppress(OSError):
            self.folder.parent.rmdir()  # the scenario's folder, if nothing else is in it
        self.close()

    def close(self) -> None:
        """Let go of the run; what is on the disk stays."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _finished(self) -> list[FinishedCell]:
        return [read_cell(self.folder, cell_id) for cell_id in self._ordered_cell_ids()]

    def _write_table(self, name: str, write: Callable[[IO[bytes]], object]) -> None:
        place = self.folder / table_file(name)
        with writing(f"the table of {name}", place):
            replace_file(place, write)

    def _rewrite(self, manifest: Manifest) -> None:
        write_manifest(self.folder, manifest)
        self.manifest = manifest

    def _ordered_cell_ids(self) -> list[str]:
        return in_plan_order(self.finished_cells(), self.manifest)

    def _hashes(self) -> dict[str, str]:
        names = [SCENARIO, *(table_file(name) for name in STORED_TABLES)]
        logs = sorted(f"{LOGS}/{log.name}" for log in (self.folder / LOGS).glob("*.log"))
        with writing("the hashes of the files", self.folder):
            return {name: sha256_of(self.folder / name) for name in (*names, *logs)}
