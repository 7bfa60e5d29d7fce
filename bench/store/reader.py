"""Reading runs back as records, listing them, finding one by name. Nothing here writes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from bench.errors import StoreError
from bench.model import FindingKind
from bench.store.cells import finished_cell_ids, read_cell
from bench.store.columns import STORED_TABLES
from bench.store.disk import lock_holder, sha256_of
from bench.store.faults import faults_of
from bench.store.layout import (
    LOCK,
    LOGS,
    SCENARIO,
    is_partial,
    is_run,
    run_folders,
    run_id_of,
    table_file,
)
from bench.store.manifest import (
    RunStatus,
    in_plan_order,
    is_simulated,
    planned_cell_ids,
    read_manifest,
)
from bench.store.opening import is_reopenable
from bench.store.parquet import read_table, row_ct
from bench.store.records import measurements_of, samples_of

if TYPE_CHECKING:
    from bench.model import Comparison, Finding, Measurement, RequestSample
    from bench.store.manifest import Manifest

LATEST = "latest"
_SHOWN_CANDIDATES = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredRun:
    """A run as records, without samples and telemetry.

    Attributes:
        folder: Its folder.
        published: Whether it is published; a part-run has the cells that were finished so far.
        status: As in the manifest, but `running` only while a process writes it.
        manifest: What was asked and what became of it.
        measurements: A record a finished cell, in the plan's order.
        comparisons: The answers; none in a part-run.
        findings: What is to be distrusted, of cells and of the whole run.
    """

    folder: Path
    published: bool
    status: RunStatus
    manifest: Manifest
    measurements: tuple[Measurement, ...]
    comparisons: tuple[Comparison, ...]
    findings: tuple[Finding, ...]

    @property
    def run_id(self) -> str:
        """The run's id."""
        return self.manifest.run_id

    @property
    def question(self) -> str:
        """What the scenario asks."""
        return self.manifest.question

    @property
    def simulated(self) -> bool:
        """Whether simulated servers were measured."""
        return is_simulated(self.manifest)

    @property
    def speed(self) -> int:
        """The clock's speed: 1 but for simulations."""
        return self.manifest.speed


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSummary:
    """One line of `bench list`; of a damaged run only its folder and the reason are known.

    Attributes:
        run_id: Its id.
        folder: Its folder.
        status: As of `StoredRun`, or `damaged`.
        published: Whether it is published; else `bench resume` may take it up.
        scenario: Name of its scenario.
        question: What that asks.
        simulated: Whether simulated servers were measured.
        started_at: ISO 8601, UTC.
        finished_at: ISO 8601, UTC; None: not published.
        cells_finished: Cells on the disk.
        cells_total: Cells planned.
        pid: The process that is writing it; None: none is.
        note: Why it is damaged, who is writing it, or how to go on with it.
    """

    run_id: str
    folder: Path
    status: RunStatus | Literal["damaged"]
    published: bool
    scenario: str | None = None
    question: str | None = None
    simulated: bool | None = None
    started_at: str | None = None
    finished_at: str | None = None
    cells_finished: int | None = None
    cells_total: int | None = None
    pid: int | None = None
    note: str | None = None


def load_run(folder: Path) -> StoredRun:
    """Read one run, published or not.

    Args:
        folder: Its folder, e.g. from `find_run`.

    Raises:
        StoreError: It is damaged, or written by a newer specdyno.
    """
    manifest = read_manifest(folder)
    published = not is_partial(folder)
    if published:
        measurements = measurements_of(stored_table(folder, manifest, "measurements"))
        findings = manifest.findings
    else:
        ids = in_plan_order(finished_cell_ids(folder), manifest)
        cells = [read_cell(folder, cell_id) for cell_id in ids]
        measurements = [cell.measurement for cell in cells]
        findings = tuple(finding for cell in cells for finding in cell.findings)
    return StoredRun(
        folder=folder,
        published=published,
        status=_status(manifest, writer_pid(folder)),
        manifest=manifest,
        measurements=tuple(measurements),
        comparisons=manifest.comparisons if published else (),
        findings=findings,
    )


def stored_table(folder: Path, manifest: Manifest, name: str) -> Any:  # noqa: ANN401  # pyarrow has no types
    """A table of a published run, checked against its hash.

    Raises:
        StoreError: It is missing, damaged or not the one that was published.
    """
    file = folder / table_file(name)
    table = read_table(name, file)
    if sha256_of(file) != manifest.files.get(file.name):
        raise StoreError(
            f"{file} is not what was published: its SHA-256 differs from the manifest's"
        )
    return table


