"""What the client said against what really happened, request by request; pure."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench.model import RequestSample
    from bench.selftest.serving import Pace, TrueAnswer

MOST_MS: Final = 1.0
"""An error of the client that still goes for right: of latencies."""
MOST_SHARE: Final = 0.01
"""The same of rates and times a token."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Accuracy:
    """Errors of one trial; milliseconds, shares of 1. None: there was nothing to tell it from.

    Attributes:
        requests: How many were asked for.
        wrong: Those that failed, or whose tokens or events were miscounted.
        ttft_error_mean_ms: The client's time to the first event, from its send, beyond the
            server's from its receipt: mean over requests; so is the next.
        ttft_error_p50_ms: Median of the same.
        ttft_error_p99_ms: 99th percentile of the same.
        gap_error_p50_ms: A gap between two events by the client against the same by the server:
            median of what they differ by, and of the 99th percentile the next.
        gap_error_p99_ms: 99th percentile of the same.
        gap_p99_excess_ms: The 99th percentile of gaps that the client tells beyond the true one.
        tpot_error_share: Time per output token by the client against the true one: the mean's
            relative error.
        span_error_share: The same of the time from the first send to the last event, by which
            throughput is told.
        late_p50_ms: Sends against when they were due.
        late_p99_ms: 99th percentile of the same.
        rate_error_share: Open load: the rate of sends against that of the drawn schedule.
        server_late_p99_ms: How late the server itself wrote events by its own schedule: where the
            client takes the server's core, this grows. None: without a schedule.
        server_slow_share: How much longer its answers took than its schedule says: the median of
            their relative excess. None: without a schedule.
    """

    requests: int
    wrong: int
    ttft_error_mean_ms: float | None
    ttft_error_p50_ms: float | None
    ttft_error_p99_ms: float | None
    gap_error_p50_ms: float | None
    gap_error_p99_ms: float | None
    gap_p99_excess_ms: float | None
    tpot_error_share: float | None
    span_error_share: float | None
    late_p50_ms: float | None
    late_p99_ms: float | None
    rate_error_share: float | None
    server_late_p99_ms: float | None
    server_slow_share: float | None

    def faults(self) -> tuple[str, ...]:
        """Why the client is not to be believed at this load; empty: it is.

        Figures as they are told count: means of times to the first token, the 99th percentile of
        gaps, throughput, time per token, and with an open load the median lateness of sends.
        """
        told = (
            ("TTFT", self.ttft_error_mean_ms),
            ("the chunk gap's p99", self.gap_p99_excess_ms),
            ("send lateness", None if self.rate_error_share is None else self.late_p50_ms),
        )
        shares = (
            ("time per token", self.tpot_error_share),
            ("throughput", self.span_error_share),
            ("rate of sends", self.rate_error_share),
        )
        return (
            *((f"{self.wrong} of {self.requests} requests wrong",) if self.wrong else ()),
            *(
                f"{name} off by {value:.2f} ms"
                for name, value in told
                if value is not None and abs(value) > MOST_MS
            ),
            *(
                f"{name} off by {value:.1%}"
                for name, value in shares
                if value is not None and abs(value) > MOST_SHARE
            ),
        )


