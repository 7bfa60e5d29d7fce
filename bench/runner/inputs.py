"""What a run reads from this machine, looked at before a server has loaded for minutes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from bench.load.prompts import build_prompts
from bench.server.command import api_keys

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.model import Plan, ServerConfig
    from bench.scenario import LoadedScenario

_LAUNCH: Final = ("-m", "sglang.launch_server")
_WEIGHTS: Final = {"--model-path": "target", "--speculative-draft-model-path": "draft"}


def require_inputs(plan: Plan, loaded: LoadedScenario) -> None:
    """Raise unless prompt files, tokenizers and local weights can be had.

    Raises:
        ScenarioError: A model is to be read from a folder that is not there; with file and line.
        InputError: A prompt file or a tokenizer cannot be read, or is not what it should be.
    """
    for launch in plan.launches:
        for block, folder in _folders(launch.server):
            own = f"arms.{launch.arm}.{block}.path"
            key = own if own in loaded.source.positions else f"{block}.path"
            raise loaded.rejected(
                key,
                f"{folder} is not there. Give the folder of the {block}'s weights, or its name "
                "as owner/name",
            )
    workloads = {cell.workload for launch in plan.launches for cell in launch.cells}
    for workload in sorted(workloads, key=lambda workload: workload.name):
        if workload.dataset_path is not None or workload.tokenizer_path is not None:
            build_prompts(workload, seed=0, count=1, cell_salt="")


def require_keys(plan: Plan) -> None:
    """Raise unless every key that a server of the plan is called with can be read.

    Raises:
        InputError: A variable or a file that should hold one does not; it is named.
    """
    for server in {launch.server_key: launch.server for launch in plan.launches}.values():
        if server.launcher != "simulated":
            api_keys(server)


def _folders(server: ServerConfig) -> Iterator[tuple[str, str]]:
    """Model folders of a server that are not there: (block of the scenario, path).

    Of a Python of this machine alone: any other command may well run where they are.
    """
    if server.launcher != "local" or server.command[1:] != _LAUNCH:
        return
    for option, value in zip(server.arguments, server.arguments[1:], strict=False):
        block = _WEIGHTS.get(option)
        if block is not None and value.startswith("/") and not Path(value).exists():
            yield block, value
