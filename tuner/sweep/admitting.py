"""Which setting of a large space to try next, and when.

The predictor works on a part of such a space: all drafts at the user's own setting, and the best
of them at each setting that was tried. What physics does not know, the settings, Optuna's TPE
proposes from what those tried so far added. All of it follows from the launches alone: a study
that is taken up again tries what it would have tried.
"""

from __future__ import annotations

import math
import warnings
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

import numpy as np

from tuner.space.large import choice_of, one_change

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from tuner.predict import Knowledge, Predictor
    from tuner.space import Configuration
    from tuner.space.large import Choice, SettingAxis

DRAFTS_AT: Final = 12
"""Drafts that are weighed at a setting beside the user's own: the best known."""
ONE_CHANGES: Final = 18
"""Settings that change one axis of the best, at most, before TPE proposes."""
CLEARLY: Final = 0.01
"""What a setting must add for the next ones to change it instead of the user's own: of the size of
a launch's noise, so that what adds nothing is not carried along."""
PROPOSALS: Final = 60
"""Proposals that may be illegal or known before the next are one change away again."""
ADDS: Final = (0.0, 0.04, 4.0)
"""What one more setting is thought to add before any was tried: the mean and standard deviation of
a log ratio, and how many settings that counts for."""
WORST: Final = -1.0
"""What a setting that does not run is told as to TPE, beside not being feasible."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unexplored:
    """What a large space has beyond the configurations that a search begins with.

    Attributes:
        axes: Of the settings.
        at: The legal and distinct configurations at a setting.
        runnable: Those of some configurations that loads and ranks allow.
        predictor: Of a part of the space.
        most: Configurations that the predictor may hold.
        seed: Of the proposals.
    """

    axes: tuple[SettingAxis, ...]
    at: Callable[[Choice], Sequence[Configuration]]
    runnable: Callable[[Sequence[Configuration]], Sequence[Configuration]]
    predictor: Callable[[Sequence[Configuration]], Predictor]
    most: int
    seed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """The part of a large space that is held, and what is known of it.

    Attributes:
        configurations: The first is the user's setting without speculation.
        knowledge: Of each.
        launched: Places of those that were measured.
        excluded: Why others are not launched any more, by place.
    """

    configurations: Sequence[Configuration]
    knowledge: Knowledge
    launched: Collection[int]
    excluded: Mapping[int, str]

    @property
    def own(self) -> dict[tuple[str | None, int, int, int], int]:
        """The place of each draft at the user's own setting."""
        setting = self.configurations[0].setting
        return {c.draft: at for at, c in enumerate(self.configurations) if c.setting == setting}


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """A setting that was tried.

    Attributes:
        choice: Which.
        added: What its best launch is worth beyond the same draft at the user's own setting, a
            log ratio; None: it does not run, or breaks a limit.
        starts: Whether it was measured at all.
    """

    choice: Choice
    added: float | None
    starts: bool = True


class Tell(Protocol):
    """Takes what became of a proposal that is nothing new."""

    def __call__(self, *, is_legal: bool) -> None:
        """Legal: it is known under another name."""


def tried_settings(axes: Sequence[SettingAxis], part: Part) -> list[Tried]:
    """What the settings beside the user's own added, in the order in which they were tried."""
    mean, own = part.knowledge.mean, part.own
    best_own = max(mean[at] for at in own.values())
    places: dict[object, list[int]] = defaultdict(list)
    for at, c in enumerate(part.configurations):
        if c.setting != part.configurations[0].setting:
            places[c.setting].append(at)
    tried = []
    for found in places.values():
        ran = [at for at in found if at in part.launched and at not in part.excluded]
        if not ran and not any(at in part.excluded for at in found):
            continue
        drafts = (part.configurations[at].draft for at in ran)
        added = [
            float(mean[at] - (mean[own[draft]] if draft in own else best_own))
            for at, draft in zip(ran, drafts, strict=True)
        ]
        choice = choice_of(axes, part.configurations[(ran or found)[0]])
        starts = any(at in part.launched for at in found)
        tried.append(Tried(choice=choice, added=max(added, default=None), starts=starts))
    return tried


