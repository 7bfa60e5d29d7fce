import dataclasses

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from metrics_cells import MS, T0, S, closed, healthy_samples, make_sample

from bench.metrics.window import (
    NoWindow,
    Window,
    busy_slots_mean,
    counts_guessed,
    cumulative_tok,
    cut_at_end,
    find_window,
    in_flight_mean,
    tokens_at,
    tokens_in,
)
from bench.model import Load, RequestStatus


def window_ms(start: float, end: float) -> Window:
    return Window(rule="r", start_ns=T0 + round(start * MS), end_ns=T0 + round(end * MS))


def in_ms(window):
    assert isinstance(window, Window)
    return (window.start_ns - T0) / MS, (window.end_ns - T0) / MS


def test_closed_window_is_from_the_last_slot_past_warmup_to_the_first_out_of_work():
    samples = [
        make_sample(0, slot=0, phase="warmup", start_ms=0, ended_ms=100),
        make_sample(1, slot=1, phase="warmup", start_ms=0, ended_ms=150),
        make_sample(2, slot=0, start_ms=101, ended_ms=200),
        make_sample(3, slot=1, start_ms=152, ended_ms=200),
        make_sample(4, slot=0, start_ms=303, ended_ms=400),
        make_sample(5, slot=1, start_ms=360, ended_ms=100),
    ]
    assert in_ms(find_window(closed(2), samples)) == (152, 460)


def test_a_gap_between_a_slots_requests_is_busy_time():
    samples = [
        make_sample(0, slot=0, start_ms=0, ended_ms=100),
        make_sample(1, slot=0, start_ms=300, ended_ms=100),
    ]
    window = find_window(closed(1), samples)
    assert in_ms(window) == (0, 400)
    assert busy_slots_mean(closed(1), samples, window) == 1
    assert in_flight_mean(samples, window) == pytest.approx(0.5)


def test_a_slot_that_never_measured_leaves_no_window():
    samples = [make_sample(0, slot=0), make_sample(1, slot=1, phase="warmup")]
    found = find_window(closed(2), samples)
    assert isinstance(found, NoWindow)
    assert "1 of 2 slots" in found.reason


def test_a_slot_done_before_another_begins_leaves_no_window():
    samples = [
        make_sample(0, slot=0, start_ms=0, ended_ms=100),
        make_sample(1, slot=1, start_ms=150, ended_ms=100),
    ]
    assert isinstance(find_window(closed(2), samples), NoWindow)
    assert isinstance(find_window(closed(1), []), NoWindow)


def test_a_request_that_was_never_sent_began_when_it_was_due():
    refused = make_sample(0, slot=0, sent_ns=None, status=RequestStatus.REFUSED, events_ms=())
    later = make_sample(1, slot=0, start_ms=60, ended_ms=100)
    assert in_ms(find_window(closed(1), [refused, later])) == (0, 160)


def test_open_window_runs_from_the_first_measured_due_time_to_the_last():
    load = Load(kind="open", rate_per_s=4.0)
    samples = [
        make_sample(0, slot=None, phase="warmup", start_ms=0),
        make_sample(1, slot=None, start_ms=250, sent_ns=T0 + 251 * MS),
        make_sample(2, slot=None, start_ms=700),
        make_sample(3, slot=None, start_ms=1000, ended_ms=900),
    ]
    window = find_window(load, samples)
    assert in_ms(window) == (250, 1000)
    assert isinstance(find_window(load, samples[:1]), NoWindow)
    assert isinstance(find_window(load, samples[:2]), NoWindow)


def test_open_loop_busy_is_in_flight_and_warmup_counts():
    samples = [
        make_sample(0, slot=None, phase="warmup", start_ms=0, ended_ms=600),
        make_sample(1, slot=None, start_ms=500, ended_ms=1000),
    ]
    load = Load(kind="open", rate_per_s=4.0)
    assert busy_slots_mean(load, samples, window_ms(500, 1000)) == pytest.approx(1.2)


def test_tokens_grow_linearly_between_events_and_jump_at_the_first():
    sample = make_sample(events_ms=(100, 200, 400), event_tok=(3, 7, 10), output_tok=10)
    times = [T0 + round(t * MS) for t in (0, 99.999, 100, 150, 200, 300, 400, 5000)]
    assert tokens_at(sample, times) == pytest.approx([0, 0, 3, 5, 7, 8.5, 10, 10])


def test_edge_tokens_by_hand():
    sample = make_sample(events_ms=(100, 200, 400), event_tok=(3, 7, 10), output_tok=10)
    assert tokens_in([sample], window_ms(150, 300)) == pytest.approx(3.5)
    assert tokens_in([sample], window_ms(0, 150)) == pytest.approx(5)
    assert tokens_in([sample], window_ms(100, 400)) == pytest.approx(7)


