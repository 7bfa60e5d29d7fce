"""The plan of a scenario: which launches, in which order, with which cells."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from bench.errors import InputError
from bench.gpu import NVIDIA_SMI
from bench.model import (
    BASELINE,
    Cell,
    Finding,
    FindingKind,
    Launch,
    Plan,
    Severity,
    Slo,
    Timeouts,
)
from bench.plan.checking import (
    check_arms,
    check_cards,
    check_faults,
    check_options,
    check_workers,
)
from bench.plan.estimating import SIMULATED_CELL_S, SIMULATED_START_S, UNSEEN_START_S
from bench.plan.identity import server_key, simulation_seed, with_ids
from bench.plan.launchers import template_of
from bench.plan.points import Point, clock_speed, points_of, speed_note
from bench.plan.secrets import check_secrets
from bench.plan.selecting import Selection, attached_urls, select
from bench.plan.servers import PlannedArm, attached, planned_arm
from bench.plan.servers import simulated as simulated_arm
from bench.plan.work import cell_s

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bench.model import KeySource
    from bench.plan.arguing import Ask
    from bench.scenario import LoadedScenario, Measure, Scenario


@dataclass(frozen=True, slots=True, kw_only=True)
class Ground:
    """What all launches of one plan stand on.

    Attributes:
        arms: Every arm, the baseline first, as servers started here.
        points: Every workload at every load.
        urls: Base URLs of the arms that are attached.
        exclusive: Whether nobody else uses these.
        api_key: Where their key is read from, unless the scenario says.
        admin_api_key: Likewise, the key of calls that abort and flush.
        findings: What the arms' arguments have to be told of.
    """

    loaded: LoadedScenario
    measure: Measure
    arms: Mapping[str, PlannedArm]
    points: tuple[Point, ...]
    urls: Mapping[str, str]
    exclusive: bool
    api_key: KeySource | None
    admin_api_key: KeySource | None
    selection: Selection
    simulated: bool
    speed: int
    findings: tuple[Finding, ...]


def make_plan(  # noqa: PLR0913  # one keyword for each option of a run; a record would only rename them
    loaded: LoadedScenario,
    *,
    simulated: bool = False,
    attach: Mapping[str, str] | None = None,
    only: Sequence[str] = (),
    sim_hardware: str | None = None,
    add_pairs: int = 0,
    exclusive: bool = False,
    api_key: KeySource | None = None,
    admin_api_key: KeySource | None = None,
    ask: Ask | None = None,
) -> Plan:
    """Expand arms, workloads, loads and pairs into launches and cells.

    Args:
        loaded: The scenario.
        simulated: Servers are simulated; `sim` of the scenario says what they stand for.
        attach: Base URL by arm of servers that run already; the key "" is the one arm's that
            `only` names, else the baseline's. Arms without a URL are not measured. An attached
            server is one launch: repeats inside it are no pairs, so there is one and no verdict.
            Cells of several servers alternate, so that what changes with time changes for all.
        only: `KEY=VALUE` with arm, workload, load or pair: any value of a key, all of the keys.
        sim_hardware: A hardware card in place of the scenario's.
        add_pairs: More pairs than the scenario asks for.
        exclusive: Nobody else uses the attached servers: bench may abort and flush there.
        api_key: Where the attached servers' key is read from, in place of the scenario's.
        admin_api_key: Likewise, the key of calls that abort and flush.
        ask: Asks SGLang itself about arguments that the rules reject, of servers that are started;
            what it takes is noted, not rejected.

    Raises:
        InputError: Options that do not go together or name what there is not.
        ScenarioError: Cards that there are not; speculative settings that SGLang would refuse.
    """
    attach = attach or {}
    check_options(
        loaded,
        simulated=simulated,
        attach=attach,
        sim_hardware=sim_hardware,
        add_pairs=add_pairs,
        exclusive=exclusive,
        api_key=api_key,
        admin_api_key=admin_api_key,
    )
    check_workers(loaded)
    check_secrets(loaded)
    check_cards(loaded, sim_hardware)
    scenario = loaded.scenario
    measure = measure_of(scenario, simulated=simulated)
    pairs = 1 if attach else measure.pairs + add_pairs
    arms = planned_arms(loaded, sim_hardware=sim_hardware)
    points = points_of(scenario, measure, arms)
    findings = check_arms(
        loaded,
        arms,
        points,
        simulated=simulated,
        attached=bool(attach),
        ask=None if simulated or attach else ask,
    )
    if simulated:
        findings = (*findings, *_speed_lowered(scenario, points))
        check_faults(loaded, dict.fromkeys(arms, len(points)))
    selection = select(only, _valid_values(arms, points, pairs))
    ground = Ground(
        loaded=loaded,
        measure=measure,
        arms=arms,
        points=points,
        urls=attached_urls(attach, list(arms), selection),
        exclusive=exclusive,
        api_key=api_key,
        admin_api_key=admin_api_key,
        selection=selection,
        simulated=simulated,
        speed=clock_speed(points, scenario.sim.speed) if simulated and scenario.sim else 1,
        findings=findings,
    )
    return _plan(ground, only, pairs)


def _plan(ground: Ground, only: Sequence[str], pairs: int) -> Plan:
    measured = [
        name
        for name in ground.arms
        if ground.selection.has_arm(name) and (not ground.urls or name in ground.urls)
    ]
    launches: list[Launch] = []
    for pair in range(pairs):
        points = [
            point
            for point in ground.points
            if ground.selection.has_cell(
                workload=point.workload.name, load=point.load.label, pair=pair
            )
        ]
        for turn, part in enumerate(_turns(points, ground.urls)):
            launches += [
                launch_of(ground, name, part, pair=pair, ordinal=len(launches) + place)
                for place, name in enumerate(_order(measured, pair + turn))
            ]
    if not launches:
        raise InputError(
            f"--only {' --only '.join(only)}: no cell has all of these.",
            hint="A workload with loads of its own has no others. Leave one of the filters out.",
        )
    scenario = ground.loaded.scenario
    return Plan(
        scenario=scenario.name,
        question=scenario.question,
        launches=tuple(launches),
        arms=tuple(measured),
        pairs=pairs,
        simulated=ground.simulated,
        speed=ground.speed,
        practical_margin=ground.measure.practical_margin,
        gpus=scenario.server.gpus,
        findings=tuple(finding for finding in ground.findings if finding.arm in {None, *measured}),
    )


def planned_arms(loaded: LoadedScenario, *, sim_hardware: str | None) -> dict[str, PlannedArm]:
    """Every arm as a server started here, the baseline first."""
    template = template_of(loaded, (*NVIDIA_SMI, "-lms", "100"))
    return {
        name: planned_arm(loaded, name, sim_hardware=sim_hardware, template=template)
        for name in sorted(loaded.scenario.arms, key=lambda name: name != BASELINE)
    }


def measure_of(scenario: Scenario, *, simulated: bool) -> Measure:
    """The scenario's `measure`, for simulated runs with what `sim.measure` has otherwise."""
    if not simulated or scenario.sim is None:
        return scenario.measure
    other = scenario.sim.measure.model_dump(exclude_none=True)
    return scenario.measure.model_copy(update=other)


