"""Latencies of one request, and percentiles over requests.

Closed-loop latencies start at the send. Open-loop ones start when the schedule wanted the request
sent: a client that waits for a slow server before it sends would hide the very delay that a user
waits for (coordinated omission).
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from bench.metrics.window import counts_tokens, first_event_tok
from bench.model import Distribution

if TYPE_CHECKING:
    from collections.abc import Iterable

    from bench.model import RequestSample


def start_ns(sample: RequestSample) -> int | None:
    """When a request's latencies start: due time in an open loop, send in a closed one."""
    return sample.due_ns if sample.slot is None else sample.sent_ns


def ttft_ms(sample: RequestSample) -> float | None:
    """Start to the first event with a generated token of any kind, in milliseconds."""
    return _since_start_ms(sample, sample.event_ns[0] if sample.event_ns else None)


def ttfo_ms(sample: RequestSample) -> float | None:
    """Start to the first event with visible (non-reasoning) output, in milliseconds."""
    return _since_start_ms(sample, sample.first_visible_ns)


def e2e_ms(sample: RequestSample) -> float | None:
    """Start to the last byte of the stream, in milliseconds."""
    return _since_start_ms(sample, sample.ended_ns)


def tpot_ms(sample: RequestSample) -> float | None:
    """Time per output token after the first event, in milliseconds.

    (last event - first event) / (output tokens - those of the first event).

    Returns:
        Milliseconds; None when nothing follows the first event, when nobody counted the tokens, or
        when tokens were generated before the first event (hidden reasoning): the time they took is
        not in the difference.
    """
    decode_tok = decode_tokens(sample)
    if decode_tok is None or decode_tok <= 0 or len(sample.event_ns) < 2:
        return None
    return (sample.event_ns[-1] - sample.event_ns[0]) / 1e6 / decode_tok


def decode_tokens(sample: RequestSample) -> int | None:
    """Tokens made after the first event; None when they cannot be told from those before it."""
    if not counts_tokens(sample) or sample.tokens_before_first_event or not sample.event_ns:
        return None
    return (sample.output_tok or 0) - first_event_tok(sample)


def chunk_gaps_ms(sample: RequestSample) -> tuple[float, ...]:
    """Gaps between consecutive token-bearing events, in milliseconds: n events give n - 1.

    Under speculation one event carries several tokens: this is the step a reader feels, not a
    latency between tokens.
    """
    times = sample.event_ns
    return tuple((b - a) / 1e6 for a, b in pairwise(times))


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodeRates:
    """The three speeds of one request; only the second is how fast it decodes."""

    prefill_tok_per_s: float | None
    decode_tok_per_s: float | None
    e2e_tok_per_s: float | None


def decode_rates(prompt_tok: int, output_tok: int, ttft_s: float, e2e_s: float) -> DecodeRates:
    """Tell prefill, decode and end-to-end rates apart.

    Args:
        prompt_tok: Prompt tokens.
        output_tok: Generated tokens; the first of them comes with `ttft_s`.
        ttft_s: Time to the first token, in seconds.
        e2e_s: Time to the last one, in seconds.
    """
    decode_s = e2e_s - ttft_s
    return DecodeRates(
        prefill_tok_per_s=prompt_tok / ttft_s if ttft_s > 0 else None,
        decode_tok_per_s=(output_tok - 1) / decode_s if decode_s > 0 and output_tok > 1 else None,
        e2e_tok_per_s=output_tok / e2e_s if e2e_s > 0 else None,
    )


def distribution(values: Iterable[float | None]) -> Distribution | None:
    """Mean and percentiles (linear between order statistics) of the values that are there."""
    present = np.sort(np.array([v for v in values if v is not None], dtype=np.float64))
    if not present.size:
        return None
    p50, p90, p95, p99 = np.percentile(present, (50, 90, 95, 99)).tolist()
    return Distribution(
        mean=float(present.mean()), p50=p50, p90=p90, p95=p95, p99=p99, n=int(present.size)
    )


def _since_start_ms(sample: RequestSample, t_ns: int | None) -> float | None:
    start = start_ns(sample)
    return None if t_ns is None or start is None else (t_ns - start) / 1e6
