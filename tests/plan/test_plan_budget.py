"""What is kept of a plan when there is not time for all of it."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.errors import InputError
from bench.plan import fit_budget, make_plan, parse_budget
from bench.plan.budget import halving, told
from bench.scenario import load_scenario


def cells(launches):
    return [(c.arm, c.workload.name, c.load.label, c.pair) for one in launches for c in one.cells]


@pytest.fixture(scope="module")
def planned(tmp_path_factory, written):
    path = tmp_path_factory.mktemp("plan") / "s.yaml"
    path.write_text(json.dumps(written))
    return make_plan(load_scenario(path)).launches


@pytest.fixture
def launches(loaded, small):
    return make_plan(loaded(small)).launches


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90s", 90), ("45m", 2700), ("3h", 10800), ("2.5h", 9000), ("1h30m", 5400), ("1d", 86400)],
)
def test_durations(text, seconds):
    assert parse_budget(text) == seconds


@pytest.mark.parametrize(
    "text",
    ["", "3", "h", "3 h", "-3h", "3h!", "0s", "3H", "٣h", "9" * 400 + "h", "400d", "infh", "1e9h"],
)
def test_no_durations(text):
    with pytest.raises(InputError, match="--budget") as caught:
        parse_budget(text)
    assert caught.value.hint


def test_the_whole_plan_fits_into_its_own_time(launches):
    total_s = sum(launch.estimated_s for launch in launches)
    fit = fit_budget(launches, total_s)
    assert (fit.kept, fit.dropped) == (launches, ())
    assert fit.needed_s == pytest.approx(total_s)


def test_pairs_are_kept_whole_and_the_first_before_the_second(launches):
    one_pair_s = sum(launch.estimated_s for launch in launches[:2])
    fit = fit_budget(launches, 2 * one_pair_s + 1)
    assert fit.kept == launches[:4]
    assert {cell.pair for cell in fit.dropped} == {2}
    assert told(fit.dropped).startswith("pair 2: chat load 1")
    assert told(fit.dropped).endswith("(baseline, eagle3)")


def test_a_pair_that_does_not_fit_keeps_its_arms_and_the_ends_of_its_loads(launches):
    starts_s = sum(launch.estimated_s - sum(launch.cells_s) for launch in launches[:2])
    first = sum(launch.cells_s[0] for launch in launches[:2])
    fit = fit_budget(launches, starts_s + first + 1)
    assert cells(fit.kept) == [("baseline", "chat", "1", 0), ("eagle3", "chat", "1", 0)]
    pair_s = sum(launch.estimated_s for launch in launches[:2])
    middle_s = sum(launch.cells_s[1] for launch in launches[:2])
    fit = fit_budget(launches, pair_s - middle_s + 0.5)
    assert {load for _, _, load, _ in cells(fit.kept)} == {"1", "rate=2", "2"}


def test_of_too_many_arms_the_last_goes_first(loaded, small):
    small["arms"]["more"] = {"arguments": ["--page-size 64"]}
    plan = make_plan(loaded(small))
    least_s = sum(
        launch.estimated_s - sum(launch.cells_s) + launch.cells_s[0]
        for launch in plan.launches[:2]
    )
    fit = fit_budget(plan.launches, least_s + 1)
    arms = {launch.arm for launch in fit.kept}
    assert len(arms) == 2
    assert "baseline" in arms


def test_one_arm_alone_is_no_answer(launches):
    assert fit_budget(launches, launches[0].estimated_s + 1).kept == ()


def test_slower_launches_make_fewer(launches):
    total_s = sum(launch.estimated_s for launch in launches)
    assert len(fit_budget(launches, total_s, slower=1.4).kept) == 4


@pytest.mark.parametrize(
    ("count", "order"),
    [(0, []), (1, [0]), (2, [0, 1]), (3, [0, 2, 1]), (5, [0, 4, 2, 1, 3])],
)
def test_the_ends_come_first_and_the_gaps_are_halved(count, order):
    assert halving(count) == order


@settings(deadline=None, max_examples=50)
@given(share=st.floats(0, 1.2), slower=st.floats(0.2, 5))
def test_what_is_kept_fits_and_nothing_is_lost(planned, share, slower):
    launches = planned
    left_s = share * sum(launch.estimated_s for launch in launches)
    fit = fit_budget(launches, left_s, slower=slower)
    assert fit.needed_s <= left_s + 1e-6
    kept, dropped = (
        cells(fit.kept),
        [(c.arm, c.workload.name, c.load.label, c.pair) for c in fit.dropped],
    )
    assert sorted(kept + dropped) == sorted(cells(launches))
    by_pair = {}
    for arm, workload, load, pair in kept:
        by_pair.setdefault((pair, workload, load), set()).add(arm)
    assert all(arms == {"baseline", "eagle3"} for arms in by_pair.values())
