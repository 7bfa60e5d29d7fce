"""Two step counts compared inside one launch, once the final is over (`tune.adaptive`)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from bench.plan.knowing import known_of
from bench.plan.trials import trial_launch, with_arm
from tuner.evaluate.alternation import (
    Alternation,
    alternation,
    alternation_config,
    alternation_obstacle,
)
from tuner.evaluate.phase_records import StepComparison, Untold
from tuner.evaluate.phases import compare_steps
from tuner.predict import Reading

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from bench.model import Cell, Launch
    from bench.scenario import Arm
    from bench.store import RunWriter
    from tuner.predict import Knowledge
    from tuner.space.candidates import Candidates
    from tuner.sweep.policy import Search

INTERVAL: Final = 20
"""Verify batches of one step count before the other's turn: some dozens of phases a cell."""
CONFIG_FILE: Final = "alternation.json"
_HERE: Final = frozenset({"local", "simulated"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Alternating:
    """A launch in which two step counts take turns.

    Attributes:
        asked: The step counts.
        best: Place of the configuration that it is about.
        places: Of the chain with the lower step count, and of that with the higher.
        launch: The launch.
    """

    asked: Alternation
    best: int
    places: tuple[int, int]
    launch: Launch


def plan_alternating(
    candidates: Candidates, search: Search, folder: Path, *, ordinal: int
) -> Alternating | str:
    """The best chain against the step count next to it in rank, in one launch; or why not.

    Args:
        candidates: What may be launched.
        search: After the final.
        folder: Where the server's configuration file goes.
        ordinal: The launch's place among all.
    """
    told, knowledge = search.conclude(), search.knowledge
    if told is None or knowledge is None:
        return "the final was not held"
    configurations = candidates.searched
    best = configurations[told.best]
    if best.num_steps is None or best.is_tree:
        return f"{best.label} is no chain of EAGLE drafts"
    rivals = [
        at
        for at, c in enumerate(configurations)
        if at != told.best
        and at not in search.excluded
        and (c.algorithm, c.setting, c.eagle_topk) == (best.algorithm, best.setting, 1)
    ]
    if not rivals:
        return f"no other step count is searched beside {best.label}"
    near = max(rivals, key=lambda at: float(knowledge.mean[at]))
    rival = configurations[near]
    assert rival.num_steps is not None
    arm = candidates.ground.arms[candidates.arms[told.best]]
    if not candidates.ground.simulated and arm.server.launcher not in _HERE:
        return "the server's configuration file cannot be put where it runs"
    asked = alternation(best.num_steps, rival.num_steps, INTERVAL)
    path = str(folder / CONFIG_FILE)
    scenario = candidates.ground.loaded.scenario
    known = known_of(scenario, arm.server, simulated=candidates.ground.simulated)
    obstacle = alternation_obstacle(arm.server.arguments, asked, path, known)
    if obstacle is not None:
        return obstacle
    name = f"steps-{asked.few}-{asked.many}"
    ground = with_arm(
        candidates.ground, name, _arm(scenario.arms[candidates.arms[told.best]], asked, path)
    )
    launch = trial_launch(ground, name, pair=0, ordinal=ordinal)
    places = (near, told.best) if asked.many == best.num_steps else (told.best, near)
    return Alternating(asked=asked, best=told.best, places=places, launch=launch)


def _arm(of_best: Arm, asked: Alternation, path: str) -> Arm:
    speculative = of_best.speculative
    assert speculative is not None
    steps = {"num_steps": asked.many, "num_draft_tokens": asked.many + 1}
    return of_best.model_copy(
        update={
            "speculative": speculative.model_copy(update=steps),
            "arguments": (
                *of_best.arguments,
                "--speculative-adaptive",
                f"--speculative-adaptive-config {path}",
                f"--decode-log-interval {asked.log_interval}",
            ),
        }
    )


def write_config(folder: Path, asked: Alternation) -> None:
    """Put the server's configuration file in place."""
    text = alternation_config(asked.few, asked.many, asked.interval)
    (folder / CONFIG_FILE).write_text(text, encoding="utf-8")


def compared(
    alternating: Alternating, writer: RunWriter
) -> list[tuple[Cell, StepComparison | Untold]]:
    """What each finished cell of the launch says of the two step counts."""
    launch = alternating.launch
    records = [r for r in writer.launches() if r.ordinal == launch.ordinal]
    record = records[-1] if records else None
    if record is None or record.effective is None:
        return []
    log = writer.log_path(record.launch_id).read_text(encoding="utf-8", errors="replace")
    finished = writer.finished_cells()
    return [
        (
            cell,
            compare_steps(
                writer.samples_of_cell(cell.cell_id),
                writer.telemetry_of_cell(cell.cell_id),
                log,
                asked=alternating.asked,
                effective=record.effective,
            ),
        )
        for cell in launch.cells
        if cell.cell_id in finished
    ]


def in_words(asked: Alternation, cell: Cell, found: StepComparison | Untold) -> str:
    """What a cell says of the two step counts, in a sentence."""
    where = f"{cell.workload.name} load {cell.load.label}"
    if isinstance(found, Untold):
        return (
            f"Within one launch, {where}: {asked.few} and {asked.many} steps cannot be told "
            f"apart: {found.reason}."
        )
    gain = found.gain
    between = (
        ""
        if gain.ci95_low is None or gain.ci95_high is None
        else f" [{gain.ci95_low:.3f}, {gain.ci95_high:.3f}]"
    )
    return (
        f"Within one launch, {where}: {asked.many} steps are {gain.speedup:.3f}x as fast "
        f"as {asked.few}{between}, by {gain.pairs} pairs of neighbouring phases (accept "
        f"length {found.many.accept_len_tok:.2f} against {found.few.accept_len_tok:.2f})."
    )


def step_readings(
    alternating: Alternating,
    cells: Sequence[tuple[Cell, StepComparison | Untold]],
    knowledge: Knowledge,
) -> list[Reading]:
    """Two readings, the lower step count's and the higher's, that share the launch's noise.

    Only their difference was measured: the level is what was foreseen, and the predictor takes it
    for unknown. An estimate of one pair of phases has no spread and tells nothing.
    """
    launch = alternating.launch
    at = {cell.cell_id: number for number, cell in enumerate(launch.cells)}
    shape = len(launch.cells)
    values, lengths = np.full((2, shape), np.nan), np.full((2, shape), np.nan)
    gain_sd = np.full(shape, np.nan)
    places = alternating.places
    for cell, found in cells:
        if isinstance(found, Untold) or found.ranks_only or found.gain.log_sd is None:
            continue
        number = at[cell.cell_id]
        level = float(knowledge.cell_mean[list(places), number].mean())
        half = math.log(found.gain.speedup) / 2
        values[:, number] = level - half, level + half
        lengths[:, number] = np.log([found.few.accept_len_tok, found.many.accept_len_tok])
        gain_sd[number] = found.gain.log_sd / math.sqrt(found.gain.pairs)
    if not np.isfinite(gain_sd).any():
        return []
    return [
        Reading(
            configuration=place,
            at=float(launch.ordinal),
            log_value=value,
            log_accept_len=length,
            reach=np.full((shape, 1), np.nan),
            gain_sd=gain_sd,
        )
        for place, value, length in zip(places, values, lengths, strict=True)
    ]
