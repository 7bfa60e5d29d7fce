"""The same cells in two runs: the ratio with its interval, and which factor moved.

Launches of two runs are not pairs (other hours, other heat, perhaps another machine), so the
interval is Welch's on the logarithms, with launches as the unit of replication (docs/methodology).
A speed is a product, so its change is a sum of logarithms:

    ln tok/s = ln accept length - ln cycle + residual

where the residual holds what is not decoding: prefill, queue, idle slots.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bench.metrics.acceptance import accept_len_tok
from bench.metrics.speedup import judge, t_quantile
from bench.model import CellStatus

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from bench.model import Measurement, Verdict

PRACTICAL_MARGIN = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One arm at one workload and load, before and after.

    Attributes:
        arm: The arm.
        workload: The workload.
        load: The load's label.
        before_tok_per_s: Geometric mean over launches; None without a usable cell.
        after_tok_per_s: Likewise.
        ratio: after / before; None when either is missing.
        ci95_low: Welch's interval; None when either run has a single launch.
        ci95_high: Its upper end.
        launches: (before, after) that entered.
        verdict: Of the interval; None without one.
        ln_accept_len: Share of ln(ratio) that acceptance explains; None for the baseline and where
            it was not measured.
        ln_cycle: Share that the step's time explains: a longer step is negative.
        ln_residual: What is left.
        reason: Why there is no ratio or no verdict; None when there is one.
    """

    arm: str
    workload: str
    load: str
    before_tok_per_s: float | None
    after_tok_per_s: float | None
    ratio: float | None
    ci95_low: float | None
    ci95_high: float | None
    launches: tuple[int, int]
    verdict: Verdict | None
    ln_accept_len: float | None
    ln_cycle: float | None
    ln_residual: float | None
    reason: str | None


def change_between(
    before: Sequence[Measurement],
    after: Sequence[Measurement],
    *,
    margin: float = PRACTICAL_MARGIN,
) -> Change:
    """Compare one arm's cells at one workload and load in two runs.

    Args:
        before: Its cells in the first run, a launch each; at least one here or in `after`.
        after: Its cells in the second.
        margin: Differences within 1 ± margin are of no practical use.
    """
    named = (*before, *after)[0]
    a, b = _usable(before), _usable(after)
    logs_a, logs_b = _logs(a), _logs(b)
    mean_a, mean_b = _mean(logs_a), _mean(logs_b)
    log_ratio = None if mean_a is None or mean_b is None else mean_b - mean_a
    half = _half_width(logs_a, logs_b)
    low = high = verdict = None
    if log_ratio is not None and half is not None:
        low, high = math.exp(log_ratio - half), math.exp(log_ratio + half)
        verdict = judge(low, high, margin)
    accept, cycle = _moved(a, b, _accept_len), _moved(a, b, _cycle_ms)
    explained = None
    if cycle is not None and not _speculates(a, b):
        explained = -cycle
    elif cycle is not None and accept is not None:
        explained = accept - cycle
    return Change(
        arm=named.arm,
        workload=named.workload,
        load=named.load,
        before_tok_per_s=None if mean_a is None else math.exp(mean_a),
        after_tok_per_s=None if mean_b is None else math.exp(mean_b),
        ratio=None if log_ratio is None else math.exp(log_ratio),
        ci95_low=low,
        ci95_high=high,
        launches=(len(logs_a), len(logs_b)),
        verdict=verdict,
        ln_accept_len=accept,
        ln_cycle=None if cycle is None else -cycle,
        ln_residual=None if log_ratio is None or explained is None else log_ratio - explained,
        reason=_reason(before, after, logs_a, logs_b),
    )


def _speculates(*runs: Sequence[Measurement]) -> bool:
    """Whether any cell counted verify steps: then a speed has acceptance as a factor."""
    return any(m.spec_verify_ct for cells in runs for m in cells)


def _usable(cells: Iterable[Measurement]) -> list[Measurement]:
    return [m for m in cells if m.status is not CellStatus.INVALID and m.output_tok_per_s]


def _logs(cells: Iterable[Measurement]) -> list[float]:
    return [math.log(m.output_tok_per_s) for m in cells if m.output_tok_per_s]


def _mean(values: Sequence[float]) -> float | None:
    return math.fsum(values) / len(values) if values else None


def _half_width(a: Sequence[float], b: Sequence[float]) -> float | None:
    """Half of Welch's 95 % interval on the difference of means (Welch 1947)."""
    if len(a) < 2 or len(b) < 2:
        return None
    parts = [_variance(values) / len(values) for values in (a, b)]
    total = math.fsum(parts)
    if not total:
        return 0.0
    freedom = total**2 / math.fsum(
        part**2 / (len(values) - 1) for part, values in zip(parts, (a, b), strict=True)
    )
    return t_quantile(freedom) * math.sqrt(total)


def _variance(values: Sequence[float]) -> float:
    mean = math.fsum(values) / len(values)
    return math.fsum((v - mean) ** 2 for v in values) / (len(values) - 1)


def _moved(
    a: Sequence[Measurement],
    b: Sequence[Measurement],
    value: Callable[[Sequence[Measurement]], float | None],
) -> float | None:
    before, after = value(a), value(b)
    return math.log(after / before) if before and after else None


def _accept_len(cells: Sequence[Measurement]) -> float | None:
    counted = [
        m for m in cells if m.spec_num_correct_drafts is not None and m.spec_verify_ct is not None
    ]
    return accept_len_tok(
        sum(m.spec_num_correct_drafts or 0 for m in counted),
        sum(m.spec_verify_ct or 0 for m in counted),
    )


def _cycle_ms(cells: Sequence[Measurement]) -> float | None:
    logs = [math.log(m.cycle_ms) for m in cells if m.cycle_ms]
    return math.exp(math.fsum(logs) / len(logs)) if logs else None


def _reason(
    before: Sequence[Measurement],
    after: Sequence[Measurement],
    logs_a: Sequence[float],
    logs_b: Sequence[float],
) -> str | None:
    for name, cells, logs in (("first", before, logs_a), ("second", after, logs_b)):
        if not cells:
            return f"the {name} run did not measure it"
        if not logs:
            return f"no cell of the {name} run is usable"
    if min(len(logs_a), len(logs_b)) < 2:
        return "one launch has no spread: measure two or more in each run for a verdict"
    return None
