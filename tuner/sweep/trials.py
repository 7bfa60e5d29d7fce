"""One launch of a study: as it is planned, what it measured, what kind of failure it had."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from bench import clock
from bench.model.study import StudyTrial, TrialState
from bench.sglang.failures import Action, FailureClass
from tuner.evaluate.readings import Measured, measured, memory_headroom_gib

if TYPE_CHECKING:
    from bench.model import Launch, LaunchRecord
    from bench.store import RunWriter
    from tuner.predict import Knowledge
    from tuner.space import Configuration
    from tuner.space.schema import Tune
    from tuner.sweep.policy import Proposal

NO_FIGURE: Final = {
    "goodput": "no cell of the launch has requests within the slo",
    "energy": "in no cell of the launch was the GPUs' power read",
}
"""Why a launch has no figure, by objective."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Foreseen:
    """What is predicted of a launch before it begins.

    Attributes:
        gain: Log ratio to the baseline.
        gain_sd: Its standard deviation, the launch's own noise included.
        accept_len_tok: By cell; None without speculation.
    """

    gain: float
    gain_sd: float
    accept_len_tok: tuple[float | None, ...]


def foreseen_of(
    knowledge: Knowledge | None, place: int, configuration: Configuration
) -> Foreseen | None:
    """What is predicted of a configuration; None outside the space, and before any launch."""
    if knowledge is None or place >= len(knowledge.mean):
        return None
    gain, of_it = knowledge.difference(place, 0)
    return Foreseen(
        gain=gain,
        gain_sd=math.hypot(of_it, knowledge.launch_sd),
        accept_len_tok=accept_lengths(knowledge, place, configuration),
    )


def planned_trial(
    proposal: Proposal,
    *,
    cells: int,
    foreseen: Foreseen | None,
) -> StudyTrial:
    """A launch that begins now, with what is predicted of it.

    Args:
        proposal: The launch.
        cells: How many it measures.
        foreseen: What is predicted of it; None: nothing is known yet.
    """
    none = (None,) * cells
    return StudyTrial(
        number=0,
        configuration=proposal.configuration,
        why=proposal.why,
        block=proposal.block,
        worth=proposal.worth,
        state=TrialState.RUNNING,
        launch_id=None,
        failure_class=None,
        failure=None,
        also_excluded=(),
        started_at=clock.utc_now().isoformat(),
        ended_at=None,
        launch_s=None,
        measured_s=None,
        predicted_gain=None if foreseen is None else foreseen.gain,
        predicted_gain_sd=None if foreseen is None else foreseen.gain_sd,
        predicted_accept_len_tok=None if foreseen is None else foreseen.accept_len_tok,
        value=none,
        accept_len_tok=none,
        ttft_p99_ms=none,
        tpot_p99_ms=none,
        memory_headroom_gib=None,
        gain=None,
        breaks=(),
        marks=(),
    )


def ended_trial(
    trial: StudyTrial, found: Measured, record: LaunchRecord | None, began_ns: int
) -> StudyTrial:
    """A launch that is over now, with what it measured.

    Args:
        trial: As it was planned.
        found: Its figures.
        record: Of its server; None: none was started.
        began_ns: When it began.
    """
    ready_ns = None if record is None else record.ready_ns
    return replace(
        trial,
        launch_id=None if record is None else record.launch_id,
        ended_at=clock.utc_now().isoformat(),
        launch_s=None if ready_ns is None else (ready_ns - began_ns) / 1e9,
        measured_s=None if ready_ns is None else (clock.now_ns() - ready_ns) / 1e9,
        value=found.value,
        accept_len_tok=found.accept_len_tok,
        ttft_p99_ms=found.ttft_p99_ms,
        tpot_p99_ms=found.tpot_p99_ms,
        memory_headroom_gib=found.memory_headroom_gib,
        breaks=found.breaks,
        marks=found.marks,
    )


def figures_of(launch: Launch, writer: RunWriter, tune: Tune) -> Measured:
    """What the finished cells of a launch say."""
    stored = [found for cell in launch.cells if (found := writer.cell(cell.cell_id))]
    limited = tune.constraints.memory_headroom_gib is not None
    return measured(
        launch.cells,
        [measurement for measurement, _ in stored],
        [finding for _, findings in stored for finding in findings],
        objective=tune.objective,
        constraints=tune.constraints,
        memory_headroom_gib=_headroom_gib(launch, writer) if limited else None,
    )


def _headroom_gib(launch: Launch, writer: RunWriter) -> float | None:
    """Least free memory of a GPU of this machine."""
    gpus = writer.manifest.fingerprint.get("identity", {}).get("gpus", [])
    finished = writer.finished_cells()
    points = (
        point
        for cell in launch.cells
        if cell.cell_id in finished
        for point in writer.telemetry_of_cell(cell.cell_id)
    )
    return memory_headroom_gib(points, [gpu.get("memory_bytes") for gpu in gpus])


def is_of_the_moment(failure: FailureClass | str | None) -> bool:
    """Whether the same may well start another time."""
    return failure is not None and FailureClass(failure).action is Action.RETRY_ONCE


def accept_lengths(
    knowledge: Knowledge, place: int, configuration: Configuration
) -> tuple[float | None, ...]:
    """Expected accept lengths of a configuration by cell; None without speculation."""
    off = configuration.algorithm is None
    return tuple(None if off else float(np.exp(x)) for x in knowledge.log_accept_len[place])
