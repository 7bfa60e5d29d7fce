"""Spaces that are too large to be held: settings as axes, looked at one at a time.

What physics tells of are the drafts; what it does not know are the settings (options of SGLang,
variables, bundles). Of a large space the drafts at the user's own setting are held from the start,
and a setting only once it is tried (tuner/sweep/admitting.py).
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from bench.model.study import SpaceCounts
from tuner.space.points import Axes, Server, Setting, Space, survey

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from bench.scenario import LoadedScenario
    from tuner.space.configuration import Configuration

Choice = tuple[int, ...]
"""A setting: of each axis the place of its value; all 0 is the user's own."""

MOST_CONFIGURATIONS: Final = 1500
MOST_POINTS: Final = 4000
"""Configurations × cells. Of more a part is held: the predictor holds every pair of them."""
MOST_RAW: Final = 200_000
"""Points that are looked at one by one."""
MOST_COUNTED: Final = 20_000
"""Raw points that are looked at to say how many are at least legal and distinct."""
OWN: Final = Setting()


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingAxis:
    """One axis of the settings.

    Attributes:
        name: The option, the variable or the bundles' name.
        values: Distinct; the first is the user's own: nothing beside the scenario's arguments.
    """

    name: str
    values: tuple[Setting, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Large:
    """What a large space has beyond the drafts at the user's own setting.

    Attributes:
        axes: Of the settings.
        drafts: The axes of the drafts; `settings` is the user's own alone.
        server: What all configurations have in common.
        loaded: The scenario.
        like: The arm with the draft, if one has it.
        counts: How large the whole space is.
        nccl_is_idle: Whether settings that differ in NCCL's variables alone cannot matter.
    """

    axes: tuple[SettingAxis, ...]
    drafts: Axes
    server: Server
    loaded: LoadedScenario
    like: str | None
    counts: SpaceCounts
    nccl_is_idle: bool = False

    def at(self, choice: Choice) -> Space:
        """All drafts at one setting: the legal and distinct ones."""
        space = survey(
            replace(self.drafts, settings=(setting_at(self.axes, choice),)), self.server
        )
        if not self.nccl_is_idle:
            return space
        kept = tuple(c for c in space.configurations if not is_of_nccl_alone(c))
        return replace(space, configurations=kept)


def setting_axes(
    arguments: Mapping[str, Sequence[str | None]],
    environment: Mapping[str, Sequence[str | None]],
    bundles: Mapping[str, Sequence[Setting]],
) -> tuple[SettingAxis, ...]:
    """The axes of the settings, the user's own value first in each; None is not given."""
    named = [
        (o, [Setting(arguments=((o, v),)) for v in values if v is not None])
        for o, values in arguments.items()
    ]
    named += [
        (n, [Setting(environment=((n, v),)) for v in values if v is not None])
        for n, values in environment.items()
    ]
    named += [(name, list(values)) for name, values in bundles.items()]
    axes = [
        SettingAxis(name=name, values=tuple(dict.fromkeys((OWN, *values))))
        for name, values in named
    ]
    return tuple(axis for axis in axes if len(axis.values) > 1)


def setting_at(axes: Sequence[SettingAxis], choice: Choice) -> Setting:
    """The options and variables of a choice together."""
    parts = [axis.values[at] for axis, at in zip(axes, choice, strict=True)]
    options = dict(pair for part in parts for pair in part.arguments)
    variables = dict(pair for part in parts for pair in part.environment)
    return Setting(
        arguments=tuple(sorted(options.items())), environment=tuple(sorted(variables.items()))
    )


def choice_of(axes: Sequence[SettingAxis], configuration: Configuration) -> Choice:
    """The choice whose setting a configuration has, as far as it shows in its effective form.

    What SGLang leaves without effect, or settles otherwise than asked, counts as the user's own.
    """
    has = {*configuration.arguments, *configuration.environment}
    return tuple(
        max(
            range(len(axis.values)),
            key=lambda at: (_words(values[at]) <= has, len(_words(values[at])), -at),
        )
        for axis in axes
        for values in (axis.values,)
    )


def _words(setting: Setting) -> set[tuple[str, str]]:
    return {*setting.arguments, *setting.environment}


def one_change(axes: Sequence[SettingAxis]) -> Iterator[Choice]:
    """The settings that differ from the user's own in one axis, the axes taking turns."""
    most = max((len(axis.values) for axis in axes), default=0)
    for value in range(1, most):
        for at, axis in enumerate(axes):
            if value < len(axis.values):
                yield tuple(value if other == at else 0 for other in range(len(axes)))


def counts_of(axes: Sequence[SettingAxis], drafts: Axes, server: Server) -> SpaceCounts:
    """How large a space is that cannot be looked at point by point.

    The user's own setting and those one change away are looked at, as far as that takes seconds:
    the whole space has at least what these have.
    """
    each = raw_drafts(drafts)
    raw = each * math.prod(len(axis.values) for axis in axes)
    own = tuple(0 for _ in axes)
    choices = itertools.chain([own], one_change(axes))
    found: dict[Configuration, None] = {}
    looked_at = legal = 0
    for choice in itertools.islice(choices, max(1, MOST_COUNTED // each)):
        space = survey(replace(drafts, settings=(setting_at(axes, choice),)), server)
        looked_at += space.raw
        legal += space.legal
        found.update(dict.fromkeys(space.configurations))
    return SpaceCounts(raw=raw, looked_at=looked_at, legal=legal, distinct=len(found))


def raw_drafts(axes: Axes) -> int:
    """How many points the drafts have at one setting, no speculation included."""
    return 1 + math.prod(
        len(numbers)
        for numbers in (axes.algorithms, axes.num_steps, axes.eagle_topk, axes.num_draft_tokens)
    )


def is_of_nccl_alone(configuration: Configuration) -> bool:
    """Whether nothing but NCCL's variables makes its setting another than the baseline's."""
    variables = [name for name, _ in configuration.environment]
    return (
        bool(variables)
        and not configuration.arguments
        and all(name.startswith("NCCL_") for name in variables)
    )
