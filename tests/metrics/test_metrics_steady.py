"""A steady server is not called drifting, one that slows down is, and cut waves are told."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.metrics import summarize
from bench.metrics.checks_steady import CUT_WAVE_SHARE, trend
from bench.metrics.window import find_window
from bench.model import FindingKind, Severity
from benchmarks.loops import Loop, findings_of
from benchmarks.synthetic import MadeUpServer, closed_loop, made_up_cell

K = FindingKind
CELLS = 30
MOST_FALSE = 2
"""Were 2 % of steady cells called drifting, more than 2 of 30 would be in 2 % of tests."""


def called_drifting(count, **loop):
    return sum(K.DRIFTING in findings_of(Loop(**loop), seed) for seed in range(count))


@pytest.mark.parametrize("lengths", ["equal", "spread"])
@pytest.mark.parametrize(("slots", "turns"), [(1, 20), (8, 2), (8, 6), (8, 12)])
def test_a_steady_server_in_waves_is_not_drifting(slots, turns, lengths):
    assert called_drifting(CELLS, slots=slots, turns=turns, lengths=lengths) <= MOST_FALSE


def test_many_slots_in_one_wave_are_not_drifting():
    # A hundred requests that share their steps are not a hundred observations.
    assert called_drifting(8, slots=64, turns=2) == 0
    assert called_drifting(8, slots=64, turns=6) <= 1


@pytest.mark.parametrize(("slots", "turns"), [(1, 20), (8, 12)])
def test_a_server_that_slows_down_by_a_fifth_is_drifting(slots, turns):
    assert called_drifting(20, slots=slots, turns=turns, slower=0.2) >= 14


def test_where_drift_cannot_be_told_it_is_said():
    for seed in range(4):
        assert K.FEW_REQUESTS in findings_of(Loop(slots=8, turns=2, slower=0.2), seed)


def cut(slots, turns, prefill_ms, seed):
    """(findings, how much the window reads off) of a cell, by the same server for long."""
    server = MadeUpServer(reach=(0.68, 0.44, 0.29), prefill_ms=prefill_ms)
    measured = {}
    for each in (turns, 30):
        cell = made_up_cell(concurrency=slots, requests=slots * each, speculative=True)
        samples = closed_loop(cell, server, np.random.default_rng(seed))
        measured[each] = summarize(
            cell,
            samples,
            [],
            client=None,
            effective=None,
            launch_id="L",
            gpus=0,
            simulated=False,
        )
        assert find_window(cell.load, samples)
    (short, findings), (long, _) = measured[turns], measured[30]
    told = [f for f in findings if f.kind is K.WINDOW_TOO_SHORT]
    return told, short.output_tok_per_s / long.output_tok_per_s - 1


@pytest.mark.parametrize("seed", range(3))
def test_a_window_that_reads_high_for_where_it_begins_and_ends_is_suspect(seed):
    told, off = cut(slots=8, turns=2, prefill_ms=80.0, seed=seed)
    assert off > CUT_WAVE_SHARE
    (finding,) = told
    assert finding.severity is Severity.SUSPECT
    assert "high" in finding.message


@pytest.mark.parametrize("seed", range(3))
def test_a_long_window_reads_right_and_nothing_is_told(seed):
    told, off = cut(slots=8, turns=16, prefill_ms=20.0, seed=seed)
    assert abs(off) < 0.02
    assert told == []


@given(
    values=st.lists(st.floats(50, 150), min_size=4, max_size=12),
    factor=st.floats(0.1, 10),
)
@settings(deadline=None, max_examples=100)
def test_a_trend_does_not_depend_on_the_unit_and_turns_with_time(values, factor):
    slope, p_value = trend(np.array(values))
    scaled, same_p = trend(np.array(values) * factor)
    back, back_p = trend(np.array(values[::-1]))
    assert scaled == pytest.approx(slope * factor, abs=1e-6)
    assert back == pytest.approx(-slope, abs=1e-6)
    assert same_p == pytest.approx(p_value, abs=1e-5)
    assert back_p == pytest.approx(p_value, abs=1e-5)
    assert 0 <= p_value <= 1


def test_a_straight_line_is_a_trend_and_equal_values_are_none():
    assert trend(np.array([1.0, 2.0, 3.0, 4.0])) == pytest.approx((1.0, 0.0), abs=1e-9)
    assert trend(np.array([2.0] * 5)) == (0.0, 1.0)
    assert trend(50 + np.array([0, 1, 1, 1]) * 1e-14) == (0.0, 1.0)
