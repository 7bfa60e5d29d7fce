"""Which configuration to launch next, and when to go over to the final.

`Search` is a conversation: `ask` what to launch, `tell` what it measured or that it `fail`ed. It
holds no server, no clock and no file, so that it runs against landscapes as against servers.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from tuner.confirm import conclude, plan_final

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from tuner.confirm import Conclusion, FinalPlan
    from tuner.predict import Knowledge, Predictor, Reading
    from tuner.space import Configuration

    Array = NDArray[np.float64]

BASELINE_EVERY: Final = 12  # launches: how often the baseline is launched again against drift
FIRST_STEPS: Final = 5  # of the first chain: deep enough to tell of all shallower ones
TRIES: Final = 2  # of the baseline, and of what failed by the moment's fault
SEARCHING: Final = ("baseline", "first", "search")
_NODES: Final = np.polynomial.hermite_e.hermegauss(15)


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """What to launch.

    Attributes:
        configuration: Its place in the space.
        why: `baseline`, `first`, `search` or `final`.
        block: Of the final: which block of neighbouring launches.
        worth: Of a search: by how much the best is expected to be better after it, a log ratio.
        measured: Of an earlier launch: whether it measured.
    """

    configuration: int
    why: str
    block: int | None = None
    worth: float | None = None
    measured: bool = False


def worth_of_launching(knowledge: Knowledge, allowed: NDArray[np.bool_]) -> Array:
    """Knowledge gradient: how much better the best is expected to be after one launch of each.

    Frazier, Powell, Dayanik (2009): a launch of c moves the mean of every configuration by
    cov[:, c] / sd · z. Beliefs are correlated, so a launch is worth what it tells of others too;
    one that was launched before may be worth another.

    Returns:
        (configurations,), never negative; minus infinity where not allowed.
    """
    variance = np.diag(knowledge.cov) + knowledge.launch_sd**2
    moves = np.where(allowed[:, None], knowledge.cov / np.sqrt(variance), 0.0)
    mean = np.where(allowed, knowledge.mean, -np.inf)
    nodes, weights = _NODES
    gained = np.zeros(len(mean))
    for node, weight in zip(nodes, weights / weights.sum(), strict=True):
        gained += weight * (mean[:, None] + moves * node).max(axis=0)
    return np.where(allowed, np.maximum(gained - mean.max(), 0.0), -np.inf)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """How a sweep is held.

    Attributes:
        budget: All launches, the final's included.
        seed: Orders the final.
        first: Known-good configurations to launch first; none: a chain that tells of the others.
        present: What the user has in use, if it is not the baseline.
        guests: Launched beside the best when the final is over, while launches are left: to know,
            not to win.
        stop_below: The final begins when no launch is worth this much, a log ratio.
        least_launches: But not before this many.
        margin: Speedups within ± this share of 1 are SAME.
    """

    budget: int
    seed: int = 0
    first: tuple[int, ...] = ()
    present: int | None = None
    guests: tuple[int, ...] = ()
    stop_below: float = 0.0
    least_launches: int = 8
    margin: float = 0.02


class Search:
    """A sweep over a space.

    Args:
        predictor: Of the space.
        configurations: The space; the first is the user's setting without speculation.
        rules: How it is held.
    """

    def __init__(
        self, predictor: Predictor, configurations: Sequence[Configuration], rules: Rules
    ) -> None:
        self.configurations = tuple(configurations)
        self.rules = rules
        self.readings: list[Reading] = []
        self.knowledge: Knowledge | None = None
        self.final: FinalPlan | None = None
        self._predictor = predictor
        self._off_of = off_of(self.configurations)
        self._rng = np.random.default_rng(rules.seed)
        self._first = list(rules.first) or first_chain(self.configurations)
        if rules.present is not None and rules.present not in {0, *self._first}:
            self._first.append(rules.present)
        self.excluded: dict[int, str] = {}
        self.budget = rules.budget
        self._failed: Counter[int] = Counter()
        self._again: Proposal | None = None
        self._guests = [c for c in rules.guests if c != 0]
        self._launches = 0
        self._since_baseline = 0
        self._pending: list[Proposal] = []
        self._final_from = 0
        self._met: list[tuple[int, int]] = []
        self._concluded: tuple[int, Conclusion] | None = None

    def ask(self) -> Proposal | None:
        """The next launch; None when the budget is spent or the final over."""
        if self._launches >= self.budget:
            return None
        if self._again is not None:
            again, self._again = self._again, None
            return again
        if self.final is None and self._since_baseline >= BASELINE_EVERY:
            self._since_baseline = 0
            return self._if_there_is_time(Proposal(configuration=0, why="baseline"))
        if not self.readings and 0 not in self.excluded:
            return Proposal(configuration=0, why="baseline")
        while self.final is None and self._first:
            known = self._first.pop(0)
            if known not in self.excluded:
                return self._if_there_is_time(Proposal(configuration=known, why="first"))
        if self.final is None and self.knowledge is not None:
            worth = worth_of_launching(self.knowledge, self._allowed())
            best = int(worth.argmax())
            over = (
                self._launches >= self.rules.least_launches and worth[best] < self.rules.stop_below
            )
            proposal = Proposal(configuration=best, why="search", worth=float(worth[best]))
            return self._begin_final() if over else self._if_there_is_time(proposal)
        return self._next_of_final()

    def tell(self, reading: Reading, proposal: Proposal | None = None) -> None:
        """What a launch measured.

        Args:
            reading: What.
            proposal: The launch, where it matters whether it is the final's.
        """
        self._count(reading.configuration)
        if proposal is not None and proposal.block is not None:
            self._met.append((proposal.block, reading.configuration))
        self.readings.append(reading)
        self.knowledge = self._predictor.learn(self.readings)

    def fail(
        self, proposal: Proposal, *, why: str, also: Iterable[int] = (), again: bool = False
    ) -> None:
        """A launch that measured nothing.

        Args:
            proposal: The launch.
            why: What is told of configurations that are not launched any more.
            also: Others that must fail like it.
            again: The moment's fault: the first time, the same is launched once more.
        """
        failed = proposal.configuration
        self._count(failed)
        self._failed[failed] += 1
        if (again or failed == 0) and self._failed[failed] < TRIES:
            self._again = proposal
            return
        for place in (failed, *also):
            self.exclude(place, why)

    def pass_over(self, proposal: Proposal) -> None:
        """A launch of what is not in the space: it only counts."""
        self._count(proposal.configuration)

    def exclude(self, place: int, why: str) -> None:
        """Launch a configuration no more, and do not hand it over."""
        self.excluded.setdefault(place, why)
        self._pending = [p for p in self._pending if p.configuration not in self.excluded]
        self._guests = [c for c in self._guests if c not in self.excluded]

    def limit(self, launches: int) -> None:
        """Take fewer launches than the budget has: there is no time for more."""
        self.budget = min(self.rules.budget, launches)

    def take_up(self, final: FinalPlan | None, launched: Sequence[Proposal]) -> None:
        """Go on after a stop, once all earlier launches were told or failed.

        Args:
            final: The plan of the final, if it had begun.
            launched: All launches so far, failed ones included.
        """
        done = {p.configuration for p in launched}
        self._first = [c for c in self._first if c not in done]
        self._guests = [c for c in self._guests if ("guest", c) not in _whys(launched)]
        if final is None:
            return
        self.final = final
        in_search = [p for p in launched if p.why in SEARCHING]
        self._final_from = sum(1 for p in in_search if p.measured)
        self._pending = [
            p
            for p in _of_final(final)
            if (p.block, p.configuration) not in self._met and p.configuration not in self.excluded
        ]

    def _count(self, configuration: int) -> None:
        self._launches += 1
        self._since_baseline = 0 if configuration == 0 else self._since_baseline + 1

    def conclude(self) -> Conclusion | None:
        """What to hand over; None before the final has measured a finalist and a baseline.

        A finalist that failed or broke a limit is none any more; where none is left, what is in
        use now stands in for them.
        """
        final = self.final
        if final is None:
            return None
        launched = {reading.configuration for reading in self.readings}
        fit = [c for c in (*final.finalists, final.present) if c is not None]
        fit = [c for c in fit if c in launched and c not in self.excluded and c != 0]
        finalists = tuple(c for c in final.finalists if c in fit) or tuple(fit[:1])
        if not finalists or not launched & set(final.baselines):
            return None
        if self._concluded is None or self._concluded[0] != len(self.readings):
            told = conclude(
                self._predictor,
                self.readings,
                final=replace(final, finalists=finalists),
                final_from=self._final_from,
                margin=self.rules.margin,
            )
            self._concluded = (len(self.readings), told)
        return self._concluded[1]

    def final_measured(self) -> list[tuple[int, int]]:
        """(block, configuration) of the final's launches that measured, in order."""
        return list(self._met)

    def search_gain(self, best: int, against: int) -> float | None:
        """What the search's own launches of two configurations differ by; None without both."""
        weights = self._predictor.points.weights
        means = []
        for place in (best, against):
            found = [
                r.log_value @ weights
                for r in self.readings[: self._final_from]
                if r.configuration == place and np.isfinite(r.log_value).all()
            ]
            if not found:
                return None
            means.append(float(np.mean(found)))
        return means[0] - means[1]

    def _if_there_is_time(self, proposal: Proposal) -> Proposal | None:
        """The proposal, or the final if what is left is only enough for that."""
        plan = self._plan_final()
        if plan is None:
            return proposal
        needed = sum(len(block) for block in plan.blocks)
        return proposal if self._launches + needed < self.budget else self._begin_final()

    def _plan_final(self) -> FinalPlan | None:
        if self.knowledge is None:
            return None
        launched = np.zeros(len(self.configurations), dtype=bool)
        launched[[reading.configuration for reading in self.readings]] = True
        return plan_final(
            self.knowledge,
            baseline=0,
            off_of=self._off_of,
            launched=launched,
            allowed=self._allowed(),
            budget=self.budget,
            left=self.budget - self._launches,
            rng=self._rng,
            present=None if self.rules.present in self.excluded else self.rules.present,
        )

    def _begin_final(self) -> Proposal | None:
        self.final = self._plan_final()
        if self.final is None:
            return None
        self._final_from = len(self.readings)
        self._pending = _of_final(self.final)
        return self._next_of_final()

    def _next_of_final(self) -> Proposal | None:
        if self._pending:
            return self._pending.pop(0)
        if self.final is None:
            return None
        known = {reading.configuration for reading in self.readings}
        self._guests = [guest for guest in self._guests if guest not in known]
        if self._guests:
            return Proposal(configuration=self._guests.pop(0), why="guest")
        return None

    def _allowed(self) -> NDArray[np.bool_]:
        allowed = np.ones(len(self.configurations), dtype=bool)
        allowed[[place for place in self.excluded if place < len(allowed)]] = False
        return allowed


