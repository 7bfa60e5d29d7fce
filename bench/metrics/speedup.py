"""An arm against the baseline: the ratio over pairs of launches, its interval, and a verdict.

The launch is the unit of replication (Kalibera & Jones 2013): memory layout, communication
channels, captured graphs and autotuned kernels are drawn once a launch, so requests and blocks
inside one launch are not independent. Cells of one launch are averaged first; each pair of
neighbouring launches gives one ratio; the speedup is their geometric mean, with a Student interval
on the logarithms. (For fewer than a dozen pairs a percentile bootstrap covers far less than it
says.)
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from bench.model import Verdict

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

CONFIDENCE: Final = 0.95
MOST_MORE_PAIRS: Final = 1000  # beyond this "more pairs" is no advice

Setting = TypeVar("Setting")


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A geometric mean of ratios with its interval; no interval from a single ratio."""

    speedup: float
    ci95_low: float | None
    ci95_high: float | None
    pairs: int
    degrees_of_freedom: float | None
    log_sd: float | None


def estimate_speedup(ratios: Sequence[float]) -> Estimate | None:
    """Geometric mean of the ratios of pairs, with the 95 % Student interval on their logarithms.

    Args:
        ratios: One arm / baseline ratio a pair, positive; shape (pairs,).

    Returns:
        None without a ratio.
    """
    if not ratios:
        return None
    # Sorted, so that the order in which pairs are given cannot move the last digit.
    logs = sorted(math.log(r) for r in ratios)
    n = len(logs)
    mean = math.fsum(logs) / n
    if n == 1:
        return Estimate(
            speedup=math.exp(mean),
            ci95_low=None,
            ci95_high=None,
            pairs=1,
            degrees_of_freedom=None,
            log_sd=None,
        )
    sd = math.sqrt(math.fsum((x - mean) ** 2 for x in logs) / (n - 1))
    half = t_quantile(n - 1) * sd / math.sqrt(n)
    return Estimate(
        speedup=math.exp(mean),
        ci95_low=math.exp(mean - half),
        ci95_high=math.exp(mean + half),
        pairs=n,
        degrees_of_freedom=float(n - 1),
        log_sd=sd,
    )


def t_quantile(degrees_of_freedom: float) -> float:
    """The two-sided 95 % quantile of Student's t."""
    from scipy.special import stdtrit  # noqa: PLC0415  # only here: importing scipy costs time

    return float(stdtrit(degrees_of_freedom, 0.5 + CONFIDENCE / 2))


def judge(low: float, high: float, margin: float) -> Verdict:
    """The verdict of an interval of ratios.

    SAME when it lies within 1 ± margin (then a difference, if any, is of no practical use), else
    FASTER or SLOWER when it leaves 1 out, else UNDECIDED.
    """
    if 1 - margin <= low and high <= 1 + margin:
        return Verdict.SAME
    if low > 1:
        return Verdict.FASTER
    return Verdict.SLOWER if high < 1 else Verdict.UNDECIDED


def more_pairs_needed(estimate: Estimate, margin: float) -> int | None:
    """How many more pairs would decide, were the mean and the spread to stay as they are.

    Returns:
        None when a thousand more would not, or when there is no spread to go by.
    """
    if estimate.log_sd is None:
        return None
    mean = math.log(estimate.speedup)

    def decides(n: int) -> bool:
        half = t_quantile(n - 1) * (estimate.log_sd or 0.0) / math.sqrt(n)
        return judge(math.exp(mean - half), math.exp(mean + half), margin) is not Verdict.UNDECIDED

    # The half width only falls with n, and a narrower interval around the same mean never becomes
    # undecided again.
    low, high = estimate.pairs, estimate.pairs + MOST_MORE_PAIRS
    if not decides(high):
        return None
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if decides(middle) else (middle + 1, high)
    return low - estimate.pairs


def step_cost_ratio(accept_len: float, speedup: float) -> float:
    """What a speculative step costs in plain ones: the accept length that breaks even."""
    return accept_len / speedup


def tpot_speedup(baseline_tpot_ms: float, arm_tpot_ms: float) -> float:
    """Speedup by time per output token."""
    return baseline_tpot_ms / arm_tpot_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class BestSetting(Generic[Setting]):
    """The best of several settings; `best` is None when none beats the baseline."""

    best: Setting | None
    best_speculative: Setting
    speedup: float


def best_setting(baseline: float, values: Mapping[Setting, float]) -> BestSetting[Setting]:
    """The fastest of several settings against the baseline's figure; more is better."""
    fastest = max(values, key=lambda setting: values[setting])
    speedup = values[fastest] / baseline
    return BestSetting(
        best=fastest if speedup > 1 else None, best_speculative=fastest, speedup=speedup
    )
