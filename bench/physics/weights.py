"""Bytes and operations of a forward, per rank of a tensor-parallel group, and what memory holds.

Routing is taken as uniform: n tokens touch E·(1 - (1 - k/E)^n) of a layer's experts. Real routing
is correlated and touches fewer, so weights are overstated for n > 1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bench.physics.cards import DraftCard, HardwareCard, TargetCard

GIB = 1024**3


def unique_experts(n_tokens: float, experts: int, experts_per_token: int) -> float:
    """Experts of one layer that `n_tokens` tokens touch in the mean: E·(1 - (1 - k/E)^n)."""
    if experts == 0:
        return 0.0
    return float(experts * (1.0 - (1.0 - experts_per_token / experts) ** n_tokens))


def weight_bytes_per_gpu(
    model: TargetCard | DraftCard, n_tokens: float, tp: int, *, extend: bool = True
) -> float:
    """Bytes of weights that one of `tp` GPUs reads in a forward over `n_tokens` tokens.

    Every GPU reads its slice of every expert touched, and of each part its slice or, where there
    are more GPUs than shards, a copy of a shard.

    Args:
        model: The target, or a draft.
        n_tokens: Tokens in the forward.
        tp: Tensor-parallel size.
        extend: Of a draft: whether it is the first forward of a cycle.
    """
    touched = unique_experts(n_tokens, model.experts, model.experts_per_token)
    bits = touched * model.moe_layers * model.expert_parameters * model.expert_bits / tp
    for part in model.parts:
        if extend or not part.extend_only:
            shards = tp if part.shards is None else min(part.shards, tp)
            bits += part.parameters * part.bits / shards
    return bits / 8


def flop_per_token(model: TargetCard | DraftCard, tp: int, *, extend: bool = True) -> float:
    """BF16-equivalent operations that one token costs each of `tp` GPUs, attention left out.

    Two a parameter; operands of 8 bits count half, of 4 bits a quarter. Replicated parts are
    computed by every rank.
    """
    routed = model.moe_layers * model.experts_per_token * model.expert_parameters
    flop = 2.0 * routed * model.expert_compute_bits / 16 / tp
    for part in model.parts:
        if extend or not part.extend_only:
            shards = tp if part.shards is None else min(part.shards, tp)
            flop += 2.0 * part.parameters * part.compute_bits / 16 / shards
    return flop


def kv_bytes_per_token_per_gpu(model: TargetCard | DraftCard, tp: int) -> float:
    """Bytes of KV cache that one token takes on each of `tp` GPUs."""
    return model.layers * model.kv_bytes_per_token_per_layer / min(model.kv_shards, tp)


def memory_bytes_per_gpu(model: TargetCard | DraftCard, tp: int) -> float:
    """Bytes of all weights that each of `tp` GPUs holds."""
    every_expert = model.moe_layers * model.experts * model.expert_parameters
    return (
        weight_bytes_per_gpu(model, 0, tp)
        + every_expert * model.expert_bits / 8 / tp
        + model.idle_parameters * model.idle_bits / 8 / tp
    )


def kv_capacity_tok(
    hardware: HardwareCard,
    target: TargetCard,
    *,
    mem_fraction_static: float,
    speculative: bool = False,
    tp: int | None = None,
) -> int:
    """Tokens whose KV cache fits beside the weights in a share of a GPU's memory.

    0: the weights alone do not fit. A draft takes its weights and a KV slot of its own a token.
    """
    tp = hardware.gpus if tp is None else tp
    weights = memory_bytes_per_gpu(target, tp)
    per_token = kv_bytes_per_token_per_gpu(target, tp)
    if speculative and target.draft is not None:
        weights += memory_bytes_per_gpu(target.draft, tp)
        per_token += kv_bytes_per_token_per_gpu(target.draft, tp)
    free = hardware.memory_gib * GIB * mem_fraction_static - weights
    return max(0, int(free / per_token))


def limit_tok_per_s(
    hardware: HardwareCard,
    target: TargetCard,
    *,
    batch: int,
    context_tok_mean: float = 0.0,
    tokens_per_request: int = 1,
    accept_len_tok: float = 1.0,
    tp: int | None = None,
) -> float:
    """The memory-bandwidth floor as tokens a second of all `batch` requests together.

    Weights and KV are read once a step at the full bandwidth; all-reduces, the draft, compute and
    the host cost nothing. No server of this model in these data types can be faster at this accept
    length (with uniform routing).
    """
    tp = hardware.gpus if tp is None else tp
    step_bytes = weight_bytes_per_gpu(target, batch * tokens_per_request, tp)
    step_bytes += batch * context_tok_mean * kv_bytes_per_token_per_gpu(target, tp)
    return batch * accept_len_tok * hardware.bandwidth_gb_per_s * 1e9 / step_bytes
