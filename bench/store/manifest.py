"""The manifest of a run: what was asked, by whom, what became of it, and the hash of every file.

It is the only JSON of a run that is rewritten, whole or not at all. JSON here is strict: a number
that is not finite is null.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import msgspec

from bench import __version__
from bench.clock import WallAnchor, utc_now, wall_anchor
from bench.errors import StoreError
from bench.model import Comparison, Finding, LaunchRecord  # noqa: TC001  # msgspec reads the annotations
from bench.store.columns import SCHEMA_VERSION
from bench.store.disk import replace_file, writing
from bench.store.layout import MANIFEST
from bench.store.records import finite
from bench.store.upgrade import upgrade_manifest

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence
    from pathlib import Path

    from bench.model import Launch, Plan


class RunStatus(StrEnum):
    """Where a run stands."""

    RUNNING = "running"
    COMPLETE = "complete"
    INTERRUPTED = "interrupted"  # stopped by the user, or killed: `bench resume` takes it up
    FAILED = "failed"  # no cell could be measured


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedCell:
    """A cell of the plan, by its labels.

    Attributes:
        cell_id: Hash of all that was asked and can change the numbers.
        comparison_key: The same without arm and pair.
        workload: Name of the workload.
        load: The load's label.
    """

    cell_id: str
    comparison_key: str
    workload: str
    load: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedLaunch:
    """A launch of the plan and its cells, in order.

    Attributes:
        ordinal: 0-based place in the plan.
        arm: The arm that is launched.
        pair: 0-based pair.
        server_key: Hash of the whole server configuration.
        cells: What it measures.
    """

    ordinal: int
    arm: str
    pair: int
    server_key: str
    cells: tuple[PlannedCell, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """One time that a process wrote this run: the first, and each `bench resume`.

    Attributes:
        started_at: When it began (ISO 8601, UTC).
        command_line: The command, secrets redacted.
        wall_anchor: Dates the clock of this session's launches (a reboot between sessions sets the
            clock back).
        first_launch: Number of launches already recorded when it began: its own are those from
            here on.
    """

    started_at: str
    command_line: tuple[str, ...]
    wall_anchor: WallAnchor
    first_launch: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """Everything about a run that is not a row of a table.

    Attributes:
        schema_version: Of manifest.json and the tables beside it, as they are on disk.
        run_id: Name of the run.
        scenario: Name of the scenario.
        question: What the scenario asks.
        status: Where the run stands.
        simulated: Whether simulated servers were asked for; see `is_simulated`.
        speed: The clock's speed: 1 but for simulations.
        scenario_sha256: Hash of scenario.yaml.
        plan: What was to be measured, in order.
        plan_arguments: What the plan was made with beside the scenario: overrides, choices of
            cells and the like.
        sessions: Who wrote it, in order.
        started_at: When it began (ISO 8601, UTC).
        finished_at: When it was published; None: it was not.
        specdyno_version: The version that measured.
        fingerprint: The machine and the software (`bench.provenance.fingerprint`).
        launches: What became of each launch, in order.
        comparisons: The answers.
        findings: What is to be distrusted and why; while partial only those of the whole run.
        files: SHA-256 of each published file but this one, by its path in the run's folder.
    """

    schema_version: int = SCHEMA_VERSION
    run_id: str
    scenario: str
    question: str
    status: RunStatus = RunStatus.RUNNING
    simulated: bool
    speed: int
    scenario_sha256: str
    plan: tuple[PlannedLaunch, ...]
    plan_arguments: dict[str, Any] = field(default_factory=dict)
    sessions: tuple[Session, ...]
    started_at: str
    finished_at: str | None = None
    specdyno_version: str = __version__
    fingerprint: dict[str, Any] = field(default_factory=dict)
    launches: tuple[LaunchRecord, ...] = ()
    comparisons: tuple[Comparison, ...] = ()
    findings: tuple[Finding, ...] = ()
    files: dict[str, str] = field(default_factory=dict)


def new_session(command_line: Sequence[str]) -> Session:
    """A session that begins now.

    Args:
        command_line: The command, secrets redacted.
    """
    return Session(
        started_at=utc_now().isoformat(),
        command_line=tuple(command_line),
        wall_anchor=wall_anchor(),
    )


def new_manifest(
    plan: Plan,
    *,
    run_id: str,
    scenario_text: str,
    command_line: Sequence[str],
    fingerprint: Mapping[str, object],
    plan_arguments: Mapping[str, object] | None = None,
) -> Manifest:
    """The manifest of a run that begins now.

    Args:
        plan: What is to be measured.
        run_id: From `bench.store.new_run_id`.
        scenario_text: The scenario, verbatim.
        command_line: The command, secrets redacted.
        fingerprint: From `bench.provenance.fingerprint`.
        plan_arguments: Everything else the plan was made with, JSON values only: what `bench
            resume` needs to make it again.
    """
    session = new_session(command_line)
    return Manifest(
        run_id=run_id,
        scenario=plan.scenario,
        question=plan.question,
        simulated=plan.simulated,
        speed=plan.speed,
        scenario_sha256=hashlib.sha256(scenario_text.encode()).hexdigest(),
        plan=planned(plan.launches),
        plan_arguments=dict(plan_arguments or {}),
        sessions=(session,),
        started_at=session.started_at,
        fingerprint=dict(fingerprint),
    )


def planned(launches: Iterable[Launch]) -> tuple[PlannedLaunch, ...]:
    """Launches by their labels, without anything that may hold a secret."""
    return tuple(
        PlannedLaunch(
            ordinal=launch.ordinal,
            arm=launch.arm,
            pair=launch.pair,
            server_key=launch.server_key,
            cells=tuple(
                PlannedCell(
                    cell_id=cell.cell_id,
                    comparison_key=cell.comparison_key,
                    workload=cell.workload.name,
                    load=cell.load.label,
                )
                for cell in launch.cells
            ),
        )
        for launch in launches
    )


def planned_cell_ids(manifest: Manifest) -> tuple[str, ...]:
    """The ids of the planned cells, in order."""
    return tuple(cell.cell_id for launch in manifest.plan for cell in launch.cells)


def missing_cell_ids(manifest: Manifest, finished: Collection[str]) -> tuple[str, ...]:
    """The ids of planned cells that are not finished, in order."""
    return tuple(cell_id for cell_id in planned_cell_ids(manifest) if cell_id not in finished)


def is_simulated(manifest: Manifest) -> bool:
    """Whether any server of the run was simulated: asked for, or attached and told by itself."""
    return manifest.simulated or any(
        launch.effective is not None and launch.effective.simulated for launch in manifest.launches
    )


def in_plan_order(cell_ids: Iterable[str], manifest: Manifest) -> list[str]:
    """The given cells as the plan has them; any that it has not come last."""
    order = {cell_id: at for at, cell_id in enumerate(planned_cell_ids(manifest))}
    return sorted(cell_ids, key=lambda cell_id: (order.get(cell_id, len(order)), cell_id))


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Write manifest.json, whole or not at all.

    Raises:
        DiskError: The disk refused.
    """
    path = folder / MANIFEST
    with writing("the manifest", path):
        replace_file(path, lambda file: file.write(json_bytes(manifest)))


