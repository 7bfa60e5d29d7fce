"""A tuning study with known laws, for tests of what is made from studies.

    study = make_study()                       # concluded: EAGLE3 3-1-4 is deployed
    folder = study_folder(tmp_path, study)     # as a run's folder has it

Accept lengths follow from one list of shares, cycle costs from one line a load; everything else is
computed from these two, so that trials, predictions, gains and the conclusion agree. Places: 0 is
the baseline, 1 to 8 chains of as many steps, 9 to 14 trees; 15 to 29 the same with NCCL_PROTO=LL.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import accumulate
from pathlib import Path

from bench.model import LaunchRecord, Plan, Verdict
from bench.model.study import (
    Study,
    StudyCell,
    StudyCellConclusion,
    StudyConclusion,
    StudyConfiguration,
    StudyTrial,
    TrialState,
)
from bench.plan import make_plan
from bench.scenario import load_scenario
from bench.store.manifest import new_manifest, write_manifest
from bench.store.study import write_study

KIMI = Path(__file__).parents[2] / "scenarios" / "kimi.yaml"
STUDY_ID = "20261130T010000Z-kimi-eagle3-1a2b3c"
CELLS = (
    StudyCell(workload="chat-2k", load="1", weight=0.25),
    StudyCell(workload="chat-2k", load="8", weight=0.25),
    StudyCell(workload="chat-2k", load="64", weight=0.25),
    StudyCell(workload="agent-32k", load="1", weight=0.25),
)
SHARES = (0.68, 0.44, 0.29, 0.19, 0.12, 0.08, 0.05, 0.03)  # P(at least k drafts accepted)
TREES = ((2, 8), (3, 8), (3, 16), (4, 16), (5, 16), (5, 32))  # steps and draft tokens, topk 4
OTHER = (("NCCL_PROTO", "LL"),)
OTHER_GAIN = -0.012
BASE_TOK_PER_S = {"1": 61.0, "8": 392.0, "64": 1650.0}
LAUNCH_SD = 0.012
_START = datetime(2026, 11, 30, 1, 0, tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class Law:
    """What the truth of the synthetic study follows from.

    Attributes:
        step_cost: By load: what a draft step adds to a cycle, baseline steps.
        token_cost: By load: what a verified token beside a chain's adds.
    """

    step_cost: dict[str, float]
    token_cost: dict[str, float]


# The best chain: 5 steps for one user, 3 for eight, 2 for sixty-four; 3 over all cells.
LAW = Law(
    step_cost={"1": 0.052, "8": 0.118, "64": 0.325},
    token_cost={"1": 0.03, "8": 0.04, "64": 0.06},
)
# Three steps at every load.
ONE_WINNER = Law(
    step_cost={"1": 0.105, "8": 0.11, "64": 0.115},
    token_cost={"1": 0.03, "8": 0.04, "64": 0.06},
)
# Speculation loses but for one user.
LOSING = Law(
    step_cost={"1": 0.14, "8": 1.1, "64": 1.8},
    token_cost={"1": 0.1, "8": 0.2, "64": 0.4},
)


def make_study(  # what a test of a study wants to vary
    *,
    law: Law = LAW,
    answer: str = "deploy",
    deploy: int | None = None,
    present: int | None = None,
    simulated: bool = False,
    concluded: bool = True,
    blocks: int = 4,
) -> Study:
    """A study of scenarios/kimi.yaml.

    Args:
        law: What is true.
        answer: `StudyConclusion.answer`.
        deploy: What is deployed; None: what the answer means.
        present: What the user has in use; it takes part in the final.
        simulated: Whether its servers were.
        concluded: Whether the final was held.
        blocks: Of the final.
    """
    configurations = _space()
    truth = [_truth(law, configuration) for configuration in configurations]
    chains = [place for place in range(1, 9) if place <= 5]
    best = max(chains, key=lambda place: _weighted(truth[place]))
    arms = [0, best] if present in {None, 0, best} else [0, best, present]
    trials = _trials(configurations, truth, arms, blocks=blocks if concluded else 0)
    told = tuple(
        _told(configuration, truth[configuration.place], trials)
        for configuration in configurations
    )
    chosen = deploy
    if chosen is None:
        kept = present or 0
        chosen = {"deploy": best, "leave_off": 0, "keep_present": kept}.get(answer, kept)
    conclusion = _conclusion(
        told, best=best, deploy=chosen, answer=answer, present=present, blocks=blocks
    )
    return Study(
        study_id=STUDY_ID,
        scenario="kimi-eagle3",
        question="Which setting of EAGLE-3 is the fastest for Kimi-K2.5 on 8 RTX PRO 6000?",
        status="complete" if concluded else "running",
        simulated=simulated,
        speed=7 if simulated else 1,
        engine_version="0.5.23",
        gpus=8,
        objective="tok_per_s",
        margin=0.02,
        constraints=(("tpot_p99_ms", 100.0),),
        launches_budget=24,
        hours_budget=8.0,
        cells=CELLS,
        raw=2 * (1 + 8 * 2 * 3),
        illegal=(("tree", 4, "more draft tokens than the tree can hold"),),
        aliases=(("C3", 64),),
        configurations=told,
        present=present,
        trials=trials,
        launch_sd=LAUNCH_SD,
        conclusion=conclusion if concluded else None,
        notes=("NCCL_PROTO=LL slows every load; the default is kept.",),
        command_line=("tuner", "sweep", "scenarios/kimi.yaml", "--launches", "24"),
        argv=argv_of(configurations[chosen]) if concluded else (),
    )


def argv_of(configuration: StudyConfiguration) -> tuple[str, ...]:
    """The server command of scenarios/kimi.yaml with a configuration of the space."""
    words = ["python3", "-m", "sglang.launch_server", "--model-path", "moonshotai/Kimi-K2.5"]
    words += ["--tp-size", "8", "--trust-remote-code", "--mem-fraction-static", "0.88"]
    words += ["--max-running-requests", "64", "--cuda-graph-max-bs-decode", "64"]
    words += ["--attention-backend", "flashinfer", "--enable-metrics", "--enable-cache-report"]
    if configuration.algorithm is not None:
        words += ["--speculative-algorithm", configuration.algorithm]
        words += ["--speculative-draft-model-path", "/models/kimi-k2.5-eagle3-rewired"]
        words += ["--speculative-num-steps", str(configuration.num_steps)]
        words += ["--speculative-eagle-topk", str(configuration.eagle_topk)]
        words += ["--speculative-num-draft-tokens", str(configuration.num_draft_tokens)]
    for option, value in configuration.arguments:
        words += [option] if value == "true" else [option, value]
    return tuple(words)


def study_folder(
    results: Path, study: Study, *, scenario: Path = KIMI, overrides: tuple[str, ...] = ()
) -> Path:
    """The folder of the study's run below a results folder, its launches' tables left out."""
    folder = results / study.scenario / study.study_id
    folder.mkdir(parents=True)
    text = scenario.read_text(encoding="utf-8")
    (folder / "scenario.yaml").write_text(text, encoding="utf-8")
    plan = _plan(text, scenario, overrides, study.simulated)
    asked = {"scenario": str(scenario), "overrides": list(overrides), "only": [], "attach": []}
    asked |= {"simulated": study.simulated, "sim_hardware": None, "add_pairs": 0}
    manifest = new_manifest(
        plan,
        run_id=study.study_id,
        scenario_text=text,
        command_line=study.command_line,
        fingerprint={},
        plan_arguments=asked,
    )
    write_manifest(folder, replace(manifest, launches=_launches(study)))
    write_study(folder, study)
    return folder


@cache
def _plan(text: str, scenario: Path, overrides: tuple[str, ...], simulated: bool) -> Plan:
    """The plan of a scenario whose text is this."""
    assert scenario.read_text(encoding="utf-8") == text
    return make_plan(load_scenario(scenario, overrides), simulated=simulated)


def _launches(study: Study) -> tuple[LaunchRecord, ...]:
    return tuple(
        LaunchRecord(
            launch_id=trial.launch_id,
            ordinal=trial.number,
            arm=study.configurations[trial.configuration].arm,
            pair=trial.number,
            server_key=f"{trial.configuration:016x}",
            argv=argv_of(study.configurations[trial.configuration]),
            started_ns=trial.number * 1_260_000_000_000,
            failure=trial.failure,
        )
        for trial in study.trials
        if trial.launch_id is not None
    )


def with_steps_launch(study: Study, **changes: object) -> Study:
    """The study with one more launch, in which the deployed steps and others took turns."""
    last = study.trials[-1]
    deploy = study.conclusion.deploy if study.conclusion else 3
    like = next(t for t in reversed(study.trials) if t.configuration == deploy)
    told = {
        "number": last.number + 1,
        "why": "steps",
        "block": None,
        "launch_id": f"L{last.number + 1:02d}-steps-2-3-p0",
        "value": tuple(None if v is None else v / 2 for v in like.value),
        "accept_len_tok": (1.5,) * len(CELLS),
        "predicted_gain": 0.5,
        "gain": -0.2,
        "breaks": ("p99 TPOT 120 ms at chat-2k load 1, limit 100 ms",),
        "marks": ("drifting",),
    }
    return replace(study, trials=(*study.trials, replace(like, **{**told, **changes})))


def with_configuration(study: Study, place: int, **changes: object) -> Study:
    """The study with one configuration otherwise."""
    configurations = list(study.configurations)
    configurations[place] = replace(configurations[place], **changes)  # type: ignore[arg-type]
    return replace(study, configurations=tuple(configurations))


def with_cells(study: Study, *cells: tuple[int, bool]) -> Study:
    """The study with its conclusion's cells as (best, within noise)."""
    assert study.conclusion is not None
    told = tuple(
        replace(cell, best=best, within_noise=within)
        for cell, (best, within) in zip(study.conclusion.cells, cells, strict=True)
    )
    return replace(study, conclusion=replace(study.conclusion, cells=told))


