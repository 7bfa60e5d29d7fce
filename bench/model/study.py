"""What is known of a tuning study: its space, its launches, what to deploy. Rebuilt from its run.

Gains are natural logarithms of ratios to the user's baseline: 0.05 is about 5 % faster. A gain
over several cells is the weighted mean of its cells' gains.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from bench.model.concluded import Verdict  # noqa: TC001  # read back by its type hints

if TYPE_CHECKING:
    from collections.abc import Iterable

IN_TURN: Final = "steps"
"""`StudyTrial.why` of the launch in which two step counts take turns: its figures are of both."""

OBJECTIVES: Final = {
    "tok_per_s": "tok/s",
    "tok_per_s_per_user": "tok/s of a user",
    "goodput": "requests a second within the slo",
    "energy": "tokens a joule",
}
"""What `Study.objective` counts, as words."""


class TrialState(StrEnum):
    """What became of a launch of a study."""

    RUNNING = "running"
    MEASURED = "measured"
    FAILED = "failed"
    STALE = "stale"  # its process is gone: it was cut off


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyCell:
    """One workload at one load, measured in every launch.

    Attributes:
        workload: Its name.
        load: The load's label.
        weight: Of the objective; the weights sum to 1.
    """

    workload: str
    load: str
    weight: float


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyConfiguration:
    """A distinct legal configuration, in its effective form, with what is known of it now.

    Attributes:
        place: Its number in the space; 0 is the user's setting without speculation.
        arm: The arm of its launches in the run's tables.
        label: `off`, `EAGLE3 3-1-4 attention-backend=fa3 NCCL_ALGO=Ring`.
        algorithm: None: no speculation, and then the next three are None.
        num_steps: Draft steps a cycle.
        eagle_topk: Branches a draft step.
        num_draft_tokens: Tokens verified a cycle, the root counted.
        arguments: Further arguments as (option, value); a flag has the value "true".
        environment: Variables as (name, value).
        launches: How often it was measured.
        excluded: Why it is not launched any more; None: it may be.
        gain: Expected log ratio to the baseline; None before anything was measured.
        gain_sd: Its standard deviation.
        cell_gain: The same by cell.
        accept_len_tok: Expected accept length by cell; None without speculation.
    """

    place: int
    arm: str
    label: str
    algorithm: str | None
    num_steps: int | None
    eagle_topk: int | None
    num_draft_tokens: int | None
    arguments: tuple[tuple[str, str], ...]
    environment: tuple[tuple[str, str], ...]
    launches: int
    excluded: str | None
    gain: float | None
    gain_sd: float | None
    cell_gain: tuple[float, ...] | None
    accept_len_tok: tuple[float | None, ...] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyTrial:
    """One launch of the study, and what was predicted of it before it began.

    Attributes:
        number: 0-based, in order.
        configuration: Its place in the space.
        why: `baseline` (the control), `first` (known good), `search`, `final` or `steps`: then two
            step counts took turns, and what it measured is not of its configuration.
        block: Of the final: which block of neighbouring launches.
        worth: Of a search: by how much the best was expected to be better after it.
        state: What became of it.
        launch_id: Its launch in the run's tables; None before it began.
        failure_class: Of a failed one (`bench.sglang.failures.FailureClass`).
        failure: Why, in a line.
        also_excluded: Places of configurations that must fail like it.
        started_at: ISO 8601, UTC.
        ended_at: Likewise; None while it runs.
        launch_s: Seconds of the server's clock from start to ready.
        measured_s: Likewise from ready to the end.
        predicted_gain: Before it began; None before anything was measured.
        predicted_gain_sd: Standard deviation of that, the launch's own noise included.
        predicted_accept_len_tok: By cell; None as a whole before anything was measured.
        value: The objective's metric by cell; None where a cell has no valid figure.
        accept_len_tok: Measured, by cell.
        ttft_p99_ms: Measured, by cell.
        tpot_p99_ms: Measured, by cell.
        memory_headroom_gib: Least free memory of a GPU; None where it was not read.
        gain: Log ratio to the baseline, drift taken out; None where it was not measured.
        breaks: Constraints that it does not keep, in words.
        marks: Findings that weaken its cells, by kind.
    """

    number: int
    configuration: int
    why: str
    block: int | None
    worth: float | None
    state: TrialState
    launch_id: str | None
    failure_class: str | None
    failure: str | None
    also_excluded: tuple[int, ...]
    started_at: str
    ended_at: str | None
    launch_s: float | None
    measured_s: float | None
    predicted_gain: float | None
    predicted_gain_sd: float | None
    predicted_accept_len_tok: tuple[float | None, ...] | None
    value: tuple[float | None, ...]
    accept_len_tok: tuple[float | None, ...]
    ttft_p99_ms: tuple[float | None, ...]
    tpot_p99_ms: tuple[float | None, ...]
    memory_headroom_gib: float | None
    gain: float | None
    breaks: tuple[str, ...]
    marks: tuple[str, ...]


def step_counts_in_turn(trial: StudyTrial) -> tuple[int, int] | None:
    """Which step counts took turns in a launch, by its id; None: it does not say."""
    found = re.search(r"-steps-(\d+)-(\d+)-p\d+$", trial.launch_id or "")
    return None if found is None else (int(found[1]), int(found[2]))


def of_their_configuration(trials: Iterable[StudyTrial]) -> tuple[StudyTrial, ...]:
    """The launches whose figures are of their configuration: all but that of two step counts."""
    return tuple(t for t in trials if t.why != IN_TURN)


@dataclass(frozen=True, slots=True, kw_only=True)
class SpaceCounts:
    """How large the space is.

    Attributes:
        raw: Points of the axes.
        looked_at: How many of them were held against the rules: all, or a part.
        legal: How many of those are legal.
        distinct: How many configurations these are, the one without speculation among them;
            SGLang's adaptive mode, which is launched beside them alone, is not.
    """

    raw: int
    looked_at: int
    legal: int
    distinct: int

    @property
    def is_whole(self) -> bool:
        """Whether all points were looked at."""
        return self.looked_at == self.raw


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyCellConclusion:
    """The winner at one cell, from the final's blocks and the search.

    Attributes:
        cell: Its place among the study's cells.
        best: The configuration that is best there (place); the default where within noise.
        gain: Log ratio of the study's deployed configuration to the baseline there.
        within_noise: Whether the best one there cannot be told from the deployed one.
    """

    cell: int
    best: int
    gain: float
    within_noise: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyConclusion:
    """What a study hands over.

    Attributes:
        deploy: The configuration to run with (place); a baseline means: leave speculation off.
        answer: `deploy`, `leave_off`, `keep_present` or `undecided`.
        best: The best speculative configuration, deployed or not.
        baseline: The better baseline, which the gain is over.
        present: What the user has in use, if it took part.
        gain: Of `best` over `baseline`.
        ci95_low: Of its interval.
        ci95_high: Of it.
        degrees_of_freedom: Of the interval.
        verdict: On `best`.
        optimism: By how much the search's best figure alone is expected to flatter.
        search_gain: What the search alone said of `best`.
        over_present: Gain of `best` over `present`, and its standard deviation; None without.
        blocks: Blocks of the final that are whole.
        cells: By cell.
        reason: Why no verdict, or why not the best, in a sentence; None when there is one.
    """

    deploy: int
    answer: str
    best: int
    baseline: int
    present: int | None
    gain: float
    ci95_low: float
    ci95_high: float
    degrees_of_freedom: float
    verdict: Verdict | None
    optimism: float
    search_gain: float | None
    over_present: tuple[float, float] | None
    blocks: int
    cells: tuple[StudyCellConclusion, ...]
    reason: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """A tuning study as far as it got; study.json in its run's folder.

    Attributes:
        study_id: The id of its run.
        scenario: Name of the scenario.
        question: What the scenario asks.
        status: `running`, `interrupted` or `complete`.
        simulated: Whether its servers are simulated.
        speed: The clock's speed: 1 but for simulations.
        engine_version: Of the first server that answered; None before.
        gpus: How many GPUs a server uses; 0 for a CPU server.
        objective: The metric that counts (`tune.objective`).
        margin: Speedups within ± this share of 1 are SAME.
        constraints: As (name, limit).
        launches_budget: All launches, the final's included.
        hours_budget: Hours of the clock; None: no limit.
        cells: What every launch measures.
        raw: Points of the axes.
        illegal: (rule, how many, reason) of those never launched.
        aliases: (why, how many) of those that are another's double.
        configurations: The distinct legal ones.
        present: Place of what the user has in use; None: the baseline.
        trials: In order.
        launch_sd: Noise of one launch of the objective, estimated; None before it was.
        conclusion: None before the final.
        notes: What else is worth knowing, in sentences.
        command_line: Of the sweep, secrets redacted.
        argv: The server command of the configuration to deploy, the command's words included;
            empty before the conclusion.
        environment: Variables of that server beside the inherited ones, the scenario's own among
            them, as (name, value) by name, secrets redacted; None: not told.
        counts: How large the space is; None: not told.
    """

    study_id: str
    scenario: str
    question: str
    status: str
    simulated: bool
    speed: int
    engine_version: str | None
    gpus: int
    objective: str
    margin: float
    constraints: tuple[tuple[str, float], ...]
    launches_budget: int
    hours_budget: float | None
    cells: tuple[StudyCell, ...]
    raw: int
    illegal: tuple[tuple[str, int, str], ...]
    aliases: tuple[tuple[str, int], ...]
    configurations: tuple[StudyConfiguration, ...]
    present: int | None
    trials: tuple[StudyTrial, ...]
    launch_sd: float | None
    conclusion: StudyConclusion | None
    notes: tuple[str, ...]
    command_line: tuple[str, ...]
    argv: tuple[str, ...]
    environment: tuple[tuple[str, str], ...] | None = None
    counts: SpaceCounts | None = None