def read_manifest(folder: Path) -> Manifest:
    """Read manifest.json, of this or an older schema version.

    Raises:
        StoreError: It is missing, damaged, or of a newer version.
    """
    path = folder / MANIFEST
    stored = read_json(path)
    if not isinstance(stored, dict):
        raise StoreError(f"{path} is damaged: not a JSON object")
    try:
        return msgspec.convert(upgrade_manifest(stored, where=str(path)), Manifest)
    except msgspec.ValidationError as error:
        raise StoreError(f"{path} is damaged: {error}") from error


def read_json(path: Path) -> object:
    """Read a JSON file of a run.

    Raises:
        StoreError: It is missing or no JSON.
    """
    try:
        stored: object = json.loads(path.read_bytes())
    except OSError as error:
        raise StoreError(f"cannot read {path}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:  # no JSON, or nested without end
        raise StoreError(f"{path} is damaged: {error}") from error
    return stored


def json_bytes(record: object) -> bytes:
    """A record (or plain data) as strict JSON in UTF-8, indented."""
    text = json.dumps(
        strict(msgspec.to_builtins(record)), indent=1, ensure_ascii=False, allow_nan=False
    )
    # A file name that is no valid UTF-8 reaches us with lone surrogates; what this writes for one
    # is its JSON escape.
    return text.encode("utf-8", "backslashreplace") + b"\n"


def strict(data: Any) -> Any:  # noqa: ANN401  # JSON data
    """The same plain data with None for every float that is not finite."""
    if isinstance(data, float):
        return finite(data)
    if isinstance(data, dict):
        return {key: strict(value) for key, value in data.items()}
    if isinstance(data, (list, tuple)):
        return [strict(value) for value in data]
    return data