# ---------------------------------------------------------------------------------- what is true


def _space() -> tuple[StudyConfiguration, ...]:
    drafts: list[tuple[int, int, int] | None] = [None]
    drafts += [(steps, 1, steps + 1) for steps in range(1, 9)]
    drafts += [(steps, 4, tokens) for steps, tokens in TREES]
    made = []
    for environment in ((), OTHER):
        for draft in drafts:
            place = len(made)
            steps, topk, tokens = draft or (None, None, None)
            name = "off" if draft is None else f"EAGLE3 {steps}-{topk}-{tokens}"
            variables = [f"{name}={value}" for name, value in environment]
            made.append(
                StudyConfiguration(
                    place=place,
                    arm="baseline" if place == 0 else f"c{place:02d}",
                    label=" ".join([name, *variables]),
                    algorithm=None if draft is None else "EAGLE3",
                    num_steps=steps,
                    eagle_topk=topk,
                    num_draft_tokens=tokens,
                    arguments=(),
                    environment=environment,
                    launches=0,
                    excluded=None,
                    gain=None,
                    gain_sd=None,
                    cell_gain=None,
                    accept_len_tok=None,
                )
            )
    return tuple(made)


def _accept_len_tok(configuration: StudyConfiguration, cell: StudyCell) -> float | None:
    """1 and the sum of the shares; long contexts accept less, branches catch a third of misses."""
    if configuration.num_steps is None:
        return None
    factor = 0.95 if cell.workload == "agent-32k" else 1.0
    caught = 1.15 if configuration.eagle_topk == 4 else 1.0
    return 1 + factor * sum(min(1.0, caught * s) for s in SHARES[: configuration.num_steps])


