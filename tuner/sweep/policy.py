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
from tuner.sweep.admitting import (
    Part,
    left_with,
    next_setting,
    tried_settings,
    worth_of_another,
)
from tuner.sweep.weighing import first_chain, off_of, worth_of_launching

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from tuner.confirm import Conclusion, FinalPlan
    from tuner.predict import Knowledge, Predictor, Reading
    from tuner.space import Configuration
    from tuner.sweep.admitting import Unexplored

    Array = NDArray[np.float64]

BASELINE_EVERY: Final = 12  # launches: how often the baseline is launched again against drift
AFTER_ANOTHER: Final = 2.0  # how much more a setting must be worth, where the last was one
TRIES: Final = 2  # of the baseline, and of what failed by the moment's fault
SEARCHING: Final = ("baseline", "first", "search")


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
        unexplored: What the space has beyond these configurations; None: nothing.
    """

    def __init__(
        self,
        predictor: Predictor,
        configurations: Sequence[Configuration],
        rules: Rules,
        unexplored: Unexplored | None = None,
    ) -> None:
        self.configurations = tuple(configurations)
        self._unexplored = unexplored
        self._newest: int | None = None
        self._last: int | None = None
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
            return self._worth_most(self.knowledge)
        return self._next_of_final()

    def _worth_most(self, knowledge: Knowledge) -> Proposal | None:
        worth = worth_of_launching(knowledge, self._allowed())
        best = int(worth.argmax())
        over = self._launches >= self.rules.least_launches and worth[best] < self.rules.stop_below
        if over and self._unexplored is None:
            return self._begin_final()
        proposal = Proposal(configuration=best, why="search", worth=float(worth[best]))
        timely = self._if_there_is_time(proposal)
        if timely is not proposal:
            return timely
        another = self._another_setting(instead_of=float(worth[best]))
        return another or (self._begin_final() if over else proposal)

    def _another_setting(self, *, instead_of: float) -> Proposal | None:
        """A setting that was not tried yet, where that is worth more than what is known.

        After one that was tried, twice as much: what looks good is looked at again.
        """
        if self._unexplored is None or self.knowledge is None:
            return None
        just_tried = self._last is not None and self._last == self._newest
        part = Part(
            configurations=self.configurations,
            knowledge=self.knowledge,
            launched={reading.configuration for reading in self.readings},
            excluded=self.excluded,
        )
        tried = tried_settings(self._unexplored.axes, part)
        worth = worth_of_another(tried, self.knowledge.launch_sd)
        least = instead_of * (AFTER_ANOTHER if just_tried else 1.0)
        if worth <= max(least, self.rules.stop_below):
            return None
        if self._newest is None or self._newest in {*part.launched, *self.excluded}:
            found = next_setting(self._unexplored, part, tried)
            if not found:
                return None
            self.admit(found)
        return Proposal(configuration=self._newest or 0, why="search", worth=worth)

    def admit(self, configurations: Sequence[Configuration]) -> None:
        """Weigh more configurations of a large space; they come behind those there are.

        What is launched beside the space (`Rules.guests`) has the places behind them all.
        """
        if self._unexplored is None or not configurations:
            return
        self._newest, more = len(self.configurations), len(configurations)
        self._guests = [c + more if c >= self._newest else c for c in self._guests]
        self.excluded = {
            c + more if c >= self._newest else c: why for c, why in self.excluded.items()
        }
        self.configurations += tuple(configurations)
        self._off_of = off_of(self.configurations)
        del self._predictor  # before the larger one is made: each holds much memory
        self._predictor = self._unexplored.predictor(self.configurations)
        if self.readings:
            self.knowledge = self._predictor.learn(self.readings)

    def tell(self, reading: Reading, proposal: Proposal | None = None) -> None:
        """What a launch measured.

        Args:
            reading: What.
            proposal: The launch, where it matters whether it is the final's.
        """
        self._count(reading.configuration)
        if proposal is not None and proposal.block is not None:
            self._met.append((proposal.block, reading.configuration))
        self.learn_of(reading)

    def learn_of(self, reading: Reading) -> None:
        """What cells measured, beside the count of launches: also of one that was cut off."""
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
        if self._unexplored is not None and failed < len(self.configurations):
            ran = [reading.configuration for reading in self.readings]
            label = self.configurations[failed].label
            for place in left_with(failed, ran, self.configurations):
                self.exclude(place, f"has the setting with which {label} failed")

    def compare(self, readings: Sequence[Reading]) -> None:
        """What two step counts were against each other inside one launch, after the final.

        It tells which is better at which load; what is said of the best rests on launches alone.
        """
        self.knowledge = self._predictor.learn([*self.readings, *readings])

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
        self._last = configuration
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
