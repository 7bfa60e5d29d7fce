"""Settings that no launch is spent on: NCCL's variables where decoding does not go through it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from bench.errors import InputError
from tuner.nccl.asking import nccl_question
from tuner.space.large import is_of_nccl_alone

if TYPE_CHECKING:
    from bench.scenario import LoadedScenario
    from tuner.space.candidates import Candidates
    from tuner.space.large import SettingAxis

WHY: Final = (
    "differs in NCCL's variables alone, and at these loads no decoding step goes through NCCL"
)


def without_idle_settings(candidates: Candidates, loaded: LoadedScenario) -> Candidates:
    """The candidates without those that only differ where it cannot matter.

    A configuration that is named (in use now, known good) stays, and so does everything where it
    is not known through what a message goes.

    Args:
        candidates: What may be launched.
        loaded: The scenario they are of.
    """
    candidates = _large_without(candidates, loaded)
    configurations = candidates.space.configurations
    named = {0, candidates.present, candidates.default, candidates.adaptive}
    named |= set(candidates.known_good)
    idle = [at for at, c in enumerate(configurations) if at not in named and is_of_nccl_alone(c)]
    if not idle or _nccl_matters(candidates, loaded):
        return candidates
    kept = [at for at in range(len(configurations)) if at not in set(idle)]
    place = {old: new for new, old in enumerate(kept)}
    return replace(
        candidates,
        space=replace(
            candidates.space,
            configurations=tuple(configurations[at] for at in kept),
            aliases=(*candidates.space.aliases, (WHY, len(idle))),
        ),
        arms=tuple(candidates.arms[at] for at in kept),
        present=None if candidates.present is None else place[candidates.present],
        known_good=tuple(place[at] for at in candidates.known_good),
        default=None if candidates.default is None else place[candidates.default],
        adaptive=None if candidates.adaptive is None else place[candidates.adaptive],
    )


def _large_without(candidates: Candidates, loaded: LoadedScenario) -> Candidates:
    """Candidates of a large space, that no such setting is tried later either."""
    large = candidates.large
    if large is None or not any(_has_nccl(axis) for axis in large.axes):
        return candidates
    if _nccl_matters(candidates, loaded):
        return candidates
    return replace(candidates, large=replace(large, nccl_is_idle=True))


def _has_nccl(axis: SettingAxis) -> bool:
    return any(name.startswith("NCCL_") for value in axis.values for name, _ in value.environment)


def _nccl_matters(candidates: Candidates, loaded: LoadedScenario) -> bool:
    """Whether a decoding step of a measured load goes through NCCL, or may."""
    # Which variables are searched plays no part, and they may be too many to rank.
    block = {
        key: value
        for key, value in (loaded.scenario.tune or {}).items()
        if key not in {"environment", "bundles"}
    }
    scenario = loaded.scenario.model_copy(update={"tune": block})
    try:
        question = nccl_question(replace(loaded, scenario=scenario))
    except InputError:  # the model's size is not known
        return True
    loads = {point.load.label for point in candidates.ground.points}
    decoding = [found for found in question.steps if found.step.load in loads]
    return not decoding or any(found.matters for found in decoding)
