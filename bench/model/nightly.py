"""What is known of a suite's nights: points, what became of each series, and why.

Changes are in natural logarithms: -0.03 is 3 % less, and factors add up.
"""

from __future__ import annotations

from dataclasses import dataclass

# The records are read back by their type hints, which must resolve.
from datetime import date, datetime  # noqa: TC003
from enum import StrEnum


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class SeriesKey:
    """What one series is of; the environment is an attribute of its points, never part of this.

    Attributes:
        scenario: Name of the scenario.
        workload: Name of the workload.
        load: The load's label.
        arm: The arm.
        metric: A key of `bench.metrics.watched.METRICS`.
        hardware: The hardware class, e.g. `8x NVIDIA H200`.
    """

    scenario: str
    workload: str
    load: str
    arm: str
    metric: str
    hardware: str

    @property
    def label(self) -> str:
        """The series in one line."""
        where = f"{self.scenario} {self.workload} load {self.load}"
        return f"{where} {self.arm} {self.metric} on {self.hardware}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One night's value of one series; a row of the history's points.

    Attributes:
        key: The series.
        night: The night's date, UTC.
        at: When it was measured.
        value: Positive; its unit is in the metric's name.
        suspect: Whether its cell was SUSPECT: used, and marked.
        simulated: Whether the server was simulated.
        fingerprint: Content address of the environment (`bench.nightly.history`).
        source: Whose figures: `bench`, `sglang` or `vllm`.
        source_id: The run's id, or the hash of the foreign row: a source counts once.
    """

    key: SeriesKey
    night: date
    at: datetime
    value: float
    suspect: bool
    simulated: bool
    fingerprint: str
    source: str
    source_id: str


class ChangeKind(StrEnum):
    """How a level moved."""

    STEP = "step"
    DRIFT = "drift"


class Cause(StrEnum):
    """Which factor explains a change of speed; the page and docs/nightly.md say what to do."""

    ENVIRONMENT = "environment"  # the baseline moved too: machine, driver, engine
    SPECULATION = "speculation"  # the cycle alone: kernels, communication, graphs of verifying
    ACCEPTANCE = "acceptance"  # the accept length: draft, template, tokenizer, target
    WORKLOAD = "workload"  # what was asked is not what was asked before
    OUTSIDE_DECODING = "outside_decoding"  # prefill, queue, idle slots: what no factor explains
    SEVERAL = "several"  # more than one factor
    UNCLEAR = "unclear"  # nothing measured beside it moved


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldChange:
    """A recorded fact that differs between two nights.

    Attributes:
        name: Dotted, e.g. `gpus.driver`, `eagle3: attention_backend`.
        before: As text; `–` where it was not recorded.
        after: Likewise.
        nights_off: 0: it changed exactly where the level did; -1: a night earlier, and so on.
        fits: Whether a field of its kind can do what was seen.
    """

    name: str
    before: str
    after: str
    nights_off: int
    fits: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Factor:
    """How one factor moved across a change.

    Attributes:
        ln_change: ln(after / before).
        half_width: Half of its 95 % interval.
        moved: Whether the interval leaves out 0 and the change is of practical size.
    """

    ln_change: float
    half_width: float
    moved: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Attribution:
    """Why a series changed.

    Attributes:
        cause: The factor.
        accept_len: The accept length's move; None where it is not measured.
        cycle: The step's time: positive is slower.
        residual: What ln tok/s = ln accept length - ln cycle leaves.
        baseline: The baseline's tok/s.
        speedup: The arm over the baseline of the same nights.
        clock: The GPUs' mean SM clock.
        fields: Recorded facts that changed there, likeliest first.
        confidence: `sole change`, `one of N` or `none recorded: suspect hardware or heat`.
    """

    cause: Cause
    accept_len: Factor | None
    cycle: Factor | None
    residual: Factor | None
    baseline: Factor | None
    speedup: Factor | None
    clock: Factor | None
    fields: tuple[FieldChange, ...]
    confidence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Ack:
    """A change somebody expected.

    Attributes:
        key: Its series.
        night: First night of the level that is accepted.
        reason: Why it is.
        by: Who said so.
        at: When.
    """

    key: SeriesKey
    night: date
    reason: str
    by: str
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangePoint:
    """A level of a series that became another.

    Attributes:
        key: The series.
        kind: At once, or night by night.
        index: 0-based place of the first night of the new level (of a drift: its first night).
        last_index: Of a drift that has ended, the first night of the level it led to; None while
            it goes on, and of steps.
        night: Date of `index`.
        night_before: Date of the night before it in this series.
        ln_change: Of the levels, ln(after / before).
        half_width: Half of its 95 % interval.
        nights: Nights of the new level so far.
        suspect_nights: Those of them with SUSPECT cells.
        worse: Whether it is for the worse.
        standing: Whether the series is still there: no later change made up for it.
        ack: Who expected it; None: nobody said so.
        attribution: Why; None for metrics that have no factors and no fingerprint.
    """

    key: SeriesKey
    kind: ChangeKind
    index: int
    last_index: int | None
    night: date
    night_before: date
    ln_change: float
    half_width: float
    nights: int
    worse: bool
    standing: bool
    ack: Ack | None
    attribution: Attribution | None
    suspect_nights: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Incident:
    """One to three nights far off, with the old level after them.

    Attributes:
        index: 0-based place of the first of them.
        night: Its date.
        nights: How many.
        ln_change: Of the farthest, against the level around.
        ended: Whether a night at the old level has followed; the last night alone has none yet.
    """

    index: int
    night: date
    nights: int
    ln_change: float
    ended: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """Nights of one level; the mean is over those that are no incidents.

    Attributes:
        start: 0-based place of its first night.
        stop: One past its last.
        value: Geometric mean; of a drift the value at its end.
        value_at_start: The same at its start: another only along a drift.
        ci95_low: Of the level, by the series' noise.
        ci95_high: Its upper end.
    """

    start: int
    stop: int
    value: float
    value_at_start: float
    ci95_low: float
    ci95_high: float


class SeriesState(StrEnum):
    """Where a series stands tonight."""

    REGRESSION = "regression"
    DRIFT = "drift"  # a regression that goes on
    CHANGED_AS_EXPECTED = "changed as expected"
    IMPROVEMENT = "improvement"
    INCIDENT = "incident"  # the last night is far off; the next night tells
    STEADY = "steady"
    NOT_ENOUGH = "not enough yet"
    SILENT = "silent"  # no value in the newest night


@dataclass(frozen=True, slots=True, kw_only=True)
class SeriesJudgement:
    """One series as it stands.

    Attributes:
        key: The series.
        points: Its nights, oldest first.
        state: In a word.
        noise: Standard deviation of a night, in ln; None with too few nights.
        seen_in_2_nights: The smallest change (as ln) that would be found, as often as not, in two
            nights; None with too few.
        seen_in_7_nights: The same in seven.
        margin: Changes within it are of no practical use.
        levels: Oldest first.
        changes: Oldest first.
        incidents: Oldest first.
        nights_wanted: How many more nights it takes to be judged; 0: it is.
    """

    key: SeriesKey
    points: tuple[Point, ...]
    state: SeriesState
    noise: float | None
    seen_in_2_nights: float | None
    seen_in_7_nights: float | None
    margin: float
    levels: tuple[Level, ...]
    changes: tuple[ChangePoint, ...]
    incidents: tuple[Incident, ...]
    nights_wanted: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NightFailure:
    """A night, or a part of one, without figures.

    Attributes:
        night: Its date.
        scenario: What was to be measured; None: all.
        reason: Why it was not.
    """

    night: date
    scenario: str | None
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NightlyVerdict:
    """All series as they stand, and what is to be told.

    Attributes:
        suite: Name of the suite.
        newest: Date of the newest night; None: there is none yet.
        judged_at: When it was judged.
        series: Every watched series.
        failures: Nights that failed, oldest first.
        damaged: Files of the history that cannot be read: (path, why).
        environments: Facts by fingerprint, for the nights at which they changed.
    """

    suite: str
    newest: date | None
    judged_at: datetime
    series: tuple[SeriesJudgement, ...]
    failures: tuple[NightFailure, ...]
    damaged: tuple[tuple[str, str], ...]
    environments: dict[str, dict[str, str]]

    @property
    def regressions(self) -> tuple[ChangePoint, ...]:
        """Changes for the worse that stand and that nobody expected, the last first."""
        found = [
            change
            for judged in self.series
            for change in judged.changes
            if change.worse and change.standing and change.ack is None
        ]
        return tuple(sorted(found, key=lambda c: (c.night, c.key), reverse=True))
