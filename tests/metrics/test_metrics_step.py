import pytest
from metrics_cells import MS, STEP_MS, STEPS, T0, healthy_samples, make_sample, point, spec_fields

from bench.metrics import step
from bench.metrics.series import group_series
from bench.metrics.window import Window
from bench.model import RequestStatus


def window_ms(start: float, end: float) -> Window:
    return Window(rule="r", start_ns=T0 + round(start * MS), end_ns=T0 + round(end * MS))


def spec_sample(steps, times, **changes):
    return make_sample(events_ms=times, **(spec_fields(steps) | changes))


def test_cycle_is_decode_time_over_steps():
    fast = spec_sample([1, 1], (100, 110, 120))
    slow = spec_sample([0, 0, 0], (100, 130, 160, 190))
    both = step.decode_in_window([fast, slow], window_ms(0, 1000), speculative=True)
    assert both.cycle_ms == pytest.approx((20 + 90) / 5)
    assert both.tok_per_s_per_user == pytest.approx(7 / 0.110)


def test_queue_and_prefill_do_not_count():
    late = spec_sample([1, 1], (5000, 5010, 5020))
    assert step.decode_in_window([late], window_ms(0, 9000), speculative=True).cycle_ms == 10


def test_steps_are_spread_in_proportion_to_tokens():
    # 9 tokens after the first in 4 steps and 40 ms; the window's first half has 6 of them.
    sample = spec_sample([2, 2, 1, 0], (100, 110, 120, 130, 140))
    half = step.decode_in_window([sample], window_ms(0, 120), speculative=True)
    assert half.tokens == pytest.approx(6)
    assert half.steps == pytest.approx(4 * 6 / 9)
    assert half.decode_ns == 20 * MS


def test_baseline_makes_one_token_a_step():
    plain = make_sample(events_ms=(100, 112, 124, 136))
    assert step.decode_in_window([plain], window_ms(0, 999), speculative=False).cycle_ms == 12
    merged = make_sample(events_ms=(100, 136), event_tok=(1, 4), output_tok=4)
    assert step.decode_in_window([merged], window_ms(0, 999), speculative=False).cycle_ms == 12


def test_what_cannot_be_told_is_left_out():
    samples = [
        spec_sample([1, 1], (100, 110, 120)),
        spec_sample([1, 1], (100, 190, 280), tokens_before_first_event=True),
        spec_sample([1, 1], (100, 190, 280), status=RequestStatus.TIMEOUT),
        spec_sample([1, 1], (100, 190, 280), spec_verify_ct=None),
    ]
    assert step.decode_in_window(samples, window_ms(0, 999), speculative=True).cycle_ms == 10
    nothing = step.decode_in_window(samples, window_ms(500, 999), speculative=True)
    assert nothing.cycle_ms is None
    assert nothing.tok_per_s_per_user is None


def test_gaps_measure_the_step_without_counters():
    sample = spec_sample([1, 1, 0], (100, 110, 120, 150))
    assert step.cycle_from_gaps_ms([sample], window_ms(0, 999), speculative=True) == 10
    assert step.cycle_from_gaps_ms([sample], window_ms(115, 999), speculative=True) == 30
    assert step.cycle_from_gaps_ms([sample], window_ms(500, 999), speculative=True) is None


def test_merged_events_measure_no_step():
    merged = spec_sample([1, 1, 1, 1], (100, 110, 120), event_tok=(1, 5, 9))
    assert step.event_coverage([merged], speculative=True) == pytest.approx(3 / 5)
    assert step.cycle_from_gaps_ms([merged], window_ms(0, 999), speculative=True) is None
    silent = make_sample()
    assert step.cycle_from_gaps_ms([silent], window_ms(0, 999), speculative=True) is None


def test_a_retracted_request_is_prefilled_again():
    again = spec_sample([1, 1], (100, 110, 120, 130), event_tok=(1, 3, 4, 6), num_retractions=1)
    assert step.expected_events(again, speculative=True) == 4


def test_tau_over_cycle_explains_decode_speed_but_for_the_residual():
    samples = healthy_samples(speculative=True)
    decode = step.decode_in_window(samples, window_ms(0, 1e6), speculative=True)
    tau = 1 + sum(STEPS) / len(STEPS)
    assert decode.cycle_ms == pytest.approx(STEP_MS)
    assert step.residual_share(decode.tok_per_s_per_user, 1000 * tau / STEP_MS) == pytest.approx(
        0, abs=1e-9
    )
    assert step.residual_share(99.0, 100.0) == pytest.approx(-0.01)
    assert step.residual_share(None, 1.0) is None
    assert step.residual_share(1.0, None) is None


def shares(ok, samples=(), points=()):
    return step.queue_and_prefill_shares(ok, samples, group_series(points))


def test_shares_of_end_to_end_time_are_ratios_of_sums():
    samples = [
        make_sample(0, events_ms=(100, 200), ended_ms=200, queue_ns=40 * MS),
        make_sample(1, events_ms=(500, 900), ended_ms=1800, queue_ns=360 * MS),
    ]
    assert shares(samples) == pytest.approx((400 / 2000, 200 / 2000))


def test_without_the_servers_queue_time_waiting_is_not_told_from_prefill():
    samples = [make_sample(0), make_sample(1, queue_ns=None)]
    assert shares(samples, samples) == (None, None)
    assert shares([]) == (None, None)


def test_queue_time_by_the_servers_counter_where_requests_tell_none():
    samples = [make_sample(i, queue_ns=None, ended_ms=200) for i in range(2)]
    points = [
        point("sglang:queue_time_seconds_sum", T0 - 1, 7.0),
        point("sglang:queue_time_seconds_sum", T0 + 300 * MS, 7.08),
    ]
    assert shares(samples, samples, points) == pytest.approx((80 / 400, 120 / 400))
    failed = [*samples, make_sample(2, status=RequestStatus.TIMEOUT)]
    assert shares(samples, failed, points) == (None, None)
