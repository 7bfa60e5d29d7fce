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
from itertools import pairwise
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
    """The best of several settings at one load; `best` is None when none beats the baseline.

    Attributes:
        best: The fastest one, if it is faster than the baseline; of several launches, if its
            interval says so: within the noise what is in use stays.
        best_speculative: The fastest one, faster than the baseline or not.
        speedup: Of `best_speculative`.
        verdict: On `best_speculative`; None without repeats.
    """

    best: Setting | None
    best_speculative: Setting
    speedup: float
    verdict: Verdict | None = None


def best_setting(
    baseline: float | Sequence[float],
    values: Mapping[Setting, float | Sequence[float]],
    *,
    margin: float = 0.0,
) -> BestSetting[Setting]:
    """The fastest of several settings against the baseline's figure; more is better.

    Args:
        baseline: Its figure, or those of its launches.
        values: Each setting's figure, or those of its launches in the order of the baseline's;
            not empty.
        margin: Speedups within ± this share of 1 are SAME.
    """
    of_baseline = _figures(baseline)
    estimates = {
        setting: estimate
        for setting, given in values.items()
        if (estimate := _ratio(_figures(given), of_baseline)) is not None
    }
    fastest = max(estimates, key=lambda setting: estimates[setting].speedup)
    estimate = estimates[fastest]
    verdict = None
    if estimate.ci95_low is not None and estimate.ci95_high is not None:
        verdict = judge(estimate.ci95_low, estimate.ci95_high, margin)
    wins = estimate.speedup > 1 if verdict is None else verdict is Verdict.FASTER
    return BestSetting(
        best=fastest if wins else None,
        best_speculative=fastest,
        speedup=estimate.speedup,
        verdict=verdict,
    )


def _figures(given: float | Sequence[float]) -> Sequence[float]:
    return (given,) if isinstance(given, (int, float)) else given


def _ratio(values: Sequence[float], baseline: Sequence[float]) -> Estimate | None:
    """By pairs of launches; where there are not as many of both, by their geometric means."""
    if len(values) == len(baseline):
        return estimate_speedup([a / b for a, b in zip(values, baseline, strict=True)])
    of_arm, of_baseline = estimate_speedup(values), estimate_speedup(baseline)
    if of_arm is None or of_baseline is None:
        return None
    return estimate_speedup([of_arm.speedup / of_baseline.speedup])


def falls_with_load(speedups: Mapping[float, float | None]) -> bool | None:
    """Whether a higher load always has the smaller speedup.

    Args:
        speedups: By load, in any order; None where it was not measured.

    Returns:
        None when fewer than two loads were measured.
    """
    known = [value for _, value in sorted(speedups.items()) if value is not None]
    if len(known) < 2:
        return None
    return all(later < earlier for earlier, later in pairwise(known))
