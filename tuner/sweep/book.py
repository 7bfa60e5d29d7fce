"""What a sweep has launched: its journal, its trials, how many launches are left."""

from __future__ import annotations

import math
from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING

import numpy as np

from bench import clock
from bench.errors import BenchError
from bench.model.study import StudyTrial, TrialState
from bench.plan.trials import trial_launch, trial_plan
from bench.store.study import read_study
from tuner.space.configuration import configuration_in
from tuner.study.journal import Journal, open_journal
from tuner.study.lease import (
    Condition,
    as_attribute,
    here,
    judge,
    now_s,
    own_lease,
    read_attribute,
    renewed,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench.model import Finding, Launch, Plan
    from bench.model.study import Study
    from bench.store import RunWriter
    from tuner.space import Configuration, Setting
    from tuner.space.candidates import Candidates
    from tuner.sweep.beginning import Prepared


class Book:
    """The launches of a study, in order, each in Optuna's journal before it begins.

    Args:
        prepared: The space and the budget.
        writer: The open run folder.

    Attributes:
        trials: The launches as they stand.
        launches: What they measure.
        failures: Findings on those that failed in this sitting.
        journal: Optuna's.
    """

    def __init__(self, prepared: Prepared, writer: RunWriter) -> None:
        self.trials: list[StudyTrial] = []
        self.launches: list[Launch] = []
        self.failures: list[Finding] = []
        self._prepared = prepared
        self._began_ns = clock.now_ns()
        self._lease = own_lease()
        known: tuple[StudyTrial, ...] = ()
        admitted: tuple[Configuration, ...] = ()
        candidates = prepared.candidates
        with suppress(BenchError):
            study = read_study(writer.folder)
            known, admitted = study.trials, _admitted(study, candidates)
        at = len(candidates.searched)
        every = candidates.space.configurations
        self.journal: Journal = open_journal(
            writer.folder,
            writer.run_id,
            (*every[:at], *admitted, *every[at:]),
            known,
            _settings(candidates),
            admitted,
        )

    def grow(self, prepared: Prepared, admitted: Sequence[Configuration]) -> None:
        """Take a larger part of a large space.

        Args:
            prepared: With it.
            admitted: What is new; stored with the launch that begins next.
        """
        self._prepared = prepared
        self.journal.grow(prepared.candidates.space.configurations, admitted)

    def close_cut_off(self) -> list[StudyTrial]:
        """Close the launches that a killed sweep left running.

        Nobody else has the run's lock: even a lease that cannot be judged is nobody's.
        """
        leases = {n: read_attribute(found) for n, found in self.journal.leases().items()}
        machine = here(lease.pid for lease in leases.values() if lease is not None)
        judged = judge(leases, now_s(), machine)
        return self.journal.close_stale(
            {j.number: j.why for j in judged if j.condition is not Condition.LIVING}
        )

    def take_up(self, trial: StudyTrial) -> Launch:
        """Enter a launch of an earlier sitting."""
        launch = self.launch_of(trial)
        self.launches.append(launch)
        self.trials.append(trial)
        return launch

    def begin(self, planned: StudyTrial) -> StudyTrial:
        """Number a launch and put it into the journal, with this process's lease."""
        return self.journal.begin(planned, lease=as_attribute(self._lease))

    def renew(self) -> None:
        """Say that the running launch is still somebody's."""
        self._lease = renewed(self._lease)
        self.journal.renew(self.trials[-1].number, as_attribute(self._lease))

    def end(self, trial: StudyTrial) -> None:
        """Enter what became of the last launch."""
        self.trials[-1] = trial
        self.journal.end(trial)

    def launch_of(self, trial: StudyTrial) -> Launch:
        """What a launch of the space measures."""
        candidates = self._prepared.candidates
        arm = candidates.arms[trial.configuration]
        before = Counter(launch.arm for launch in self.launches)
        return trial_launch(candidates.ground, arm, pair=before[arm], ordinal=trial.number)

    def plan(self) -> Plan:
        """All launches as a plan."""
        return trial_plan(self._prepared.candidates.ground, self.launches)

    def counted(self) -> int:
        """Launches that count: those that were cut off with cells to measure do not."""
        return sum(
            t.state is not TrialState.STALE or all(v is not None for v in t.value)
            for t in self.trials
        )

    def launches_left(self) -> int:
        """How many more launches the hours allow, by what those so far took."""
        prepared = self._prepared
        if prepared.hours is None:
            return prepared.launches
        took = [
            t.launch_s + t.measured_s
            for t in self.trials
            if t.launch_s is not None and t.measured_s is not None
        ]
        speed = prepared.candidates.ground.speed
        each_s = float(np.mean(took)) if took else prepared.launch_s * speed
        elapsed_s = (clock.now_ns() - self._began_ns) / 1e9  # a simulation's run faster
        left_s = prepared.hours * 3600 * speed - elapsed_s
        # No more than the budget's, whatever the hours: a study may have been begun with any.
        return max(0, math.floor(min(left_s / each_s, prepared.launches)))


def _settings(candidates: Candidates) -> tuple[Setting, ...]:
    """All that the axes of a large space may set."""
    large = candidates.large
    return () if large is None else tuple(v for axis in large.axes for v in axis.values)


def _admitted(study: Study, candidates: Candidates) -> tuple[Configuration, ...]:
    """What the part of a large space grew by, as study.json has it."""
    if candidates.large is None:
        return ()
    searched = len(study.configurations) - (candidates.adaptive is not None)
    return tuple(
        configuration_in(c) for c in study.configurations[len(candidates.searched) : searched]
    )