def _truth(law: Law, configuration: StudyConfiguration) -> tuple[float, ...]:
    """Log ratio to the baseline, by cell."""
    told = []
    for cell in CELLS:
        gain = OTHER_GAIN if configuration.environment else 0.0
        accepted = _accept_len_tok(configuration, cell)
        if accepted is not None:
            assert configuration.num_steps is not None
            assert configuration.num_draft_tokens is not None
            further_tok = configuration.num_draft_tokens - configuration.num_steps - 1
            cost = 1 + law.step_cost[cell.load] * configuration.num_steps
            cost += law.token_cost[cell.load] * further_tok
            gain += math.log(accepted / cost)
        told.append(gain)
    return tuple(told)


def _weighted(gains: tuple[float, ...]) -> float:
    return sum(cell.weight * gain for cell, gain in zip(CELLS, gains, strict=True))


# ------------------------------------------------------------------------------- what is measured


def _trials(
    configurations: tuple[StudyConfiguration, ...],
    truth: list[tuple[float, ...]],
    arms: list[int],
    *,
    blocks: int,
) -> tuple[StudyTrial, ...]:
    """Twelve launches of the search, two of them failed and one stale, then the final's blocks."""
    rng = random.Random(20261130)
    asked: list[tuple[int, str, int | None, TrialState]] = [
        (0, "baseline", None, TrialState.MEASURED),
        (5, "first", None, TrialState.MEASURED),
        (3, "first", None, TrialState.MEASURED),
        (14, "search", None, TrialState.FAILED),
        (2, "search", None, TrialState.MEASURED),
        (1, "search", None, TrialState.MEASURED),
        (10, "search", None, TrialState.STALE),
        (10, "search", None, TrialState.MEASURED),
        (18, "search", None, TrialState.MEASURED),
        (13, "search", None, TrialState.FAILED),
        (4, "search", None, TrialState.MEASURED),
        (0, "baseline", None, TrialState.MEASURED),
    ]
    for block in range(blocks):
        order = rng.sample(arms, len(arms))
        asked += [(place, "final", block, TrialState.MEASURED) for place in order]
    minutes = accumulate((21 if state == TrialState.MEASURED else 9 for *_, state in asked))
    starts = [0, *minutes]
    return tuple(
        _trial(
            number,
            configurations[place],
            truth[place],
            (why, block, state),
            at_min=starts[number],
            rng=rng,
        )
        for number, (place, why, block, state) in enumerate(asked)
    )


