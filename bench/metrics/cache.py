"""How much of the prompts the server took from its prefix cache."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from bench.metrics.series import counter_delta

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench.metrics.series import Series
    from bench.model import RequestSample


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheUse:
    """Prompt tokens over some requests, and those of them that came from the cache."""

    requests: int
    cached_tok: float
    prompt_tok: float

    @property
    def hit_ratio(self) -> float | None:
        """Cached over all prompt tokens, a ratio of sums; None without prompts."""
        return self.cached_tok / self.prompt_tok if self.prompt_tok else None


def cache_use(
    ok: Sequence[RequestSample], samples: Sequence[RequestSample], series: Series
) -> CacheUse | None:
    """Cache use of the measured requests by their own counts, else of the cell by counters.

    Args:
        ok: The measured requests that ended well.
        samples: All requests, warm-up included: what the counters count.
        series: The cell's telemetry.

    Returns:
        None when neither source tells.
    """
    told = [
        (s.cached_tok, s.prompt_tok)
        for s in ok
        if s.cached_tok is not None and s.prompt_tok is not None
    ]
    if told and len(told) == len(ok):
        return CacheUse(
            requests=len(told),
            cached_tok=sum(cached for cached, _ in told),
            prompt_tok=sum(prompt for _, prompt in told),
        )
    span = cell_span_ns(samples)
    if span is None:
        return None
    cached = counter_delta(series, "sglang:cached_tokens_total", *span)
    prompt = counter_delta(series, "sglang:prompt_tokens_total", *span)
    if cached is None or not prompt:
        return None
    return CacheUse(requests=len(samples), cached_tok=cached, prompt_tok=prompt)


def cell_span_ns(samples: Sequence[RequestSample]) -> tuple[int, int] | None:
    """First send to last byte over all requests of the cell; None when none was sent."""
    sent = [s for s in samples if s.sent_ns is not None]
    if not sent:
        return None
    return min(s.sent_ns for s in sent if s.sent_ns is not None), max(s.ended_ns for s in sent)
