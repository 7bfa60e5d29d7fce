"""The time of a decoding step, of a prefill, and of both in one forward.

A forward over n tokens takes, per GPU of a tensor-parallel group::

    max(weight bytes(n) / bandwidth, operations(n) / rate)
        + max(KV bytes / bandwidth, attention's operations / rate)
        + all-reduces · time of one at n · hidden · 2 bytes
        + fixed: a share of the step, and gaps between the kernels of each layer

Without a CUDA graph the host launches the kernels one by one while the GPUs work; the forward
takes as long as the slower of the two.

A draft-and-verify cycle is, in this order (SGLang's eagle_worker.py): the draft's extend over what
was verified before, num_steps - 1 single draft steps, the target's forward over all drafts of all
requests, and what the host does between them (`bench.physics.engines`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from bench.physics.allreduce import allreduce_us
from bench.physics.engines import SGLANG_0_5_23, Engine, graph_batch
from bench.physics.weights import (
    flop_per_token,
    kv_bytes_per_token_per_gpu,
    weight_bytes_per_gpu,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench.physics.cards import DraftCard, HardwareCard, TargetCard

ACTIVATION_BYTES = 2  # BF16
ALLREDUCES_PER_LAYER = 2  # attention output and MLP or MoE output
# Without a graph a draft's head, choice of candidates and bookkeeping are about as many launches
# as its layer.
_DRAFT_EAGER_LAYERS = 2


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
        kv_ms: Attention: reading the KV cache, or its operations where they take longer.
        allreduce_ms: The target's all-reduces.
        fixed_ms: Host and kernel launches of the target's forward.
        draft_ms: All forwards of the draft, their all-reduces included.
        cycle_ms: What a draft-and-verify cycle adds once: tree attention, building and accepting,
            host work that is not hidden.
    """

    weights_ms: float
    compute_ms: float
    kv_ms: float
    allreduce_ms: float
    fixed_ms: float
    draft_ms: float = 0.0
    cycle_ms: float = 0.0

    @property
    def total_ms(self) -> float:
        """The whole step."""
        target = self.weights_ms + self.compute_ms + self.kv_ms + self.allreduce_ms
        return target + self.fixed_ms + self.draft_ms + self.cycle_ms


def decode_step(
    hardware: HardwareCard,
    target: TargetCard,
    *,
    batch: int,
    context_tok_mean: float = 0.0,
    speculation: Speculation | None = None,
    graph_batches: Sequence[int] | None = None,
    tp: int | None = None,
    engine: Engine = SGLANG_0_5_23,
) -> StepTime:
    """One decoding step: a plain forward, or a whole draft-and-verify cycle.

    Args:
        hardware: The node.
        target: The target model; its draft is the one that drafts.
        batch: Running requests.
        context_tok_mean: Mean tokens of context a request.
        speculation: How it drafts; None: it does not.
        graph_batches: Batch sizes captured as CUDA graphs, rising: the batch is padded to the next
            one, and runs without a graph beyond the last. Empty: no graphs; None: one of just this
            batch.
        tp: Tensor-parallel size; None: all GPUs of the node.
        engine: What the host does between the forwards of a cycle.
    """
    tp = hardware.gpus if tp is None else tp
    captured = graph_batch(batch, graph_batches)
    rows = batch if captured is None else captured
    per_request = 1 if speculation is None else speculation.num_draft_tokens
    context_tok = batch * context_tok_mean
    verify = _forward(
        hardware,
        target,
        rows * per_request,
        tp,
        context_tok=context_tok,
        pairs=per_request * context_tok,
        graph=captured is not None,
    )
    if speculation is None:
        return verify
    draft_ms = _draft_ms(
        hardware,
        target,
        speculation,
        tp,
        rows=rows,
        context_tok=context_tok,
        graph=captured is not None,
        extend_graph=captured is not None and engine.draft_extend_graph,
    )
    once_ms = target.cycle_fixed_ms
    if once_ms is None:
        once_ms = hardware.cycle_fixed_ms
    once_ms += engine.cycle_ms + batch * engine.request_us / 1e3
    if speculation.topk > 1:
        once_ms += target.layers * hardware.tree_layer_us / 1e3
        once_ms += speculation.num_steps * hardware.tree_step_us / 1e3
    return StepTime(
        weights_ms=verify.weights_ms,
        compute_ms=verify.compute_ms,
        kv_ms=verify.kv_ms,
        allreduce_ms=verify.allreduce_ms,
        fixed_ms=verify.fixed_ms,
        draft_ms=draft_ms,
        cycle_ms=once_ms,
    )


def prefill_time(
    hardware: HardwareCard,
    target: TargetCard,
    *,
    chunks: Sequence[tuple[int, int]],
    tp: int | None = None,
    speculative: bool = False,
) -> StepTime:
    """One prefill batch, run without a CUDA graph.

    Args:
        hardware: The node.
        target: The target model.
        chunks: For each request in the batch: tokens to compute, and tokens of context already in
            the KV cache before them (earlier chunks of the prompt, or a prefix found there).
        tp: Tensor-parallel size; None: all GPUs of the node.
        speculative: Whether the draft takes in the prompt too.
    """
    return mixed_step(hardware, target, chunks=chunks, tp=tp, speculative=speculative)


