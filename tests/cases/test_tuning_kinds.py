"""What cases of tuning may hold beside those that were seen in public."""

import math
from itertools import pairwise

import pytest
from case_checks_tuning import speedup_by_load, speedup_by_prompt, stale_trials, verdicts
from hypothesis import assume, given, settings
from hypothesis import strategies as st

FIGURES = st.floats(1.0, 1e4)


def row(bs, triple, tok_s, accept, **more):
    steps, topk, draft = triple
    given = {"bs": bs, "steps": steps, "topk": topk, "draft": draft, "tok_s": tok_s}
    return {name: str(value) for name, value in {**given, "accept_len": accept, **more}.items()}


CHAIN, TREE, DEEP = (3, 1, 4), (3, 3, 8), (8, 8, 60)


# --------------------------------------------------------------------------- speculation_verdict


@settings(deadline=None, max_examples=100)
@given(base=FIGURES, figures=st.lists(FIGURES, min_size=3, max_size=3, unique=True))
def test_off_wins_where_no_setting_is_faster_and_nowhere_else(base, figures):
    rows = [row(1, t, f, 2.0) for t, f in zip((CHAIN, TREE, DEEP), figures, strict=True)]
    found = verdicts({"1": base}, rows)
    best = max(zip(figures, (CHAIN, TREE, DEEP), strict=True))
    assert found["best_spec"] == {"1": best[1]}
    assert found["best"] == {"1": best[1] if best[0] > base else "off"}
    assert found["speedup_best_spec"]["1"] == pytest.approx(best[0] / base)
    assert found["step_cost_ratio"] == pytest.approx([2.0 * base / f for f in figures])
    assert found["verdict"] == {"1": None}


def test_off_may_win_at_one_load_and_lose_at_another():
    rows = [row(1, CHAIN, 130, 2.0), row(64, CHAIN, 900, 2.0)]
    found = verdicts({"1": 100.0, "64": 1000.0}, rows)
    assert found["best"] == {"1": CHAIN, "64": "off"}


def test_it_may_depend_on_tensor_parallelism():
    rows = [row(1, CHAIN, 130, 2.0, tp=1), row(1, CHAIN, 290, 2.0, tp=8)]
    found = verdicts({"1": {"1": 100.0}, "8": {"1": 300.0}}, rows)
    assert found["best"] == {"1": {"1": CHAIN}, "8": {"1": "off"}}
    assert found["speedup_best_spec"]["1"]["1"] == pytest.approx(1.3)


def test_what_was_not_measured_is_left_out_and_the_rest_stands():
    rows = [
        row(1, CHAIN, "", 2.0),
        row(1, TREE, 90, ""),
        row(4, CHAIN, 100, 2.0),
        row(8, CHAIN, "", ""),
    ]
    found = verdicts({"1": 100.0, "8": 100.0, "32": 100.0}, rows)
    assert found["best"] == {"1": "off"}
    assert found["best_spec"] == {"1": TREE}
    assert found["step_cost_ratio"] == [None, None, None, None]


def test_doubles_of_a_chain_are_one_setting():
    rows = [row(1, (3, 1, draft), tok_s, 2.0) for draft, tok_s in ((4, 90), (8, 121), (16, 110))]
    rows.append(row(1, TREE, 107, 2.5))
    found = verdicts({"1": 100.0}, rows)
    assert found["best_spec"] == {"1": TREE}  # 107, the chain's mean is 106.2
    assert found["highest_accept_is_fastest"]


def test_within_the_noise_of_launches_what_is_in_use_stays():
    noisy = [row(1, CHAIN, tok_s, 2.0) for tok_s in (104, 97, 106)]
    clear = [row(4, CHAIN, tok_s, 2.0) for tok_s in (120, 121, 119)]
    base = {"1": [100.0, 101.0, 99.0], "4": [100.0, 101.0, 99.0]}
    found = verdicts(base, noisy + clear)
    assert found["speedup_best_spec"]["1"] > 1
    assert found["verdict"] == {"1": "UNDECIDED", "4": "FASTER"}
    assert found["best"] == {"1": "off", "4": CHAIN}


def test_the_highest_accept_length_may_or_may_not_be_the_fastest():
    rows = [row(1, CHAIN, 120, 2.0), row(1, DEEP, 110, 4.0)]
    assert not verdicts({"1": 100.0}, rows)["highest_accept_is_fastest"]
    rows.append(row(1, TREE, 130, 4.5))
    assert verdicts({"1": 100.0}, rows)["highest_accept_is_fastest"]


