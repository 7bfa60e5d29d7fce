"""What can only be rejected once the scenario is planned, told with the key's file and line."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from bench.errors import InputError
from bench.model.faults import parse_fault
from bench.physics import load_acceptance, load_hardware, load_target
from bench.plan.arguing import (
    LookedAt,
    advice_of,
    check_alike,
    check_loads,
    look_at,
    overruled,
)
from bench.plan.ranks import check_ranks
from bench.plan.selecting import url_problem

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from bench.model import Finding, KeySource
    from bench.plan.arguing import Ask
    from bench.plan.points import Point
    from bench.plan.servers import PlannedArm
    from bench.scenario import LoadedScenario


def check_options(
    loaded: LoadedScenario,
    *,
    simulated: bool,
    attach: Mapping[str, str],
    sim_hardware: str | None,
    add_pairs: int,
    exclusive: bool,
    api_key: KeySource | None,
    admin_api_key: KeySource | None,
) -> None:
    """Raise InputError for options of a run that do not go together."""
    if simulated and attach:
        raise InputError(
            "--sim and --attach: a simulated server is started, an attached one runs already.",
            hint="Leave one of them out.",
        )
    if exclusive and not attach:
        raise InputError(
            "--exclusive: no server is attached; those that bench starts are its own anyway.",
            hint="Leave it out, or add --attach URL.",
        )
    for name, key in (("api_key", api_key), ("admin_api_key", admin_api_key)):
        if key is not None and not attach:
            raise InputError(
                f"--{name.replace('_', '-')}-{key.kind}: no server is attached.",
                hint=f"For servers that bench starts give server.{name} in the scenario.",
            )
    if sim_hardware is not None and not simulated:
        raise InputError("--sim-hardware: nothing is simulated.", hint="Add --sim.")
    if simulated and loaded.scenario.sim is None:
        raise InputError(
            f"--sim: {loaded.source.path} does not say what is simulated.",
            hint="Add a block such as sim: {hardware: rtx-pro-6000-x8, target: kimi-k2.5}.",
        )
    if add_pairs < 0:
        raise InputError(f"--add-pairs {add_pairs}: wanted 0 or more.", hint="Give how many more.")
    if add_pairs and attach:
        raise InputError(
            "--add-pairs and --attach: an attached server is one launch; more of it are no pairs.",
            hint="Restart the server and run again for another.",
        )


def check_workers(loaded: LoadedScenario) -> None:
    """Raise ScenarioError for worker URLs that are none, or that are given twice."""
    arms = loaded.scenario.arms.items()
    lists = [
        ("server.worker_urls", loaded.scenario.server.worker_urls),
        *((f"arms.{name}.worker_urls", arm.worker_urls or ()) for name, arm in arms),
    ]
    for key, urls in lists:
        for place, url in enumerate(urls):
            problem = url_problem(url)
            if problem is None and url.rstrip("/") in {u.rstrip("/") for u in urls[:place]}:
                problem = "is given twice, and would count twice"
            if problem is not None:
                shown = url.rpartition("@")[2]  # never a user and a password
                raise loaded.rejected(
                    f"{key}.{place}", f"{shown!r} {problem}. Write http://HOST:PORT, each once"
                )


def check_cards(loaded: LoadedScenario, sim_hardware: str | None) -> None:
    """Raise for cards that there are not."""
    if sim_hardware is not None:
        load_hardware(sim_hardware)
    sim = loaded.scenario.sim
    if sim is None:
        return
    _exists(loaded, "sim.hardware", partial(load_hardware, sim.hardware))
    _exists(loaded, "sim.target", partial(load_target, sim.target))
    if (shared := sim.acceptance) is not None:
        _exists(loaded, "sim.acceptance", partial(load_acceptance, shared))
    for name, arm in loaded.scenario.arms.items():
        if (own := arm.sim.acceptance) is not None:
            _exists(loaded, f"arms.{name}.sim.acceptance", partial(load_acceptance, own))


def check_arms(
    loaded: LoadedScenario,
    arms: Mapping[str, PlannedArm],
    points: Sequence[Point],
    *,
    simulated: bool,
    attached: bool = False,
    ask: Ask | None = None,
) -> tuple[Finding, ...]:
    """What the rules of SGLang's arguments say of each arm, and of each two.

    Args:
        loaded: The scenario.
        arms: Every arm.
        points: Every workload at every load.
        simulated: Whether servers are simulated.
        attached: Whether they run already.
        ask: Asks SGLang itself about an arm that the rules reject; None: nobody is asked.

    Returns:
        Advice: what will be changed or does nothing, what another version would refuse.

    Raises:
        ScenarioError: Arguments that SGLang would not start with, prompts that do not fit its
            context, arms that are the same server, or what cannot be simulated.
    """
    found: list[Finding] = []
    looked_at: list[LookedAt] = []
    for name, arm in arms.items():
        if simulated and arm.is_speculative and arm.acceptance is None:
            text = (
                "how many drafts are accepted is not said. Add sim: {acceptance: [0.7, 0.4, 0.3]}"
            )
            raise loaded.rejected(f"arms.{name}", text)
        check_ranks(loaded, arm, simulated=simulated, attached=attached)
        taken = None if ask is None else overruled(loaded, arm, ask)
        if taken is not None:
            found.append(taken)
            continue
        looked = look_at(loaded, arm, simulated=simulated)
        looked_at.append(looked)
        found += advice_of(looked)
        found += check_loads(loaded, looked, points)
    return (*found, *check_alike(loaded, looked_at, simulated=simulated))


def check_faults(loaded: LoadedScenario, cells_by_arm: Mapping[str, int]) -> None:
    """Raise ScenarioError for a fault that no launch of its arm can have.

    Args:
        loaded: The scenario.
        cells_by_arm: The cells of a launch of each arm, filters of this run left out.
    """
    for name, cells in cells_by_arm.items():
        for place, text in enumerate(loaded.scenario.arms[name].sim.faults):
            fault = parse_fault(text)
            if fault.name == "accept-collapse" and loaded.scenario.arms[name].speculative is None:
                raise loaded.rejected(
                    f"arms.{name}.sim.faults.{place}",
                    f"{text} never happens: arm {name} does not speculate. Remove it",
                )
            cell = fault.cell
            if cell is not None and cell > cells:
                raise loaded.rejected(
                    f"arms.{name}.sim.faults.{place}",
                    f"{text} never happens: cells of a launch are counted from 1, and one of arm "
                    f"{name} has {cells}. Give cell={cells} or less",
                )


def _exists(loaded: LoadedScenario, key: str, load: Callable[[], object]) -> None:
    try:
        load()
    except InputError as error:
        raise loaded.rejected(key, f"{error}. {error.hint or ''}".rstrip()) from None
