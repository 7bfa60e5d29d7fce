"""The launches of a search over configurations: made one by one, each arm an arm of the scenario.

All of them stand on one ground, so that every launch is asked for the same work, whichever
configurations come up.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

from bench.errors import InputError, ScenarioError
from bench.model import BASELINE, Plan
from bench.plan.arguing import check_loads, look_at
from bench.plan.checking import check_cards, check_faults, check_options, check_workers
from bench.plan.making import Ground, launch_of, measure_of, planned_arms
from bench.plan.points import clock_speed, points_of
from bench.plan.ranks import check_ranks
from bench.plan.secrets import check_secrets
from bench.plan.selecting import Selection
from bench.plan.servers import planned_arm

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from bench.model import Launch
    from bench.scenario import Arm, LoadedScenario

_ALL = Selection(arms=frozenset(), workloads=frozenset(), loads=frozenset(), pairs=frozenset())


def trial_ground(
    loaded: LoadedScenario,
    *,
    simulated: bool,
    sim_hardware: str | None = None,
    measured: Collection[tuple[str, str]] | None = None,
) -> Ground:
    """What every launch of a search stands on.

    Args:
        loaded: The scenario, its arms being the configurations that may be launched.
        simulated: Servers are simulated.
        sim_hardware: A hardware card in place of the scenario's.
        measured: (workload, load's label) of the cells; None: all that there are.

    Raises:
        InputError: Options that do not go together; nothing is left to measure.
        ScenarioError: Cards that there are not, secrets in the wrong place.
    """
    check_options(
        loaded,
        simulated=simulated,
        attach={},
        sim_hardware=sim_hardware,
        add_pairs=0,
        exclusive=False,
        api_key=None,
        admin_api_key=None,
    )
    check_workers(loaded)
    check_secrets(loaded)
    check_cards(loaded, sim_hardware)
    scenario = loaded.scenario
    measure = measure_of(scenario, simulated=simulated)
    arms = planned_arms(loaded, sim_hardware=sim_hardware)
    points = tuple(
        point
        for point in points_of(scenario, measure, arms)
        if measured is None or (point.workload.name, point.load.label) in measured
    )
    if not points:
        raise InputError("no workload has a load that is left to measure.")
    if simulated:
        check_faults(loaded, dict.fromkeys(arms, len(points)))
    return Ground(
        loaded=loaded,
        measure=measure,
        arms=arms,
        points=points,
        urls={},
        exclusive=False,
        api_key=None,
        admin_api_key=None,
        selection=_ALL,
        simulated=simulated,
        speed=clock_speed(points, scenario.sim.speed) if simulated and scenario.sim else 1,
        findings=(),
    )


def with_arm(ground: Ground, name: str, arm: Arm) -> Ground:
    """The ground with one more arm; what is asked of all stays as it is."""
    loaded = ground.loaded
    arms = {**loaded.scenario.arms, name: arm}
    loaded = replace(loaded, scenario=loaded.scenario.model_copy(update={"arms": arms}))
    server = ground.arms[BASELINE].server
    planned = planned_arm(loaded, name, sim_hardware=server.hardware, template=server.template)
    return replace(ground, loaded=loaded, arms={**ground.arms, name: planned})


def why_refused(ground: Ground, name: str) -> str | None:
    """Why SGLang would not start with an arm, or refuse the requests of a load; None: it would."""
    arm = ground.arms[name]
    loaded = ground.loaded
    if ground.simulated and arm.is_speculative and arm.acceptance is None:
        return "how many drafts are accepted is not said (sim.acceptance)"
    try:
        check_ranks(loaded, arm, simulated=ground.simulated, attached=False)
        looked = look_at(loaded, arm, simulated=ground.simulated)
        list(check_loads(loaded, looked, ground.points))
    except ScenarioError as error:
        return str(error)
    return None


def trial_launch(ground: Ground, name: str, *, pair: int, ordinal: int) -> Launch:
    """One start of one arm's server, measuring every point.

    Args:
        ground: From `trial_ground`.
        name: The arm.
        pair: How often it was launched before.
        ordinal: 0-based place among all launches.
    """
    return launch_of(ground, name, ground.points, pair=pair, ordinal=ordinal)


def trial_plan(ground: Ground, launches: Sequence[Launch]) -> Plan:
    """The launches made so far as a plan."""
    scenario = ground.loaded.scenario
    return Plan(
        scenario=scenario.name,
        question=scenario.question,
        launches=tuple(launches),
        arms=tuple(dict.fromkeys(launch.arm for launch in launches)),
        pairs=max(Counter(launch.arm for launch in launches).values(), default=1),
        simulated=ground.simulated,
        speed=ground.speed,
        practical_margin=ground.measure.practical_margin,
        gpus=scenario.server.gpus,
    )
