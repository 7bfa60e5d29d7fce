"""What the model of the hardware expects of each cell, at the accept length that was measured."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bench.errors import BenchError
from bench.plan import make_plan
from bench.plan.throughput import expected
from bench.scenario import load_scenario
from reports.view import Place

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bench.model import Cell, ServerConfig
    from bench.store import StoredRun
    from reports.view import Pooled

Expectations = dict[tuple[str, Place], float]
"""Output tokens a second of the whole server by arm and place."""


def expectations_of(stored: StoredRun, cells: Sequence[Pooled]) -> Expectations | str:
    """Tokens a second of every cell of a closed loop, from the cards that the scenario names.

    Prefills are counted at the workload's lengths and cache; the accept length is the measured one
    (`bench.plan.throughput.expected`).

    Args:
        stored: The run; its copy of the scenario names the cards.
        cells: Of the run.

    Returns:
        Cells that cannot be told are left out; text: why none can.
    """
    try:
        asked = _asked(stored)
        told = {
            (p.arm, p.place): value
            for p in cells
            if (what := asked.get((p.arm, p.place))) is not None
            if (value := _expected(p, *what)) is not None
        }
    except BenchError as error:
        return f"the run's copy of its scenario cannot be planned here: {error}"
    return (
        told or "the scenario names no cards of hardware and target, or its loads are open loops"
    )


def _asked(stored: StoredRun) -> Mapping[tuple[str, Place], tuple[ServerConfig, Cell]]:
    """The server and the cell of each arm at each place, as the scenario has them."""
    how = stored.manifest.plan_arguments
    loaded = load_scenario(stored.folder / "scenario.yaml", tuple(how.get("overrides", ())))
    plan = make_plan(
        loaded,
        simulated=stored.manifest.simulated,
        sim_hardware=how.get("sim_hardware"),
    )
    return {
        (launch.arm, Place(workload=cell.workload.name, load=cell.load.label)): (
            launch.server,
            cell,
        )
        for launch in plan.launches
        for cell in launch.cells
    }


def _expected(p: Pooled, server: ServerConfig, cell: Cell) -> float | None:
    if cell.load.concurrency is None or (cell.arm_is_speculative and p.accept_len_tok is None):
        return None
    told = expected(server, cell.load, cell.workload, measured_accept_len_tok=p.accept_len_tok)
    return None if told is None else told.batch * told.output_tok_per_s_per_user