def mixed_step(
    hardware: HardwareCard,
    target: TargetCard,
    *,
    chunks: Sequence[tuple[int, int]],
    batch: int = 0,
    context_tok_mean: float = 0.0,
    tp: int | None = None,
    speculative: bool = False,
) -> StepTime:
    """A prefill batch with `batch` decoding requests in the same forward (--enable-mixed-chunk).

    SGLang mixes only without speculation, and runs the forward without a CUDA graph.

    Args:
        hardware: The node.
        target: The target model.
        chunks: As of `prefill_time`.
        batch: Decoding requests, a token each.
        context_tok_mean: Their mean context.
        tp: Tensor-parallel size; None: all GPUs of the node.
        speculative: Whether the draft takes in the prompt too.
    """
    tp = hardware.gpus if tp is None else tp
    new_tok = sum(new for new, _ in chunks)
    prefix_tok = sum(context for _, context in chunks)
    pairs = sum(new * (context + new / 2) for new, context in chunks)
    forward = _forward(
        hardware,
        target,
        new_tok + batch,
        tp,
        context_tok=prefix_tok + batch * context_tok_mean,
        pairs=batch * context_tok_mean,
        prefill_pairs=pairs,
        graph=False,
    )
    draft = target.draft if speculative else None
    if draft is None:
        return forward
    return StepTime(
        weights_ms=forward.weights_ms,
        compute_ms=forward.compute_ms,
        kv_ms=forward.kv_ms,
        allreduce_ms=forward.allreduce_ms,
        fixed_ms=forward.fixed_ms,
        draft_ms=_draft_forward_ms(
            hardware, draft, new_tok, tp, context_tok=prefix_tok, graph=False, extend=True
        ),
    )


def _forward(
    hardware: HardwareCard,
    target: TargetCard,
    n_tokens: float,
    tp: int,
    *,
    context_tok: float,
    pairs: float,
    prefill_pairs: float = 0.0,
    graph: bool,
) -> StepTime:
    """The target over `n_tokens`; `pairs` are of decoding queries, `prefill_pairs` of prompts."""
    bytes_per_ms = hardware.bandwidth_gb_per_s * 1e6 * hardware.bandwidth_efficiency
    flop_per_ms = hardware.effective_tflops * 1e9
    weights_ms = weight_bytes_per_gpu(target, n_tokens, tp) / bytes_per_ms
    compute_ms = n_tokens * flop_per_token(target, tp) / flop_per_ms
    decoding = target.decode_attention_flop_per_pair or target.attention_flop_per_pair
    attention = pairs * decoding + prefill_pairs * target.attention_flop_per_pair
    kv_ms = max(
        context_tok * kv_bytes_per_token_per_gpu(target, tp) / bytes_per_ms,
        attention / tp / flop_per_ms,
    )
    allreduce_ms = _allreduces_ms(hardware, n_tokens, target.hidden, target.layers, tp)
    fixed_ms = target.fixed_ms
    if fixed_ms is None:
        fixed_ms = hardware.fixed_ms + target.layers * hardware.layer_us / 1e3
    if not graph:
        launching_ms = hardware.fixed_ms + target.layers * hardware.eager_layer_us / 1e3
        busy_ms = max(weights_ms, compute_ms) + kv_ms + allreduce_ms
        fixed_ms = max(fixed_ms, launching_ms - busy_ms)
    return StepTime(
        weights_ms=weights_ms,
        compute_ms=max(0.0, compute_ms - weights_ms),
        kv_ms=kv_ms,
        allreduce_ms=allreduce_ms,
        fixed_ms=fixed_ms,
    )


def _draft_ms(
    hardware: HardwareCard,
    target: TargetCard,
    speculation: Speculation,
    tp: int,
    *,
    rows: int,
    context_tok: float,
    graph: bool,
    extend_graph: bool,
) -> float:
    """All draft forwards of a cycle; without a card of the draft only their fixed time."""
    draft = target.draft
    if draft is None or speculation.num_steps == 0:
        return speculation.num_steps * hardware.draft_fixed_ms
    extend_ms = _draft_forward_ms(
        hardware,
        draft,
        rows * speculation.num_draft_tokens,
        tp,
        context_tok=context_tok,
        graph=extend_graph,
        extend=True,
    )
    if speculation.num_steps == 1:
        return extend_ms
    step_ms = _draft_forward_ms(
        hardware,
        draft,
        rows * speculation.topk,
        tp,
        context_tok=context_tok,
        graph=graph,
        extend=False,
    )
    return extend_ms + (speculation.num_steps - 1) * step_ms


def _draft_forward_ms(
    hardware: HardwareCard,
    draft: DraftCard,
    n_tokens: float,
    tp: int,
    *,
    context_tok: float,
    graph: bool,
    extend: bool,
) -> float:
    bytes_per_ms = hardware.bandwidth_gb_per_s * 1e6 * hardware.bandwidth_efficiency
    weights_ms = weight_bytes_per_gpu(draft, n_tokens, tp, extend=extend) / bytes_per_ms
    flop = n_tokens * flop_per_token(draft, tp, extend=extend)
    busy_ms = (
        max(weights_ms, flop / (hardware.effective_tflops * 1e9))
        + context_tok * kv_bytes_per_token_per_gpu(draft, tp) / bytes_per_ms
        + _allreduces_ms(hardware, n_tokens, draft.hidden, draft.layers, tp)
    )
    total_ms = busy_ms + hardware.draft_fixed_ms
    if graph:
        return total_ms
    launches = _DRAFT_EAGER_LAYERS * draft.layers
    return max(total_ms, launches * hardware.eager_layer_us / 1e3)


def _allreduces_ms(
    hardware: HardwareCard, n_tokens: float, hidden: int, layers: int, tp: int
) -> float:
    if tp == 1:
        return 0.0
    message_bytes = n_tokens * hidden * ACTIVATION_BYTES
    return layers * ALLREDUCES_PER_LAYER * allreduce_us(hardware, message_bytes, tp) / 1e3
