"""What is known of a study, as the record that pages and exports are made from."""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING, Final

import numpy as np

from bench.model import Verdict
from bench.model.study import (
    Study,
    StudyCell,
    StudyCellConclusion,
    StudyConclusion,
    StudyConfiguration,
    of_their_configuration,
)
from bench.plan.servers import PYTHON
from bench.provenance import redact_environment
from tuner.confirm import whole_blocks
from tuner.sweep.trials import accept_lengths

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from bench.model.study import StudyTrial
    from bench.store import Manifest
    from tuner.confirm import Conclusion
    from tuner.predict import Knowledge, Reading
    from tuner.space.candidates import Candidates
    from tuner.sweep.beginning import Prepared
    from tuner.sweep.policy import Search

CLEARLY: Final = 2.0  # standard deviations: below it a difference of cells is noise


def study_of(
    prepared: Prepared,
    search: Search,
    trials: Sequence[StudyTrial],
    manifest: Manifest,
    *,
    status: str,
    notes: Sequence[str] = (),
) -> Study:
    """The study as it stands.

    Args:
        prepared: The space and the budget.
        search: After the last launch.
        trials: All launches.
        manifest: Of the run that holds them.
        status: `running`, `interrupted` or `complete`.
        notes: In sentences.
    """
    candidates, tune = prepared.candidates, prepared.tune
    conclusion = _conclusion(search, candidates)
    versions = [r.effective.version for r in manifest.launches if r.effective is not None]
    return Study(
        study_id=manifest.run_id,
        scenario=manifest.scenario,
        question=manifest.question,
        status=status,
        simulated=manifest.simulated,
        speed=manifest.speed,
        engine_version=next((v for v in versions if v is not None), None),
        gpus=candidates.ground.loaded.scenario.server.gpus,
        objective=tune.objective,
        margin=candidates.ground.measure.practical_margin,
        constraints=tuple(
            (name, value)
            for name, value in tune.constraints.model_dump().items()
            if value is not None
        ),
        launches_budget=prepared.launches,
        hours_budget=prepared.hours,
        cells=tuple(
            StudyCell(workload=p.workload.name, load=p.load.label, weight=weight)
            for p, weight in zip(candidates.ground.points, candidates.weights, strict=True)
        ),
        raw=candidates.space.raw,
        illegal=candidates.space.illegal,
        aliases=candidates.space.aliases,
        configurations=_configurations(candidates, search, trials),
        present=candidates.present,
        trials=tuple(trials),
        launch_sd=None if search.knowledge is None else search.knowledge.launch_sd,
        conclusion=conclusion,
        notes=tuple(notes),
        command_line=manifest.sessions[0].command_line,
        argv=() if conclusion is None else _argv(candidates, conclusion.deploy),
        environment=None if conclusion is None else _environment(candidates, conclusion.deploy),
        counts=candidates.counts,
    )


def _configurations(
    candidates: Candidates, search: Search, trials: Sequence[StudyTrial]
) -> tuple[StudyConfiguration, ...]:
    knowledge = search.knowledge
    counts = Counter(
        t.configuration
        for t in of_their_configuration(trials)
        if any(value is not None for value in t.value)
    )
    made = []
    for place, (c, arm) in enumerate(
        zip(candidates.space.configurations, candidates.arms, strict=True)
    ):
        known = knowledge is not None and place < len(knowledge.mean)
        gain, sd = knowledge.difference(place, 0) if knowledge and known else (None, None)
        made.append(
            StudyConfiguration(
                place=place,
                arm=arm,
                label=c.label,
                algorithm=c.algorithm,
                num_steps=c.num_steps,
                eagle_topk=c.eagle_topk,
                num_draft_tokens=c.num_draft_tokens,
                arguments=c.arguments,
                environment=c.environment,
                launches=counts[place],
                excluded=search.excluded.get(place),
                gain=gain,
                gain_sd=sd,
                cell_gain=_cell_gain(knowledge, place) if knowledge and known else None,
                accept_len_tok=accept_lengths(knowledge, place, c)
                if knowledge and known
                else None,
            )
        )
    return tuple(made)


def _argv(candidates: Candidates, place: int) -> tuple[str, ...]:
    """The server's command on hardware, whatever Python runs it here."""
    arm = candidates.ground.arms[candidates.arms[place]]
    command = ("python3" if word == PYTHON else word for word in arm.asked.command)
    return (*command, *arm.server.arguments)


