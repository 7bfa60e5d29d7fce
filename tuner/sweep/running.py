"""The sweep itself: launches one after another, each stored before the next begins."""

from __future__ import annotations

import math
from collections import Counter
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import msgspec
import numpy as np

from bench import clock
from bench.errors import BenchError, DiskError, Interrupted, LoadError, ServerError
from bench.model import BASELINE, Finding
from bench.model.study import StudyTrial, TrialState
from bench.plan.trials import trial_launch, trial_plan
from bench.runner import Noted, open_bench, publish
from bench.runner.events import CellFinished
from bench.runner.runs import end_orphans, launch_failed
from bench.sglang.failures import FailureClass
from bench.store.study import read_study, write_study
from tuner.confirm import FinalPlan
from tuner.evaluate.readings import reading_of
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
from tuner.sweep.alternating import plan_alternating, told_of, write_config
from tuner.sweep.events import TrialEnded, TrialStarting
from tuner.sweep.neighbours import must_fail_too
from tuner.sweep.policy import Proposal
from tuner.sweep.recording import accept_lengths, gain_of, study_of
from tuner.sweep.searching import search_of
from tuner.sweep.trials import NO_FIGURE, STEPS, figures_of, is_of_the_moment, planned_trial

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from bench.model import Launch, Plan
    from bench.model.study import Study
    from bench.runner import Bench
    from bench.runner.events import Event
    from bench.store import RunWriter
    from tuner.evaluate.readings import Measured
    from tuner.predict import Reading
    from tuner.sweep.beginning import Prepared
    from tuner.sweep.events import SweepEvent

SIMULATED_NOTE: Final = (
    "The simulated server and the predictor share their physics: how well predictions come out "
    "here says nothing of a real machine."
)


