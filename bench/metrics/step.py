"""The time of a step, a verify step or a plain one, and where a request's time goes.

A server tells verify counts only when a request ends. A request's steps are spread over its decode
time, from its first to its last token, in proportion to its tokens; queueing and prefill do not
count. `cycle_ms` is then the decode time inside the window over the verify steps inside the
window, a ratio of sums over requests.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Final

import numpy as np

from bench.metrics.acceptance import reports_counters
from bench.metrics.cache import cell_span_ns
from bench.metrics.latency import decode_tokens, e2e_ms, ttft_ms
from bench.metrics.series import counter_delta
from bench.metrics.window import counts_tokens, tokens_at
from bench.model import RequestStatus

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import numpy.typing as npt

    from bench.metrics.series import Series
    from bench.metrics.window import Window
    from bench.model import RequestSample

# Events short of steps by more than this share were merged on the way (server, network or client);
# the small allowance is for steps whose token had no text of its own and so no event.
COALESCED_SHARE: Final = 0.02
# The requests that hide none are no fair sample of the cell when more than this share hides some.
HIDDEN_SHARE: Final = 0.10
QUEUE_TIME_SUM: Final = "sglang:queue_time_seconds_sum"


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodeInWindow:
    """Sums of the decoding that lies inside the window; steps and tokens are fractional."""

    decode_ns: int
    tokens: float
    steps: float

    @property
    def cycle_ms(self) -> float | None:
        """Decode time a step, in milliseconds."""
        return self.decode_ns / 1e6 / self.steps if self.steps > 0 else None

    @property
    def tok_per_s_per_user(self) -> float | None:
        """Tokens a second of decode time, as measured: no acceptance counter is in it."""
        return self.tokens / (self.decode_ns / 1e9) if self.decode_ns > 0 else None


def decode_in_window(
    samples: Iterable[RequestSample], window: Window, *, speculative: bool
) -> DecodeInWindow:
    """Add up the decoding inside the window.

    Args:
        samples: All requests of the cell; those that failed, were not counted or hide tokens are
            left out.
        window: The cell's window.
        speculative: Whether steps are verify steps (requests without their count are left out), or
            tokens.
    """
    decode_ns, tokens, steps = 0, 0.0, 0.0
    for sample in samples:
        part = decode_part(sample, window.start_ns, window.end_ns)
        verify_ct = sample.spec_verify_ct if speculative else decode_tokens(sample)
        if part is None or verify_ct is None:
            continue
        part_ns, part_tok, decode_tok = part
        decode_ns += part_ns
        tokens += part_tok
        steps += verify_ct * part_tok / decode_tok
    return DecodeInWindow(decode_ns=decode_ns, tokens=tokens, steps=steps)


def hides_too_many(ok: Sequence[RequestSample]) -> bool:
    """Whether so many requests made tokens before their first event that no step can be timed.

    What is left is then the few requests that happened to show their first token at once: their
    steps are not the cell's.

    Args:
        ok: The measured requests that ended well.
    """
    hidden = sum(1 for s in ok if s.tokens_before_first_event)
    return hidden > HIDDEN_SHARE * len(ok)


def decode_part(
    sample: RequestSample, start_ns: int, end_ns: int
) -> tuple[int, float, int] | None:
    """The part of a request's decoding between two moments.

    Returns:
        (decode nanoseconds, tokens in them, all decode tokens of the request); None when there is
        no such part.
    """
    decode_tok = decode_tokens(sample)
    if decode_tok is None or decode_tok <= 0:
        return None
    low = max(start_ns, sample.event_ns[0])
    high = min(end_ns, sample.event_ns[-1])
    if high <= low:
        return None
    before, after = tokens_at(sample, (low, high))
    return high - low, float(after - before), decode_tok


def expected_events(sample: RequestSample, *, speculative: bool) -> int | None:
    """Events of a request when nothing is merged: one from prefill, one a step; None: unknown.

    A request that was thrown out of the batch is prefilled again, and that makes a token too.
    """
    if not counts_tokens(sample) or sample.tokens_before_first_event:
        return None
    if not speculative:
        return sample.output_tok
    if not reports_counters(sample):
        return None
    return (sample.spec_verify_ct or 0) + 1 + (sample.num_retractions or 0)


def event_coverage(samples: Iterable[RequestSample], *, speculative: bool) -> float | None:
    """Events over those expected, a ratio of sums; below 1 some were merged; None: unknown."""
    events, expected = 0, 0
    for sample in samples:
        steps = expected_events(sample, speculative=speculative)
        if steps is not None:
            events += len(sample.event_ns)
            expected += steps
    return events / expected if expected else None


def cycle_from_gaps_ms(
    samples: Sequence[RequestSample], window: Window, *, speculative: bool
) -> float | None:
    """Median gap between events inside the window, in milliseconds: a step without counters.

    Returns:
        None when events were merged (a gap is then several steps), or when it cannot be told
        whether they were.
    """
    coverage = event_coverage(samples, speculative=speculative)
    if coverage is None or abs(coverage - 1) > COALESCED_SHARE:
        return None
    gaps_ns = [
        b - a
        for s in samples
        if s.status is RequestStatus.OK
        for a, b in pairwise(s.event_ns)
        if window.start_ns <= a and b <= window.end_ns
    ]
    return float(np.median(gaps_ns)) / 1e6 if gaps_ns else None


def undisturbed_gaps_ms(
    samples: Sequence[RequestSample], window: Window
) -> npt.NDArray[np.float64]:
    """Gaps between events inside the window while no other request awaited its first token.

    A prefill of another request stalls everybody's step; these are the steps without one. (Where
    most steps have one, the median over all gaps is a stalled step and above the mean.)

    Returns:
        Milliseconds, shape (gaps,); empty when there always was one waiting.
    """
    sent = [s for s in samples if s.sent_ns is not None]
    begins = np.sort(np.array([s.sent_ns for s in sent], dtype=np.int64))
    ends = np.sort(
        np.array([s.event_ns[0] if s.event_ns else s.ended_ns for s in sent], dtype=np.int64)
    )
    parts = [np.array([], dtype=np.int64)]
    for s in samples:
        if s.status is not RequestStatus.OK:
            continue
        at = np.array(s.event_ns, dtype=np.int64)
        before, after = at[:-1], at[1:]
        waiting = np.searchsorted(begins, after, side="left") - np.searchsorted(
            ends, before, side="right"
        )
        chosen = (before >= window.start_ns) & (after <= window.end_ns) & (waiting == 0)
        parts.append((after - before)[chosen])
    return np.concatenate(parts) / 1e6


def residual_share(
    measured_tok_per_s: float | None, decode_tok_per_s: float | None
) -> float | None:
    """What tau / cycle leaves unexplained of a user's measured decode speed, as its share."""
    if measured_tok_per_s is None or not decode_tok_per_s:
        return None
    return measured_tok_per_s / decode_tok_per_s - 1


