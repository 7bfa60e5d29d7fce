"""The sentence that people quote: right about direction, interval and crossover."""

import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from report_examples import stored_run

from bench.model import CellStatus, Comparison, Verdict
from reports.view import load_order
from reports.wording import answer_sentences, crossover, duration


def compared(load, speedup, verdict, **changes) -> Comparison:
    made = Comparison(
        arm="eagle3",
        workload="chat",
        load=load,
        metric="output_tok_per_s",
        speedup=speedup,
        ci95_low=speedup and speedup * 0.98,
        ci95_high=speedup and speedup * 1.02,
        pairs=3,
        degrees_of_freedom=2.0,
        verdict=verdict,
        more_pairs_needed=None,
        break_even_accept_len_tok=2.0,
        accept_len_tok=2.5,
        cycle_ms=20.0,
        baseline_step_ms=10.0,
        baseline_value=100.0,
        arm_value=100.0 * (speedup or 1),
        status=CellStatus.VALID,
        reason=None,
        config_differences=(),
    )
    return replace(made, **changes)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return stored_run(tmp_path_factory.mktemp("wording"), loads=(1, 8, 64))


@pytest.mark.parametrize(
    ("verdict", "speedup", "phrase"),
    [
        (Verdict.FASTER, 1.31, "eagle3 is 1.31× as fast [1.28, 1.34] at 1 request."),
        (Verdict.SLOWER, 0.88, "eagle3 loses 12 % [10, 14] at 1 request."),
        (Verdict.SAME, 1.0, "eagle3 makes no difference at 1 request (1.00× [0.98, 1.02])."),
        (Verdict.UNDECIDED, 1.01, "eagle3 is undecided at 1 request (1.01× [0.99, 1.03])."),
        (None, 1.2, "eagle3 was 1.20× as fast [1.18, 1.22] at 1 request; there is no verdict."),
        (None, None, "eagle3 has no answer at 1 request."),
    ],
)
def test_each_verdict_is_said_in_its_own_words(run, verdict, speedup, phrase):
    stored = replace(run, comparisons=(compared("1", speedup, verdict),))
    assert answer_sentences(stored) == [phrase]


def test_what_is_not_valid_is_marked_in_the_sentence(run):
    suspect = compared("1", 1.3, Verdict.FASTER, status=CellStatus.SUSPECT)
    assert "(SUSPECT)" in answer_sentences(replace(run, comparisons=(suspect,)))[0]


def test_an_arm_that_was_the_same_server_as_another_is_marked(run):
    alike = compared("1", 1.3, Verdict.FASTER, same_server_as=("wide",))
    assert "(same server as wide)" in answer_sentences(replace(run, comparisons=(alike,)))[0]


def test_where_a_gain_turns_into_a_loss_is_told(run):
    comparisons = (
        compared("1", 1.31, Verdict.FASTER),
        compared("8", 1.1, Verdict.FASTER),
        compared("64", 0.88, Verdict.SLOWER),
    )
    sentence = answer_sentences(replace(run, comparisons=comparisons))[0]
    assert "breaks even near 19 requests at once" in sentence


def test_an_undecided_load_gives_no_crossover():
    points = (compared("1", 1.2, Verdict.FASTER), compared("64", 0.99, Verdict.UNDECIDED))
    assert crossover(points) is None


def test_two_crossovers_are_not_made_one():
    points = (
        compared("1", 1.2, Verdict.FASTER),
        compared("8", 0.9, Verdict.SLOWER),
        compared("64", 1.2, Verdict.FASTER),
    )
    assert crossover(points) is None


@given(
    at=st.floats(1.5, 60),
    slope=st.floats(0.05, 0.5),
    loads=st.lists(st.integers(1, 64), min_size=2, max_size=6, unique=True),
)
@settings(deadline=None)
def test_the_crossover_of_a_straight_line_is_found_exactly(at, slope, loads):
    points = []
    for load in sorted({1, 64, *loads}):
        speedup = math.exp(-slope * (math.log(load) - math.log(at)))
        verdict = Verdict.FASTER if speedup > 1 else Verdict.SLOWER
        points.append(compared(str(load), speedup, verdict))
    assert crossover(points) == pytest.approx(at, rel=1e-6)


def test_a_run_of_one_arm_or_of_nothing_says_so(run):
    assert answer_sentences(replace(run, measurements=()))[0].startswith("Nothing was measured")
    alone = replace(run.manifest, plan=tuple(p for p in run.manifest.plan if p.arm == "baseline"))
    baselines = tuple(m for m in run.measurements if m.arm == "baseline")
    told = answer_sentences(replace(run, manifest=alone, measurements=baselines))[0]
    assert told.startswith("This run compares nothing: it has one arm alone. baseline gave ")
    rate = math.fsum(m.output_tok_per_s for m in baselines if m.load == "1") / 2
    assert f"{rate:.1f} tok/s at 1 request, " in told


def test_of_many_loads_the_ends_and_the_extremes_are_said(run):
    speedups = {1: 1.2, 2: 1.4, 4: 1.3, 8: 1.1, 16: 0.9, 32: 0.7, 64: 0.8}
    comparisons = tuple(
        compared(str(load), s, Verdict.FASTER if s > 1 else Verdict.SLOWER)
        for load, s in speedups.items()
    )
    (sentence,) = answer_sentences(replace(run, comparisons=comparisons))
    for phrase in ("at 1 request,", "at 2 requests", "at 32 requests", "at 64 requests"):
        assert phrase in sentence
    assert "at 8 requests" not in sentence
    assert "breaks even near" in sentence
    assert sentence.endswith("(3 more loads in the table).")


def test_of_many_arms_the_fastest_are_said_and_luck_with_them(run):
    arms = [f"arm{number:02d}" for number in range(12)]
    planned = tuple(replace(run.manifest.plan[0], arm=arm) for arm in ("baseline", *arms))
    comparisons = tuple(
        compared("1", 1.0 + number / 100, Verdict.FASTER, arm=arm)
        for number, arm in enumerate(arms)
    )
    many = replace(run, manifest=replace(run.manifest, plan=planned), comparisons=comparisons)
    *said, last = answer_sentences(many)
    assert [sentence.split()[0] for sentence in said] == arms[:3:-1]
    assert last.startswith("These are the 8 fastest of 12, ")
    assert "the other 4 are in the table" in last


@given(st.lists(st.integers(1, 10**6), unique=True, min_size=2))
@settings(deadline=None)
def test_loads_are_ordered_by_number_not_by_text(loads):
    labels = [str(load) for load in loads]
    assert [int(label) for label in sorted(labels, key=load_order)] == sorted(loads)
    assert load_order("64") < load_order("rate=2") < load_order("capacity")


@pytest.mark.parametrize(
    ("seconds", "shown"), [(7505, "2 h 05 min"), (200, "3 min 20 s"), (12.4, "12 s")]
)
def test_durations(seconds, shown):
    assert duration(seconds) == shown
