"""One launch of a study: as it is planned, what it measured, what kind of failure it had."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from bench import clock
from bench.model.study import StudyTrial, TrialState
from bench.sglang.failures import Action, FailureClass
from tuner.evaluate.readings import Measured, measured, memory_headroom_gib

if TYPE_CHECKING:
    from bench.model import Launch
    from bench.store import RunWriter
    from tuner.space.schema import Tune
    from tuner.sweep.policy import Proposal

STEPS: Final = "steps"
"""Why of the launch in which two step counts take turns: its figures are of both."""

NO_FIGURE: Final = {
    "goodput": "no cell of the launch has requests within the slo",
    "energy": "in no cell of the launch was the GPUs' power read",
}
"""Why a launch has no figure, by objective."""


def planned_trial(
    proposal: Proposal,
    *,
    cells: int,
    gain: float | None,
    gain_sd: float | None,
    accept_len_tok: tuple[float | None, ...] | None,
) -> StudyTrial:
    """A launch that begins now, with what is predicted of it.

    Args:
        proposal: The launch.
        cells: How many it measures.
        gain: Predicted log ratio to the baseline; None: nothing is known yet.
        gain_sd: Its standard deviation, the launch's own noise included.
        accept_len_tok: Predicted, by cell.
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
        predicted_gain=gain,
        predicted_gain_sd=gain_sd,
        predicted_accept_len_tok=accept_len_tok,
        value=none,
        accept_len_tok=none,
        ttft_p99_ms=none,
        tpot_p99_ms=none,
        memory_headroom_gib=None,
        gain=None,
        breaks=(),
        marks=(),
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
