"""Accept lengths of drafts that were not launched."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.physics import tree_reach
from tuner.predict.acceptance import (
    Drafts,
    extended,
    predict_acceptance,
    reach_through,
    tree_sums,
)

TRIPLES = [(0, 0, 1), *((s, 1, s + 1) for s in range(1, 9)), (3, 2, 6), (3, 4, 8), (5, 4, 16)]
CONDITIONAL = st.lists(st.floats(0.1, 0.95), min_size=8, max_size=8)


def drafts_of(triples=TRIPLES):
    steps, topk, tokens = np.array(triples).T
    return Drafts(
        steps=steps, topk=topk, tokens=tokens, family=(steps > 0).astype(int), eagle=steps > 0
    )


def launch(triple, reach, cells=1):
    row = np.zeros((cells, 8))
    row[:, : triple[0]] = reach[: triple[0]]
    log_len = np.log1p(row.sum(axis=1))
    return TRIPLES.index(triple), log_len, row


@settings(max_examples=60, deadline=None)
@given(conditional=CONDITIONAL, deep=st.integers(1, 8))
def test_a_deep_chain_tells_the_accept_length_of_every_shallower_one(conditional, deep):
    reach = np.cumprod(conditional)
    known = predict_acceptance(drafts_of(), np.ones(1), [launch((deep, 1, deep + 1), reach)]).mean[
        :, 0
    ]
    for steps in range(1, deep + 1):
        assert np.exp(known[steps]) == pytest.approx(1 + reach[:steps].sum(), abs=1e-3)


@settings(max_examples=60, deadline=None)
@given(
    conditional=CONDITIONAL,
    steps=st.integers(1, 6),
    topk=st.integers(2, 4),
    tokens=st.integers(2, 24),
    share=st.floats(0.05, 0.9),
)
def test_the_sums_of_a_tree_are_those_of_the_physics(conditional, steps, topk, tokens, share):
    reach = np.cumprod(conditional)
    most = topk + (steps - 1) * topk**2
    tokens = min(tokens, most + 1)
    expected = sum(
        tree_reach(
            tuple(reach), num_steps=steps, topk=topk, num_draft_tokens=tokens, rank_share=share
        )
    )
    sums = tree_sums(reach[None], topk, steps, np.array([share]))
    # tree_reach cuts each depth at 1; the sums do not, and no depth gets there with these shares.
    assert sums[0, 0, steps - 1, tokens - 2] == pytest.approx(expected, abs=2e-2)


def test_a_measured_tree_corrects_its_neighbours():
    reach = np.cumprod([0.7] * 8)
    chain = launch((5, 1, 6), reach)
    before = predict_acceptance(drafts_of(), np.ones(1), [chain]).mean[:, 0]
    tree, near = TRIPLES.index((3, 2, 6)), TRIPLES.index((3, 4, 8))
    worse = (tree, np.array([before[tree] - 0.2]), np.full((1, 8), np.nan))
    after = predict_acceptance(drafts_of(), np.ones(1), [chain, worse]).mean[:, 0]
    assert after[tree] == pytest.approx(before[tree] - 0.2, abs=0.02)
    assert before[near] - 0.25 < after[near] < before[near] - 0.05
    assert after[TRIPLES.index((5, 1, 6))] == pytest.approx(
        before[TRIPLES.index((5, 1, 6))], abs=1e-3
    )


def test_what_was_measured_is_certain_and_what_was_not_is_not():
    reach = np.cumprod([0.7] * 8)
    sd_before = np.sqrt(np.diag(predict_acceptance(drafts_of(), np.ones(1), []).objective_cov))
    seen = [launch((5, 1, 6), reach)]
    sd = np.sqrt(np.diag(predict_acceptance(drafts_of(), np.ones(1), seen).objective_cov))
    chain3, chain8 = TRIPLES.index((3, 1, 4)), TRIPLES.index((8, 1, 9))
    assert sd_before[chain3] > 0.15
    assert sd[chain3] < 0.01
    assert sd[chain3] < sd[chain8] < sd_before[chain8]
    assert sd[0] < 1e-3  # without speculation a step yields a token


def test_cells_have_acceptances_of_their_own():
    low, high = np.cumprod([0.4] * 8), np.cumprod([0.8] * 8)
    at, _, _ = launch((5, 1, 6), low)
    row = np.stack([low, high])
    row[:, 5:] = 0
    seen = [(at, np.log1p(row.sum(axis=1)), row)]
    mean = predict_acceptance(drafts_of(), np.array([0.5, 0.5]), seen).mean
    three = TRIPLES.index((3, 1, 4))
    assert np.exp(mean[three]) == pytest.approx([1 + low[:3].sum(), 1 + high[:3].sum()], abs=1e-3)


@settings(max_examples=60, deadline=None)
@given(first=st.floats(0.2, 0.9), keeps=st.floats(0.3, 0.97))
def test_two_accept_lengths_give_the_geometric_fall_through_them(first, keeps):
    reach = first * keeps ** np.arange(8)
    lengths = {steps: float(np.log1p(reach[:steps].sum())) for steps in (3, 7)}
    assert reach_through(lengths, 8, reach) == pytest.approx(reach, abs=1e-4)


def test_one_accept_length_keeps_the_expected_fall():
    guess = 0.6 * 0.8 ** np.arange(8)
    scaled = reach_through({3: float(np.log1p(1.1 * guess[:3].sum()))}, 8, guess)
    assert scaled == pytest.approx(1.1 * guess)


def test_reach_goes_on_with_its_last_conditional_acceptance():
    assert extended(np.array([0.8, 0.4]), 4) == pytest.approx([0.8, 0.4, 0.2, 0.1])
    assert extended(np.array([0.8, 0.4, 0.3]), 2) == pytest.approx([0.8, 0.4])
