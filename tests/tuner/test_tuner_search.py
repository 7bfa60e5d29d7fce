"""The search against landscapes whose truth is known."""

import ast
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import benchmarks.tuner as bench_of_tuner
from bench.model import Verdict
from benchmarks.landscapes import OFF, Machine
from benchmarks.landscapes_other import OTHER
from benchmarks.landscapes_physics import KNOWN
from tuner.confirm import FinalPlan, whole_blocks
from tuner.confirm.final import TWO_FROM
from tuner.predict import Knowledge, Predictor, Reading, points_of
from tuner.space import Configuration
from tuner.sweep import Proposal, Rules, Search
from tuner.sweep.weighing import first_chain, off_of, worth_of_launching

BY_NAME = {make(0).name: make for make in (*KNOWN, *OTHER)}
CONFIGURATIONS = (
    Configuration(),
    *(
        Configuration(algorithm="EAGLE3", num_steps=s, eagle_topk=1, num_draft_tokens=s + 1)
        for s in (1, 2, 3, 5, 7)
    ),
    Configuration(algorithm="EAGLE3", num_steps=3, eagle_topk=4, num_draft_tokens=8),
)


def search_of(budget=12, rules=None, configurations=CONFIGURATIONS):
    points = points_of(configurations, [(1, 2048.0), (8, 2048.0)], np.array([0.5, 0.5]), None)
    return Search(Predictor(points), configurations, rules or Rules(budget=budget))


def reading(place, value=4.0, length=0.0, at=0.0):
    return Reading(
        configuration=place,
        at=at,
        log_value=np.full(2, value),
        log_accept_len=np.full(2, length),
        reach=np.full((2, 8), np.nan),
    )


def play(search, speed, noise=0.0, seed=0, fails=()):
    """Launch what is asked; `speed` gives a configuration's log value."""
    rng = np.random.default_rng(seed)
    asked = []
    while (proposal := search.ask()) is not None:
        asked.append(proposal)
        if proposal.configuration in fails:
            search.fail(proposal, why="it crashed")
            continue
        steps = search.configurations[proposal.configuration].num_steps or 0
        value = speed(proposal.configuration) + noise * rng.standard_normal()
        length = np.log1p(np.cumsum(0.7 ** np.arange(1, 9)))[steps - 1] if steps else 0.0
        search.tell(reading(proposal.configuration, value, length, len(asked)), proposal)
    return asked


# ---------------------------------------------------------------------------------- the landscapes


@pytest.mark.parametrize("module", ["landscapes", "landscapes_laws", "landscapes_other"])
def test_the_other_laws_know_nothing_of_the_predictor(module):
    path = Path(bench_of_tuner.__file__).with_name(f"{module}.py")
    imported = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            imported |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            imported.add(node.module)
    own = {name for name in imported if name.split(".")[0] in {"tuner", "bench", "benchmarks"}}
    assert own <= {"benchmarks.landscapes", "benchmarks.landscapes_laws"}
    assert "__import__" not in path.read_text(encoding="utf-8")
    assert "importlib" not in path.read_text(encoding="utf-8")


def test_half_of_at_least_sixteen_landscapes_are_other_laws():
    assert len(KNOWN) + len(OTHER) >= 16
    assert len(OTHER) >= len(KNOWN)
    assert len(BY_NAME) == len(KNOWN) + len(OTHER)


def test_landscapes_are_what_their_names_say():
    def best(name, seed):
        land = BY_NAME[name](seed)
        return land, int(land.objective.argmax())

    for seed in range(3):
        land, at = best("speculation-loses", seed)
        assert land.drafts[at] == OFF
        land, at = best("trees-win", seed)
        assert land.drafts[at].is_tree
        land, at = best("nccl-flips", seed)
        off = [i for i, draft in enumerate(land.drafts) if draft == OFF]
        assert land.settings[at] != land.settings[max(off, key=lambda i: land.objective[i])]
        land, _ = best("nothing-in-it", seed)
        speculative = [o for o, d in zip(land.objective, land.drafts, strict=True) if d != OFF]
        assert abs(max(speculative)) <= 0.0051


