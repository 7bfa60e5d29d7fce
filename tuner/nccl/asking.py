"""A scenario as a question about NCCL: messages, transports, settings, and what SGLang sets."""

from __future__ import annotations

import json
import math
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from bench.errors import InputError
from bench.gpu import list_gpus
from bench.model import BASELINE
from bench.physics import load_hardware, load_target
from bench.physics.model_config import draft_from_config, target_from_config
from bench.plan.knowing import known_of
from bench.plan.points import loads_of, workload_of
from bench.plan.servers import planned_arm
from bench.plan.throughput import expected
from bench.sglang.arguments import (
    EffectiveSpeculative,
    Known,
    asked_text,
    effective_speculative,
    gpu_class_of,
    known_graph_batch_sizes,
    parse_arguments,
    whole_number,
)
from bench.sglang.arguments.graphs import default_chunks
from tuner.nccl.engine import EngineVariable, engine_variables
from tuner.nccl.messages import Draft, Step, Widths, prefill_step, steps_of
from tuner.nccl.settings import SettingChoice, choose_settings
from tuner.nccl.transport import Comms, StepTransport, comms_of, where_nccl_matters
from tuner.space import Axes, Server, numbers, read_tune, survey

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from bench.model import ServerConfig
    from bench.scenario import LoadedScenario
    from bench.sglang.arguments import AskedValue
    from tuner.space import Tune

_KEPT: Final = ("NCCL_", "SGLANG_", "CUDA_DEVICE_MAX_CONNECTIONS")
_HERE: Final = ("local", "docker")
_FLOAT32: Final = ("float32", "float")


@dataclass(frozen=True, slots=True, kw_only=True)
class NcclQuestion:
    """What a scenario asks of NCCL.

    Attributes:
        scenario: Its name.
        steps: Every draft at every load with the transports of its messages, the prefill of one
            full chunk last.
        comms: What decided them.
        asked: The server's arguments.
        environment: The server's environment before SGLang touches it.
        server_environment: What of it the scenario gives.
        engine: What SGLang sets itself.
        choice: The settings.
        python: The command of the server's Python; empty: the scenario does not tell it.
        is_elsewhere: Whether its launcher may start it on another machine.
        element_bytes: Bytes of an activation.
        margin: Speedups within ± this share are of no practical use.
        seed: Orders the rounds.
        notes: What could not be told.
    """

    scenario: str
    steps: tuple[StepTransport, ...]
    comms: Comms
    asked: Mapping[str, AskedValue]
    environment: Mapping[str, str]
    server_environment: Mapping[str, str]
    engine: tuple[EngineVariable, ...]
    choice: SettingChoice
    python: tuple[str, ...]
    is_elsewhere: bool
    element_bytes: int
    margin: float
    seed: int
    notes: tuple[str, ...] = ()


def nccl_question(
    loaded: LoadedScenario, inherited: Mapping[str, str] = os.environ
) -> NcclQuestion:
    """Read a scenario for what NCCL has to do with it.

    Args:
        loaded: The scenario; its `tune:` block counts where it has one.
        inherited: The environment that its server would inherit.

    Raises:
        InputError: The target's size is not known, or the tune block is wrong.
    """
    scenario = loaded.scenario
    tune = None if scenario.tune is None else read_tune(loaded)
    server = planned_arm(loaded, BASELINE, sim_hardware=None).server
    asked = parse_arguments(server.arguments)
    environment = {
        **{name: value for name, value in inherited.items() if name.startswith(_KEPT)},
        **dict(server.environment),
    }
    known, nvlink = _known(loaded, server, environment)
    widths = _widths(loaded, asked)
    notes: list[str] = []
    loads = dict(_loads(loaded, tune, server, asked, notes))
    drafts = _drafts(loaded, tune, server, known)
    graphs = _graphs(asked, known, drafts)
    comms = comms_of(asked, known, nvlink=nvlink)
    comms = replace(comms, pcie_ipc_rows=_widest(graphs, drafts))
    steps = [*steps_of(widths, drafts, loads, graph_batches=graphs)]
    prefill = _prefill(widths, asked, known)
    if prefill is None:
        notes.append("prefill: the chunk's size is not known; give --chunked-prefill-size")
    else:
        steps.append(prefill)
    return NcclQuestion(
        scenario=scenario.name,
        steps=where_nccl_matters(steps, comms),
        comms=comms,
        asked=asked,
        environment=environment,
        server_environment=dict(server.environment),
        engine=engine_variables(asked, environment),
        choice=choose_settings(tune, asked, environment, nvlink=comms.nvlink),
        python=server.resolve,
        is_elsewhere=scenario.server.launcher.kind not in _HERE,
        element_bytes=widths.element_bytes,
        margin=scenario.measure.practical_margin,
        seed=scenario.seed,
        notes=tuple(dict.fromkeys(notes)),
    )


def _known(
    loaded: LoadedScenario, server: ServerConfig, environment: Mapping[str, str]
) -> tuple[Known, bool | None]:
    """What is known of GPUs and models, and whether NVLink joins the GPUs.

    The scenario's hardware card tells both; without one, this machine's GPUs tell their class.
    """
    known = replace(
        known_of(loaded.scenario, server, simulated=False), environment=dict(environment)
    )
    if server.hardware is not None:
        links = load_hardware(server.hardware).links
        return known, None if links is None else links.transport == "nvlink"
    if known.gpu is None:
        names = {gpu.name for gpu in list_gpus() if gpu.name}
        if len(names) == 1:
            known = replace(known, gpu=gpu_class_of(names.pop()))
    return known, None


