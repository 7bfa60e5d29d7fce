"""What a plan costs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bench.model import Plan

UNSEEN_START_S = 720.0  # a model of a terabyte, from disk to its first token
SIMULATED_START_S = 1.0
SIMULATED_CELL_S = 0.3  # of the world: set-up and tear-down of a cell, whatever the clock's speed


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanEstimate:
    """What running a plan is expected to take; hours of the world.

    Attributes:
        gpu_hours: 0 for simulated servers, which hold no GPU.
    """

    cells: int
    launches: int
    hours: float
    gpu_hours: float


def estimate(plan: Plan) -> PlanEstimate:
    """Cells, launches, hours and GPU-hours of a plan; a real launch counts 12 minutes to start."""
    hours = sum(launch.estimated_s for launch in plan.launches) / 3600
    return PlanEstimate(
        cells=sum(len(launch.cells) for launch in plan.launches),
        launches=len(plan.launches),
        hours=hours,
        gpu_hours=0.0 if plan.simulated else hours * plan.gpus,
    )
