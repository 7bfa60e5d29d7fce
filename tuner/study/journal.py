"""The study as Optuna holds it: a journal file beside the run's manifest.

Every launch is a trial. What became of it stands in its user attribute `trial`, written when it
begins and when it ends, each as one line appended to the file: killed at any moment, the lines
before are whole. `optuna-dashboard study.journal` opens it.

The run's own lock keeps a second sweep off a study, so that whatever a killed one left behind
(a lock, half a line, a running trial) is nobody's.
"""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import msgspec

from bench.model.study import IN_TURN, StudyTrial, TrialState
from bench.sglang.failures import Action, FailureClass
from bench.store.disk import writing
from bench.store.study import JOURNAL

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    import optuna

    from tuner.space import Configuration, Setting

_TRIAL: Final = "trial"
_LEASE: Final = "lease"
_FINAL: Final = "final"
_ADMITTED: Final = "admitted"
_OTHER: Final = "other"
WORST: Final = -1.0
"""What a configuration that cannot run is told as: a log ratio."""


def params_of(configuration: Configuration) -> dict[str, str | int]:
    """A configuration as the parameters of a trial; those that it has not are left out."""
    params: dict[str, str | int] = {"algorithm": configuration.algorithm or "off"}
    for name in ("num_steps", "eagle_topk", "num_draft_tokens"):
        value = getattr(configuration, name)
        if value is not None:
            params[name] = value
    params.update(configuration.arguments)
    params.update(configuration.environment)
    return params


def _distributions(
    configurations: Sequence[Configuration], settings: Sequence[Setting]
) -> dict[str, Any]:
    """What each parameter may be, over the whole space: Optuna wants it to stay the same.

    Args:
        configurations: The space, or the part of it that a sweep begins with.
        settings: All that may be set beside that.
    """
    from optuna.distributions import (  # noqa: PLC0415  # takes half a second
        CategoricalDistribution,
        IntDistribution,
    )

    values: dict[str, dict[str | int, None]] = {}
    for configuration in configurations:
        for name, value in params_of(configuration).items():
            values.setdefault(name, {})[value] = None
    for setting in settings:
        for name, word in (*setting.arguments, *setting.environment):
            values.setdefault(name, {}).update({word: None, _OTHER: None})
    made: dict[str, Any] = {}
    for name, found in values.items():
        whole = [value for value in found if isinstance(value, int)]
        if len(whole) == len(found):
            least, most = (0, 1024) if settings else (max(whole), 0)
            made[name] = IntDistribution(min(least, *whole), max(most, *whole))
        else:
            made[name] = CategoricalDistribution(tuple(sorted(map(str, found))))
    return made


