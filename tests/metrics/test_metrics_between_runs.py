"""The same cells in two runs: ratio, Welch's interval, and factors that add up."""

import math
import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from bench.metrics.between_runs import change_between
from bench.model import CellStatus, Measurement, Verdict


def cell(tok_per_s, *, cycle=10.0, correct=None, verify=None, status=CellStatus.VALID):
    given_values = {
        "cell_id": "c",
        "comparison_key": "k",
        "launch_id": "L",
        "arm": "eagle3",
        "workload": "chat",
        "load": "8",
        "pair": 0,
        "status": status,
        "simulated": False,
        "request_ct": 8,
        "ok_ct": 8,
        "failed_ct": 0,
        "failures_by_kind": (),
        "output_tok_sum": 100,
        "window_rule": "",
        "requests_cut_at_end_ct": 0,
        "output_tok_per_s": tok_per_s,
        "cycle_ms": cycle,
        "spec_num_correct_drafts": correct,
        "spec_verify_ct": verify,
    }
    names = Measurement.__dataclass_fields__
    return Measurement(**{name: given_values.get(name) for name in names})


speeds = st.lists(st.integers(10, 1000).map(float), min_size=2, max_size=6)


@given(a=speeds, b=speeds)
@settings(deadline=None)
def test_the_interval_is_welchs_on_the_logarithms(a, b):
    change = change_between([cell(v) for v in a], [cell(v) for v in b])
    x, y = [math.log(v) for v in a], [math.log(v) for v in b]
    assert change.ratio == pytest.approx(math.exp(sum(y) / len(y) - sum(x) / len(x)))
    if len(set(a)) == len(a) and len(set(b)) == len(b):
        expected = stats.ttest_ind(y, x, equal_var=False).confidence_interval(0.95)
        assert math.log(change.ci95_low) == pytest.approx(expected.low, abs=1e-9)
        assert math.log(change.ci95_high) == pytest.approx(expected.high, abs=1e-9)


@given(a=speeds, b=speeds, accept=st.floats(1.1, 4), cycle=st.floats(5, 50))
@settings(deadline=None)
def test_the_factors_add_up_to_the_change(a, b, accept, cycle):
    before = [cell(v, correct=1000, verify=1000) for v in a]
    after = [cell(v, cycle=cycle, correct=round(1000 * (accept - 1)), verify=1000) for v in b]
    change = change_between(before, after)
    total = change.ln_accept_len + change.ln_cycle + change.ln_residual
    assert total == pytest.approx(math.log(change.ratio))


def test_each_factor_is_told_apart():
    before = [cell(100.0, correct=1000, verify=1000)] * 2
    draft = change_between(before, [cell(120.0, correct=1400, verify=1000)] * 2)
    assert draft.ln_accept_len == pytest.approx(math.log(1.2))
    assert draft.ln_cycle == pytest.approx(0)
    kernel = change_between(before, [cell(80.0, cycle=12.5, correct=1000, verify=1000)] * 2)
    assert kernel.ln_cycle == pytest.approx(math.log(0.8))
    assert kernel.ln_accept_len == pytest.approx(0)


def test_one_launch_has_no_verdict_and_says_why():
    change = change_between([cell(100.0)], [cell(120.0), cell(121.0)])
    assert change.ratio == pytest.approx(1.205, abs=1e-3)
    assert (change.verdict, change.ci95_low) == (None, None)
    assert "one launch has no spread" in change.reason


@pytest.mark.parametrize(
    ("before", "after", "reason"),
    [
        ([], [cell(1.0)], "the first run did not measure it"),
        ([cell(1.0)], [], "the second run did not measure it"),
        ([cell(1.0, status=CellStatus.INVALID)], [cell(1.0)], "no cell of the first run"),
        ([cell(1.0)], [cell(None)], "no cell of the second run"),
    ],
)
def test_what_is_missing_is_named(before, after, reason):
    change = change_between(before, after)
    assert change.ratio is None
    assert reason in change.reason


def test_equal_runs_are_the_same_and_different_ones_are_not():
    drawn = random.Random(1)
    noisy = [cell(100 * math.exp(drawn.gauss(0, 0.002))) for _ in range(10)]
    assert change_between(noisy[:5], noisy[5:]).verdict is Verdict.SAME
    slower = [replace(m, output_tok_per_s=m.output_tok_per_s * 0.9) for m in noisy[5:]]
    assert change_between(noisy[:5], slower).verdict is Verdict.SLOWER


def test_acceptance_that_one_run_did_not_count_is_not_taken_for_unchanged():
    before = [cell(100.0, correct=1000, verify=1000)] * 2
    change = change_between(before, [cell(120.0)] * 2)
    assert (change.ln_accept_len, change.ln_residual) == (None, None)
    plain = change_between([cell(100.0)] * 2, [cell(80.0, cycle=12.5)] * 2)
    assert plain.ln_residual == pytest.approx(0)
