"""Levels, slides and odd nights in series whose truth is known."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.nightly.detect import FEWEST_NIGHTS, detect


def made(seed, nights=60, noise=0.01, **steps):
    """Values around 1000; `at_30=-0.05` is a step in night 30."""
    y = np.random.default_rng(seed).normal(math.log(1000), noise, nights)
    for name, size in steps.items():
        y[int(name.removeprefix("at_")) :] += size
    return list(np.exp(y))


def one(values):
    [found] = detect([values])
    return found


@pytest.mark.parametrize("seed", range(10))
def test_a_large_step_is_found_in_two_nights_where_it_is(seed):
    found = one(made(seed, nights=42, at_40=-0.08))
    assert [move.index for move in found.moves] == [40]
    move = found.moves[0]
    assert move.ln_change - 2 * move.half_width < -0.08 < move.ln_change + 2 * move.half_width
    assert not move.slides


def test_the_first_night_of_a_step_is_not_told_from_an_odd_one():
    values = made(1, nights=41, at_40=-0.08)
    found = one(values)
    assert found.moves == ()
    assert [(o.start, o.stop, o.ended) for o in found.odd] == [(40, 41, False)]


@pytest.mark.parametrize("nights", [1, 2, 3])
@pytest.mark.parametrize("size", [-0.2, 0.1])
def test_up_to_three_odd_nights_are_an_incident_once_the_level_is_back(nights, size):
    y = np.log(made(2))
    y[30 : 30 + nights] += size
    found = one(list(np.exp(y)))
    assert found.moves == ()
    assert [(o.start, o.stop, o.ended) for o in found.odd] == [(30, 30 + nights, True)]
    assert found.odd[0].ln_change == pytest.approx(size, abs=0.05)


def test_five_nights_of_another_level_are_a_level():
    y = np.log(made(3))
    y[30:35] -= 0.1
    found = one(list(np.exp(y)))
    assert [(m.index, m.ln_change < 0) for m in found.moves] == [(30, True), (35, False)]


def test_odd_nights_at_the_ends_make_no_level():
    y = np.log(made(4))
    y[0] -= 0.2
    y[-1] -= 0.2
    found = one(list(np.exp(y)))
    assert found.moves == ()
    assert [(o.start, o.ended) for o in found.odd] == [(0, True), (59, False)]


@pytest.mark.parametrize("young", range(2, 12))
@pytest.mark.parametrize("seed", range(5))
def test_an_odd_last_night_leaves_a_young_level_where_it_is(young, seed):
    y = np.log(made(seed, nights=40 + young, at_40=-0.08))
    [before] = one(list(np.exp(y))).moves
    found = one(list(np.exp(np.append(y, y[-1] - 0.25))))
    [after] = found.moves
    assert (after.index, after.slides) == (before.index, False)
    assert after.ln_change == pytest.approx(before.ln_change, abs=0.015)
    assert [(o.start, o.ended) for o in found.odd] == [(40 + young, False)]


def test_no_night_is_in_two_incidents():
    for seed in range(200):
        rng = np.random.default_rng(seed)
        y = rng.normal(0, 0.01, 60)
        y[rng.integers(0, 60, 8)] += rng.choice([-0.2, 0.2], 8)
        odd = one(list(np.exp(y))).odd
        nights = [n for o in odd for n in range(o.start, o.stop)]
        assert len(nights) == len(set(nights))


def test_a_staircase_is_its_steps():
    found = one(made(5, nights=90, at_30=-0.05, at_60=-0.05))
    assert [m.index for m in found.moves] == [30, 60]
    assert not any(m.slides for m in found.moves)


@pytest.mark.parametrize("seed", range(5))
def test_a_slide_is_one_and_ends_where_it_does(seed):
    y = np.log(made(seed, nights=120))
    y[30:] -= np.minimum(np.arange(1, 91), 50) * 0.003
    found = one(list(np.exp(y)))
    [move] = found.moves
    assert move.slides
    assert abs(move.index - 30) <= 4
    assert abs(move.stop - 80) <= 4
    assert move.ln_change == pytest.approx(-0.15, abs=0.02)


def test_a_slide_that_goes_on_has_no_end():
    y = np.log(made(6, nights=70))
    y[30:] -= np.arange(1, 41) * 0.003
    [move] = one(list(np.exp(y))).moves
    assert move.slides
    assert move.stop is None


def test_with_few_nights_nothing_is_said():
    for nights in range(FEWEST_NIGHTS):
        found = one(made(7, nights=nights))
        assert (found.noise, found.moves, found.pieces) == (None, (), ())
        assert found.smallest_seen(2) is None
    assert one(made(7, nights=FEWEST_NIGHTS)).noise is not None


def test_figures_that_repeat_exactly_change_when_they_do():
    assert one([2.5] * 40).moves == ()
    [move] = one([2.5] * 20 + [2.4] * 5).moves
    assert move.index == 20


@pytest.mark.parametrize("bad", [0.0, -1.0, math.nan, math.inf])
def test_what_is_no_positive_number_is_refused(bad):
    with pytest.raises(ValueError, match="positive"):
        detect([[1.0] * 10 + [bad]])


def test_what_is_said_to_be_seen_is_seen_about_half_of_the_time():
    quiet = detect([made(seed, nights=45) for seed in range(300)])
    smallest = np.median([found.smallest_seen(2) for found in quiet])
    steps = [made(1000 + seed, nights=47, at_45=-float(smallest)) for seed in range(300)]
    hit = np.mean([any(abs(m.index - 45) <= 1 for m in found.moves) for found in detect(steps)])
    assert 0.3 < hit < 0.8


def test_more_nights_see_smaller_changes():
    found = one(made(8))
    seen = [found.smallest_seen(nights) for nights in (2, 3, 7)]
    assert seen == sorted(seen, reverse=True)


def test_few_of_many_quiet_series_raise_an_alarm():
    quiet = detect([made(seed, nights=90) for seed in range(400)])
    assert sum(bool(found.moves) for found in quiet) <= 8


values = st.lists(st.floats(0.5, 2.0), min_size=0, max_size=60)


@settings(max_examples=60, deadline=None)
@given(values, st.floats(0.01, 100.0))
def test_the_unit_of_a_series_changes_nothing(series, unit):
    a, b = one(series), one([value * unit for value in series])
    assert [m.index for m in a.moves] == [m.index for m in b.moves]
    assert [(o.start, o.stop) for o in a.odd] == [(o.start, o.stop) for o in b.odd]


@settings(max_examples=60, deadline=None)
@given(st.lists(values, max_size=5))
def test_series_do_not_see_one_another(series):
    for together, values in zip(detect(series), series, strict=True):
        alone = one(values)
        assert together.noise == pytest.approx(alone.noise)
        assert [m.index for m in together.moves] == [m.index for m in alone.moves]
        assert [o.start for o in together.odd] == [o.start for o in alone.odd]


@settings(max_examples=60, deadline=None)
@given(values)
def test_every_night_is_in_one_level(series):
    found = one(series)
    if found.pieces:
        assert found.pieces[0].start == 0
        assert found.pieces[-1].stop == len(series)
        for old, new in zip(found.pieces, found.pieces[1:], strict=False):
            assert old.stop == new.start
        for move in found.moves:
            assert any(piece.start == move.index for piece in found.pieces)