class Journal:
    """An open study.

    Made by `open_journal`; the run's lock must be held.
    """

    def __init__(
        self,
        study: optuna.Study,
        configurations: Sequence[Configuration],
        path: Path,
        settings: Sequence[Setting] = (),
    ) -> None:
        self._study = study
        self._path = path
        self._configurations = tuple(configurations)
        self._distributions = _distributions(configurations, settings)
        self._admitted: tuple[Configuration, ...] = ()
        self._open: dict[int, optuna.Trial] = {}

    def grow(
        self, configurations: Sequence[Configuration], admitted: Sequence[Configuration] = ()
    ) -> None:
        """Take a larger part of the space.

        Args:
            configurations: All of it.
            admitted: What is new; it is stored together with the launch that begins next.
        """
        self._configurations = tuple(configurations)
        self._admitted = tuple(admitted)

    @property
    def configurations(self) -> tuple[Configuration, ...]:
        """The space, as far as it is held."""
        return self._configurations

    def admitted(self, number: int) -> tuple[Configuration, ...]:
        """What the space grew by before a trial."""
        from tuner.space import Configuration  # noqa: PLC0415  # only where a study is taken up

        stored = self._study.get_trials(deepcopy=False)[number].user_attrs.get(_ADMITTED, [])
        return msgspec.convert(stored, tuple[Configuration, ...])

    def params(self, place: int) -> tuple[dict[str, str | int], dict[str, Any]]:
        """A configuration as the parameters of a trial, and what each may be."""
        params = params_of(self._configurations[place])
        of = {name: self._distributions[name] for name in params}
        for name, value in params.items():
            if isinstance(value, str) and value not in of[name].choices:
                params[name] = _OTHER  # settled by SGLang otherwise than any that is asked for
        return params, of

    def trials(self) -> list[StudyTrial]:
        """All launches, in order, those that a killed process left running included."""
        stored = self._study.get_trials(deepcopy=False)
        return [
            msgspec.convert(trial.user_attrs[_TRIAL], StudyTrial)
            for trial in stored
            if _TRIAL in trial.user_attrs
        ]

    def leases(self) -> dict[int, Mapping[str, Any] | None]:
        """The lease of each trial that is still open, by its number."""
        from optuna.trial import TrialState as State  # noqa: PLC0415  # as above

        return {
            trial.number: trial.user_attrs.get(_LEASE)
            for trial in self._study.get_trials(deepcopy=False)
            if trial.state in {State.RUNNING, State.WAITING}
        }

    def begin(self, trial: StudyTrial, *, lease: Mapping[str, Any]) -> StudyTrial:
        """Open a trial; its number is the journal's.

        Raises:
            DiskError: It could not be written.
        """
        params, distributions = self.params(trial.configuration)
        trial = replace(trial, number=len(self._study.get_trials(deepcopy=False)))
        attributes = {_TRIAL: msgspec.to_builtins(trial), _LEASE: dict(lease)}
        if self._admitted:  # in the same line: there is none without a launch of it
            attributes[_ADMITTED] = msgspec.to_builtins(self._admitted)
        with writing("the study's journal", self._path):
            self._study.enqueue_trial(params, user_attrs=attributes)
            opened = self._study.ask(distributions)
        self._admitted = ()
        self._open[trial.number] = opened
        return trial

    def restore(self, trial: StudyTrial) -> None:
        """Add a trial that is over, from study.json."""
        import optuna  # noqa: PLC0415  # takes half a second

        params, distributions = self.params(trial.configuration)
        measured = _is_of_its_configuration(trial)
        states = optuna.trial.TrialState
        attributes = {_TRIAL: msgspec.to_builtins(trial), _LEASE: None}
        if self._admitted:
            attributes[_ADMITTED] = msgspec.to_builtins(self._admitted)
            self._admitted = ()
        self._study.add_trial(
            optuna.trial.create_trial(
                state=states.COMPLETE if measured else states.FAIL,
                value=trial.gain if measured else None,
                params=params,
                distributions=distributions,
                user_attrs=attributes,
            )
        )

    def renew(self, number: int, lease: Mapping[str, Any]) -> None:
        """Say that a trial's process lives."""
        with writing("the study's journal", self._path):
            self._open[number].set_user_attr(_LEASE, dict(lease))

    def end(self, trial: StudyTrial) -> None:
        """Close a trial with what became of it.

        A configuration that cannot run is told to Optuna as complete, far worse than the baseline
        and not feasible: a trial that failed teaches its samplers nothing. What was nobody's
        fault is told as failed, and so is a launch that has no gain, or one of two step counts in
        turn: no figure is not 0.

        Raises:
            DiskError: It could not be written.
        """
        from optuna.trial import TrialState as State  # noqa: PLC0415  # takes half a second

        opened = self._open.pop(trial.number)
        with writing("the study's journal", self._path):
            opened.set_user_attr(_TRIAL, msgspec.to_builtins(trial))
            if _is_of_its_configuration(trial):
                opened.set_constraint("limits", float(len(trial.breaks)))
                opened.set_constraint("launch", 0.0)
                self._study.tell(opened, trial.gain)
            elif trial.state is TrialState.FAILED and _cannot_run(trial):
                opened.set_constraint("launch", 1.0)
                self._study.tell(opened, WORST)
            else:
                self._study.tell(opened, state=State.FAIL)

    def put_final(self, final: Mapping[str, Any]) -> None:
        """Keep the plan of the final: after a stop the same one goes on."""
        with writing("the study's journal", self._path):
            self._study.set_user_attr(_FINAL, dict(final))

    def final(self) -> dict[str, Any] | None:
        """The plan of the final; None: it has not begun."""
        found: dict[str, Any] | None = self._study.user_attrs.get(_FINAL)
        return found

    def close_stale(self, note: Mapping[int, str]) -> list[StudyTrial]:
        """Close the trials that a process left open which is gone.

        Args:
            note: Why, by number.

        Returns:
            Them, as they stand now.
        """
        from optuna.trial import TrialState as State  # noqa: PLC0415  # as above

        closed = []
        while self._study.get_trials(deepcopy=False, states=(State.WAITING,)):
            self._study.ask()
        for left in self._study.get_trials(deepcopy=False, states=(State.RUNNING,)):
            opened = _taken_up(self._study, left)
            trial = msgspec.convert(left.user_attrs[_TRIAL], StudyTrial)
            trial = replace(
                trial, state=TrialState.STALE, failure=note.get(left.number, "its process is gone")
            )
            with writing("the study's journal", self._path):
                opened.set_user_attr(_TRIAL, msgspec.to_builtins(trial))
                self._study.tell(left.number, state=State.FAIL)
            closed.append(trial)
        return closed


