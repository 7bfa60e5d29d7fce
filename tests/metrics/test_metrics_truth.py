"""Intervals and verdicts on made-up runs whose truth is known: the product's plan and `compare`.

`python -m benchmarks.statistics` makes the whole table from more runs.
"""

import math

import numpy as np
import pytest

from bench.model import Verdict
from benchmarks.noise import Noise, made_up_run, one_arm_after_the_other, template
from benchmarks.statistics import DRIFT, TRUTH, many_runs, plan_of, row_of

RUNS = 200


def bounds(share, of=RUNS):
    """Between which a share of so many runs lies in all but 1 of 1000 tries, or so."""
    half = 3.3 * math.sqrt(share * (1 - share) / of)
    return share - half, share + half


@pytest.mark.parametrize("pairs", [3, 5, 8])
@pytest.mark.parametrize("launch_sd", [0.002, 0.02])
def test_intervals_cover_the_truth_and_verdicts_are_seldom_false(launch_sd, pairs):
    noise = Noise(name=f"{launch_sd}", launch_sd=launch_sd, block_sd=launch_sd / 4)
    plan = plan_of(pairs)
    row = row_of(plan, plan.launches, noise, RUNS)
    low, high = bounds(0.95)
    assert low <= row.covered <= high
    assert row.false_verdicts <= bounds(0.05)[1]
    assert row.false_at_margin <= bounds(0.05)[1]
    assert abs(row.bias) < 4 * launch_sd * math.sqrt(2 / pairs / RUNS)


@pytest.mark.parametrize(
    "noise",
    [
        Noise(name="heavy", launch_sd=0.01, shape="heavy"),
        Noise(name="cut", launch_sd=0.01, shape="cut"),
        Noise(name="outliers", launch_sd=0.01, outlier_share=0.05, outlier=0.1),
        Noise(name="drift", launch_sd=0.01, drift=0.03),
        Noise(name="cold", launch_sd=0.01, warmup=0.03),
    ],
    ids=lambda noise: noise.name,
)
def test_other_noise_makes_no_interval_too_narrow(noise):
    plan = plan_of(5)
    row = row_of(plan, plan.launches, noise, RUNS)
    assert row.covered >= bounds(0.95)[0]
    assert max(row.false_verdicts, row.false_at_margin) <= bounds(0.05)[1]


@pytest.mark.parametrize("pairs", [3, 8])
def test_the_order_of_launches_takes_a_drift_out(pairs):
    plan = plan_of(pairs)
    ours = row_of(plan, plan.launches, DRIFT, RUNS)
    naive = row_of(plan, one_arm_after_the_other(plan.launches), DRIFT, RUNS)
    assert abs(ours.bias) < 0.002
    assert abs(naive.bias) > 0.01
    assert ours.false_verdicts <= bounds(0.05)[1]
    assert naive.false_verdicts > 0.5


def test_more_pairs_and_less_noise_find_smaller_gains():
    def found(launch_sd, pairs):
        plan = plan_of(pairs)
        return row_of(plan, plan.launches, Noise(name="n", launch_sd=launch_sd), 100).found

    assert found(0.02, 8) < found(0.02, 3)
    assert found(0.005, 3) < found(0.02, 3)


def test_a_gain_moves_an_interval_and_leaves_its_width():
    # `row_of` finds the smallest gain by this.
    plan, noise = plan_of(3), Noise(name="n", launch_sd=0.01)
    ours, theirs = [
        [c for c in many_runs(plan, plan.launches, noise, 3, truth=truth) if c.arm == "same"]
        for truth in (TRUTH, {**TRUTH, "same": 1.25})
    ]
    for one, other in zip(ours, theirs, strict=True):
        assert other.ci95_low == pytest.approx(1.25 * one.ci95_low)
        assert other.ci95_high == pytest.approx(1.25 * one.ci95_high)
        assert other.verdict is Verdict.FASTER


def test_every_cell_of_the_plan_has_its_place_in_time():
    plan = plan_of(3)
    cells = made_up_run(
        plan.launches,
        template(),
        Noise(name="n", launch_sd=0.0, drift=0.1),
        dict.fromkeys(TRUTH, 1.0),
        np.random.default_rng(0),
    )
    speeds = [measurement.output_tok_per_s for _, measurement in cells]
    assert speeds == sorted(speeds, reverse=True)
    assert 0.9 < speeds[-1] / speeds[0] < 0.95
