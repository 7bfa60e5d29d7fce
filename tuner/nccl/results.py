"""The answer of `tuner nccl`, and how it follows from the rounds; pure."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tuner.nccl.messages import PREFILL
from tuner.nccl.ranking import (
    Best,
    Compared,
    Crossover,
    choose,
    compare_rounds,
    control_ratios,
    cost_us,
    pooled_ratios,
    ratios_of,
    single_best,
)
from tuner.nccl.settings import DEFAULT

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tuner.nccl.asking import NcclQuestion
    from tuner.nccl.ranking import Round
    from tuner.nccl.rounds import Measured
    from tuner.nccl.transport import StepTransport
    from tuner.nccl.tuning_log import Choice


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftRanking:
    """One load with one draft.

    Attributes:
        draft: The draft's label.
        default_us: µs that one step spends in NCCL's all-reduces with what is in use.
        winner: The setting to use; `default` where none is surely faster.
        compared: All settings, the fastest first.
    """

    draft: str
    default_us: float
    winner: str
    compared: tuple[Compared, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadRanking:
    """One load, over all its drafts.

    Attributes:
        load: The load's label, or `prefill`.
        best: The setting to use.
        reason: Why it, or why the default is kept.
        compared: All settings, the fastest first.
        drafts: By draft.
    """

    load: str
    best: Best[str]
    reason: str
    compared: tuple[Compared, ...]
    drafts: tuple[DraftRanking, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """What NCCL says it did with a setting.

    Attributes:
        setting: Its name.
        choices: By size.
        not_taken: Its variables that NCCL's log does not confirm.
        failure: Why there is no log.
    """

    setting: str
    choices: tuple[Choice, ...] = ()
    not_taken: tuple[str, ...] = ()
    failure: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NcclRanking:
    """The answer of `tuner nccl`.

    Attributes:
        question: What was asked.
        why_unranked: Why there is no ranking; None: there is one.
        tool: What measured, with versions; None: nothing was.
        backend: nccl or gloo.
        measured: Rounds, failures; None: nothing was measured.
        loads: The ranking by load.
        control: The default against itself, last start of a round over its first.
        crossovers: Where the fastest setting changes with the size.
        chosen: What NCCL chose, of the default and each winner.
    """

    question: NcclQuestion
    why_unranked: str | None = None
    tool: str | None = None
    backend: str | None = None
    measured: Measured | None = None
    loads: tuple[LoadRanking, ...] = ()
    control: Compared | None = None
    crossovers: tuple[Crossover[str], ...] = ()
    chosen: tuple[Chosen, ...] = ()

    @property
    def single_best(self) -> str | None:
        """The setting that is best at every load; None: it depends on the load."""
        return single_best(load.best for load in self.loads)


def control_of(question: NcclQuestion, rounds: Sequence[Round]) -> Compared | None:
    """The default against itself while decoding: a round's last start over its first."""
    weights = _weights([step for step in question.steps if step.step.load != PREFILL])
    found = compare_rounds({DEFAULT: control_ratios(rounds, weights)}, margin=question.margin)
    return found[0] if found else None


def rank_loads(question: NcclQuestion, rounds: Sequence[Round]) -> tuple[LoadRanking, ...]:
    """The winner of every load at which NCCL's variables can matter."""
    found = []
    for load in dict.fromkeys(step.step.load for step in question.steps):
        steps = [s for s in question.steps if s.step.load == load and s.matters]
        if not steps:
            continue
        weights = [_weights([step]) for step in steps]
        compared = compare_rounds(pooled_ratios(rounds, weights), margin=question.margin)
        best = choose(compared, default=DEFAULT)
        drafts = [
            ranking
            for step, weight in zip(steps, weights, strict=True)
            if (ranking := _of_draft(step, weight, rounds, question.margin)) is not None
        ]
        found.append(
            LoadRanking(
                load=load,
                best=best,
                reason=_reason(best, compared),
                compared=compared,
                drafts=tuple(drafts),
            )
        )
    return tuple(found)


def _of_draft(
    step: StepTransport, weights: Mapping[int, float], rounds: Sequence[Round], margin: float
) -> DraftRanking | None:
    costs = [
        cost
        for one in rounds
        for times in one.default
        if (cost := cost_us(times, weights)) is not None
    ]
    if not costs:
        return None
    compared = compare_rounds(ratios_of(rounds, weights), margin=margin)
    return DraftRanking(
        draft=step.step.draft,
        default_us=_geometric_mean(costs),
        winner=choose(compared, default=DEFAULT).name or DEFAULT,
        compared=compared,
    )


def _reason(best: Best[str], compared: Sequence[Compared]) -> str:
    if not compared:
        return "nothing could be compared: every setting failed"
    fastest = compared[0]
    if best.name == fastest.setting:
        return f"surely faster than the default in {fastest.rounds} rounds"
    if fastest.verdict is None:
        return "one round has no verdict: a difference may be noise, so the default is kept"
    if best.name != DEFAULT:
        return f"surely faster; {fastest.setting} measured more, within its noise"
    if fastest.speedup <= 1:
        return "no setting is faster than the default"
    return f"{fastest.setting} measured faster, but within noise: the default is kept"


def _weights(steps: Sequence[StepTransport]) -> dict[int, float]:
    """How many all-reduces of each size through NCCL."""
    counted: Counter[int] = Counter()
    for step in steps:
        for message in step.nccl_messages:
            counted[message.message_bytes] += message.per_step
    return {size: float(count) for size, count in counted.items()}


def times_by_size(rounds: Sequence[Round]) -> dict[int, dict[str, float]]:
    """Geometric mean over rounds of each setting's time at each size."""
    seen: dict[int, dict[str, list[float]]] = {}
    for one in rounds:
        named = [(DEFAULT, times) for times in one.default] + [*one.settings.items()]
        for name, times in named:
            for size, us in times.items():
                seen.setdefault(size, {}).setdefault(name, []).append(us)
    return {
        size: {name: _geometric_mean(values) for name, values in row.items()}
        for size, row in seen.items()
    }


def _geometric_mean(values: Sequence[float]) -> float:
    return math.exp(math.fsum(map(math.log, values)) / len(values))