def queue_and_prefill_shares(
    ok: Sequence[RequestSample], samples: Sequence[RequestSample], series: Series
) -> tuple[float | None, float | None]:
    """Shares of end-to-end time in the server's queue, and from there to the first token.

    Ratios of sums: over the measured requests where the server told each one's queue time; else
    over all requests of the cell, by the server's queue-time counter.

    Args:
        ok: The measured requests that ended well.
        samples: All requests, warm-up included: what the counter counts.
        series: The cell's telemetry.

    Returns:
        Both None where neither source tells: waiting cannot be told from prefill then.
    """
    told = [s.queue_ns for s in ok if s.queue_ns is not None]
    if told and len(told) == len(ok):
        return _shares(sum(told) / 1e6, ok)
    span = cell_span_ns(samples)
    if span is None or not all(s.status is RequestStatus.OK for s in samples):
        return None, None
    queue_s = counter_delta(series, QUEUE_TIME_SUM, *span)
    return (None, None) if queue_s is None else _shares(1000 * queue_s, samples)


def _shares(
    queue_ms: float, samples: Sequence[RequestSample]
) -> tuple[float | None, float | None]:
    first = [ttft_ms(s) for s in samples]
    whole = [e2e_ms(s) for s in samples]
    first_ms, total_ms = (sum(v for v in values if v is not None) for values in (first, whole))
    if None in first or None in whole or total_ms <= 0:
        return None, None
    return queue_ms / total_ms, (first_ms - queue_ms) / total_ms
