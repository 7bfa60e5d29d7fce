"""The time of a decoding step and of a prefill, and the memory-bandwidth floor.

A forward over n tokens takes, per GPU of a tensor-parallel group::

    max(weight bytes(n) / bandwidth, 2 · active parameters · n / (tp · flops))
        + KV bytes / bandwidth
        + all-reduces · time of one at n · hidden · 2 bytes
        + fixed host time

Routing is taken as uniform: n tokens touch E·(1 - (1 - k/E)^n) of a layer's experts. Real routing
is correlated and touches fewer, so weights are overstated for n > 1.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench.physics.cards import HardwareCard, TargetCard

ACTIVATION_BYTES = 2  # BF16
ALLREDUCES_PER_LAYER = 2  # attention output and MLP or MoE output
DRAFT_LAYERS = 1  # EAGLE-3 drafts have one
GIB = 1024**3


@dataclass(frozen=True, slots=True, kw_only=True)
class Speculation:
    """SGLang's three numbers of the EAGLE family; `3-1-4` is steps, topk, draft tokens.

    Attributes:
        num_steps: Draft forwards a cycle.
        topk: Branches drafted a request and step.
        num_draft_tokens: Tokens verified a request, the root counted.
    """

    num_steps: int
    topk: int
    num_draft_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTime:
    """Milliseconds of one step by cause; they add up to `total_ms`.

    Attributes:
        weights_ms: Reading the target's weights.
        compute_ms: What the matrix products take beyond the reading of the weights, with which
            they overlap.
        kv_ms: Reading the KV cache.
        allreduce_ms: The target's all-reduces.
        fixed_ms: Host and kernel launches of the target's forward.
        draft_ms: All forwards of the draft, their all-reduces included.
    """

    weights_ms: float
    compute_ms: float
    kv_ms: float
    allreduce_ms: float
    fixed_ms: float
    draft_ms: float

    @property
    def total_ms(self) -> float:
        """The whole step."""
        target = self.weights_ms + self.compute_ms + self.kv_ms
        return target + self.allreduce_ms + self.fixed_ms + self.draft_ms


def unique_experts(n_tokens: int, experts: int, experts_per_token: int) -> float:
    """Experts of one layer that `n_tokens` tokens touch in the mean: E·(1 - (1 - k/E)^n)."""
    if experts == 0:
        return 0.0
    return experts * (1.0 - (1.0 - experts_per_token / experts) ** n_tokens)


def weight_bytes_per_gpu(target: TargetCard, n_tokens: int, tp: int) -> float:
    """Bytes of weights that one of `tp` GPUs reads in a forward over `n_tokens` tokens.

    Every GPU reads its slice of every expert touched, and all of each replicated part.
    """
    touched = unique_experts(n_tokens, target.experts, target.experts_per_token)
    routed = touched * target.moe_layers * target.expert_parameters * target.expert_bits / 8
    total = routed / tp
    for part in target.parts:
        total += part.parameters * part.bits / 8 / (1 if part.replicated else tp)
    return total


def kv_bytes_per_token_per_gpu(target: TargetCard, tp: int) -> float:
    """Bytes of KV cache that one token takes on each of `tp` GPUs."""
    return (
        target.layers * target.kv_bytes_per_token_per_layer / (1 if target.kv_replicated else tp)
    )


def allreduce_us(hardware: HardwareCard, message_bytes: float) -> float:
    """Microseconds of one all-reduce, between the card's sizes on a log-log line.

    Below the smallest size its time holds (latency); above the largest the last slope goes on
    (bandwidth).
    """
    table = hardware.allreduce_us
    if message_bytes <= table[0][0]:
        return table[0][1]
    above = min(bisect_left(table, (message_bytes, 0.0)), len(table) - 1)
    (size0, us0), (size1, us1) = table[above - 1], table[above]
    share = math.log(message_bytes / size0) / math.log(size1 / size0)
    return float(us0 * (us1 / us0) ** share)


def decode_step(
    hardware: HardwareCard,
    target: TargetCard,
    *,
    batch: int,
    context_tok_mean: float = 0.0,
    speculation: Speculation | None = None,
    cuda_graph: bool = True,
    tp: int | None = None,
) -> StepTime:
    """One decoding step: a plain forward, or a whole draft-and-verify cycle.

    Args:
        hardware: The node.
        target: The target model.
        batch: Running requests.
        context_tok_mean: Mean tokens of context a request.
        speculation: How it drafts; None: it does not.
        cuda_graph: Whether the step runs as captured graphs.
        tp: Tensor-parallel size; None: all GPUs of the node.
    """
    tp = hardware.gpus if tp is None else tp
    kv_bytes = batch * context_tok_mean * kv_bytes_per_token_per_gpu(target, tp)
    n_tokens, draft_ms = batch, 0.0
    if speculation is not None:
        n_tokens = batch * speculation.num_draft_tokens
        drafted = batch * speculation.topk
        one_ms = _allreduces_ms(hardware, target, drafted, DRAFT_LAYERS, tp)
        draft_ms = speculation.num_steps * (hardware.draft_step_ms + one_ms)
    return _forward(
        hardware, target, n_tokens, kv_bytes, tp, cuda_graph=cuda_graph, draft_ms=draft_ms
    )


def prefill_time(
    hardware: HardwareCard,
    target: TargetCard,
    *,
    chunks: Sequence[tuple[int, int]],
    tp: int | None = None,
) -> StepTime:
    """One prefill batch, run without a CUDA graph.

    Args:
        hardware: The node.
        target: The target model.
        chunks: For each request in the batch: tokens to compute, and tokens of context already in
            the KV cache before them.
        tp: Tensor-parallel size; None: all GPUs of the node.
    """
    tp = hardware.gpus if tp is None else tp
    new_tok = sum(new for new, _ in chunks)
    kv_bytes = sum(context for _, context in chunks) * kv_bytes_per_token_per_gpu(target, tp)
    pairs = sum(new * (context + new / 2) for new, context in chunks)
    return _forward(hardware, target, new_tok, kv_bytes, tp, cuda_graph=False, pairs=pairs)


def kv_capacity_tok(
    hardware: HardwareCard,
    target: TargetCard,
    *,
    mem_fraction_static: float,
    speculative: bool = False,
    tp: int | None = None,
) -> int:
    """Tokens whose KV cache fits beside the weights in a share of a GPU's memory.

    0: the weights alone do not fit. A draft takes its weights and, having one layer of its own, a
    KV slot a token, of the size of one target layer's.
    """
    tp = hardware.gpus if tp is None else tp
    weights = weight_bytes_per_gpu(target, 0, tp)
    weights += (
        target.moe_layers * target.experts * target.expert_parameters * target.expert_bits / 8 / tp
    )
    weights += target.idle_parameters * target.idle_bits / 8 / tp
    per_token = kv_bytes_per_token_per_gpu(target, tp)
    if speculative:
        weights += target.draft_parameters * 2 / tp
        per_token += per_token / target.layers * DRAFT_LAYERS
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


def _allreduces_ms(
    hardware: HardwareCard, target: TargetCard, n_tokens: int, layers: int, tp: int
) -> float:
    if tp == 1:
        return 0.0
    message_bytes = n_tokens * target.hidden * ACTIVATION_BYTES
    return layers * ALLREDUCES_PER_LAYER * allreduce_us(hardware, message_bytes) / 1e3


def _forward(
    hardware: HardwareCard,
    target: TargetCard,
    n_tokens: int,
    kv_bytes: float,
    tp: int,
    *,
    cuda_graph: bool,
    draft_ms: float = 0.0,
    pairs: float = 0.0,
) -> StepTime:
    bytes_per_ms = hardware.bandwidth_gb_per_s * 1e6 * hardware.bandwidth_efficiency
    weights_ms = weight_bytes_per_gpu(target, n_tokens, tp) / bytes_per_ms
    flop = 2.0 * target.active_parameters * n_tokens + target.attention_flop_per_pair * pairs
    compute_ms = flop / (tp * hardware.effective_tflops * 1e9)
    return StepTime(
        weights_ms=weights_ms,
        compute_ms=max(0.0, compute_ms - weights_ms),
        kv_ms=kv_bytes / bytes_per_ms,
        allreduce_ms=_allreduces_ms(hardware, target, n_tokens, target.layers, tp),
        fixed_ms=hardware.fixed_ms + (0.0 if cuda_graph else hardware.eager_extra_ms),
        draft_ms=draft_ms,
    )