def test_the_final_count_stands_over_running_counts():
    short = make_sample(events_ms=(100, 200), event_tok=(1, 4), output_tok=5)
    assert cumulative_tok(short).tolist() == [1, 5]
    beyond = make_sample(events_ms=(100, 200, 300), event_tok=(1, 9, 9), output_tok=5)
    assert cumulative_tok(beyond).tolist() == [1, 5, 5]


def test_without_running_counts_the_first_event_has_one_token_and_the_others_equal_shares():
    sample = make_sample(events_ms=(100, 200, 300), event_tok=None, output_tok=9)
    assert cumulative_tok(sample).tolist() == [1, 5, 9]
    assert counts_guessed([sample], window_ms(150, 900)) == 1
    assert counts_guessed([sample], window_ms(0, 900)) == 0
    only = make_sample(events_ms=(100,), event_tok=None, output_tok=9)
    assert cumulative_tok(only).tolist() == [9]


def test_counted_tokens_without_events_come_at_the_end():
    sample = make_sample(events_ms=(), event_tok=None, output_tok=2, ended_ms=50)
    assert tokens_in([sample], window_ms(0, 49)) == 0
    assert tokens_in([sample], window_ms(0, 50)) == 2


def test_failed_requests_add_no_tokens_even_with_partial_output():
    cut = make_sample(status=RequestStatus.INCOMPLETE_STREAM)
    assert tokens_in([cut, make_sample(1)], window_ms(0, 1000)) == 3


def test_one_unknown_count_makes_the_sum_unknown():
    unknown = make_sample(output_tok=None, event_tok=None, token_source=None)
    assert tokens_in([make_sample(1), unknown], window_ms(0, 1000)) is None


def test_requests_under_way_at_the_end_are_counted():
    samples = [
        make_sample(0, start_ms=0, ended_ms=500),
        make_sample(1, start_ms=0, ended_ms=501),
        make_sample(2, start_ms=499, ended_ms=100),
        make_sample(3, start_ms=500, ended_ms=100),
        make_sample(4, start_ms=400, ended_ms=900, phase="warmup"),
    ]
    assert cut_at_end(samples, window_ms(0, 500)) == 2


def test_a_clock_of_months_loses_no_nanosecond():
    far = make_sample(events_ms=(0, 1), event_tok=(1, 3), output_tok=3)
    shift = 10**17 + 1
    late = dataclasses.replace(far, event_ns=tuple(t + shift for t in far.event_ns))
    at = late.event_ns[0]
    assert tokens_at(late, [at - 1, at, at + MS // 2]).tolist() == [0, 1, 2]


event_lists = st.lists(st.tuples(st.integers(0, 50), st.integers(0, 9)), min_size=1, max_size=20)


@settings(deadline=None, max_examples=100)
@given(
    requests=st.lists(st.tuples(st.integers(0, 500), event_lists, st.booleans()), max_size=6),
    start=st.integers(0, 1000),
    length=st.integers(1, 1000),
    cut=st.integers(0, 1000),
)
def test_windows_hold_no_more_than_all_tokens_and_split_without_loss(requests, start, length, cut):
    samples = []
    for index, (begin, events, counted) in enumerate(requests):
        times, counts = [], []
        for gap, tok in events:
            times.append((times[-1] if times else 0) + gap)
            counts.append((counts[-1] if counts else 0) + tok)
        samples.append(
            make_sample(
                index,
                start_ms=begin,
                events_ms=times,
                event_tok=tuple(counts) if counted else None,
                output_tok=counts[-1],
            )
        )
    total = sum(s.output_tok for s in samples)
    whole = window_ms(start, start + length)
    middle = whole.start_ns + (whole.end_ns - whole.start_ns) * cut // 1000
    inside = tokens_in(samples, whole)
    assert -1e-9 <= inside <= total + 1e-9
    if whole.start_ns < middle < whole.end_ns:
        parts = sum(
            tokens_in(samples, Window(rule="r", start_ns=a, end_ns=b))
            for a, b in ((whole.start_ns, middle), (middle, whole.end_ns))
        )
        assert parts == pytest.approx(inside)
    everything = Window(rule="r", start_ns=T0 - 1, end_ns=T0 + 100 * S)
    assert tokens_in(samples, everything) == pytest.approx(total)


def test_every_slot_is_busy_throughout_a_closed_window():
    samples = healthy_samples(concurrency=3)
    window = find_window(closed(3), samples)
    assert busy_slots_mean(closed(3), samples, window) == pytest.approx(3)
    assert 2.9 < in_flight_mean(samples, window) < 3
