"""Errors against a truth that is known by construction."""

import dataclasses

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.model import RequestSample, RequestStatus
from bench.selftest.accuracy import accuracy
from bench.selftest.serving import Pace, TrueAnswer

MS = 1_000_000
PACE = Pace(ttft_us=50_000, interval_us=20_000)


def truth(index, *, at_ms=0.0, late_ms=0.0):
    received = round((1000 + at_ms) * MS)
    events = tuple(
        received + 50 * MS + place * 20 * MS + round(late_ms * MS) for place in range(10)
    )
    return TrueAnswer(index=index, received_ns=received, event_ns=events, output_tok=10)


def sample(true, *, early_send_ms=0.0, late_read_ms=0.0, **changes):
    """A client that stamps its send so early and its reads so late."""
    sent = true.received_ns - round(early_send_ms * MS)
    events = tuple(ns + round(late_read_ms * MS) for ns in true.event_ns)
    made = RequestSample(
        cell_id="c",
        index=true.index,
        phase="measure",
        slot=None,
        prompt_id="p",
        prompt_sha256="",
        seed=0,
        due_ns=sent,
        sent_ns=sent,
        first_byte_ns=events[0],
        ended_ns=events[-1],
        status=RequestStatus.OK,
        output_tok=true.output_tok,
        event_ns=events,
    )
    return dataclasses.replace(made, **changes)


def judged(samples, answers, *, is_open=False):
    return accuracy(samples, answers, PACE, is_open=is_open)


def test_a_perfect_client_has_no_error():
    answers = [truth(index, at_ms=index * 5) for index in range(20)]
    found = judged([sample(true) for true in answers], answers, is_open=True)
    assert found.faults() == ()
    assert found.wrong == 0
    for name, value in dataclasses.asdict(found).items():
        assert value == 0 or name == "requests", name


@given(early=st.floats(0, 50), late=st.floats(0, 50))
@settings(max_examples=50, deadline=None)
def test_a_constant_lateness_moves_ttft_and_no_gap(early, late):
    answers = [truth(index) for index in range(5)]
    found = judged([sample(t, early_send_ms=early, late_read_ms=late) for t in answers], answers)
    assert found.ttft_error_mean_ms == pytest.approx(early + late, abs=1e-5)
    assert found.ttft_error_p99_ms == pytest.approx(early + late, abs=1e-5)
    assert found.gap_error_p99_ms == 0
    assert found.tpot_error_share == 0
    assert bool(found.faults()) == (early + late > 1 or found.span_error_share > 0.01)


def test_gaps_that_are_read_together_show():
    answers = [truth(index) for index in range(5)]
    together = [
        sample(
            t, event_ns=tuple(ns + (20 * MS if k % 2 else 0) for k, ns in enumerate(t.event_ns))
        )
        for t in answers
    ]
    found = judged(together, answers)
    assert found.gap_error_p50_ms == 20
    assert found.gap_p99_excess_ms == 20
    assert any("chunk gap" in fault for fault in found.faults())


@pytest.mark.parametrize(
    "changes",
    [
        {"output_tok": 9},
        {"output_tok": None},
        {"event_ns": ()},
        {"sent_ns": None},
        {"event_ns": (1, 2, 3)},
    ],
)
def test_a_request_that_is_counted_wrong_is_told(changes):
    answers = [truth(index) for index in range(3)]
    samples = [sample(answers[0], **changes), *map(sample, answers[1:])]
    found = judged(samples, answers)
    assert found.wrong == 1
    assert "1 of 3 requests wrong" in found.faults()


def test_a_request_that_the_server_did_not_end_is_wrong():
    answers = [truth(0), truth(1)]
    assert judged(list(map(sample, answers)), answers[:1]).wrong == 1


def test_sends_are_judged_against_their_schedule():
    answers = [truth(index, at_ms=index * 5) for index in range(20)]
    late = [sample(t, due_ns=t.received_ns - 3 * MS) for t in answers]
    found = judged(late, answers, is_open=True)
    assert (found.late_p50_ms, found.late_p99_ms, found.rate_error_share) == (3, 3, 0)
    assert any("lateness" in fault for fault in found.faults())
    drifting = [sample(t, due_ns=t.received_ns - t.index * MS // 10) for t in answers]
    assert judged(drifting, answers, is_open=True).rate_error_share == pytest.approx(-0.02)
    assert judged(drifting, answers).rate_error_share is None


def test_a_server_that_is_slowed_is_told():
    answers = [truth(index, late_ms=11.5) for index in range(5)]
    found = judged(list(map(sample, answers)), answers)
    assert found.server_late_p99_ms == 11.5
    assert found.server_slow_share == pytest.approx(0.05)
    assert found.faults() == ()


def test_nothing_compared_is_nothing_told():
    found = judged([], [])
    told = dataclasses.asdict(found)
    assert (told.pop("requests"), told.pop("wrong")) == (0, 0)
    assert set(told.values()) == {None}