def _trial(
    number: int,
    configuration: StudyConfiguration,
    truth: tuple[float, ...],
    asked: tuple[str, int | None, TrialState],
    *,
    at_min: int,
    rng: random.Random,
) -> StudyTrial:
    why, block, state = asked
    measured, failed = state == TrialState.MEASURED, state == TrialState.FAILED
    noise = rng.gauss(0, LAUNCH_SD)
    values = tuple(
        BASE_TOK_PER_S[cell.load] * (0.8 if cell.workload == "agent-32k" else 1) * math.exp(gain)
        for cell, gain in zip(CELLS, truth, strict=True)
    )
    accepted = tuple(_accept_len_tok(configuration, cell) for cell in CELLS)
    nothing = (None,) * len(CELLS)
    first = number == 0
    return StudyTrial(
        number=number,
        configuration=configuration.place,
        why=why,
        block=block,
        worth=round(0.03 / (number + 1), 5) if why == "search" else None,
        state=state,
        launch_id=f"{number:03d}-{configuration.arm}",
        failure_class="out_of_memory" if failed else None,
        failure="CUDA out of memory while capturing graphs" if failed else None,
        also_excluded=(29,) if number == 3 else (28,) if number == 9 else (),
        started_at=(_START + timedelta(minutes=at_min)).isoformat(),
        ended_at=(_START + timedelta(minutes=at_min + (21 if measured else 9))).isoformat(),
        launch_s=540.0 if measured else None,
        measured_s=720.0 if measured else None,
        predicted_gain=None if first else round(_weighted(truth) + rng.gauss(0, 0.015), 5),
        predicted_gain_sd=None if first else round(0.02 + 0.1 / (number + 1), 5),
        predicted_accept_len_tok=None
        if first
        else tuple(None if a is None else round(a + rng.gauss(0, 0.02), 3) for a in accepted),
        value=tuple(round(v * math.exp(noise), 2) for v in values) if measured else nothing,
        accept_len_tok=tuple(
            None if a is None else round(a + rng.gauss(0, 0.01), 3) for a in accepted
        )
        if measured
        else nothing,
        ttft_p99_ms=tuple(420.0 + 9 * at for at in range(4)) if measured else nothing,
        tpot_p99_ms=tuple(
            round(1e3 * int(cell.load) / value, 2)
            for cell, value in zip(CELLS, values, strict=True)
        )
        if measured
        else nothing,
        memory_headroom_gib=7.4 if measured else None,
        gain=round(_weighted(truth) + noise, 5) if measured else None,
        breaks=(),
        marks=(),
    )


