"""From times to winners: noise, ties, missing rows, one winner everywhere, crossovers."""

import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.model import Verdict
from tuner.nccl.ranking import (
    Best,
    Round,
    best_of,
    choose,
    compare_rounds,
    control_ratios,
    crossovers,
    fastest_by_size,
    pooled_ratios,
    ratios_of,
    single_best,
)

SMALL, LARGE = 14336, 114688


def rounds_of(times, *, rounds=5, noise=0.0, seed=0):
    """Rounds of settings with these true times, µs by size; `default` is one of them."""
    rng = random.Random(seed)

    def measured(name):
        start = math.exp(rng.gauss(0, noise))
        return {size: us * start for size, us in times[name].items()}

    others = [name for name in times if name != "default"]
    return [
        Round(
            default=(measured("default"), measured("default")),
            settings={name: measured(name) for name in others},
        )
        for _ in range(rounds)
    ]


def winner(rounds, weights, margin=0.02):
    compared = compare_rounds(ratios_of(rounds, weights), margin=margin)
    return choose(compared, default="default").name


FLIPS = {
    "default": {SMALL: 30.0, LARGE: 170.0},
    "LL": {SMALL: 20.0, LARGE: 260.0},
    "wide": {SMALL: 45.0, LARGE: 90.0},
}


def test_the_winner_depends_on_the_load():
    rounds = rounds_of(FLIPS, noise=0.01)
    small, large = winner(rounds, {SMALL: 122}), winner(rounds, {LARGE: 122})
    assert (small, large) == ("LL", "wide")
    assert single_best([Best(name=small), Best(name=large)]) is None


def test_messages_weigh_by_how_many_there_are():
    rounds = rounds_of(FLIPS, noise=0.005)
    assert winner(rounds, {SMALL: 100, LARGE: 1}) == "LL"
    assert winner(rounds, {SMALL: 1, LARGE: 100}) == "wide"


def test_a_setting_that_wins_everywhere_is_the_single_best():
    times = {"default": {SMALL: 30.0, LARGE: 170.0}, "Ring": {SMALL: 25.0, LARGE: 140.0}}
    rounds = rounds_of(times, noise=0.01)
    names = [winner(rounds, {size: 122}) for size in (SMALL, LARGE)]
    assert single_best(Best(name=name) for name in names) == "Ring"


def test_no_difference_at_all_keeps_the_default():
    rounds = rounds_of({"default": {SMALL: 30.0}, "same": {SMALL: 30.0}})
    [compared] = compare_rounds(ratios_of(rounds, {SMALL: 1}), margin=0.02)
    assert compared.verdict is Verdict.SAME
    assert choose([compared], default="default").name == "default"


def test_a_difference_of_no_practical_use_keeps_the_default():
    rounds = rounds_of({"default": {SMALL: 30.0}, "1 %": {SMALL: 29.7}}, noise=0.0001)
    assert winner(rounds, {SMALL: 1}) == "default"
    assert winner(rounds, {SMALL: 1}, margin=0.001) == "1 %"


def test_a_difference_seldom_clears_the_noise_by_luck():
    """Fifteen settings like the default, 3 % of noise: 5 % of rankings may name one, no more."""
    times = {"default": {SMALL: 30.0}} | {f"s{i}": {SMALL: 30.0} for i in range(15)}
    named = sum(
        winner(rounds_of(times, noise=0.03, seed=seed), {SMALL: 1}) != "default"
        for seed in range(200)
    )
    # The settings of a round share its default, so their errors move together: far below 10.
    assert named <= 20


def test_one_round_has_no_verdict():
    [compared] = compare_rounds({"LL": [1.5]}, margin=0.02)
    assert (compared.low, compared.high, compared.verdict) == (None, None, None)
    assert choose([compared], default="default").name == "default"


def test_intervals_are_wider_where_more_settings_compete():
    ratios = [1.02, 1.05, 1.03, 1.06]
    [alone] = compare_rounds({"a": ratios}, margin=0.02)
    among = compare_rounds({f"s{i}": ratios for i in range(12)}, margin=0.02)[0]
    assert among.low < alone.low < alone.high < among.high


def test_a_setting_that_failed_in_a_round_counts_in_the_others():
    rounds = rounds_of(FLIPS, noise=0.005)
    rounds[1] = Round(default=rounds[1].default, settings={"wide": rounds[1].settings["wide"]})
    found = compare_rounds(ratios_of(rounds, {SMALL: 1}), margin=0.02)
    assert {one.setting: one.rounds for one in found} == {"LL": 4, "wide": 5}


def test_missing_sizes_and_defaults_are_left_out():
    whole = {SMALL: 30.0, LARGE: 100.0}
    rounds = [
        Round(default=(whole,), settings={"a": {SMALL: 20.0}}),
        Round(default=(), settings={"a": whole}),
        Round(default=({SMALL: 1.0}, whole), settings={"a": whole}),
    ]
    assert ratios_of(rounds, {SMALL: 1, LARGE: 1}) == {"a": pytest.approx((1.0,))}
    assert ratios_of(rounds, {}) == {}
    assert pooled_ratios(rounds, []) == {}
    assert compare_rounds({"a": []}, margin=0.02) == ()
    assert choose((), default="default").name == "default"