# ------------------------------------------------------------------------------- speedup_by_load


@settings(deadline=None, max_examples=100)
@given(st.lists(st.tuples(FIGURES, FIGURES), min_size=2, max_size=6), st.randoms())
def test_a_speedup_by_load_falls_only_if_it_does_at_every_load(times, rng):
    rows = [
        {"qps": at, "base_tpot_ms": base, "spec_tpot_ms": spec}
        for at, (base, spec) in enumerate(times)
    ]
    ratios = [base / spec for base, spec in times]
    falls = all(a > b for a, b in pairwise(ratios))
    found = speedup_by_load(rows)
    assert found == {"speedup": pytest.approx(ratios), "monotone_decreasing": falls}
    rng.shuffle(rows)
    assert speedup_by_load(rows)["monotone_decreasing"] is falls


def test_a_load_that_was_not_measured_has_no_speedup():
    rows = [
        {"qps": 1, "base_tpot_ms": 20, "spec_tpot_ms": 10},
        {"qps": 2, "base_tpot_ms": 20, "spec_tpot_ms": None},
        {"qps": 4, "base_tpot_ms": 20, "spec_tpot_ms": 20},
    ]
    found = speedup_by_load(rows)
    assert found == {"speedup": [2.0, None, 1.0], "monotone_decreasing": True}
    assert speedup_by_load(rows[:2])["monotone_decreasing"] is None


# ----------------------------------------------------------------------------- speedup_by_prompt


@settings(deadline=None, max_examples=100)
@given(base=FIGURES, cost=st.floats(0.5, 5), accepts=st.lists(st.floats(1, 8), min_size=1))
def test_one_cost_of_a_step_explains_every_prompts_speedup(base, cost, accepts):
    runs = [{"tok_s": base * a / cost, "accept": a} for a in accepts]
    found = speedup_by_prompt({"base": base, "runs": runs})
    assert found["step_cost_ratio"] == pytest.approx([cost] * len(accepts))
    assert found["speedup"] == pytest.approx([a / cost for a in accepts])


def test_two_published_prompts_share_a_cost_within_five_per_cent():
    runs = [{"tok_s": 234.54, "accept": 5.88}, {"tok_s": 100.43, "accept": 2.42}]
    found = speedup_by_prompt({"base": 88.61, "runs": runs})
    shared = math.sqrt(math.prod(found["step_cost_ratio"]))
    assert 2.1 <= shared <= 2.25
    for run, speedup in zip(runs, found["speedup"], strict=True):
        assert run["accept"] / shared == pytest.approx(speedup, rel=0.05)


def test_a_prompt_without_its_accept_length_has_a_speedup_alone():
    runs = [{"tok_s": 20.0, "accept": None}, {"tok_s": None, "accept": 2.0}]
    found = speedup_by_prompt({"base": 10.0, "runs": runs})
    assert found == {"speedup": [2.0, None], "step_cost_ratio": [None, None]}


# ---------------------------------------------------------------------------------- stale_trials

STATES = st.sampled_from(["RUNNING", "COMPLETE", "FAIL", "PRUNED", "WAITING"])
TRIAL = st.tuples(
    STATES, st.none() | st.integers(0, 10_000), st.sampled_from(["exception", "stale"])
)


@settings(deadline=None, max_examples=100)
@given(made=st.lists(TRIAL, max_size=8), grace=st.integers(1, 5000))
def test_only_what_runs_is_stale_and_only_by_its_age(made, grace):
    trials = [
        {"n": n, "state": state, "last_heartbeat": beat, "fail_reason": reason}
        for n, (state, beat, reason) in enumerate(made)
    ]
    found = stale_trials(
        {"heartbeat_interval": grace / 2, "grace_period": grace, "now": 10_000, "trials": trials}
    )
    running = {t["n"]: t["last_heartbeat"] for t in trials if t["state"] == "RUNNING"}
    known = {n: beat for n, beat in running.items() if beat is not None}
    assert found["stale_now"] == [n for n, beat in known.items() if 10_000 - beat > grace]
    assert found["cannot_judge_without_heartbeat"] == [n for n in running if n not in known]
    assume(running)
    assert not set(found["not_retried_automatically"]) & set(running)
