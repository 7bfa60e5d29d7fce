"""Rates of a cell: tokens and requests a second, goodput, and whether a load meets the limits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from bench.metrics.latency import decode_tokens, e2e_ms, tpot_ms, ttft_ms
from bench.metrics.window import counts_tokens
from bench.model import RequestStatus

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from bench.metrics.window import Window
    from bench.model import RequestSample, Slo

# Share of requests that must meet every limit for a rate to count as carried: limits are stated
# for users, and a 99th percentile is what serving benchmarks state them at (MLPerf Inference,
# server scenario).
CAPACITY_MET_SHARE: Final = 0.99


def request_per_s(samples: Iterable[RequestSample], window: Window) -> float:
    """Requests that ended well inside the window, a second."""
    return sum(1 for s in samples if _completed(s, window)) / window.length_s


def goodput_request_per_s(
    samples: Iterable[RequestSample], window: Window, slo: Slo
) -> float | None:
    """Requests a second that ended well inside the window within every stated limit.

    Returns:
        None when no limit is stated, or when a limit cannot be judged because a request's tokens
        are unknown.
    """
    if not states_limits(slo):
        return None
    met = 0
    for sample in samples:
        if not _completed(sample, window):
            continue
        meets = request_meets(sample, slo)
        if meets is None:
            return None
        met += meets
    return met / window.length_s


def states_limits(slo: Slo) -> bool:
    """Whether any limit is stated."""
    return (slo.ttft_ms, slo.tpot_ms, slo.e2e_ms) != (None, None, None)


def request_meets(sample: RequestSample, slo: Slo) -> bool | None:
    """Whether a request ended well, within every stated limit; None when that is unknown.

    A request with nothing after its first event has no time per output token, so none that could
    be too long.
    """
    if sample.status is not RequestStatus.OK:
        return False
    pairs = [(ttft_ms(sample), slo.ttft_ms), (e2e_ms(sample), slo.e2e_ms)]
    if decode_tokens(sample) != 0:
        pairs.append((tpot_ms(sample), slo.tpot_ms))
    stated = [(value, limit) for value, limit in pairs if limit is not None]
    if any(value is not None and value > limit for value, limit in stated):
        return False
    return None if any(value is None for value, _ in stated) else True


def meets_limits(samples: Sequence[RequestSample], slo: Slo) -> bool:
    """Whether a probed load is carried: 99 % of its measured requests meet every limit.

    A request that failed or cannot be judged does not meet them; no measured request at all is a
    load not carried.
    """
    measured = [s for s in samples if s.phase == "measure"]
    met = sum(1 for s in measured if request_meets(s, slo))
    return bool(measured) and met >= CAPACITY_MET_SHARE * len(measured)


def whole_run_output_tok_per_s(samples: Iterable[RequestSample]) -> float | None:
    """Measured tokens over the time from first send to last token: with ramp and tail."""
    measured = [s for s in samples if s.phase == "measure"]
    ok = [s for s in measured if s.status is RequestStatus.OK]
    sent_ns = [s.sent_ns for s in measured if s.sent_ns is not None]
    if not ok or not sent_ns or not all(counts_tokens(s) for s in ok):
        return None
    last_ns = max(s.event_ns[-1] if s.event_ns else s.ended_ns for s in ok)
    span_ns = last_ns - min(sent_ns)
    return sum(s.output_tok or 0 for s in ok) / (span_ns / 1e9) if span_ns > 0 else None


def _completed(sample: RequestSample, window: Window) -> bool:
    return sample.status is RequestStatus.OK and window.contains(sample.ended_ns)


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestRow:
    """One request as a table has it: times in seconds on one clock, tokens as claimed."""

    ok: bool
    start_s: float
    end_s: float
    ttft_s: float | None
    output_tok: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RowsSummary:
    """What a table of requests amounts to; `tpot_s` has one value for each row that ended well."""

    completed: int
    failed: int
    duration_s: float
    output_tok_sum: int
    output_tok_per_s: float | None
    mean_concurrency: float | None
    tpot_s: tuple[float | None, ...]


def rows_summary(rows: Sequence[RequestRow]) -> RowsSummary:
    """Whole-run figures of a table of requests.

    The duration is from the first start to the last end over all rows; failed rows add neither
    tokens nor concurrency.
    """
    ok = [r for r in rows if r.ok]
    duration_s = max(r.end_s for r in rows) - min(r.start_s for r in rows) if rows else 0.0
    output_tok_sum = sum(r.output_tok or 0 for r in ok)
    counted = all(r.output_tok is not None for r in ok)
    return RowsSummary(
        completed=len(ok),
        failed=len(rows) - len(ok),
        duration_s=duration_s,
        output_tok_sum=output_tok_sum,
        output_tok_per_s=output_tok_sum / duration_s if counted and duration_s > 0 else None,
        mean_concurrency=sum(r.end_s - r.start_s for r in ok) / duration_s
        if duration_s > 0
        else None,
        tpot_s=tuple(_row_tpot_s(r) for r in ok),
    )


def _row_tpot_s(row: RequestRow) -> float | None:
    if row.ttft_s is None or row.output_tok is None or row.output_tok < 2:
        return None
    return (row.end_s - row.start_s - row.ttft_s) / (row.output_tok - 1)
