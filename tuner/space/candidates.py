"""The space of a scenario: its configurations as arms, held against all that its plan knows."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from bench.errors import InputError
from bench.model import BASELINE
from bench.model.study import SpaceCounts
from bench.plan.making import measure_of, planned_arms
from bench.plan.points import points_of
from bench.plan.trials import trial_ground, why_refused
from bench.scenario import LoadedScenario
from bench.sglang.arguments import EAGLE_FAMILY
from tuner.space.arms import (
    ADAPTIVE,
    arm_name,
    arm_of,
    arm_with_the_draft,
    configuration_of,
    server_of,
)
from tuner.space.asked import drafts_of, large_of, off_at, surveyed
from tuner.space.configuration import Configuration
from tuner.space.large import MOST_CONFIGURATIONS, MOST_POINTS, MOST_RAW, raw_drafts
from tuner.space.points import (
    Axes,
    Illegal,
    Server,
    Space,
    effective,
    survey,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from bench.plan.making import Ground
    from bench.plan.points import Point
    from bench.plan.servers import PlannedArm
    from tuner.space.large import Large
    from tuner.space.schema import Tune


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidates:
    """What may be launched, and how.

    Attributes:
        space: The distinct legal configurations.
        ground: What their launches stand on; its arms are `arms`.
        arms: Of each configuration, in the space's order.
        weights: Of the ground's points in the objective, summing to 1.
        present: Place of what is in use now; None: the baseline.
        known_good: Places of the arms that are launched first.
        default: Place of what SGLang takes where only the algorithm is given; None: not legal
            here, or not said.
        adaptive: Place of SGLang's adaptive mode, the last one: it is not searched, since it is
            no one draft; None: SGLang would not run it here.
        large: What the space has beyond what is held; None: all of it is held.
    """

    space: Space
    ground: Ground
    arms: tuple[str, ...]
    weights: tuple[float, ...]
    present: int | None
    known_good: tuple[int, ...]
    default: int | None
    adaptive: int | None
    large: Large | None = None

    @property
    def searched(self) -> tuple[Configuration, ...]:
        """The configurations that are weighed against one another."""
        return self.space.configurations[: self.adaptive]

    @property
    def counts(self) -> SpaceCounts:
        """How large the whole space is, also where only a part of it is held."""
        if self.large is not None:
            return self.large.counts
        return SpaceCounts(
            raw=self.space.raw,
            looked_at=self.space.raw,
            legal=self.space.legal,
            distinct=len(self.searched),
        )


def candidates_of(
    loaded: LoadedScenario,
    tune: Tune,
    *,
    simulated: bool,
    sim_hardware: str | None = None,
) -> Candidates:
    """The space of a scenario's `tune:` block.

    Args:
        loaded: The scenario.
        tune: From `read_tune`.
        simulated: Servers are simulated.
        sim_hardware: A hardware card in place of the scenario's.

    Raises:
        ScenarioError: What is searched is too much, or nothing of it is legal.
    """
    if simulated and tune.constraints.memory_headroom_gib is not None:
        raise loaded.rejected(
            "tune.constraints.memory_headroom_gib",
            "simulated GPUs have no memory to read. Leave it out: "
            "--set tune.constraints.memory_headroom_gib=null",
        )
    _require_objective(loaded, tune, simulated=simulated)
    arms = planned_arms(loaded, sim_hardware=sim_hardware)
    like = arm_with_the_draft(loaded, tune)
    server = server_of(loaded, arms, like, simulated=simulated)
    named = {
        arm: configuration_of(loaded, server, arm)
        for arm in dict.fromkeys([*tune.known_good, *([tune.present] if tune.present else [])])
    }
    axes = drafts_of(tune)
    beside = [*named.values(), adaptive := _adaptive(server, axes)]
    measured = _measured(loaded, tune, arms, simulated=simulated)

    def laid_out(space: Space) -> tuple[Space, Ground, tuple[str, ...]]:
        return _legal(
            loaded,
            space,
            like,
            simulated=simulated,
            sim_hardware=sim_hardware,
            measured=measured,
        )

    _require_once(loaded, tune)
    whole = surveyed(tune, axes, server)
    large = None
    if whole is not None and len(_with(whole, beside).configurations) <= MOST_CONFIGURATIONS:
        space, ground, names = laid_out(_with(whole, beside))
        is_held = len(space.configurations) * len(ground.points) <= MOST_POINTS
    else:
        is_held = False
    if not is_held:
        if raw_drafts(axes) > MOST_RAW:
            raise loaded.rejected(
                "tune",
                f"{raw_drafts(axes)} drafts at one setting are too many; at most {MOST_RAW} are "
                "looked at. Give fewer values of num_steps, eagle_topk or num_draft_tokens",
            )
        large = large_of(loaded, tune, axes, server, like, whole)
        space = _with(survey(axes, server), [*off_at(named.values(), server), *beside])
        _require_few(loaded, len(space.configurations), cells=None)
        space, ground, names = laid_out(space)
        _require_few(loaded, len(space.configurations), cells=len(ground.points))
    # The adaptive mode is only launched beside the others.
    if all(c.algorithm is None or c == adaptive for c in space.configurations):
        told = "; ".join(f"{reason} ({rule})" for rule, _, reason in space.illegal)
        raise loaded.rejected("tune", f"no speculative configuration is legal: {told}")
    place = {c: at for at, c in enumerate(space.configurations)}
    return Candidates(
        space=space,
        ground=ground,
        arms=names,
        weights=weights_of(tune, ground.points),
        present=_place(loaded, place, named, tune.present),
        known_good=tuple(
            at for arm in tune.known_good if (at := _place(loaded, place, named, arm)) is not None
        ),
        default=_default(place, server, axes),
        adaptive=None if adaptive is None else place.get(adaptive),
        large=large,
    )


def weights_of(tune: Tune, points: Sequence[Point]) -> tuple[float, ...]:
    """Shares of the cells in the objective, summing to 1.

    A workload's share is its weight's, however many loads it is measured at; its loads share it by
    theirs.
    """
    loads = [tune.loads.get(point.load.label, 1.0) for point in points]
    of_workload: dict[str, float] = {}
    for point, load in zip(points, loads, strict=True):
        of_workload[point.workload.name] = of_workload.get(point.workload.name, 0.0) + load
    mix = {name: tune.workloads.get(name, 1.0) for name in of_workload}
    return tuple(
        mix[point.workload.name] / sum(mix.values()) * load / of_workload[point.workload.name]
        for point, load in zip(points, loads, strict=True)
    )


def _require_objective(loaded: LoadedScenario, tune: Tune, *, simulated: bool) -> None:
    """Raise for an objective that no launch here could have a figure of."""
    if tune.objective == "energy" and simulated:
        raise loaded.rejected(
            "tune.objective", "simulated GPUs draw no power. Take tok_per_s to rehearse"
        )
    slo = loaded.scenario.slo
    if tune.objective == "goodput" and (slo.ttft_ms, slo.tpot_ms, slo.e2e_ms) == (None,) * 3:
        raise loaded.rejected(
            "tune.objective",
            "goodput counts requests within the slo, and the scenario has none. Add e.g. "
            "slo: {ttft_ms: 1000, tpot_ms: 50}",
        )


# --------------------------------------------------------------------------------------- the axes


def _require_once(loaded: LoadedScenario, tune: Tune) -> None:
    """Raise for a variable or option that two axes set."""
    owners: Counter[str] = Counter([*tune.arguments, *tune.environment])
    for axis in tune.bundles.values():
        owners.update({n for b in axis.values() for n in (*b.arguments, *b.environment)})
    twice = [name for name, count in owners.items() if count > 1]
    if twice:
        raise loaded.rejected(
            "tune.bundles", f"{twice[0]} is set by two axes. Leave it in one of them"
        )


def _require_few(loaded: LoadedScenario, drafts: int, *, cells: int | None) -> None:
    """Raise for more drafts at the user's own setting than can be held, with room for others."""
    if cells is None and drafts > MOST_CONFIGURATIONS // 2:
        raise loaded.rejected(
            "tune",
            f"{drafts} distinct drafts at one setting are too many; at most "
            f"{MOST_CONFIGURATIONS // 2} can be weighed against one another and other settings. "
            "Give fewer values of num_steps, eagle_topk or num_draft_tokens",
        )
    if cells is not None and drafts * cells > MOST_POINTS // 2:
        raise loaded.rejected(
            "tune",
            f"{drafts} drafts at {cells} cells are {drafts * cells} points to weigh against one "
            f"another; at most {MOST_POINTS // 2} can be, with room for other settings. Give "
            "fewer values of num_steps, eagle_topk or num_draft_tokens, or tune.loads and "
            "tune.workloads for the cells that count",
        )