def accuracy(
    samples: Sequence[RequestSample], answers: Sequence[TrueAnswer], pace: Pace, *, is_open: bool
) -> Accuracy:
    """Compare what a client recorded with what the server noted.

    Args:
        samples: All of the trial's, by the client.
        answers: By the server; matched by index.
        pace: Of the server.
        is_open: Whether sends followed a schedule.
    """
    truth = {answer.index: answer for answer in answers}
    pairs = [
        (sample, true)
        for sample in samples
        if (true := truth.get(sample.index)) is not None and _is_right(sample, true)
    ]
    ttft = sorted(_ttft_error_ms(sample, true) for sample, true in pairs)
    gaps = [_gaps_ms(sample.event_ns) for sample, _ in pairs]
    true_gaps = [_gaps_ms(true.event_ns) for _, true in pairs]
    gap_errors = sorted(
        abs(told - real)
        for own, true in zip(gaps, true_gaps, strict=True)
        for told, real in zip(own, true, strict=True)
    )
    told_p99 = _percentile(sorted(gap for own in gaps for gap in own), 0.99)
    true_p99 = _percentile(sorted(gap for own in true_gaps for gap in own), 0.99)
    late = sorted((s.sent_ns - s.due_ns) / 1e6 for s, _ in pairs if s.sent_ns is not None)
    server_late, server_slow = _server(pairs, pace)
    return Accuracy(
        requests=len(samples),
        wrong=len(samples) - len(pairs),
        ttft_error_mean_ms=statistics.fmean(ttft) if ttft else None,
        ttft_error_p50_ms=_percentile(ttft, 0.5),
        ttft_error_p99_ms=_percentile(ttft, 0.99),
        gap_error_p50_ms=_percentile(gap_errors, 0.5),
        gap_error_p99_ms=_percentile(gap_errors, 0.99),
        gap_p99_excess_ms=None if told_p99 is None or true_p99 is None else told_p99 - true_p99,
        tpot_error_share=_relative(
            [_stretch_ns(sample.event_ns) for sample, _ in pairs],
            [_stretch_ns(true.event_ns) for _, true in pairs],
        ),
        span_error_share=_span_error(pairs),
        late_p50_ms=_percentile(late, 0.5),
        late_p99_ms=_percentile(late, 0.99),
        rate_error_share=_rate_error(samples) if is_open else None,
        server_late_p99_ms=server_late,
        server_slow_share=server_slow,
    )


def _is_right(sample: RequestSample, true: TrueAnswer) -> bool:
    return (
        sample.sent_ns is not None
        and sample.output_tok == true.output_tok
        and len(sample.event_ns) == len(true.event_ns) > 0
    )


def _ttft_error_ms(sample: RequestSample, true: TrueAnswer) -> float:
    told = sample.event_ns[0] - (sample.sent_ns or 0)
    return (told - (true.event_ns[0] - true.received_ns)) / 1e6


def _gaps_ms(event_ns: Sequence[int]) -> list[float]:
    return [(later - earlier) / 1e6 for earlier, later in pairwise(event_ns)]


def _stretch_ns(event_ns: Sequence[int]) -> int:
    return event_ns[-1] - event_ns[0]


def _relative(told: Sequence[float], true: Sequence[float]) -> float | None:
    return sum(told) / sum(true) - 1 if sum(true) > 0 else None


def _span_error(pairs: Sequence[tuple[RequestSample, TrueAnswer]]) -> float | None:
    if not pairs:
        return None
    begun = min(sample.sent_ns or 0 for sample, _ in pairs)
    told = max(sample.event_ns[-1] for sample, _ in pairs) - begun
    true_end = max(true.event_ns[-1] for _, true in pairs)
    return _relative([told], [true_end - min(true.received_ns for _, true in pairs)])


def _rate_error(samples: Sequence[RequestSample]) -> float | None:
    sent = [s for s in samples if s.sent_ns is not None]
    sent_ns = [s.sent_ns for s in sent if s.sent_ns is not None]
    due_ns = [s.due_ns for s in sent]
    if len(sent) < 2 or max(sent_ns) == min(sent_ns):
        return None
    return (max(due_ns) - min(due_ns)) / (max(sent_ns) - min(sent_ns)) - 1


def _server(
    pairs: Sequence[tuple[RequestSample, TrueAnswer]], pace: Pace
) -> tuple[float | None, float | None]:
    """(99th percentile of the server's own lateness, how much slower than planned it was)."""
    if not pace.interval_us or not pairs:
        return None, None
    late: list[float] = []
    slow: list[float] = []
    for _, true in pairs:
        first_ns = true.received_ns + pace.ttft_us * 1000
        due = [first_ns + place * pace.interval_us * 1000 for place in range(len(true.event_ns))]
        late += [(at - when) / 1e6 for at, when in zip(true.event_ns, due, strict=True)]
        planned_ns = due[-1] - true.received_ns
        if planned_ns > 0:
            slow.append((true.event_ns[-1] - due[-1]) / planned_ns)
    return _percentile(sorted(late), 0.99), statistics.median(slow) if slow else None


def _percentile(ordered: Sequence[float], share: float) -> float | None:
    """The smallest value that `share` of all do not exceed; None of none."""
    if not ordered:
        return None
    return ordered[max(-(-len(ordered) * round(share * 100) // 100), 1) - 1]
