"""The figures of a probe: ratios of sums, their spread, and what training promises."""

import random
from math import sqrt

import pytest
from accepting_server import histogram_of
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.doctor.acceptance import Reply, expected_accept_len_tok, measured

HISTOGRAMS = st.lists(
    st.lists(st.integers(0, 50), min_size=1, max_size=5).filter(any), min_size=1, max_size=8
)


def reply(histogram, prompt_tok=None):
    return Reply(
        group="g",
        prompt_tok=prompt_tok,
        output_tok=None,
        verify_ct=sum(histogram),
        num_correct_drafts=sum(k * n for k, n in enumerate(histogram)),
        histogram=tuple(histogram),
    )


@settings(deadline=None, max_examples=100)
@given(histograms=HISTOGRAMS)
def test_a_group_is_a_ratio_of_sums(histograms):
    found = measured("g", [reply(histogram) for histogram in histograms])
    steps = sum(map(sum, histograms))
    drafts = sum(k * n for h in histograms for k, n in enumerate(h))
    assert found.verify_ct == steps
    assert found.accept_len_tok == pytest.approx(1 + drafts / steps)
    assert found.accept_len_tok == pytest.approx(1 + sum(found.at_position))
    assert list(found.at_position) == sorted(found.at_position, reverse=True)


def test_nothing_is_measured_without_steps():
    assert measured("g", []) is None
    assert measured("g", [reply([0])]) is None


def test_the_spread_is_that_of_repeated_groups():
    draws = random.Random(1)
    lengths, errors = [], []
    for _ in range(300):
        # requests differ in how well they go, as prompts do
        goes = [draws.uniform(0.4, 0.9) for _ in range(12)]
        found = measured("g", [reply(histogram_of((p, p, p), 192, draws.random())) for p in goes])
        lengths.append(found.accept_len_tok)
        errors.append(found.standard_error_tok)
    mean = sum(lengths) / len(lengths)
    spread = sqrt(sum((length - mean) ** 2 for length in lengths) / (len(lengths) - 1))
    assert sum(errors) / len(errors) == pytest.approx(spread, rel=0.2)


@settings(deadline=None, max_examples=100)
@given(accuracy=st.lists(st.floats(0, 1), min_size=1, max_size=6), steps=st.integers(1, 8))
def test_what_training_promises_lies_within_the_chain(accuracy, steps):
    expected = expected_accept_len_tok(accuracy, steps)
    assert 1 <= expected <= 1 + min(steps, len(accuracy)) + 1e-9
    assert expected_accept_len_tok([1.0] * 9, steps) == 1 + steps


def test_the_storys_training_promised_what_it_did():
    assert expected_accept_len_tok([0.747], 1) == pytest.approx(1.747)
    assert expected_accept_len_tok([0.5, 0.5, 0.5], 3) == pytest.approx(1.875)