def _environment(candidates: Candidates, place: int) -> tuple[tuple[str, str], ...]:
    """The server's variables on hardware, the scenario's own and the configuration's."""
    arm = candidates.ground.arms[candidates.arms[place]]
    return tuple(redact_environment(dict(arm.asked.environment)).items())


def _cell_gain(knowledge: Knowledge, place: int) -> tuple[float, ...]:
    return tuple(float(x) for x in knowledge.cell_mean[place] - knowledge.cell_mean[0])


# ------------------------------------------------------------------------------------ the answer


def _conclusion(search: Search, candidates: Candidates) -> StudyConclusion | None:
    told = search.conclude()
    knowledge = search.knowledge
    if told is None or knowledge is None or search.final is None:
        return None
    blocks = whole_blocks(search.final, search.final_measured())
    verdict: Verdict | None = told.verdict if blocks >= 2 else None
    reason = None
    if verdict is None:
        of = f"of the final's {len(search.final.blocks)} blocks"
        whole = {0: f"none {of} is whole", 1: f"only one {of} is whole"}[blocks]
        reason = f"{whole}, and a verdict needs two"
    present = candidates.present
    over_present = None if present is None else knowledge.difference(told.best, present)
    deploy, answer = _answer(told, verdict, candidates, over_present)
    return StudyConclusion(
        deploy=deploy,
        answer=answer,
        best=told.best,
        baseline=told.baseline,
        present=present,
        gain=told.gain,
        ci95_low=told.low,
        ci95_high=told.high,
        degrees_of_freedom=told.degrees_of_freedom,
        verdict=verdict,
        optimism=told.optimism,
        search_gain=search.search_gain(told.best, told.baseline),
        over_present=over_present,
        blocks=blocks,
        cells=_by_cell(search, knowledge, deploy),
        reason=reason,
    )


def _answer(
    told: Conclusion,
    verdict: Verdict | None,
    candidates: Candidates,
    over_present: tuple[float, float] | None,
) -> tuple[int, str]:
    """What to run with, and how that is called.

    A gain within the margin is worth no draft model, and one within noise of what is in use is
    worth no change: what is there is kept.
    """
    configurations = candidates.space.configurations
    present = candidates.present
    place = told.configuration
    if verdict is Verdict.SAME and configurations[place].algorithm is not None:
        place = told.baseline if present is None else present
    elif verdict is Verdict.FASTER and present is not None and over_present is not None:
        gain, sd = over_present
        place = place if gain > CLEARLY * sd else present
    if verdict is None or verdict is Verdict.UNDECIDED:
        return place, "undecided"
    if place == present:
        return place, "keep_present"
    return place, "leave_off" if configurations[place].algorithm is None else "deploy"


def _by_cell(search: Search, knowledge: Knowledge, deploy: int) -> tuple[StudyCellConclusion, ...]:
    """Which launched configuration is best where; the deployed one within noise."""
    counts = np.bincount([r.configuration for r in search.readings], minlength=len(knowledge.mean))
    launched = np.flatnonzero(counts)
    allowed = [int(c) for c in launched if int(c) not in search.excluded]
    told = []
    for cell in range(knowledge.cell_mean.shape[1]):
        mean = knowledge.cell_mean[:, cell]
        best = max([*allowed, deploy], key=lambda c: float(mean[c]))
        _, sd = knowledge.difference(best, deploy)
        noise = knowledge.launch_sd * math.sqrt(
            1 / max(1, counts[best]) + 1 / max(1, counts[deploy])
        )
        ahead = float(mean[best] - mean[deploy])
        within = best == deploy or ahead <= CLEARLY * max(sd, noise)
        told.append(
            StudyCellConclusion(
                cell=cell,
                best=deploy if within else best,
                gain=float(mean[deploy] - mean[0]),
                within_noise=within,
            )
        )
    return tuple(told)


# ---------------------------------------------------------------------------------------- a trial


def gain_of(
    readings: Sequence[Reading], number: int, weights: NDArray[np.float64]
) -> float | None:
    """Log ratio of a launch's objective to the baseline's, drawn straight between its neighbours.

    Args:
        readings: All, in order.
        number: Which of them.
        weights: Of the cells.

    Returns:
        None where no baseline was measured in the same cells.
    """
    this = readings[number]
    base = [r for r in readings if r.configuration == 0]
    have = np.isfinite(this.log_value)
    rows = [r for r in base if np.isfinite(r.log_value[have]).all()]
    if not rows or not have.any():
        return None
    share = weights[have] / weights[have].sum()
    level = np.interp(this.at, [r.at for r in rows], [r.log_value[have] @ share for r in rows])
    return float(this.log_value[have] @ share - level)