class Sweep:
    """A sweep over one study: the search, its launches, its record.

    Args:
        prepared: The space and the budget.
        writer: The open run folder: a new one, or a part-run taken up again.
        on_event: Told of every step of the bench.
        on_trial: Told of every launch of the study.
    """

    def __init__(
        self,
        prepared: Prepared,
        writer: RunWriter,
        *,
        on_event: Callable[[Event], None],
        on_trial: Callable[[SweepEvent], None],
    ) -> None:
        self._prepared = prepared
        self._writer = writer
        self._on_event = on_event
        self._on_trial = on_trial
        self._candidates = prepared.candidates
        self._weights = np.array(prepared.candidates.weights)
        self._positions = max(
            (c.num_steps or 1 for c in self._candidates.space.configurations), default=1
        )
        self._search = search_of(prepared)
        self._notes: list[str] = [SIMULATED_NOTE] if prepared.asked.simulated else []
        self._trials: list[StudyTrial] = []
        self._launches: list[Launch] = []
        self._failures: list[Finding] = []
        self._began_ns = clock.now_ns()
        self._lease = own_lease()
        self._journal = self._opened()
        self._take_up()

    # -- what there is already

    def _opened(self) -> Journal:
        folder = self._writer.folder
        known: tuple[StudyTrial, ...] = ()
        with suppress(BenchError):
            known = read_study(folder).trials
        return open_journal(
            folder, self._writer.run_id, self._candidates.space.configurations, known
        )

    def _take_up(self) -> None:
        """Tell the search what earlier sittings measured; close what a killed one left."""
        leases = {n: read_attribute(found) for n, found in self._journal.leases().items()}
        machine = here(lease.pid for lease in leases.values() if lease is not None)
        judged = {j.number: j for j in judge(leases, now_s(), machine)}
        # Nobody else has the run's lock: even a lease that cannot be judged is nobody's.
        stale = self._journal.close_stale(
            {n: j.why for n, j in judged.items() if j.condition is not Condition.LIVING}
        )
        if stale:
            self._on_event(
                Noted(
                    text=f"launch {stale[0].number + 1} was cut off ({stale[0].failure}); what it "
                    "had not finished is measured again"
                )
            )
        done: list[Proposal] = []
        trials = self._journal.trials()
        for at, trial in enumerate(trials):
            if trial.why == STEPS:  # it is of no configuration of the space
                self._trials.append(trial)
                continue
            launch = self._launch(trial)
            self._launches.append(launch)
            self._trials.append(trial)
            proposal = Proposal(
                configuration=trial.configuration,
                why=trial.why,
                block=trial.block,
                worth=trial.worth,
                measured=trial.state is TrialState.MEASURED,
            )
            if trial.state is TrialState.STALE:
                done += self._of_stale(trial, proposal, launch)
                continue
            done.append(proposal)
            if trial.state is TrialState.FAILED:
                self._fail_as_then(trial, proposal, trials[at + 1 :])
            else:
                self._tell(trial, proposal, figures_of(launch, self._writer, self._prepared.tune))
        final = self._journal.final()
        self._search.take_up(None if final is None else _final_of(final), done)

    def _fail_as_then(
        self, trial: StudyTrial, proposal: Proposal, later: Sequence[StudyTrial]
    ) -> None:
        """Tell the search of a failure of an earlier sitting, with what followed from it."""
        if trial.configuration == 0:  # what was wrong with it may be mended by now
            self._search.pass_over(proposal)
            return
        retried = any(
            t.configuration == trial.configuration and t.state is not TrialState.STALE
            for t in later
        )
        again = (
            retried or is_of_the_moment(trial.failure_class) or self._has_run(trial.configuration)
        )
        self._search.fail(proposal, why=trial.failure or "it failed", again=again)
        is_asked_again = trial.configuration not in self._search.excluded
        if is_asked_again and (retried or proposal.block is not None):
            self._search.ask()  # the answer is behind us, or among what the final still lacks
        if trial.also_excluded:
            failure = FailureClass(trial.failure_class) if trial.failure_class else None
            _, because = must_fail_too(
                trial.configuration, failure, self._candidates.space.configurations
            )
            for place in trial.also_excluded:
                self._search.exclude(place, because)

    def _of_stale(self, trial: StudyTrial, proposal: Proposal, launch: Launch) -> list[Proposal]:
        """What a launch that was cut off had finished counts, as far as it goes."""
        found = figures_of(launch, self._writer, self._prepared.tune)
        whole = all(value is not None for value in found.value)
        if not found.has_value or not (whole or self._search.readings):
            return []  # a first baseline must be whole: the others are held against it
        self._trials[-1] = replace(
            trial,
            value=found.value,
            accept_len_tok=found.accept_len_tok,
            ttft_p99_ms=found.ttft_p99_ms,
            tpot_p99_ms=found.tpot_p99_ms,
            breaks=found.breaks,
        )
        self._tell(trial, proposal if whole else replace(proposal, block=None), found)
        return [replace(proposal, measured=True)]

    # -- going on

    async def run(self) -> Path:
        """Launch what is worth a launch, then hold the final, and publish.

        Returns:
            The study's folder: published, unless launches or hours were spent before any final;
            then it can be taken up with more.

        Raises:
            Interrupted: Ctrl-C or TERM.
            ServerError: The baseline cannot be measured, or nothing speculative can.
            MachineError: A server would not end, or the load worker died again and again.
            DiskError: Results cannot be written.

        Whatever is raised, every finished cell is kept for `tuner resume`.
        """
        ground, writer = self._candidates.ground, self._writer
        cells = len(ground.points)
        try:
            self._record("running")
            first = [trial_launch(ground, BASELINE, pair=0, ordinal=0)]
            await end_orphans(trial_plan(ground, first), writer, self._on_event)
            async with open_bench(
                writer,
                gpus=ground.loaded.scenario.server.gpus,
                cells_total=cells * self._prepared.launches,
                on_event=self._heard,
            ) as bench:
                await bench.prove_client(
                    trial_plan(ground, first), workers=self._prepared.asked.workers
                )
                while (proposal := self._next()) is not None:
                    await self._trial(bench, proposal)
                await self._alternate(bench)
            return self._published()
        except BenchError as error:
            with suppress(DiskError):
                self._record("interrupted")
                writer.mark("interrupted" if isinstance(error, Interrupted) else "failed")
            raise

    def _next(self) -> Proposal | None:
        self._search.limit(len(self._counted()) + self._launches_left())
        if self._search.final is None and self._nothing_left():
            return None
        proposal = self._search.ask()
        if self._search.final is not None and self._journal.final() is None:
            self._journal.put_final(msgspec.to_builtins(self._search.final))
        if 0 in self._search.excluded:
            why = self._search.excluded[0]
            raise ServerError(
                f"the baseline failed twice, and without it nothing can be compared: {why}",
                hint="`bench run SCENARIO --only arm=baseline` shows what is wrong with it.",
            )
        return proposal

    def _nothing_left(self) -> bool:
        """Whether all but the baseline failed or break a limit: there is nothing to compare."""
        others = range(1, len(self._candidates.searched))
        return bool(self._search.readings) and all(at in self._search.excluded for at in others)

    def _counted(self) -> list[StudyTrial]:
        """Launches that count: those that were cut off before they measured anything do not."""
        return [
            t
            for t in self._trials
            if t.state is not TrialState.STALE or any(v is not None for v in t.value)
        ]

    def _launches_left(self) -> int:
        """How many more launches the hours allow, by what those so far took."""
        if self._prepared.hours is None:
            return self._prepared.launches
        took = [
            t.launch_s + t.measured_s
            for t in self._trials
            if t.launch_s is not None and t.measured_s is not None
        ]
        speed = self._candidates.ground.speed
        each_s = float(np.mean(took)) if took else self._prepared.launch_s * speed
        elapsed_s = (clock.now_ns() - self._began_ns) / 1e9  # a simulation's run faster
        left_s = self._prepared.hours * 3600 * speed - elapsed_s
        return max(0, math.floor(left_s / each_s))

    async def _trial(self, bench: Bench, proposal: Proposal, launch: Launch | None = None) -> None:
        trial = self._begun(proposal)
        launch = self._launch(trial) if launch is None else launch
        self._launches.append(launch)
        self._trials.append(trial)
        self._writer.plan_launch(launch)
        self._record("running")
        label = self._candidates.space.configurations[trial.configuration].label
        cut_off = len(self._trials) - len(self._counted())
        self._on_trial(TrialStarting(trial=trial, label=label, cut_off=cut_off))
        began_ns = clock.now_ns()
        error: BenchError | None = None
        try:
            await bench.measure(launch, launches=self._search.budget)
            await bench.close_server()
        except (ServerError, LoadError) as found:
            error = found
            await bench.close_server(failure=str(found))
        self._ended(trial, launch, proposal, began_ns, error)
        self._record("running")
        self._on_trial(
            TrialEnded(trial=self._trials[-1], label=label, study=self._study("running"))
        )

    def _begun(self, proposal: Proposal) -> StudyTrial:
        knowledge = self._search.knowledge
        place = proposal.configuration
        gain = sd = lengths = None
        if knowledge is not None and place < len(knowledge.mean):
            gain, of_it = knowledge.difference(place, 0)
            sd = math.hypot(of_it, knowledge.launch_sd)
            lengths = accept_lengths(
                knowledge, place, self._candidates.space.configurations[place]
            )
        planned = planned_trial(
            proposal,
            cells=len(self._candidates.ground.points),
            gain=gain,
            gain_sd=sd,
            accept_len_tok=lengths,
        )
        return self._journal.begin(planned, lease=as_attribute(self._lease))

    def _heard(self, event: Event) -> None:
        if isinstance(event, CellFinished) and self._trials:
            self._lease = renewed(self._lease)
            self._journal.renew(self._trials[-1].number, as_attribute(self._lease))
        self._on_event(event)

    def _ended(
        self,
        trial: StudyTrial,
        launch: Launch,
        proposal: Proposal,
        began_ns: int,
        error: BenchError | None,
    ) -> None:
        """Store what became of a launch, and tell the search."""
        found = figures_of(launch, self._writer, self._prepared.tune)
        is_searched = trial.configuration < len(self._candidates.searched) and (trial.why != STEPS)
        records = [r for r in self._writer.launches() if r.ordinal == launch.ordinal]
        record = records[-1] if records else None
        ready_ns = None if record is None else record.ready_ns
        ended = replace(
            trial,
            launch_id=None if record is None else record.launch_id,
            ended_at=clock.utc_now().isoformat(),
            launch_s=None if ready_ns is None else (ready_ns - began_ns) / 1e9,
            measured_s=None if ready_ns is None else (clock.now_ns() - ready_ns) / 1e9,
            value=found.value,
            accept_len_tok=found.accept_len_tok,
            ttft_p99_ms=found.ttft_p99_ms,
            tpot_p99_ms=found.tpot_p99_ms,
            memory_headroom_gib=found.memory_headroom_gib,
            breaks=found.breaks,
            marks=found.marks,
        )
        if error is None and found.has_value:
            ended = replace(ended, state=TrialState.MEASURED)
            self._tell(ended, proposal, found)
            readings = [*self._search.readings]
            if not is_searched:
                readings.append(self._reading(ended, found))
            ended = replace(ended, gain=gain_of(readings, -1, self._weights))
        else:
            ended = self._failed(ended, proposal, error)
            if error is not None:
                self._failures.append(launch_failed(self._writer, launch, error))
        self._trials[-1] = ended
        self._journal.end(ended)

    def _failed(
        self, trial: StudyTrial, proposal: Proposal, error: BenchError | None
    ) -> StudyTrial:
        failure: FailureClass | None = getattr(error, "failure_class", None)
        none = "no cell of the launch has a valid figure"
        why = (
            NO_FIGURE.get(self._prepared.tune.objective, none)
            if error is None
            else str(error).splitlines()[0]
        )
        also, because = must_fail_too(
            trial.configuration, failure, self._candidates.space.configurations
        )
        also = tuple(place for place in also if not self._has_run(place))
        again = (
            isinstance(error, LoadError)
            or is_of_the_moment(failure)
            or self._has_run(trial.configuration)
        )
        if proposal.why == STEPS:
            self._search.pass_over(proposal)
        else:
            self._search.fail(proposal, why=why, again=again)
        if trial.configuration in self._search.excluded:
            for place in also:
                self._search.exclude(place, because)
        else:
            also = ()
        return replace(
            trial,
            state=TrialState.FAILED,
            failure_class=None if failure is None else failure.value,
            failure=why,
            also_excluded=also,
        )

    def _has_run(self, place: int) -> bool:
        """Whether a configuration was measured before: then a failure is no fault of its own."""
        return any(reading.configuration == place for reading in self._search.readings)

    def _tell(self, trial: StudyTrial, proposal: Proposal, found: Measured) -> None:
        place = trial.configuration
        if place >= len(self._candidates.searched) or trial.why == STEPS:
            self._search.pass_over(proposal)
            return
        self._search.tell(self._reading(trial, found), proposal)
        if found.breaks and place != 0:
            self._search.exclude(place, f"breaks a limit: {found.breaks[0]}")

    def _reading(self, trial: StudyTrial, found: Measured) -> Reading:
        return reading_of(
            found,
            self._candidates.space.configurations[trial.configuration],
            place=trial.configuration,
            at=float(trial.number),
            positions=self._positions,
        )

    async def _alternate(self, bench: Bench) -> None:
        """Compare two step counts inside one more launch, if that is wanted and one is left."""
        if not self._prepared.tune.adaptive or any(
            t.why == STEPS and t.state is not TrialState.STALE for t in self._trials
        ):
            return
        if self._search.conclude() is None or len(self._counted()) >= self._prepared.launches:
            return
        planned = plan_alternating(
            self._candidates, self._search, self._writer.folder, ordinal=len(self._trials)
        )
        if isinstance(planned, str):
            self._notes.append(f"Step counts were not compared inside one launch: {planned}.")
            return
        write_config(self._writer.folder, planned.asked)
        proposal = Proposal(configuration=planned.best, why=STEPS)
        await self._trial(bench, proposal, planned.launch)
        self._notes += told_of(planned, self._writer)

    # -- one launch

    def _launch(self, trial: StudyTrial) -> Launch:
        arm = self._candidates.arms[trial.configuration]
        before = Counter(launch.arm for launch in self._launches)
        return trial_launch(self._candidates.ground, arm, pair=before[arm], ordinal=trial.number)

    # -- the record

    def _study(self, status: str) -> Study:
        return study_of(
            self._prepared,
            self._search,
            self._trials,
            self._writer.manifest,
            status=status,
            notes=self._notes,
        )

    def _record(self, status: str) -> None:
        write_study(self._writer.folder, self._study(status))

    def _published(self) -> Path:
        if not any(t.state is TrialState.MEASURED for t in self._trials):
            raise ServerError("no launch was measured.", hint="`tuner show` tells why of each.")
        spent = len(self._counted()) >= self._search.budget
        if self._search.conclude() is None and spent and not self._nothing_left():
            self._record("interrupted")
            self._writer.mark("interrupted")
            return self._writer.folder
        self._record("complete")
        return publish(self._plan(), self._writer, self._failures, compared=False)

    def _plan(self) -> Plan:
        return trial_plan(self._candidates.ground, self._launches)


def _final_of(plain: dict[str, Any]) -> FinalPlan:
    return msgspec.convert(plain, FinalPlan)