def test_a_load_is_pooled_over_its_drafts_by_round():
    rounds = [Round(default=({SMALL: 40.0, LARGE: 10.0},), settings={"a": {SMALL: 10, LARGE: 10}})]
    assert pooled_ratios(rounds, [{SMALL: 1}, {LARGE: 1}])["a"] == pytest.approx((2.0,))


def test_drift_within_a_round_falls_out_of_the_ratios_and_shows_in_the_control():
    rounds = [
        Round(
            default=({SMALL: 20.0}, {SMALL: 20.0 * drift**2}),
            settings={"a": {SMALL: 20.0 * drift}},
        )
        for drift in (1.1, 0.9, 1.2)
    ]
    assert ratios_of(rounds, {SMALL: 1})["a"] == pytest.approx((1.0, 1.0, 1.0))
    assert control_ratios(rounds, {SMALL: 1}) == pytest.approx((1.21, 0.81, 1.44))


@settings(max_examples=60, deadline=None)
@given(
    ratios=st.dictionaries(
        st.sampled_from("abcd"), st.lists(st.floats(0.5, 2), max_size=6), max_size=4
    ),
    margin=st.floats(0, 0.1),
)
def test_whoever_is_chosen_is_surely_faster_or_in_use(ratios, margin):
    compared = compare_rounds(ratios, margin=margin)
    speedups = [one.speedup for one in compared]
    assert speedups == sorted(speedups, reverse=True)
    best = choose(compared, default="default")
    if best.name != "default":
        [found] = [one for one in compared if one.setting == best.name]
        assert found.low > 1
        assert best.over_default == pytest.approx(found.speedup)


# --------------------------------------------------------------------------- figures of others


def test_the_best_of_published_figures_and_what_it_gains():
    assert best_of({0: 90.0, 1: 70.0}) == Best(name=0, over_next=pytest.approx(90 / 70))
    best = best_of({"default": 5000.0, "wide": 10000.0}, default="default")
    assert (best.name, best.over_next, best.over_default) == ("wide", 2.0, 2.0)


def test_within_noise_of_the_default_it_is_kept():
    best = best_of({"a": 101.0, "default": 100.0, "b": 90.0}, default="default", margin=0.02)
    assert (best.name, best.over_default) == ("default", 1.0)
    assert best_of({"a": 103.0, "default": 100.0}, default="default", margin=0.02).name == "a"


@pytest.mark.parametrize(
    ("values", "name"),
    [
        ({}, None),
        ({"a": math.nan}, None),
        ({"a": 0.0, "b": 1.0}, "b"),
        ({"a": 5.0, "b": 5.0}, "a"),
    ],
)
def test_ties_and_what_is_missing(values, name):
    assert best_of(values).name == name


def test_the_default_may_be_missing_at_a_load():
    best = best_of({"a": 1.0}, default="default", margin=0.02)
    assert best == Best(name="a")
    assert single_best([best, Best(name=None)]) == "a"
    assert single_best([]) is None


# ------------------------------------------------------------------------------------ crossovers


def table(**columns):
    sizes = (4, 8, 16, 32)
    return {
        size: {name: times[i] for name, times in columns.items() if times[i] is not None}
        for i, size in enumerate(sizes)
    }


def pairs(times):
    return [(one.below_bytes, one.above_bytes, one.before, one.after) for one in crossovers(times)]


def test_one_crossover():
    assert pairs(table(nccl=(20, 20, 20, 20), oneshot=(4, 8, 30, 50))) == [
        (8, 16, "oneshot", "nccl")
    ]


def test_two_crossovers():
    assert pairs(table(a=(1, 5, 5, 1), b=(2, 2, 2, 2))) == [(4, 8, "a", "b"), (16, 32, "b", "a")]


def test_none_where_one_wins_throughout():
    assert pairs(table(a=(1, 1, 1, 1), b=(2, 2, 2, 2))) == []


def test_a_tie_is_no_crossover():
    assert pairs(table(a=(1, 2, 2, 1), b=(2, 2, 2, 2))) == []
    assert fastest_by_size(table(a=(2, 2, 2, 2), b=(2, 2, 2, 2)))[4] == "a"


def test_sizes_with_one_time_alone_are_left_out():
    assert list(fastest_by_size(table(a=(1, None, 3, 4), b=(2, 2, 2, math.nan)))) == [4, 16]
    assert pairs(table(a=(1, None, 3, 4), b=(2, 2, 2, 2))) == [(4, 16, "a", "b")]


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_the_order_of_sizes_does_not_matter(data):
    times = data.draw(
        st.dictionaries(
            st.integers(1, 100),
            st.fixed_dictionaries({"a": st.floats(1, 9), "b": st.floats(1, 9)}),
        )
    )
    shuffled = dict(data.draw(st.permutations(list(times.items()))))
    assert crossovers(shuffled) == crossovers(times)
    for one in crossovers(times):
        assert one.below_bytes < one.above_bytes
        assert one.before != one.after
