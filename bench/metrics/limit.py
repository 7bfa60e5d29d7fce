"""The memory-bandwidth floor of a cell, from the cards of its hardware and target."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bench import physics
from bench.metrics.acceptance import accept_len_tok, pool_counters
from bench.metrics.configuration import speculative_setting
from bench.model import RequestStatus
from bench.sglang.arguments import asked_text, parse_arguments

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench.model import Cell, EffectiveConfig, RequestSample, ServerConfig


def limit_tok_per_s(
    cell: Cell, server: ServerConfig, effective: EffectiveConfig, samples: Sequence[RequestSample]
) -> float | None:
    """Output tokens a second that no server of this model on this hardware can pass at this load.

    Closed loops only, at the cell's concurrency, the mean context and, for a speculative arm, the
    accept length of its own requests: weights and KV are read once a step at the full bandwidth,
    everything else costs nothing (`bench.physics.limit_tok_per_s`).

    Returns:
        None in open loops, where hardware or target have no card, and without finished requests.
    """
    if cell.load.concurrency is None or server.hardware is None or server.target_card is None:
        return None
    ok = [s for s in samples if s.phase == "measure" and s.status is RequestStatus.OK]
    contexts = [
        s.prompt_tok + s.output_tok / 2
        for s in ok
        if s.prompt_tok is not None and s.output_tok is not None
    ]
    if not contexts:
        return None
    verified, accept_len = 1, 1.0
    if cell.arm_is_speculative:
        counters = pool_counters(ok)
        measured = accept_len_tok(counters.num_correct_drafts, counters.verify_ct)
        drafts = speculative_setting(effective, "num_draft_tokens")
        if measured is None or not isinstance(drafts, int):
            return None
        verified, accept_len = drafts, measured
    asked_tp = asked_text(parse_arguments(server.arguments), "tp_size")
    return physics.limit_tok_per_s(
        physics.load_hardware(server.hardware),
        physics.load_target(server.target_card),
        batch=cell.load.concurrency,
        context_tok_mean=sum(contexts) / len(contexts),
        tokens_per_request=verified,
        accept_len_tok=accept_len,
        tp=int(asked_tp or 1),
    )