def _speed_lowered(scenario: Scenario, points: Sequence[Point]) -> tuple[Finding, ...]:
    told = speed_note(points, scenario.sim.speed) if scenario.sim else None
    if told is None:
        return ()
    return (
        Finding(
            kind=FindingKind.SIMULATION_SPEED,
            severity=Severity.NOTE,
            message=told,
            advice="Nothing needs to be done; a lower sim.speed or a lighter load avoids it.",
        ),
    )


def _valid_values(
    arms: Mapping[str, PlannedArm], points: Sequence[Point], pairs: int
) -> dict[str, list[str]]:
    return {
        "arm": list(arms),
        "workload": list(dict.fromkeys(point.workload.name for point in points)),
        "load": list(dict.fromkeys(point.load.label for point in points)),
        "pair": [str(pair) for pair in range(pairs)],
    }


def _order(arms: Sequence[str], pair: int) -> list[str]:
    """The arms of one pair with the baseline in the middle, odd pairs the other way round.

    One arm: AB BA AB with A the baseline; two arms: both neighbour the baseline in each pair. Of
    more arms only two can, the others stand as near as they get.
    """
    others = [name for name in arms if name != BASELINE]
    middle = len(others) // 2
    baseline = [name for name in arms if name == BASELINE]
    order = others[:middle] + baseline + others[middle:]
    return order[::-1] if pair % 2 else order


def _turns(points: Sequence[Point], urls: Mapping[str, str]) -> list[Sequence[Point]]:
    """What is measured of one arm before the next has its turn.

    Servers that run already need no start: there the arms take turns at each point.
    """
    if not points:
        return []
    return [[point] for point in points] if len(urls) > 1 else [points]


def launch_of(
    ground: Ground, name: str, points: Sequence[Point], *, pair: int, ordinal: int
) -> Launch:
    """One start of an arm's server, and its cells at these points."""
    arm = _arm(ground, name, pair)
    cell_overhead_s = SIMULATED_CELL_S if ground.simulated else 0.0
    cells_s = tuple(
        cell_overhead_s
        + cell_s(point.load, point.workload, point.work, point.tok_per_s_per_user(name))
        / ground.speed
        for point in points
    )
    real_start_s = 0.0 if ground.urls else UNSEEN_START_S
    start_s = SIMULATED_START_S if ground.simulated else real_start_s
    return Launch(
        ordinal=ordinal,
        arm=name,
        pair=pair,
        server=arm.server,
        server_key=server_key(arm.server),
        cells=tuple(_cell(ground, arm, point, pair) for point in points),
        estimated_s=start_s + sum(cells_s),
        cells_s=cells_s,
    )


def _arm(ground: Ground, name: str, pair: int) -> PlannedArm:
    arm = ground.arms[name]
    sim = ground.loaded.scenario.sim
    if ground.simulated and sim is not None:
        return simulated_arm(arm, seed=simulation_seed(sim.seed, name, pair))
    if not ground.urls:
        return arm
    return attached(
        arm,
        url=ground.urls[name],
        exclusive=ground.exclusive,
        api_key=ground.api_key,
        admin_api_key=ground.admin_api_key,
    )


def _cell(ground: Ground, arm: PlannedArm, point: Point, pair: int) -> Cell:
    scenario = ground.loaded.scenario
    resolve = ground.loaded.source.resolve
    workload = point.workload
    cell = Cell(
        cell_id="",
        comparison_key="",
        arm=arm.name,
        workload=workload,
        load=point.load,
        pair=pair,
        requests=point.work.requests,
        warmup_requests=point.work.warmup_requests,
        steady_s=ground.measure.steady_s,
        seed=scenario.seed,
        slo=Slo(**scenario.slo.model_dump()),
        timeouts=Timeouts(**scenario.timeouts.model_dump()),
        arm_is_speculative=arm.is_speculative,
    )
    named = with_ids(cell, asked=arm.asked, speed=ground.speed)
    here = replace(  # only now: ids are of what was asked, wherever the checkout lies
        workload,
        dataset_path=workload.dataset_path and resolve(workload.dataset_path),
        tokenizer_path=workload.tokenizer_path and resolve(workload.tokenizer_path),
    )
    return replace(named, workload=here)
