"""How much is asked of a cell: requests and warm-up, the same in every arm, and its time."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from bench.model import Load, Workload

FASTEST_ARM_MARGIN = 0.3  # an arm may turn out this much faster than expected
MIN_OPEN_REQUESTS = 20  # below this a percentile says nothing
MIN_OPEN_WARMUP_S = 5.0
MAX_OPEN_WARMUP_S = 60.0
SETTLE_S = 2.0  # between cells: abort, drain, flush


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """Requests of a cell, equal in all arms.

    Attributes:
        requests: After warm-up; of a capacity search: of the probe at the highest rate.
        warmup_requests: Before them.
    """

    requests: int
    warmup_requests: int


def work_of(
    load: Load,
    workload: Workload,
    *,
    steady_s: float,
    requests_per_slot: int,
    warmup_requests_per_slot: int,
    expected_tok_per_s_per_user: Iterable[float],
) -> Work:
    """The requests that make a window of `steady_s` even in the fastest arm.

    Args:
        load: How they arrive.
        workload: Their length.
        steady_s: Least length of the window.
        requests_per_slot: Least number a slot.
        warmup_requests_per_slot: Closed loads: warm-up of each slot.
        expected_tok_per_s_per_user: Of each arm; the highest counts, with a margin.
    """
    rates = list(expected_tok_per_s_per_user)
    if load.kind == "closed":
        assert load.concurrency is not None
        fastest = max(rates) * (1 + FASTEST_ARM_MARGIN)
        # The window ends with the first slot out of work: the one whose warm-up was 1/n as long.
        ahead = 1 - 1 / load.concurrency
        wanted = steady_s * fastest / workload.max_output_tok + ahead
        per_slot = math.ceil(max(requests_per_slot, wanted))
        return Work(
            requests=load.concurrency * per_slot,
            warmup_requests=load.concurrency * warmup_requests_per_slot,
        )
    rate = _top_rate(load)
    request_s = workload.max_output_tok / min(rates)  # until as many end as begin
    warmup_s = min(max(request_s, MIN_OPEN_WARMUP_S), MAX_OPEN_WARMUP_S)
    return Work(
        requests=max(MIN_OPEN_REQUESTS, math.ceil(rate * steady_s)),
        warmup_requests=math.ceil(rate * warmup_s),
    )


def cell_s(load: Load, workload: Workload, work: Work, tok_per_s_per_user: float) -> float:
    """Seconds of the clock that a cell is expected to take, with what a user of its arm gets."""
    request_s = workload.max_output_tok / tok_per_s_per_user
    count = work.requests + work.warmup_requests
    if load.kind == "closed":
        assert load.concurrency is not None
        return SETTLE_S + count / load.concurrency * request_s
    one_rate_s = count / _top_rate(load) + request_s
    return SETTLE_S + (load.probes if load.kind == "capacity" else 1) * one_rate_s


def _top_rate(load: Load) -> float:
    rate = load.max_rate_per_s if load.kind == "capacity" else load.rate_per_s
    assert rate is not None
    return rate