def test_a_machine_is_right_on_average_and_noisy():
    land = BY_NAME["table"](0)
    place = 3
    machine = Machine(land, seed=0)
    readings = [machine.measure(place) for _ in range(400)]
    batch = np.array([load.batch for load in land.loads])
    true = np.log(1e3 * batch * (1 + land.reach[place].sum(axis=1)) / land.cycle_ms[place])
    logs = np.log([r.tok_per_s for r in readings])
    assert logs.mean(axis=0) == pytest.approx(true, abs=0.004)
    assert logs.std(axis=0) == pytest.approx(0.021, abs=0.004)


# -------------------------------------------------------------------------------------- the search


@pytest.mark.parametrize("name", ["table", "trees-win", "speculation-loses", "constants-off"])
@pytest.mark.parametrize("launches", [10, 20])
def test_the_search_ends_near_the_best_and_says_so_honestly(name, launches):
    found = bench_of_tuner.ours(BY_NAME[name](1), 1, launches, prior=True)
    assert found["regret"] < 8
    assert found["low"] < found["said"] < found["high"]
    assert abs(found["said"] - found["true"]) < 6
    assert found["aliases"] == found["illegal"] == 0


def test_without_physics_it_searches_too():
    found = bench_of_tuner.ours(BY_NAME["table"](2), 2, 20, prior=False)
    assert found["regret"] < 5


@settings(max_examples=15, deadline=None)
@given(budget=st.integers(8, 30), seed=st.integers(0, 100))
def test_the_budget_holds_and_the_final_is_blocks_of_all_its_arms(budget, seed):
    search = search_of(rules=Rules(budget=budget, seed=seed))
    asked = play(search, lambda c: 4 + 0.1 * c, noise=0.02, seed=seed)
    assert len(asked) <= budget
    assert asked[0].configuration == 0
    final = [p for p in asked if p.why == "final"]
    blocks = {p.block for p in final}
    assert len(blocks) >= 2
    arms = {*search.final.finalists, *search.final.baselines}
    if budget < TWO_FROM:
        # One finalist on both sides of the baselines; the search launched the first of them too.
        (best,) = search.final.finalists
        assert {p.configuration for p in final} == arms
        assert [p.configuration for p in final if p.configuration == best] == [best] * 2
        assert final[0].configuration == final[-1].configuration == best
        assert sum(p.configuration == 0 for p in asked) >= 2
    else:
        for block in blocks:
            assert sorted(p.configuration for p in final if p.block == block) == sorted(arms)
    conclusion = search.conclude()
    assert conclusion.best in search.final.finalists
    assert conclusion.low <= conclusion.gain <= conclusion.high


def test_the_best_is_found_and_faster_is_said():
    search = search_of(20)
    play(search, lambda c: [4.0, 4.1, 4.2, 4.4, 4.3, 4.2, 4.1][c], noise=0.005)
    conclusion = search.conclude()
    assert conclusion.best == conclusion.configuration == 3
    assert conclusion.gain == pytest.approx(0.4, abs=0.03)
    assert conclusion.verdict is Verdict.FASTER


def test_leaving_speculation_off_is_an_answer():
    search = search_of(16)
    play(search, lambda c: 4.0 if c == 0 else 3.8, noise=0.005)
    conclusion = search.conclude()
    assert conclusion.configuration == conclusion.baseline == 0
    assert conclusion.verdict is Verdict.SLOWER


def test_what_is_in_use_now_takes_part_and_may_be_kept():
    search = search_of(rules=Rules(budget=20, present=3))
    play(search, lambda c: [4.0, 4.1, 4.2, 4.4, 4.3, 4.2, 4.1][c], noise=0.003)
    assert all(3 in block for block in search.final.blocks)
    assert search.conclude().configuration == 3


def test_a_failed_configuration_is_never_asked_for_again():
    search = search_of(20)
    asked = play(search, lambda c: 4 + 0.1 * c, noise=0.01, fails={6, 5})
    assert [p.configuration for p in asked].count(6) <= 1
    assert [p.configuration for p in asked].count(5) <= 1
    assert not {5, 6} & set(search.final.finalists)
    assert search.conclude().best == 4