def fatal_values(tried: Sequence[Tried]) -> set[tuple[int, int]]:
    """(axis, value) that alone can be why a setting did not start: all else in it has run."""
    fine = {value for setting in tried if setting.starts for value in enumerate(setting.choice)}
    fine |= {(axis, 0) for setting in tried for axis in range(len(setting.choice))}
    blamed = ({*enumerate(setting.choice)} - fine for setting in tried if not setting.starts)
    return {value for values in blamed if len(values) == 1 for value in values}


def left_with(
    failed: int, ran: Collection[int], configurations: Sequence[Configuration]
) -> tuple[int, ...]:
    """Places of a setting that is left, since it failed with a draft that runs elsewhere."""
    this = configurations[failed]
    if this.setting == configurations[0].setting:
        return ()
    has_run = any(configurations[at].draft == this.draft for at in ran)
    if not has_run or any(configurations[at].setting == this.setting for at in ran):
        return ()
    return tuple(at for at, c in enumerate(configurations) if c.setting == this.setting)


def worth_of_another(tried: Sequence[Tried], launch_sd: float) -> float:
    """By how much the best is expected to be better after another setting was launched.

    What it adds to the best so far is thought to be as with those before it, each against the best
    before it; as many as did not run are expected not to.

    Args:
        tried: So far.
        launch_sd: Noise of a launch: of a difference smaller than it little is learnt.
    """
    mean, sd, count = ADDS
    best = 0.0
    steps = []
    for setting in tried:
        if setting.added is not None:
            steps.append(setting.added - best)
            best = max(best, setting.added)
    total = count + len(steps)
    middle = (count * mean + sum(steps)) / total
    variance = (count * sd**2 + sum((step - middle) ** 2 for step in steps)) / total
    moves = variance / math.sqrt(variance + launch_sd**2)
    z = middle / moves
    density = math.exp(-0.5 * z * z) / math.sqrt(2 * math.pi)
    gained = middle * 0.5 * math.erfc(-z / math.sqrt(2)) + moves * density
    return gained * total / (count + len(tried))


def next_setting(
    unexplored: Unexplored, part: Part, tried: Sequence[Tried]
) -> tuple[Configuration, ...]:
    """The configurations of a setting that was not tried yet; the first is to be launched.

    Returns:
        None of them where nothing new was found, or where no more can be held.
    """
    fatal = fatal_values(tried)
    for choice, tell in _proposals(unexplored, tried):
        if fatal & {*enumerate(choice)}:
            tell(is_legal=False)
            continue
        new, is_legal = _new_at(unexplored, part, choice)
        if new and len(part.configurations) + len(new) > unexplored.most:
            return ()
        if new:
            return new
        tell(is_legal=is_legal)
    return ()


def _new_at(
    unexplored: Unexplored, part: Part, choice: Choice
) -> tuple[tuple[Configuration, ...], bool]:
    """What a setting has that is not held, the best known draft first; whether it is legal."""
    known = {c.setting for c in part.configurations}
    found = unexplored.at(choice)
    ranked = _ranked([c for c in found if c.setting not in known], part)
    if not ranked:
        return (), bool(found)
    off = [c for c in ranked if c.algorithm is None]
    drafts = [c for c in ranked if c.algorithm is not None][:DRAFTS_AT]
    runnable = unexplored.runnable([c for c in ranked if c in {*off, *drafts}])
    return tuple(runnable), bool(runnable)


