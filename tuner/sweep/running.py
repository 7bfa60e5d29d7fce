"""The sweep itself: launches one after another, each stored before the next begins."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import msgspec
import numpy as np

from bench import clock
from bench.errors import BenchError, DiskError, Interrupted, LoadError, ServerError
from bench.model import BASELINE
from bench.model.study import IN_TURN, StudyTrial, TrialState
from bench.plan.trials import trial_launch, trial_plan
from bench.runner import Noted, open_bench, publish
from bench.runner.events import CellFinished
from bench.runner.runs import end_orphans, launch_failed
from bench.sglang.failures import FailureClass
from bench.store.study import write_study
from tuner.confirm import FinalPlan
from tuner.evaluate.readings import reading_of
from tuner.space.growing import grown
from tuner.sweep.alternating import (
    compared,
    in_words,
    plan_alternating,
    step_readings,
    write_config,
)
from tuner.sweep.book import Book
from tuner.sweep.events import TrialEnded, TrialStarting
from tuner.sweep.experience import experience_of
from tuner.sweep.neighbours import must_fail_too
from tuner.sweep.policy import Proposal
from tuner.sweep.recording import gain_of, study_of
from tuner.sweep.searching import compares_steps, notes_of, search_of
from tuner.sweep.trials import (
    NO_FIGURE,
    ended_trial,
    figures_of,
    foreseen_of,
    is_of_the_moment,
    planned_trial,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from bench.model import Launch
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
        experience, notes = experience_of(prepared, writer.folder)
        self._search = search_of(prepared, experience)
        self._notes: list[str] = [SIMULATED_NOTE] if prepared.asked.simulated else []
        self._notes += [*notes, *notes_of(prepared)]
        self._book = Book(prepared, writer)
        self._take_up()

    # -- what there is already

    def _take_up(self) -> None:
        """Tell the search what earlier sittings measured; close what a killed one left."""
        cut_off = self._book.close_cut_off()
        if cut_off:
            self._on_event(
                Noted(
                    text=f"launch {cut_off[0].number + 1} was cut off ({cut_off[0].failure}); "
                    "the cells that it had finished are kept"
                )
            )
        done: list[Proposal] = []
        trials = self._book.journal.trials()
        for at, trial in enumerate(trials):
            self._search.admit(self._book.journal.admitted(trial.number))
            self._follow(is_stored=True)
            if trial.why == IN_TURN:  # it is of no configuration of the space
                self._book.trials.append(trial)
                continue
            launch = self._book.take_up(trial)
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
        final = self._book.journal.final()
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
        self._book.trials[-1] = replace(
            trial,
            value=found.value,
            accept_len_tok=found.accept_len_tok,
            ttft_p99_ms=found.ttft_p99_ms,
            tpot_p99_ms=found.tpot_p99_ms,
            breaks=found.breaks,
        )
        self._tell(trial, proposal if whole else None, found)
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
        self._search.limit(self._book.counted() + self._book.launches_left())
        if self._search.final is None and self._nothing_left():
            return None
        proposal = self._search.ask()
        self._follow(is_stored=False)
        if self._search.final is not None and self._book.journal.final() is None:
            self._book.journal.put_final(msgspec.to_builtins(self._search.final))
        if 0 in self._search.excluded:
            why = self._search.excluded[0]
            raise ServerError(
                f"the baseline failed twice, and without it nothing can be compared: {why}",
                hint="`bench run SCENARIO --only arm=baseline` shows what is wrong with it.",
            )
        return proposal

    def _follow(self, *, is_stored: bool) -> None:
        """Take the part of a large space that the search has admitted by now."""
        admitted = self._search.configurations[len(self._candidates.searched) :]
        if admitted:
            self._candidates = grown(self._candidates, admitted)
            self._prepared = replace(self._prepared, candidates=self._candidates)
            self._book.grow(self._prepared, () if is_stored else admitted)

    def _nothing_left(self) -> bool:
        """Whether all but the baseline failed or break a limit: there is nothing to compare."""
        others = range(1, len(self._candidates.searched))
        return bool(self._search.readings) and all(at in self._search.excluded for at in others)

    async def _trial(self, bench: Bench, proposal: Proposal, launch: Launch | None = None) -> None:
        trial = self._begun(proposal)
        launch = self._book.launch_of(trial) if launch is None else launch
        self._book.launches.append(launch)
        self._book.trials.append(trial)
        self._writer.plan_launch(launch)
        self._record("running")
        label = self._candidates.space.configurations[trial.configuration].label
        cut_off = len(self._book.trials) - self._book.counted()
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
            TrialEnded(trial=self._book.trials[-1], label=label, study=self._study("running"))
        )

    def _begun(self, proposal: Proposal) -> StudyTrial:
        place = proposal.configuration
        configuration = self._candidates.space.configurations[place]
        foreseen = foreseen_of(self._search.knowledge, place, configuration)
        cells = len(self._candidates.ground.points)
        return self._book.begin(planned_trial(proposal, cells=cells, foreseen=foreseen))

    def _heard(self, event: Event) -> None:
        if isinstance(event, CellFinished) and self._book.trials:
            self._book.renew()
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
        is_searched = trial.configuration < len(self._candidates.searched)
        is_searched = is_searched and trial.why != IN_TURN
        records = [r for r in self._writer.launches() if r.ordinal == launch.ordinal]
        ended = ended_trial(trial, found, records[-1] if records else None, began_ns)
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
                self._book.failures.append(launch_failed(self._writer, launch, error))
        self._book.end(ended)

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
        if proposal.why == IN_TURN:
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

    def _tell(self, trial: StudyTrial, proposal: Proposal | None, found: Measured) -> None:
        """Tell the search of a launch; without a proposal it was cut off and does not count."""
        place = trial.configuration
        if place >= len(self._candidates.searched) or trial.why == IN_TURN:
            if proposal is not None:
                self._search.pass_over(proposal)
            return
        reading = self._reading(trial, found)
        if proposal is None:
            self._search.learn_of(reading)
        else:
            self._search.tell(reading, proposal)
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
        earlier = [
            t for t in self._book.trials if t.why == IN_TURN and t.state is not TrialState.STALE
        ]
        spent = not earlier and self._book.counted() >= self._prepared.launches
        if not compares_steps(self._prepared) or spent or self._search.conclude() is None:
            return
        planned = plan_alternating(
            self._candidates,
            self._search,
            self._writer.folder,
            ordinal=earlier[0].number if earlier else len(self._book.trials),
        )
        if isinstance(planned, str):
            self._notes.append(f"Step counts were not compared inside one launch: {planned}.")
            return
        if earlier:  # of a sitting that was killed before it was published
            self._book.launches.append(planned.launch)
        else:
            write_config(self._writer.folder, planned.asked)
            proposal = Proposal(configuration=planned.best, why=IN_TURN)
            await self._trial(bench, proposal, planned.launch)
        cells = compared(planned, self._writer)
        self._notes += [in_words(planned.asked, cell, found) for cell, found in cells]
        assert self._search.knowledge is not None  # there is a conclusion
        self._search.compare(step_readings(planned, cells, self._search.knowledge))

    # -- the record

    def _study(self, status: str) -> Study:
        return study_of(
            self._prepared,
            self._search,
            self._book.trials,
            self._writer.manifest,
            status=status,
            notes=self._notes,
        )

    def _record(self, status: str) -> None:
        write_study(self._writer.folder, self._study(status))

    def _published(self) -> Path:
        if not any(t.state is TrialState.MEASURED for t in self._book.trials):
            raise ServerError("no launch was measured.", hint="`tuner show` tells why of each.")
        spent = self._book.counted() >= self._search.budget
        if self._search.conclude() is None and spent and not self._nothing_left():
            self._record("interrupted")
            self._writer.mark("interrupted")
            return self._writer.folder
        self._record("complete")
        return publish(self._book.plan(), self._writer, self._book.failures, compared=False)


def _final_of(plain: dict[str, Any]) -> FinalPlan:
    return msgspec.convert(plain, FinalPlan)