# ---------------------------------------------------------------------------------- what is known


def _told(
    configuration: StudyConfiguration, truth: tuple[float, ...], trials: tuple[StudyTrial, ...]
) -> StudyConfiguration:
    own = [t for t in trials if t.configuration == configuration.place]
    launches = sum(t.state == TrialState.MEASURED for t in own)
    failed = any(t.state == TrialState.FAILED for t in own)
    also = any(configuration.place in t.also_excluded for t in trials)
    accepted = tuple(_accept_len_tok(configuration, cell) for cell in CELLS)
    return replace(
        configuration,
        launches=launches,
        excluded="out of memory while capturing graphs" if failed or also else None,
        gain=round(_weighted(truth), 5),
        gain_sd=0.0
        if configuration.place == 0
        else round(LAUNCH_SD / math.sqrt(launches) if launches else 3 * LAUNCH_SD, 5),
        cell_gain=tuple(round(gain, 5) for gain in truth),
        accept_len_tok=None
        if configuration.algorithm is None
        else tuple(None if a is None else round(a, 3) for a in accepted),
    )


def _conclusion(  # the parts of a conclusion
    told: tuple[StudyConfiguration, ...],
    *,
    best: int,
    deploy: int,
    answer: str,
    present: int | None,
    blocks: int,
) -> StudyConclusion:
    gain = told[best].gain or 0.0
    half = 2.36 * LAUNCH_SD * math.sqrt(2 / blocks)
    undecided = answer == "undecided"
    kept = None if present is None else told[present].gain
    return StudyConclusion(
        deploy=deploy,
        answer=answer,
        best=best,
        baseline=0,
        present=present,
        gain=gain,
        ci95_low=round(gain - half, 5),
        ci95_high=round(gain + half, 5),
        degrees_of_freedom=7.0,
        verdict=_verdict(gain - half, gain + half),
        optimism=0.006,
        search_gain=round(gain + 0.008, 5),
        over_present=None
        if kept is None
        else (round((told[deploy].gain or 0.0) - kept, 5), LAUNCH_SD),
        blocks=blocks,
        cells=tuple(_best_at(told, deploy, place) for place in range(len(CELLS))),
        reason="The interval of the gain holds both faster and slower." if undecided else None,
    )


def _verdict(low: float, high: float) -> Verdict:
    margin = math.log(1.02)
    if low > margin:
        return Verdict.FASTER
    if high < -margin:
        return Verdict.SLOWER
    return Verdict.SAME if -margin < low and high < margin else Verdict.UNDECIDED


def _best_at(told: tuple[StudyConfiguration, ...], deploy: int, cell: int) -> StudyCellConclusion:
    def at(configuration: StudyConfiguration) -> float:
        assert configuration.cell_gain is not None
        return configuration.cell_gain[cell]

    launched = [c for c in told if c.launches and not c.excluded]
    best = max(launched, key=at)
    within = at(best) - at(told[deploy]) < 2 * LAUNCH_SD
    return StudyCellConclusion(
        cell=cell,
        best=deploy if within else best.place,
        gain=at(told[deploy]),
        within_noise=within,
    )
