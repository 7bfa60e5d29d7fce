import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from metrics_cells import make_sample, spec_fields

from bench.metrics import acceptance
from bench.model import RequestStatus

step_lists = st.lists(st.integers(0, 5), min_size=1, max_size=30)


def spec_sample(steps, **changes):
    fields = spec_fields(steps) | changes
    return make_sample(events_ms=[100 + 10 * k for k in range(len(steps) + 1)], **fields)


def test_a_recorded_answer_of_a_real_server():
    # 300 tokens in 95 verify steps: 204 drafts accepted, by the histogram (15, 14, 8, 58).
    assert acceptance.accept_len_tok(204, 95) == pytest.approx(3.147368)
    assert acceptance.accept_len_server_tok(300, 95) == pytest.approx(3.157894)
    assert acceptance.accept_rate(204, 95, 3) == pytest.approx(0.715789)
    at = acceptance.accept_at_position((15, 14, 8, 58))
    assert at == pytest.approx((80 / 95, 66 / 95, 58 / 95))
    assert acceptance.conditional_at_position(at) == pytest.approx((80 / 95, 66 / 80, 58 / 66))


def test_pooling_sums_numerators_and_denominators():
    long, short = spec_sample([3] * 9), spec_sample([0])
    pooled = acceptance.pool_counters([long, short])
    assert (pooled.requests, pooled.verify_ct, pooled.num_correct_drafts) == (2, 10, 27)
    assert pooled.histogram == (1, 0, 0, 9)
    tau = acceptance.accept_len_tok(pooled.num_correct_drafts, pooled.verify_ct)
    assert tau == pytest.approx(3.7)  # the mean of ratios would say 2.5


def test_requests_that_failed_or_report_nothing_do_not_enter():
    failed = spec_sample([3, 3], status=RequestStatus.TIMEOUT)
    silent = make_sample()
    pooled = acceptance.pool_counters([failed, silent])
    assert pooled.requests == 0
    assert pooled.verify_ct is None
    assert pooled.histogram is None


def test_one_missing_part_makes_a_sum_missing():
    old = spec_sample([1, 2], spec_correct_drafts_histogram=None, spec_num_correct_drafts=None)
    pooled = acceptance.pool_counters([old, spec_sample([1])])
    assert pooled.verify_ct == 3
    assert pooled.num_correct_drafts is None
    assert pooled.histogram is None
    assert acceptance.accept_len_tok(pooled.num_correct_drafts, pooled.verify_ct) is None


@pytest.mark.parametrize("verify", [None, 0])
def test_no_steps_give_no_length(verify):
    assert acceptance.accept_len_tok(0, verify) is None
    assert acceptance.accept_len_server_tok(5, verify) is None
    assert acceptance.accept_rate(0, verify, 3) is None


def test_no_depth_gives_no_rate():
    assert acceptance.accept_rate(5, 5, None) is None


def test_no_draft_accepted_is_a_length_of_one():
    assert acceptance.accept_len_tok(0, 7) == 1
    assert acceptance.accept_at_position((7,), 3) == (0, 0, 0)
    assert acceptance.conditional_at_position((0.0, 0.0, 0.0)) == (0.0,)


def test_positions_need_a_histogram():
    assert acceptance.accept_at_position(None, 3) is None
    assert acceptance.accept_at_position((0, 0), 3) is None
    assert acceptance.conditional_at_position(None) is None


@settings(deadline=None, max_examples=100)
@given(st.lists(step_lists, min_size=1, max_size=6))
def test_positions_add_up_to_tau(requests):
    pooled = acceptance.pool_counters([spec_sample(steps) for steps in requests])
    tau = acceptance.accept_len_tok(pooled.num_correct_drafts, pooled.verify_ct)
    at = acceptance.accept_at_position(pooled.histogram, 5)
    every = [k for steps in requests for k in steps]
    assert tau == pytest.approx(1 + sum(every) / len(every))
    assert 1 + sum(at) == pytest.approx(tau)
    assert list(at) == sorted(at, reverse=True)
    assert len(at) == 5
    product = 1.0
    for p, conditional in zip(at, acceptance.conditional_at_position(at), strict=False):
        product *= conditional
        assert product == pytest.approx(p)


def test_per_request_lengths_are_weighted_by_steps():
    assert acceptance.pooled_accept_len([3.0, 2.0, 4.0], [100, 300, 50]) == pytest.approx(
        2.4444, abs=1e-4
    )
    assert acceptance.pooled_accept_len([], []) is None


def test_states_that_miss_a_rank_are_of_no_use():
    assert not acceptance.states_usable([None, None, 2.9, 3.67])
    assert acceptance.states_usable([2.9, 3.67])
    assert not acceptance.states_usable([])
