"""The axes that a `tune:` block asks for, and the space that they span."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from bench.model.study import SpaceCounts
from tuner.space.configuration import Configuration
from tuner.space.large import (
    MOST_CONFIGURATIONS,
    MOST_COUNTED,
    MOST_RAW,
    Large,
    counts_of,
    raw_drafts,
    setting_axes,
)
from tuner.space.points import (
    Axes,
    Illegal,
    Server,
    Setting,
    Space,
    effective,
    settings_of,
    survey,
)
from tuner.space.reading import numbers

if TYPE_CHECKING:
    from collections.abc import Iterable

    from bench.scenario import LoadedScenario
    from tuner.space.schema import Tune


def drafts_of(tune: Tune) -> Axes:
    """The axes of the drafts at the user's own setting."""
    return Axes(
        algorithms=tune.algorithm,
        num_steps=numbers(tune.num_steps),
        eagle_topk=numbers(tune.eagle_topk),
        num_draft_tokens=numbers(tune.num_draft_tokens),
        settings=(Setting(),),
    )


def bundles_of(tune: Tune) -> dict[str, list[Setting]]:
    """The values of each axis of bundles."""
    return {
        axis: [
            Setting(
                arguments=tuple(
                    (option, word) for option, word in b.arguments.items() if word is not None
                ),
                environment=tuple((n, w) for n, w in b.environment.items() if w is not None),
            )
            for b in bundles.values()
        ]
        for axis, bundles in tune.bundles.items()
    }


def surveyed(tune: Tune, axes: Axes, server: Server) -> Space | None:
    """The whole space; None: it has too many points to look at each, or to be held."""
    values = (*tune.arguments.values(), *tune.environment.values(), *tune.bundles.values())
    raw = raw_drafts(axes) * math.prod(len(axis) for axis in values)
    if raw > MOST_RAW:
        return None
    settings = settings_of(tune.arguments, tune.environment, [*bundles_of(tune).values()])
    # The first is the user's own.
    axes = replace(axes, settings=tuple(dict.fromkeys((Setting(), *settings))))
    if raw <= MOST_COUNTED:  # then it is counted, whether it can be held or not
        return survey(axes, server)
    space = survey(axes, server, most=MOST_CONFIGURATIONS)
    return space if len(space.configurations) <= MOST_CONFIGURATIONS else None


def large_of(
    loaded: LoadedScenario,
    tune: Tune,
    axes: Axes,
    server: Server,
    like: str | None,
    whole: Space | None,
) -> Large:
    """What a space that is not held as a whole has beyond its drafts."""
    settings = setting_axes(tune.arguments, tune.environment, bundles_of(tune))
    if whole is None:
        counts = counts_of(settings, axes, server)
    else:
        counts = SpaceCounts(
            raw=whole.raw,
            looked_at=whole.raw,
            legal=whole.legal,
            distinct=len(whole.configurations),
        )
    return Large(
        axes=settings, drafts=axes, server=server, loaded=loaded, like=like, counts=counts
    )


def off_at(named: Iterable[Configuration | None], server: Server) -> list[Configuration]:
    """No speculation at the settings of named arms: a gain is over the better of two baselines."""
    found = []
    for c in named:
        if c is not None and any(c.setting):
            outcome = effective(
                Configuration(arguments=c.arguments, environment=c.environment), server
            )
            found += [] if isinstance(outcome, Illegal) else [outcome[0]]
    return found
