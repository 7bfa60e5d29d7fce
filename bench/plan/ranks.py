"""Parallel sizes and the memory fraction, held against the GPUs that there are."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from bench.physics import load_hardware
from bench.scenario import split_arguments
from bench.sglang.arguments import asked_text, parse_arguments, whole_number

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bench.plan.servers import PlannedArm
    from bench.scenario import LoadedScenario
    from bench.sglang.arguments import AskedValue

_SIZES: Final = {"tp_size": "--tp-size", "pp_size": "--pp-size", "dp_size": "--dp-size"}
_ONE_MACHINE: Final = ("local", "docker")


def check_ranks(
    loaded: LoadedScenario, arm: PlannedArm, *, simulated: bool, attached: bool
) -> None:
    """Raise for an arm that no server starts with on the GPUs that it is given.

    A rank takes a GPU: tp x pp of them, times dp unless that is of the attention alone
    (SGLang 0.5.23, `server_args.py`, `managers/data_parallel_controller.py`).

    Args:
        loaded: The scenario.
        arm: The arm, as a server started here.
        simulated: Whether it is simulated: then its hardware card has GPUs, too.
        attached: Whether it runs already: then its machine is not ours to count.

    Raises:
        ScenarioError: A size below 1, a memory fraction not between 0 and 1, or too few GPUs.
    """
    asked = parse_arguments(arm.server.arguments)
    for dest, option in (*_SIZES.items(), ("nnodes", "--nnodes")):
        text = asked_text(asked, dest)
        size = None if text is None else whole_number(text, suffixes=False)
        if size is not None and size < 1:
            raise loaded.rejected(
                _key(loaded, arm.name, dest), f"{option} is {size}, wanted 1 or more. Correct it"
            )
    _check_memory(loaded, arm, asked)
    if asked_text(asked, "device") in {None, "cuda"}:
        _check_gpus(loaded, arm, asked, simulated=simulated, attached=attached)


def _check_memory(
    loaded: LoadedScenario, arm: PlannedArm, asked: Mapping[str, AskedValue]
) -> None:
    text = asked_text(asked, "mem_fraction_static")
    try:
        fraction = None if text is None else float(text)
    except ValueError:  # argparse's rule tells of it
        return
    if fraction is not None and not 0 < fraction < 1:
        raise loaded.rejected(
            _key(loaded, arm.name, "mem_fraction_static"),
            f"--mem-fraction-static is {text}, wanted a share of the GPU's memory between 0 and 1."
            " Write e.g. 0.85",
        )


def _check_gpus(
    loaded: LoadedScenario,
    arm: PlannedArm,
    asked: Mapping[str, AskedValue],
    *,
    simulated: bool,
    attached: bool,
) -> None:
    sizes = {dest: _size(asked, dest) for dest in _SIZES}
    if asked.get("enable_dp_attention") not in {None, "false"}:
        sizes["dp_size"] = 1
    ranks, nodes = math.prod(sizes.values()), _size(asked, "nnodes")
    written = " x ".join(f"{_SIZES[dest]} {size}" for dest, size in sizes.items() if size > 1)
    largest = max(sizes, key=lambda dest: sizes[dest])
    server = loaded.scenario.server
    gpus = server.gpus * nodes
    if not attached and server.gpus and ranks > gpus:
        is_here = simulated or server.launcher.kind in _ONE_MACHINE
        if is_here:
            on = f" on each of {nodes} nodes" if nodes > 1 else ""
            raise loaded.rejected(
                _key(loaded, arm.name, largest),
                f"{written} takes {ranks} GPUs, and server.gpus is {server.gpus}{on}. Lower "
                f"{_SIZES[largest]}, or give server.gpus: {math.ceil(ranks / nodes)}",
            )
    if simulated and arm.server.hardware is not None:
        card = load_hardware(arm.server.hardware)
        if ranks > card.gpus * nodes:
            raise loaded.rejected(
                _key(loaded, arm.name, largest),
                f"{written} takes {ranks} GPUs, and the simulated {card.name} has {card.gpus}. "
                f"Lower {_SIZES[largest]}, or give another card in sim.hardware or --sim-hardware",
            )


def _size(asked: Mapping[str, AskedValue], dest: str) -> int:
    return max(1, whole_number(asked_text(asked, dest) or "", suffixes=False) or 1)


def _key(loaded: LoadedScenario, arm: str, dest: str) -> str:
    return key_of(loaded, arm, dest) or "server.arguments"


def key_of(loaded: LoadedScenario, arm: str, dest: str) -> str | None:
    """Where an option of an arm is given last: the key of its line; None: in no line."""
    scenario = loaded.scenario
    for key, lines in (
        (f"arms.{arm}.arguments", scenario.arms[arm].arguments),
        ("server.arguments", scenario.server.arguments),
    ):
        for place in range(len(lines) - 1, -1, -1):
            if dest in parse_arguments(split_arguments(lines[place : place + 1])):
                return f"{key}.{place}" if len(lines) > 1 else key
    return None