def _measured(
    loaded: LoadedScenario, tune: Tune, arms: dict[str, PlannedArm], *, simulated: bool
) -> frozenset[tuple[str, str]] | None:
    """Which cells have a weight; None: all."""
    if not tune.workloads and not tune.loads:
        return None
    scenario = loaded.scenario
    own = {BASELINE: arms[BASELINE]}  # of any arms the cells are the same
    points = points_of(scenario, measure_of(scenario, simulated=simulated), own)
    labels = {point.load.label for point in points}
    for load in tune.loads:
        if load not in labels:
            raise loaded.rejected(
                f"tune.loads.{load}",
                f"no load is called {load}. There are: {', '.join(sorted(labels))}",
            )
    return frozenset(
        (point.workload.name, point.load.label)
        for point in points
        if (not tune.workloads or point.workload.name in tune.workloads)
        and (not tune.loads or point.load.label in tune.loads)
    )


# -------------------------------------------------------------------------------------- the space


def _with(space: Space, added: Iterable[Configuration | None]) -> Space:
    more = [c for c in added if c is not None and c not in space.configurations]
    return replace(space, configurations=(*space.configurations, *dict.fromkeys(more)))


def _place(
    loaded: LoadedScenario,
    place: dict[Configuration, int],
    named: dict[str, Configuration | None],
    arm: str | None,
) -> int | None:
    if arm is None:
        return None
    configuration = named[arm]
    at = None if configuration is None else place.get(configuration)
    if configuration is not None and at is None:
        raise loaded.rejected(f"arms.{arm}", "SGLang would not start with it here")
    return at or None  # the baseline takes part anyway


