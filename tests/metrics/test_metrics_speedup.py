import math

import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.metrics.speedup import (
    best_setting,
    estimate_speedup,
    judge,
    more_pairs_needed,
    step_cost_ratio,
    tpot_speedup,
)
from bench.model import Verdict

ratios_lists = st.lists(st.floats(0.2, 5.0), min_size=2, max_size=12)


@settings(deadline=None, max_examples=100)
@given(ratios_lists)
def test_interval_is_students_on_the_logarithms(ratios):
    found = estimate_speedup(ratios)
    logs = np.log(ratios)
    assert found.speedup == pytest.approx(scipy.stats.gmean(ratios))
    if (sem := scipy.stats.sem(logs)) > 0:
        low, high = scipy.stats.t.interval(0.95, len(ratios) - 1, logs.mean(), sem)
        assert found.ci95_low == pytest.approx(math.exp(low))
        assert found.ci95_high == pytest.approx(math.exp(high))
    assert found.degrees_of_freedom == len(ratios) - 1


@settings(deadline=None, max_examples=50)
@given(ratios_lists, st.randoms())
def test_order_does_not_matter_and_swapping_arms_inverts(ratios, random):
    found = estimate_speedup(ratios)
    shuffled = list(ratios)
    random.shuffle(shuffled)
    assert estimate_speedup(shuffled) == found
    inverse = estimate_speedup([1 / r for r in ratios])
    assert inverse.speedup == pytest.approx(1 / found.speedup)
    assert inverse.ci95_low == pytest.approx(1 / found.ci95_high)


@pytest.mark.parametrize("pairs", [2, 3, 6])
def test_interval_covers_the_truth_as_often_as_it_says(pairs):
    rng = np.random.default_rng(12345)
    draws = np.exp(math.log(1.03) + 0.014 * rng.standard_normal((1500, pairs)))
    found = [estimate_speedup(list(row)) for row in draws]
    covered = sum(e.ci95_low <= 1.03 <= e.ci95_high for e in found) / len(found)
    assert covered == pytest.approx(0.95, abs=0.02)


def test_one_pair_has_no_interval_and_none_has_no_speedup():
    one = estimate_speedup([1.5])
    assert one.speedup == pytest.approx(1.5)
    assert (one.ci95_low, one.ci95_high, one.degrees_of_freedom) == (None, None, None)
    assert more_pairs_needed(one, 0.02) is None
    assert estimate_speedup([]) is None


@pytest.mark.parametrize(
    ("low", "high", "verdict"),
    [
        (1.03, 1.09, Verdict.FASTER),
        (0.90, 0.97, Verdict.SLOWER),
        (0.99, 1.01, Verdict.SAME),
        (1.005, 1.015, Verdict.SAME),  # a difference, and of no use
        (0.98, 1.02, Verdict.SAME),
        (1.01, 1.05, Verdict.FASTER),
        (0.99, 1.05, Verdict.UNDECIDED),
        (0.5, 2.0, Verdict.UNDECIDED),
    ],
)
def test_verdicts(low, high, verdict):
    assert judge(low, high, 0.02) is verdict


def spread(mean, sd, n):
    """Ratios with exactly this mean and standard deviation of their logarithms."""
    z = np.linspace(-1, 1, n)
    return [math.exp(mean + sd * x / z.std(ddof=1)) for x in z]


@pytest.mark.parametrize(("mean", "sd"), [(0.03, 0.04), (-0.05, 0.1), (0.0, 0.03)])
def test_more_pairs_needed_is_the_smallest_number_that_decides(mean, sd):
    found = estimate_speedup(spread(mean, sd, 3))
    assert judge(found.ci95_low, found.ci95_high, 0.02) is Verdict.UNDECIDED
    more = more_pairs_needed(found, 0.02)
    for extra, decided in ((more, True), (more - 1, False)):
        later = estimate_speedup(spread(mean, sd, 3 + extra))
        verdict = judge(later.ci95_low, later.ci95_high, 0.02)
        assert (verdict is not Verdict.UNDECIDED) is decided


def test_more_pairs_are_not_promised_where_they_would_not_help():
    on_the_margin = estimate_speedup(spread(math.log(1.0001), 0.3, 3))
    assert more_pairs_needed(on_the_margin, 0.0) is None


def test_speedup_by_time_per_token_falls_with_load():
    assert round(tpot_speedup(55.47, 33.99), 2) == 1.63
    assert round(tpot_speedup(57.58, 48.8), 2) == 1.18


def test_off_can_win():
    values = {(3, 1, 4): 159.78, (3, 3, 4): 207.62, (8, 8, 60): 177.5}
    found = best_setting(222.47, values)
    assert (found.best, found.best_speculative) == (None, (3, 3, 4))
    assert found.speedup == pytest.approx(0.9332, abs=1e-4)
    assert best_setting(200.0, values).best == (3, 3, 4)


def test_step_cost_is_accept_length_over_speedup():
    assert step_cost_ratio(3.2, 177.5 / 222.47) == pytest.approx(4.011, abs=1e-3)
