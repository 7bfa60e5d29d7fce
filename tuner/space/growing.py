"""A part of a large space that grows: configurations as further arms of the ground."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from bench.plan.trials import why_refused, with_arm
from tuner.space.arms import arm_name, arm_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tuner.space.candidates import Candidates
    from tuner.space.configuration import Configuration


def grown(candidates: Candidates, configurations: Sequence[Configuration]) -> Candidates:
    """The candidates with more configurations behind those that are searched.

    What the scenario's loads and ranks forbid is left out. Places of what was searched before
    stay; the adaptive mode, which is launched only when the search is over, stays the last.

    Args:
        candidates: What may be launched, of a large space.
        configurations: Distinct, and none of them among the searched ones.
    """
    large = candidates.large
    assert large is not None
    ground = candidates.ground
    added: list[Configuration] = []
    names: list[str] = []
    for configuration in configurations:
        # Numbered by the ground's arms, so that no name is given twice.
        name = arm_name(len(ground.arms), configuration)
        more = with_arm(ground, name, arm_of(large.loaded, configuration, large.like))
        if why_refused(more, name) is None:
            ground = more
            added.append(configuration)
            names.append(name)
    at = len(candidates.searched)
    every, arms = candidates.space.configurations, candidates.arms
    return replace(
        candidates,
        space=replace(
            candidates.space,
            configurations=(*every[:at], *added, *every[at:]),
            raw=candidates.space.raw + len(added),
        ),
        ground=ground,
        arms=(*arms[:at], *names, *arms[at:]),
        adaptive=None if candidates.adaptive is None else candidates.adaptive + len(added),
    )