def test_others_that_must_fail_alike_are_left_out():
    search = search_of(20)
    search.tell(reading(0))
    search.fail(Proposal(configuration=5, why="search"), why="no memory", also=[4, 6])
    asked = play(search, lambda c: 4 + 0.1 * c, noise=0.01)
    assert not {4, 5, 6} & {p.configuration for p in asked}


def test_a_baseline_that_fails_once_is_tried_again():
    search = search_of(12)
    search.fail(search.ask(), why="it crashed")
    assert search.ask().configuration == 0
    assert not search.excluded


def test_what_failed_by_the_moments_fault_is_launched_once_more():
    search = search_of(20)
    search.tell(reading(0))
    asked = search.ask()
    search.fail(asked, why="the port was taken", again=True)
    assert search.ask() == asked
    search.fail(asked, why="the port was taken", again=True)
    assert search.excluded == {asked.configuration: "the port was taken"}


def test_fewer_launches_when_there_is_no_time_for_more():
    search = search_of(40)
    search.tell(reading(0))
    search.limit(12)
    asked = play(search, lambda c: 4 + 0.1 * c, noise=0.01)
    assert len(asked) == 11
    assert search.final is not None


def test_a_search_taken_up_in_its_final_launches_what_is_left_of_it():
    def speed(c):
        return 4 + 0.1 * c

    whole = search_of(14)
    asked = play(whole, speed)
    stop = next(i for i, p in enumerate(asked) if p.why == "final") + 1
    again = search_of(14)
    for p in asked[:stop]:
        again.tell(whole.readings[asked.index(p)], p)
    done = [replace(p, measured=True) for p in asked[:stop]]
    again.take_up(whole.final, done)
    assert play(again, speed) == asked[stop:]
    assert again.conclude().best == whole.conclude().best


def test_guests_that_were_not_measured_come_when_the_final_is_over():
    def speed(c):
        return [4.0, 4.1, 4.2, 4.8, 4.3, 4.2, 4.1][c]

    def played(guests):
        rules = Rules(budget=40, stop_below=0.2, least_launches=2, guests=guests)
        return play(search_of(rules=rules), speed, noise=0.002)

    met = [p.configuration for p in played(())]
    stranger = next(c for c in range(7) if c not in met)
    asked = played((met[1], stranger))
    assert [p.configuration for p in asked[:-1]] == met
    assert (asked[-1].why, asked[-1].configuration) == ("guest", stranger)


def test_a_search_that_has_nothing_left_to_find_stops_early():
    rules = Rules(budget=40, stop_below=0.002)
    search = search_of(rules=rules)
    asked = play(search, lambda c: [4.0, 4.1, 4.2, 4.8, 4.3, 4.2, 4.1][c], noise=0.002)
    assert len(asked) < 35
    assert search.conclude().best == 3


def test_the_baseline_is_launched_again_against_drift():
    asked = play(search_of(40), lambda c: 4 + 0.05 * c, noise=0.02)
    before = [p for p in asked if p.why != "final"]
    assert sum(p.configuration == 0 for p in before) >= 2


# -------------------------------------------------------------------------------------- its pieces


def test_a_launch_is_worth_more_the_less_is_known_and_the_better_it_may_be():
    cov = np.diag([0.01, 0.04, 0.04, 0.0001])
    knowledge = Knowledge(
        mean=np.array([0.0, 0.0, -0.5, 0.0]),
        cov=cov,
        cell_mean=np.zeros((4, 1)),
        log_accept_len=np.zeros((4, 1)),
        launch_sd=0.02,
        quirk_sd=0.01,
    )
    worth = worth_of_launching(knowledge, np.ones(4, dtype=bool))
    assert worth[1] > worth[0] > worth[3] >= 0
    assert worth[1] > worth[2]
    only = worth_of_launching(knowledge, np.array([True, False, True, True]))
    assert only[1] == -np.inf