def _is_of_its_configuration(trial: StudyTrial) -> bool:
    """Whether a launch has a gain, and one of its configuration alone."""
    return trial.state is TrialState.MEASURED and trial.gain is not None and trial.why != IN_TURN


def _cannot_run(trial: StudyTrial) -> bool:
    """Whether a launch failed by its configuration: not by the moment, nor by what is unknown."""
    if trial.failure_class is None:
        return False
    return FailureClass(trial.failure_class).action is not Action.RETRY_ONCE


def _taken_up(study: optuna.Study, left: optuna.trial.FrozenTrial) -> optuna.Trial:
    import optuna  # noqa: PLC0415  # takes half a second

    return optuna.Trial(study, left._trial_id)  # noqa: SLF001  # Optuna has no other way to it


def open_journal(
    folder: Path,
    study_id: str,
    configurations: Sequence[Configuration],
    known: Sequence[StudyTrial] = (),
    settings: Sequence[Setting] = (),
    admitted: Sequence[Configuration] = (),
) -> Journal:
    """The journal in a run's folder, made when it is not there.

    One that is damaged is kept beside the new one, which is made from study.json.

    Args:
        folder: The run's folder; its lock must be held.
        study_id: The id of the study.
        configurations: The space, as the known launches count it.
        known: Launches that study.json has, for a journal that is lost.
        settings: All that may be set beside what these configurations have.
        admitted: Which of them the space grew by.

    Raises:
        DiskError: It cannot be written.
    """
    import optuna  # noqa: PLC0415  # takes half a second

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    path = folder / JOURNAL
    with writing("the study's journal", path):
        _mend(path)
        try:
            study = _open(path, study_id)
            _hold_together(Journal(study, configurations, path, settings), len(admitted))
        except OSError:
            raise
        except Exception:  # noqa: BLE001  # Optuna's replay of other JSON raises what comes
            path.rename(path.with_suffix(".damaged"))
            study = _open(path, study_id)
        journal = Journal(study, configurations, path, settings)
        if known and not journal.trials():
            journal.grow(configurations, admitted)
            for trial in known:
                if trial.state is TrialState.RUNNING:
                    trial = replace(trial, state=TrialState.STALE, failure="its process is gone")  # noqa: PLW2901  # as it stands now
                journal.restore(trial)
    return journal


def _hold_together(journal: Journal, admitted: int) -> None:
    """Raise for a journal of which a launch is none of the space.

    Args:
        journal: As it was opened.
        admitted: How many of its configurations the space grew by; the journal has them, too.

    Raises:
        ValueError: What does not hold together.
    """
    configurations = len(journal.configurations) - admitted
    for at, trial in enumerate(journal.trials()):
        if trial.number != at:
            raise ValueError(f"launch {at} says that it is launch {trial.number}")
        configurations += len(journal.admitted(at))
        if not 0 <= trial.configuration < configurations:
            raise ValueError(f"launch {at} is of configuration {trial.configuration}")


def _open(path: Path, study_id: str) -> optuna.Study:
    import optuna  # noqa: PLC0415  # as above
    from optuna.storages import JournalStorage  # noqa: PLC0415  # as above
    from optuna.storages.journal import (  # noqa: PLC0415  # as above
        JournalFileBackend,
        JournalFileOpenLock,
    )

    backend = JournalFileBackend(str(path), lock_obj=JournalFileOpenLock(str(path)))
    return optuna.create_study(
        study_name=study_id,
        storage=JournalStorage(backend),
        direction="maximize",
        load_if_exists=True,
    )


def _mend(path: Path) -> None:
    """Take away what a killed process left: its lock, and a last line that is not whole."""
    path.with_name(f"{path.name}.lock").unlink(missing_ok=True)
    if not path.exists():
        return
    data = path.read_bytes()
    whole = data.rfind(b"\n") + 1
    if whole != len(data):
        os.truncate(path, whole)