def load_samples(folder: Path) -> list[RequestSample]:
    """The samples of a published run as records, in the order of its measurements.

    Raises:
        StoreError: They are damaged.
    """
    return samples_of(stored_table(folder, read_manifest(folder), "samples"))


def list_runs(out: Path) -> list[RunSummary]:
    """Every run below a results folder, oldest first; damaged ones are listed as such.

    Raises:
        StoreError: There is no such folder.
    """
    return sorted((_summary(folder) for folder in run_folders(out)), key=_age)


def can_retry(manifest: Manifest, folder: Path) -> bool:
    """Whether launches of a published run failed, and it can be reopened to try them again."""
    failed = any(finding.kind is FindingKind.LAUNCH_FAILED for finding in manifest.findings)
    return failed and is_reopenable(folder)


def abandoned_logs(out: Path) -> tuple[Path, ...]:
    """The folders of logs of every part-run below a results folder that no process is writing."""
    part_runs = (folder for folder in run_folders(out) if is_partial(folder))
    return tuple(folder / LOGS for folder in part_runs if writer_pid(folder) is None)


def find_run(out: Path, name: str) -> Path:
    """The folder of one run.

    Args:
        out: The results folder.
        name: A run id, a beginning or an end of one that no other run has, a path, or `latest`.

    Raises:
        StoreError: No run is called so, or several are.
    """
    path = Path(name)
    if is_run(path) and path.is_dir():
        return path.absolute()
    runs = {run_id_of(folder): folder for folder in run_folders(out)}
    if name in runs:
        return runs[name]
    if name == LATEST:
        summaries = list_runs(out)
        if not summaries:
            raise StoreError(f"no run in {out} yet")
        return summaries[-1].folder
    hits = [
        run_id for run_id in runs if name and (run_id.startswith(name) or run_id.endswith(name))
    ]
    if len(hits) == 1:
        return runs[hits[0]]
    if not hits:
        raise StoreError(f"no run {name!r} in {out}", hint="`bench list` shows the runs there are")
    shown = "".join(f"\n  {run_id}" for run_id in sorted(hits, reverse=True)[:_SHOWN_CANDIDATES])
    more = len(hits) - _SHOWN_CANDIDATES
    raise StoreError(
        f"{name!r} could be {len(hits)} runs in {out}:{shown}"
        + (f"\n  and {more} more" if more > 0 else ""),
        hint="give more of the run's id",
    )


def _age(run: RunSummary) -> tuple[str, str]:
    """Orders runs by their beginning: the id's UTC seconds, then the exact time."""
    return run.run_id[:16], run.started_at or ""


def writer_pid(folder: Path) -> int | None:
    """The process that writes a part-run now; None: nobody does."""
    return lock_holder(folder / LOCK) if is_partial(folder) else None


def _status(manifest: Manifest, pid: int | None) -> RunStatus:
    if manifest.status is RunStatus.RUNNING and pid is None:
        return RunStatus.INTERRUPTED  # whoever wrote it was killed
    return manifest.status


def _summary(folder: Path) -> RunSummary:
    published = not is_partial(folder)
    try:
        manifest = read_manifest(folder)
        finished = _checked_cell_ct(folder) if published else len(finished_cell_ids(folder))
    except (StoreError, OSError) as error:
        run_id = run_id_of(folder)
        return RunSummary(
            run_id=run_id, folder=folder, status="damaged", published=published, note=str(error)
        )
    pid = writer_pid(folder)
    note = None
    is_study = bool(manifest.plan_arguments.get("study"))
    if published and not is_study and can_retry(manifest, folder):
        note = "`bench resume --retry-failed` tries its failed launches again"
    if not published:
        note = (
            f"`{'tuner' if is_study else 'bench'} resume` goes on with it"
            if pid is None
            else f"being written by process {pid}"
        )
    if faults := faults_of(manifest):
        note = "; ".join(filter(None, (note, f"faults on request: {faults}")))
    return RunSummary(
        run_id=manifest.run_id,
        folder=folder,
        status=_status(manifest, pid),
        published=published,
        scenario=manifest.scenario,
        question=manifest.question,
        simulated=is_simulated(manifest),
        started_at=manifest.started_at,
        finished_at=manifest.finished_at,
        cells_finished=finished,
        cells_total=len(planned_cell_ids(manifest)),
        pid=pid,
        note=note,
    )


def _checked_cell_ct(folder: Path) -> int:
    """Number of cells of a published run whose files are all there and have whole ends."""
    if not (folder / SCENARIO).is_file():
        raise StoreError(f"no {folder / SCENARIO}")
    rows = {name: row_ct(folder / table_file(name)) for name in STORED_TABLES}
    return rows["measurements"]
