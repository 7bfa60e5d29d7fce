"""Runs whose truth is known: the cells of a plan with made-up speeds, and what is made of them."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

import numpy as np

from bench.metrics import compare, summarize
from benchmarks.synthetic import MadeUpServer, closed_loop, made_up_cell

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from bench.model import Cell, Comparison, Launch, Measurement, Plan

CUT_SD: Final = 2.0
"""The simulator cuts the noise of its launches here (`bench.simulator.engine`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Noise:
    """What is added to the logarithm of a cell's speed.

    Attributes:
        launch_sd: Standard deviation between launches of one server.
        block_sd: Between cells (blocks) of one launch.
        shape: Of the launches' noise: `normal`; `cut` at two standard deviations as the
            simulator's is; `heavy`: Student's t with 3 degrees of freedom, of that deviation.
        drift: How much slower the machine becomes over the run, in a straight line.
        warmup: How much slower its beginning is; a tenth of the run later a third of that.
        outlier_share: Share of launches that go wrong.
        outlier: By how much they are slower, at most (uniform).
        carry: Correlation of one launch's noise with that of the launch before.
    """

    name: str
    launch_sd: float
    block_sd: float = 0.0
    shape: Literal["normal", "cut", "heavy"] = "normal"
    drift: float = 0.0
    warmup: float = 0.0
    outlier_share: float = 0.0
    outlier: float = 0.0
    carry: float = 0.0


def template() -> Measurement:
    """A measurement as the product makes it, whose speed is then made up."""
    cell = made_up_cell(concurrency=2, requests=24)
    samples = closed_loop(cell, MadeUpServer(), np.random.default_rng(0))
    measurement, _ = summarize(
        cell,
        samples,
        [],
        client=None,
        effective=None,
        launch_id="L",
        gpus=0,
        simulated=False,
    )
    return measurement


def timeline(launches: Sequence[Launch]) -> list[list[float]]:
    """When each launch's cells are measured, from 0 to 1, by the plan's own estimate."""
    total_s = sum(launch.estimated_s for launch in launches)
    begins_s = 0.0
    places: list[list[float]] = []
    for launch in launches:
        at_s = begins_s + launch.estimated_s - sum(launch.cells_s)
        places.append([])
        for cell_s in launch.cells_s:
            places[-1].append((at_s + cell_s / 2) / total_s)
            at_s += cell_s
        begins_s += launch.estimated_s
    return places


def made_up_run(
    launches: Sequence[Launch],
    measurement: Measurement,
    noise: Noise,
    truth: Mapping[str, float],
    rng: np.random.Generator,
) -> list[tuple[Cell, Measurement]]:
    """Every cell of a run with a made-up speed.

    Args:
        launches: In the order in which they are made.
        measurement: What the cells have beside their speed.
        noise: What their speeds suffer.
        truth: The true speedup of each arm.
        rng: Draws it.
    """
    launch_noise = _launch_noise(noise, len(launches), rng)
    cells: list[tuple[Cell, Measurement]] = []
    for launch, place, of_launch in zip(launches, timeline(launches), launch_noise, strict=True):
        for cell, at in zip(launch.cells, place, strict=True):
            log = of_launch + noise.block_sd * rng.standard_normal()
            log -= noise.drift * at + noise.warmup * math.exp(-11 * at)
            cells.append(
                (
                    cell,
                    dataclasses.replace(
                        measurement,
                        cell_id=cell.cell_id,
                        comparison_key=cell.comparison_key,
                        launch_id=f"L{launch.ordinal}",
                        arm=cell.arm,
                        workload=cell.workload.name,
                        load=cell.load.label,
                        pair=cell.pair,
                        output_tok_per_s=200.0 * truth[cell.arm] * math.exp(log),
                    ),
                )
            )
    return cells


def _launch_noise(noise: Noise, count: int, rng: np.random.Generator) -> list[float]:
    if noise.shape == "heavy":
        drawn = rng.standard_t(3, count) / math.sqrt(3)
    else:
        drawn = rng.standard_normal(count)
        if noise.shape == "cut":
            drawn = np.clip(drawn, -CUT_SD, CUT_SD)
    if noise.carry:
        for k in range(1, count):
            drawn[k] = noise.carry * drawn[k - 1] + math.sqrt(1 - noise.carry**2) * drawn[k]
    wrong = rng.random(count) < noise.outlier_share
    return list(
        noise.launch_sd * drawn
        + np.where(wrong, np.log1p(-noise.outlier * rng.random(count)), 0.0)
    )


def compared(plan: Plan, cells: Sequence[tuple[Cell, Measurement]]) -> tuple[Comparison, ...]:
    """What the product makes of these cells."""
    return compare(cells, {}, margin=plan.practical_margin, pairs_planned=plan.pairs)


def one_arm_after_the_other(launches: Iterable[Launch]) -> list[Launch]:
    """The same launches in the order AAAABBBB, for what the plan's order is worth."""
    return sorted(launches, key=lambda launch: (launch.arm != "baseline", launch.arm, launch.pair))