def test_the_off_of_each_setting_is_found():
    other = (("NCCL_ALGO", "Ring"),)
    space = (
        Configuration(),
        Configuration(algorithm="EAGLE3", num_steps=1, eagle_topk=1, num_draft_tokens=2),
        Configuration(environment=other),
        Configuration(
            algorithm="EAGLE3", num_steps=1, eagle_topk=1, num_draft_tokens=2, environment=other
        ),
    )
    assert off_of(space) == (0, 0, 2, 2)
    assert first_chain(space) == [1]
    assert first_chain(CONFIGURATIONS) == [4]


def test_repeats_narrow_what_is_known_and_noise_is_learnt():
    points = points_of(CONFIGURATIONS, [(1, 2048.0), (8, 2048.0)], np.array([0.5, 0.5]), None)
    rng = np.random.default_rng(0)
    predictor = Predictor(points)
    readings = [
        reading(c, 4 + 0.1 * (c > 0) + 0.01 * rng.standard_normal(), 0.0, float(at))
        for at, c in enumerate([0, 3] * 10)
    ]
    few, many = predictor.learn(readings[:4]), predictor.learn(readings)
    assert many.difference(3, 0)[1] < few.difference(3, 0)[1]
    assert many.difference(3, 0)[0] == pytest.approx(0.1, abs=0.015)
    assert 0.005 < many.launch_sd < 0.018


# ------------------------------------------------------------------------------------- the final


@pytest.mark.parametrize(
    ("blocks", "lost", "whole"),
    [
        (((3, 0), (3,)), (), 2),
        (((3, 0, 5), (3,)), (), 2),
        (((3, 0), (3,)), ((1, 3),), 1),
        (((3, 0), (3,)), ((0, 3),), 1),
        (((3, 0), (3,)), ((0, 0),), 0),
        (((3, 0), (0, 3), (3, 0)), (), 3),
        (((3, 0), (0, 3), (3, 0)), ((1, 0),), 2),
        (((3, 0, 5), (0, 5, 3)), ((0, 5),), 2),
    ],
)
def test_a_block_is_whole_when_the_best_stands_beside_a_baseline(blocks, lost, whole):
    final = FinalPlan(finalists=(3,), baselines=(0,), present=5, blocks=blocks)
    met = {(at, c) for at, block in enumerate(blocks) for c in block}
    assert whole_blocks(final, met - set(lost)) == whole


# -------------------------------------------------------------- step counts inside one launch


def turns(few, many, gain, sd, level, at=9.0):
    length = np.log1p(np.cumsum(0.7 ** np.arange(1, 9)))
    return [
        replace(
            reading(place, level + sign * gain / 2, length[steps - 1], at),
            gain_sd=np.full(2, sd),
        )
        for place, steps, sign in ((few, 2, -1), (many, 3, 1))
    ]


@settings(max_examples=15, deadline=None)
@given(gain=st.floats(-0.05, 0.05), level=st.floats(-1.0, 9.0))
def test_step_counts_that_took_turns_tell_their_difference_and_nothing_of_their_level(gain, level):
    search = search_of(12)
    play(search, lambda c: [4.0, 4.1, 4.2, 4.21, 4.15, 4.1, 4.0][c], noise=0.002)
    before = search.knowledge
    concluded = search.conclude()
    search.compare(turns(2, 3, gain, 0.001, level))
    after = search.knowledge
    assert after.difference(3, 2)[0] == pytest.approx(gain, abs=0.006)
    assert after.difference(3, 2)[1] < before.difference(3, 2)[1]
    moved = (after.mean[2] + after.mean[3] - before.mean[2] - before.mean[3]) / 2
    assert abs(moved) < 0.02  # whatever the level was
    assert search.conclude() == concluded  # the headline rests on launches alone


def test_a_vague_comparison_of_step_counts_moves_little():
    told = []
    for sd in (0.001, 0.2):
        search = search_of(12)
        play(search, lambda c: [4.0, 4.1, 4.2, 4.21, 4.15, 4.1, 4.0][c], noise=0.002)
        before = search.knowledge.difference(3, 2)[0]
        search.compare(turns(2, 3, 0.05, sd, 4.0))
        told.append(abs(search.knowledge.difference(3, 2)[0] - before))
    assert told[1] < 0.1 * told[0]
