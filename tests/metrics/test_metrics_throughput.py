import pytest
from metrics_cells import MS, T0, make_sample

from bench.metrics import throughput
from bench.metrics.throughput import RequestRow
from bench.metrics.window import Window
from bench.model import RequestStatus, Slo

SECOND = Window(rule="r", start_ns=T0, end_ns=T0 + 1000 * MS)


def test_only_requests_that_ended_well_inside_are_counted():
    samples = [
        make_sample(0, ended_ms=1000),
        make_sample(1, ended_ms=1001),
        make_sample(2, ended_ms=500, status=RequestStatus.TIMEOUT),
        make_sample(3, start_ms=-200, ended_ms=200),  # ended at the very start
        make_sample(4, start_ms=-200, ended_ms=300, phase="warmup"),
    ]
    assert throughput.request_per_s(samples, SECOND) == 2


def test_goodput_needs_every_stated_limit():
    samples = [
        make_sample(0),  # ttft 100, tpot 10, e2e 121
        make_sample(1, events_ms=(101, 111, 121)),
        make_sample(2, events_ms=(100, 112, 124)),
        make_sample(3, status=RequestStatus.ABORTED),
    ]
    assert throughput.goodput_request_per_s(samples, SECOND, Slo()) is None
    assert throughput.goodput_request_per_s(samples, SECOND, Slo(ttft_ms=100)) == 2
    assert throughput.goodput_request_per_s(samples, SECOND, Slo(ttft_ms=100, tpot_ms=10)) == 1
    assert throughput.goodput_request_per_s(samples, SECOND, Slo(e2e_ms=122)) == 2


def test_a_limit_that_cannot_be_judged_is_not_guessed():
    unknown = make_sample(output_tok=None, event_tok=None)
    assert throughput.request_meets(unknown, Slo(tpot_ms=10)) is None
    assert throughput.request_meets(unknown, Slo(ttft_ms=99, tpot_ms=10)) is False
    assert throughput.request_meets(unknown, Slo(ttft_ms=100)) is True
    assert throughput.goodput_request_per_s([unknown], SECOND, Slo(tpot_ms=10)) is None


def test_a_single_event_has_no_time_per_token_that_could_be_too_long():
    single = make_sample(events_ms=(100,), event_tok=(1,), output_tok=1)
    assert throughput.request_meets(single, Slo(tpot_ms=10)) is True


def test_a_load_is_carried_when_99_in_100_meet_the_limits():
    good, slow = make_sample(), make_sample(events_ms=(101, 111, 121))
    slo = Slo(ttft_ms=100)
    assert throughput.meets_limits([good] * 99 + [slow], slo)
    assert not throughput.meets_limits([good] * 98 + [slow] * 2, slo)
    assert not throughput.meets_limits([good] * 50 + [slow], slo)
    assert not throughput.meets_limits([], slo)
    assert throughput.meets_limits(
        [make_sample(phase="warmup", status=RequestStatus.ABORTED), good], slo
    )


def test_whole_run_is_first_send_to_last_token_of_the_measured():
    samples = [
        make_sample(0, start_ms=-5000, phase="warmup"),
        make_sample(1, start_ms=0),
        make_sample(2, start_ms=880, ended_ms=5000),
        make_sample(3, start_ms=10, status=RequestStatus.INCOMPLETE_STREAM),
    ]
    assert throughput.whole_run_output_tok_per_s(samples) == pytest.approx(6.0)
    assert throughput.whole_run_output_tok_per_s([]) is None
    unknown = make_sample(4, output_tok=None, event_tok=None)
    assert throughput.whole_run_output_tok_per_s([*samples, unknown]) is None


def test_rows_to_throughput():
    rows = [
        RequestRow(ok=True, start_s=0, end_s=10, ttft_s=1, output_tok=500),
        RequestRow(ok=True, start_s=0, end_s=8, ttft_s=1, output_tok=400),
        RequestRow(ok=True, start_s=2, end_s=12, ttft_s=2, output_tok=450),
        RequestRow(ok=False, start_s=1, end_s=11, ttft_s=1, output_tok=512),
    ]
    found = throughput.rows_summary(rows)
    assert (found.completed, found.failed, found.duration_s) == (3, 1, 12)
    assert (found.output_tok_sum, found.output_tok_per_s) == (1350, 112.5)
    assert found.mean_concurrency == pytest.approx(2.3333, abs=1e-4)
    assert found.tpot_s == pytest.approx((0.018036, 0.017544, 0.017817), abs=1e-6)


def test_rows_without_counts_have_no_rate():
    found = throughput.rows_summary(
        [RequestRow(ok=True, start_s=0, end_s=1, ttft_s=None, output_tok=None)]
    )
    assert found.output_tok_per_s is None
    assert found.tpot_s == (None,)
    assert throughput.rows_summary([]).mean_concurrency is None
