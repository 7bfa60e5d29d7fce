"""The steady window of a cell, and how many tokens fall into it.

A slot of a closed loop is busy from its first send to its last response, the gaps between its
requests included. The window runs from the moment every slot is past warm-up (has sent its first
measured request) to the first moment a slot has no more work. In an open loop it runs from the end
of warm-up (the due time of the first measured request) to the last due time.

Tokens at the window's edges are interpolated linearly from the cumulative counts of the events
around each edge: before its first event a request has 0 tokens, at its first event it has those of
that event, and between two events they grow linearly.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from bench.model import RequestStatus

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import numpy.typing as npt

    from bench.model import Load, RequestSample

CLOSED_RULE: Final = (
    "closed: every slot past warm-up, to the first slot out of work; edges interpolated"
)
OPEN_RULE: Final = "open: end of warm-up, to the last due time; edges interpolated"


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """The part of a cell that throughput is taken from, in clock ns; `start_ns < end_ns`."""

    rule: str
    start_ns: int
    end_ns: int

    @property
    def length_s(self) -> float:
        """Its length in seconds."""
        return (self.end_ns - self.start_ns) / 1e9

    def contains(self, t_ns: int) -> bool:
        """Whether what ended at `t_ns` ended inside; only the end belongs to the window."""
        return self.start_ns < t_ns <= self.end_ns


@dataclass(frozen=True, slots=True, kw_only=True)
class NoWindow:
    """Why a cell has no window, in words."""

    rule: str
    reason: str


def find_window(load: Load, samples: Sequence[RequestSample]) -> Window | NoWindow:
    """The window of a cell.

    Args:
        load: How requests arrived. A capacity search counts as an open loop.
        samples: All requests of the cell, warm-up included, in any order.

    Returns:
        The window, or why there is none.
    """
    if load.kind == "closed":
        return _closed_window(load.concurrency or 0, samples)
    due_ns = [s.due_ns for s in samples if s.phase == "measure"]
    if not due_ns:
        return NoWindow(rule=OPEN_RULE, reason="no request was measured")
    return _window(OPEN_RULE, min(due_ns), max(due_ns))


def _closed_window(concurrency: int, samples: Sequence[RequestSample]) -> Window | NoWindow:
    past_warmup_ns: dict[int | None, int] = {}
    out_of_work_ns: dict[int | None, int] = {}
    for sample in samples:
        if sample.phase != "measure":
            continue
        sent_ns = sample.due_ns if sample.sent_ns is None else sample.sent_ns
        past_warmup_ns[sample.slot] = min(past_warmup_ns.get(sample.slot, sent_ns), sent_ns)
        out_of_work_ns[sample.slot] = max(
            out_of_work_ns.get(sample.slot, sample.ended_ns), sample.ended_ns
        )
    if not past_warmup_ns or len(past_warmup_ns) < concurrency:
        return NoWindow(
            rule=CLOSED_RULE,
            reason=f"{len(past_warmup_ns)} of {concurrency} slots sent a measured request",
        )
    return _window(CLOSED_RULE, max(past_warmup_ns.values()), min(out_of_work_ns.values()))


def _window(rule: str, start_ns: int, end_ns: int) -> Window | NoWindow:
    if end_ns <= start_ns:
        reason = (
            f"it would start {(start_ns - end_ns) / 1e6:.1f} ms after its end: a slot was out of "
            "work before the last one "
            "was past warm-up"
            if rule == CLOSED_RULE
            else "all requests were due at the same moment"
        )
        return NoWindow(rule=rule, reason=reason)
    return Window(rule=rule, start_ns=start_ns, end_ns=end_ns)


def first_event_tok(sample: RequestSample) -> int:
    """Tokens of the first event: by the running count, else 1 (the one that prefill makes)."""
    return sample.event_tok[0] if sample.event_tok else 1


def counts_tokens(sample: RequestSample) -> bool:
    """Whether the request adds tokens to any sum: it ended as it should, and somebody counted."""
    return sample.status is RequestStatus.OK and sample.output_tok is not None


def cumulative_tok(sample: RequestSample) -> npt.NDArray[np.float64]:
    """Cumulative tokens after each event, shape (events,); the last is `output_tok`.

    Without running counts the first event gets 1 token and the others equal shares of the rest: a
    guess, which moves only the tokens of requests that a window's edge cuts (`counts_guessed`).
    """
    total = float(sample.output_tok or 0)
    events = len(sample.event_ns)
    if sample.event_tok is not None:
        counts = np.minimum(np.array(sample.event_tok, dtype=np.float64), total)
        if events:
            # The server's final count stands: an end-of-text token may come with no event of its
            # own.
            counts[-1] = total
        return counts
    if events == 1:
        return np.array([total])
    return np.linspace(min(1.0, total), total, events)


def tokens_at(sample: RequestSample, times_ns: Sequence[int]) -> npt.NDArray[np.float64]:
    """Tokens that a request had by each moment, shape (times,), linear between events."""
    if not counts_tokens(sample):
        return np.zeros(len(times_ns))
    if not sample.event_ns:
        # Counted by the server, but no event could be told to carry a token: they were there when
        # it ended.
        return np.array(
            [float(sample.output_tok or 0) if t >= sample.ended_ns else 0.0 for t in times_ns]
        )
    # Differences from the first event: nanoseconds of a clock that has run for months do not fit a
    # float exactly.
    origin_ns = sample.event_ns[0]
    events = np.array([t - origin_ns for t in sample.event_ns], dtype=np.float64)
    at = np.array([t - origin_ns for t in times_ns], dtype=np.float64)
    return np.interp(at, events, cumulative_tok(sample), left=0.0)


def tokens_in(samples: Iterable[RequestSample], window: Window) -> float | None:
    """Output tokens inside the window, requests that its edges cut included (warm-up ones too).

    Returns:
        None when the tokens of a request that ended well are unknown: a sum with a missing part is
        not a sum.
    """
    total = 0.0
    for sample in samples:
        if sample.status is not RequestStatus.OK:
            continue
        if sample.output_tok is None:
            return None
        before, after = tokens_at(sample, (window.start_ns, window.end_ns))
        total += float(after - before)
    return total


def counts_guessed(samples: Iterable[RequestSample], window: Window) -> int:
    """How many requests without running counts an edge cuts: their tokens there are a guess."""
    return sum(
        1
        for s in samples
        if counts_tokens(s)
        and s.event_tok is None
        and len(s.event_ns) > 1
        and any(s.event_ns[0] < edge < s.event_ns[-1] for edge in (window.start_ns, window.end_ns))
    )


def cut_at_end(samples: Iterable[RequestSample], window: Window) -> int:
    """Measured requests that were under way when the window ended."""
    return sum(
        1
        for s in samples
        if s.phase == "measure"
        and s.sent_ns is not None
        and s.sent_ns < window.end_ns < s.ended_ns
    )


def busy_slots_mean(load: Load, samples: Sequence[RequestSample], window: Window) -> float:
    """Mean of busy slots over the window; in an open loop of requests in flight."""
    if load.kind != "closed":
        return in_flight_mean(samples, window)
    spans: dict[int | None, tuple[int, int]] = {}
    for s in samples:
        sent_ns = s.due_ns if s.sent_ns is None else s.sent_ns
        first_ns, last_ns = spans.get(s.slot, (sent_ns, s.ended_ns))
        spans[s.slot] = (min(first_ns, sent_ns), max(last_ns, s.ended_ns))
    return _mean_overlap(spans.values(), window)


def in_flight_mean(samples: Iterable[RequestSample], window: Window) -> float:
    """Mean of requests in flight over the window, from their sends to their last bytes."""
    return _mean_overlap(
        ((s.sent_ns, s.ended_ns) for s in samples if s.sent_ns is not None), window
    )


def _mean_overlap(spans: Iterable[tuple[int, int]], window: Window) -> float:
    busy_ns = sum(
        max(0, min(end, window.end_ns) - max(start, window.start_ns)) for start, end in spans
    )
    return busy_ns / (window.end_ns - window.start_ns)