def _of_final(final: FinalPlan) -> list[Proposal]:
    return [
        Proposal(configuration=c, why="final", block=number)
        for number, block in enumerate(final.blocks)
        for c in block
    ]


def _whys(launched: Sequence[Proposal]) -> set[tuple[str, int]]:
    return {(p.why, p.configuration) for p in launched}


def off_of(configurations: Sequence[Configuration]) -> tuple[int, ...]:
    """For each configuration the one without speculation at the same setting.

    Where the space has none, the first: then the two baselines are one.
    """
    off = {c.setting: at for at, c in enumerate(configurations) if c.algorithm is None}
    return tuple(off.get(c.setting, 0) for c in configurations)


def first_chain(configurations: Sequence[Configuration]) -> list[int]:
    """The chain at the user's setting with about `FIRST_STEPS` steps, for each algorithm."""
    own = configurations[0].setting
    first: dict[str, int] = {}
    for at, c in enumerate(configurations):
        if c.algorithm is None or c.is_tree or c.setting != own:
            continue
        before = first.get(c.algorithm)
        if before is None or _from_first(c) < _from_first(configurations[before]):
            first[c.algorithm] = at
    return list(first.values())


def _from_first(configuration: Configuration) -> int:
    return abs((configuration.num_steps or 0) - FIRST_STEPS)
