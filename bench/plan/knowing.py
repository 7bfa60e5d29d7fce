"""What is known of the models, GPUs and loads that an arm's arguments will meet."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from bench.physics import load_hardware, load_target
from bench.sglang.arguments import (
    SUPPORTED,
    Known,
    ModelFacts,
    asked_text,
    attention_of,
    gpu_class_of,
    parse_arguments,
    read_model_facts,
)

if TYPE_CHECKING:
    from bench.model import ServerConfig
    from bench.scenario import Scenario


def known_of(scenario: Scenario, server: ServerConfig, *, simulated: bool) -> Known:
    """What the rules may use: config.json of models in local folders, else the scenario's cards.

    Args:
        scenario: Its workloads' temperatures count, and whether it uses GPUs.
        server: The arm's server, paths resolved.
        simulated: Simulated servers are of the supported version; of others it is not known yet.
    """
    asked = parse_arguments(server.arguments)
    draft = asked_text(asked, "speculative_draft_model_path")
    known = Known(
        version=SUPPORTED if simulated else None,
        target=read_model_facts(asked_text(asked, "model_path") or "") or _of_card(server),
        draft=None if draft is None else read_model_facts(draft),
        temperatures=tuple(w.sampling.temperature for w in scenario.workloads.values()),
        environment=dict(server.environment),
    )
    if server.gpus == 0 and not simulated:
        return replace(known, gpu="cpu")
    if server.hardware is None:
        return known
    card = load_hardware(server.hardware)
    return replace(known, gpu=gpu_class_of(card.gpu), gpu_memory_gib=card.memory_gib)


def _of_card(server: ServerConfig) -> ModelFacts | None:
    if server.target_card is None:
        return None
    card = load_target(server.target_card)
    return ModelFacts(
        architecture=card.architecture,
        attention=attention_of(card.architecture),
        layers=card.layers,
        context_len_tok=card.context_len,
        vocab_size=card.vocab_size,
    )