def _ranked(configurations: Sequence[Configuration], part: Part) -> list[Configuration]:
    """By what their drafts are worth at the user's own setting; without those that do not run.

    The draft of the best launch so far comes first, so that what the setting adds is seen where
    most is known. A draft that the user's own setting does not allow is ranked as the nearest.
    """
    mean, own = part.knowledge.mean, part.own
    fit = [at for at in part.launched if at not in part.excluded]
    best = part.configurations[max(fit, key=lambda at: float(mean[at]), default=0)].draft
    ranked = []
    for c in configurations:
        same = [draft for draft in own if draft[0] == c.algorithm]
        if not same:
            continue
        nearest = min(same, key=lambda draft: _distance(draft, c.draft))
        if nearest == c.draft and own[nearest] in part.excluded:
            continue
        order = (c.draft != best, -float(mean[own[nearest]]), _distance(nearest, c.draft))
        ranked.append((order, c))
    return [c for _, c in sorted(ranked, key=lambda row: row[0])]


def _distance(
    one: tuple[str | None, int, int, int], other: tuple[str | None, int, int, int]
) -> float:
    """How far two drafts are apart, in doublings."""
    return sum(
        abs(math.log2(1 + a) - math.log2(1 + b)) for a, b in zip(one[1:], other[1:], strict=True)
    )


def _proposals(unexplored: Unexplored, tried: Sequence[Tried]) -> Iterator[tuple[Choice, Tell]]:
    """Settings to look at, and what is to be told of one that is nothing new: is it legal?"""
    axes = unexplored.axes

    def nothing(*, is_legal: bool) -> None:
        """Nobody learns from it."""

    if len(tried) < ONE_CHANGES:
        yield from ((choice, nothing) for choice in _one_more_change(axes, tried))
    yield from _by_tpe(axes, tried, unexplored.seed)
    for choice in one_change(axes):
        yield choice, nothing


def _one_more_change(axes: Sequence[SettingAxis], tried: Sequence[Tried]) -> Iterator[Choice]:
    """The best setting so far with a value in it that was not tried yet."""
    best = Tried(choice=tuple(0 for _ in axes), added=CLEARLY)
    for setting in tried:
        if setting.added is not None and setting.added > (best.added or 0.0):
            best = setting
    seen = {value for setting in tried for value in enumerate(setting.choice)}
    for choice in one_change(axes):
        at, value = next((at, value) for at, value in enumerate(choice) if value)
        if (at, value) not in seen:
            yield (*best.choice[:at], value, *best.choice[at + 1 :])


def _by_tpe(
    axes: Sequence[SettingAxis], tried: Sequence[Tried], seed: int
) -> Iterator[tuple[Choice, Tell]]:
    """What Optuna's TPE proposes from what the settings added; the user's own added nothing."""
    import optuna  # noqa: PLC0415  # takes half a second

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    values: dict[str, optuna.distributions.BaseDistribution] = {
        str(at): optuna.distributions.CategoricalDistribution(range(len(axis.values)))
        for at, axis in enumerate(axes)
    }
    stream = np.random.SeedSequence([seed, len(tried)]).generate_state(1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        sampler = optuna.samplers.TPESampler(
            seed=int(stream[0]), multivariate=True, n_startup_trials=0
        )
    study = optuna.create_study(direction="maximize", sampler=sampler)
    for setting in (Tried(choice=tuple(0 for _ in axes), added=0.0), *tried):
        study.add_trial(
            optuna.trial.create_trial(
                value=WORST if setting.added is None else setting.added,
                params={str(at): value for at, value in enumerate(setting.choice)},
                distributions=values,
                constraints={"runs": 1.0 if setting.added is None else 0.0},
            )
        )
    for _ in range(PROPOSALS):
        trial = study.ask(values)

        def tell(*, is_legal: bool, trial: optuna.Trial = trial) -> None:
            if is_legal:  # it is known under another name
                study.tell(trial, state=optuna.trial.TrialState.FAIL)
            else:
                trial.set_constraint("runs", 1.0)
                study.tell(trial, WORST)

        yield tuple(int(trial.params[str(at)]) for at in range(len(axes))), tell
