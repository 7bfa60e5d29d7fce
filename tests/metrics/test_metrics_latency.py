import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from metrics_cells import MS, T0, make_sample

from bench.metrics import latency
from bench.model import RequestStatus


def test_closed_loop_latencies_start_at_the_send():
    sample = make_sample(slot=3, sent_ns=T0 + 10 * MS, first_visible_ns=T0 + 115 * MS)
    assert latency.ttft_ms(sample) == 90
    assert latency.ttfo_ms(sample) == 105
    assert latency.e2e_ms(sample) == 111


def test_open_loop_latencies_start_when_the_request_was_due():
    sample = make_sample(slot=None, sent_ns=T0 + 10 * MS)
    assert latency.ttft_ms(sample) == 100
    assert latency.e2e_ms(sample) == 121


def test_absent_moments_give_absent_latencies():
    silent = make_sample(events_ms=(), event_tok=None, output_tok=None)
    assert latency.ttft_ms(silent) is None
    assert latency.ttfo_ms(silent) is None
    assert latency.tpot_ms(silent) is None
    assert latency.chunk_gaps_ms(silent) == ()
    unsent = make_sample(slot=0, sent_ns=None)
    assert latency.ttft_ms(unsent) is None
    assert latency.e2e_ms(unsent) is None


def test_reasoning_counts_for_the_first_token_and_not_for_the_first_output():
    sample = make_sample(events_ms=(100, 110, 120), first_visible_ns=T0 + 120 * MS)
    assert latency.ttft_ms(sample) == 100
    assert latency.ttfo_ms(sample) == 120


def test_tpot_leaves_out_the_first_events_tokens():
    sample = make_sample(events_ms=(100, 140, 200), event_tok=(4, 8, 14), output_tok=14)
    assert latency.tpot_ms(sample) == 10


def test_tpot_of_multi_token_chunks_is_not_the_chunk_gap():
    times = (100, 108.72, 117.44, 126.16, 134.88)
    sample = make_sample(events_ms=times, event_tok=None, output_tok=13)
    assert latency.tpot_ms(sample) == pytest.approx(2.9067, abs=1e-4)
    assert np.mean(latency.chunk_gaps_ms(sample)) == pytest.approx(8.72)


@pytest.mark.parametrize(
    "changes",
    [
        {"events_ms": (100,), "event_tok": (5,), "output_tok": 5},  # nothing follows
        {"event_tok": (3, 3, 3), "output_tok": 3},  # events, but no token after the first
        {"tokens_before_first_event": True},  # hidden reasoning
        {"output_tok": None, "event_tok": None},  # nobody counted
        {"status": RequestStatus.TIMEOUT},  # adds no tokens
    ],
)
def test_tpot_is_missing_where_it_means_nothing(changes):
    assert latency.tpot_ms(make_sample(**changes)) is None


def test_gaps_are_one_fewer_than_events_and_leave_out_the_first_token():
    sample = make_sample(events_ms=(200, 212, 224, 236))
    assert latency.chunk_gaps_ms(sample) == (12, 12, 12)
    assert latency.ttft_ms(sample) == 200


def test_prefill_decode_and_end_to_end_rates_are_told_apart():
    rates = latency.decode_rates(100_000, 601, 45.0, 63.75)
    assert rates.prefill_tok_per_s == pytest.approx(2222.2, abs=0.05)
    assert rates.decode_tok_per_s == 32.0
    assert rates.e2e_tok_per_s == pytest.approx(9.43, abs=0.005)
    nothing = latency.decode_rates(10, 1, 0.0, 0.0)
    assert (nothing.prefill_tok_per_s, nothing.decode_tok_per_s, nothing.e2e_tok_per_s) == (
        None,
    ) * 3


def test_distribution_by_hand():
    found = latency.distribution([None, *range(1, 102)])
    assert (found.mean, found.p50, found.p90, found.p95, found.p99, found.n) == (
        51,
        51,
        91,
        96,
        100,
        101,
    )
    assert latency.distribution([None]) is None
    assert latency.distribution([]) is None


@settings(deadline=None, max_examples=50)
@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=40), st.floats(0.01, 100), st.randoms())
def test_distribution_scales_and_ignores_order(values, factor, random):
    shuffled = list(values)
    random.shuffle(shuffled)
    assert latency.distribution(shuffled) == latency.distribution(values)
    scaled, plain = (
        latency.distribution([v * factor for v in values]),
        latency.distribution(values),
    )
    for name in ("mean", "p50", "p90", "p95", "p99"):
        assert getattr(scaled, name) == pytest.approx(
            factor * getattr(plain, name), rel=1e-9, abs=1e-9
        )
    assert plain.p50 <= plain.p90 <= plain.p95 <= plain.p99