def _adaptive(server: Server, axes: Axes) -> Configuration | None:
    """SGLang's adaptive mode with the steps that it begins with; None: it would be turned off."""
    asked = Configuration(algorithm=axes.algorithms[0], arguments=((ADAPTIVE, "true"),))
    if asked.algorithm is None or asked.algorithm.upper() not in EAGLE_FAMILY:
        return None
    outcome = effective(asked, server)
    if isinstance(outcome, Illegal) or (ADAPTIVE, "true") not in outcome[0].arguments:
        return None
    return outcome[0]


def _default(place: dict[Configuration, int], server: Server, axes: Axes) -> int | None:
    outcome = effective(Configuration(algorithm=axes.algorithms[0]), server)
    return None if isinstance(outcome, Illegal) else place.get(outcome[0])


def _legal(
    loaded: LoadedScenario,
    space: Space,
    like: str | None,
    *,
    simulated: bool,
    sim_hardware: str | None,
    measured: frozenset[tuple[str, str]] | None,
) -> tuple[Space, Ground, tuple[str, ...]]:
    """The space without what the scenario's loads and ranks forbid, its ground, its arms."""
    names = tuple(arm_name(at, c) for at, c in enumerate(space.configurations))
    arms = {
        name: arm_of(loaded, c, like) for name, c in zip(names, space.configurations, strict=True)
    }
    scenario = loaded.scenario.model_copy(update={"arms": arms})
    ground = trial_ground(
        LoadedScenario(scenario=scenario, source=loaded.source),
        simulated=simulated,
        sim_hardware=sim_hardware,
        measured=measured,
    )
    kept: list[int] = []
    refused: dict[str, list[str]] = {}
    for at, name in enumerate(names):
        why = why_refused(ground, name)
        if why is None:
            kept.append(at)
        elif at == 0:
            raise InputError(f"the baseline cannot be measured: {why}")
        else:
            rule = (re.findall(r"\(rule (\w+)", why) or ["here"])[0]
            refused.setdefault(rule, []).append(why)
    illegal = (*space.illegal, *((r, len(w), w[0]) for r, w in refused.items()))
    space = replace(
        space, configurations=tuple(space.configurations[at] for at in kept), illegal=illegal
    )
    return space, ground, tuple(names[at] for at in kept)