def _widths(loaded: LoadedScenario, asked: Mapping[str, AskedValue]) -> Widths:
    scenario = loaded.scenario
    path = Path(loaded.source.resolve(scenario.target.path))
    config = _config(path)
    if config is not None:
        target = target_from_config(config, name=path.name, source="config.json")
    elif scenario.sim is not None:
        target = load_target(scenario.sim.target)
    else:
        raise InputError(
            f"the sizes of {scenario.target.path}'s messages asked for; its hidden size is not "
            "known",
            hint="Give target.path as a folder with its config.json, or name a card: "
            "sim: {hardware: h200-x8, target: kimi-k2.5}.",
        )
    draft = target.draft
    if scenario.draft is not None:
        own = Path(loaded.source.resolve(scenario.draft.path))
        own_config = _config(own)
        if own_config is not None:
            draft = draft_from_config(own_config, name=own.name, source="config.json")
    return Widths(
        hidden=target.hidden,
        layers=target.layers,
        draft_hidden=0 if draft is None else draft.hidden,
        draft_layers=0 if draft is None else draft.layers,
        element_bytes=4 if asked_text(asked, "dtype") in _FLOAT32 else 2,
    )


def _config(folder: Path) -> dict[str, Any] | None:
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return config if isinstance(config, dict) else None


def _loads(
    loaded: LoadedScenario,
    tune: Tune | None,
    server: ServerConfig,
    asked: Mapping[str, AskedValue],
    notes: list[str],
) -> Iterator[tuple[str, int]]:
    """Running requests of one replica by load; an open load's as the cards expect them."""
    scenario = loaded.scenario
    most = whole_number(asked_text(asked, "max_running_requests") or "") or math.inf
    replicas = max(
        whole_number(asked_text(asked, dest) or "1") or 1 for dest in ("dp_size", "attn_dp_size")
    )
    for name, workload in scenario.workloads.items():
        if tune is not None and tune.workloads and name not in tune.workloads:
            continue
        for load in loads_of(workload.loads or scenario.loads):
            if tune is not None and tune.loads and load.label not in tune.loads:
                continue
            batch = None if load.concurrency is None else float(load.concurrency)
            if batch is None and load.kind == "open":
                told = expected(server, load, workload_of(name, workload))
                batch = None if told is None else told.batch
            if batch is None:
                notes.append(f"load {load.label}: how many requests run at once is not known")
                continue
            yield load.label, max(1, math.ceil(min(batch, most) / replicas))


def _drafts(
    loaded: LoadedScenario, tune: Tune | None, server: ServerConfig, known: Known
) -> tuple[Draft, ...]:
    """How the server may draft: as the tune block says, else as the arms do; off is the first."""
    scenario = loaded.scenario
    drafts: dict[Draft, None] = {Draft(): None}
    if tune is not None:
        words: tuple[str, ...] = ()
        if scenario.draft is not None:
            path = loaded.source.resolve(scenario.draft.path)
            words = ("--speculative-draft-model-path", path)
        axes = Axes(
            algorithms=tune.algorithm,
            num_steps=numbers(tune.num_steps),
            eagle_topk=numbers(tune.eagle_topk),
            num_draft_tokens=numbers(tune.num_draft_tokens),
        )
        common = Server(arguments=server.arguments, draft_arguments=words, known=known)
        for one in survey(axes, common).configurations:
            drafts[_draft(one.algorithm, one.num_steps, one.eagle_topk, one.num_draft_tokens)] = (
                None
            )
        return tuple(drafts)
    for name in scenario.arms:
        arguments = planned_arm(loaded, name, sim_hardware=None).server.arguments
        found = effective_speculative(parse_arguments(arguments), known)
        if isinstance(found, EffectiveSpeculative):
            draft = _draft(
                found.algorithm, found.num_steps, found.eagle_topk, found.num_draft_tokens
            )
            drafts[draft] = None
    return tuple(drafts)


def _draft(
    algorithm: str | None, num_steps: int | None, topk: int | None, tokens: int | None
) -> Draft:
    if algorithm is None:
        return Draft()
    steps = num_steps or 0
    return Draft(
        algorithm=algorithm,
        num_steps=steps,
        topk=topk or 1,
        num_draft_tokens=tokens or steps + 1,
    )


def _graphs(
    asked: Mapping[str, AskedValue], known: Known, drafts: Sequence[Draft]
) -> dict[bool, tuple[int, ...] | None]:
    """Captured batch sizes, without and with speculation."""
    found: dict[bool, tuple[int, ...] | None] = {}
    plain = effective_speculative(asked, known)
    if not isinstance(plain, EffectiveSpeculative):
        return found
    found[False] = known_graph_batch_sizes(asked, plain, known)
    if any(draft.algorithm is not None for draft in drafts):
        speculative = replace(plain, algorithm=drafts[-1].algorithm)
        found[True] = known_graph_batch_sizes(asked, speculative, known)
    return found


def _widest(graphs: Mapping[bool, tuple[int, ...] | None], drafts: Sequence[Draft]) -> int | None:
    """Rows of the widest decoding forward."""
    batches = [sizes[-1] for sizes in graphs.values() if sizes]
    return max(batches) * max(d.num_draft_tokens for d in drafts) if batches else None


def _prefill(widths: Widths, asked: Mapping[str, AskedValue], known: Known) -> Step | None:
    given = whole_number(asked_text(asked, "chunked_prefill_size") or "")
    if given is not None and given > 0:
        return prefill_step(widths, given)
    if given is not None or known.gpu == "cpu":
        return None
    chunks = default_chunks(known.gpu_memory_gib)
    return prefill_step(widths, chunks[0]) if len(chunks) == 1 else None
