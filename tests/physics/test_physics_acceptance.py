"""Acceptance by category, temperature, place in the output and request."""

import random
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.errors import InputError
from bench.physics import AcceptanceCard, accept_len_tok, chain_reach, load_acceptance, tree_reach

QUICK = settings(deadline=None, max_examples=80)
chances = st.lists(st.floats(0, 1), min_size=1, max_size=8).map(
    lambda found: tuple(sorted(found, reverse=True))
)
LLAMA = load_acceptance("llama-3.1-8b-eagle3-specforge")


@pytest.mark.parametrize(
    ("name", "steps", "accept_len"),
    [
        ("llama-3.1-8b-eagle3-specforge:gsm8k", 3, 2.5482),
        ("llama-3.1-8b-eagle3-specforge:gsm8k", 5, 2.8538),
        ("llama-3.1-8b-eagle3-specforge:math500", 7, 5.4028),
        ("llama-3.1-8b-eagle3:mtbench", 3, 2.9307),
        ("qwen3-30b-a3b-eagle3:livecodebench", 7, 4.5763),
        ("llama-3.1-8b-eagle", 2, 1.89),
        ("llama-3.1-8b-eagle", 4, 2.08),
        ("llama-3.3-70b-eagle3", 7, 4.78),
        ("deepseek-v3-nextn", 3, 2.96),
    ],
)
def test_cards_have_their_published_accept_lengths(name, steps, accept_len):
    card = load_acceptance(name)
    assert accept_len_tok(card.reach, steps) == pytest.approx(accept_len, abs=0.006)
    assert card.name == name
    assert card.method in {"EAGLE", "EAGLE3", "NEXTN"}


def test_a_card_without_category_is_the_mean_over_them():
    mean = sum(accept_len_tok(reach, 5) for _, reach in LLAMA.categories) / 7
    assert accept_len_tok(LLAMA.reach, 5) == pytest.approx(mean, abs=0.01)


def test_an_unknown_category_is_told_the_known():
    with pytest.raises(InputError, match="no category 'maths'") as caught:
        load_acceptance("llama-3.1-8b-eagle3:maths")
    assert "math500" in caught.value.hint


def test_heat_costs_acceptance():
    cold, warm, hot = (
        accept_len_tok(chain_reach(LLAMA, temperature=t), 7) for t in (0.0, 0.5, 1.0)
    )
    assert cold > warm > hot
    published = load_acceptance("llama-3.3-70b-eagle3")
    assert accept_len_tok(chain_reach(published, temperature=1.0), 7) == pytest.approx(
        4.50, abs=0.05
    )
    assert chain_reach(LLAMA, temperature=3.0) == chain_reach(LLAMA, temperature=1.0)


@QUICK
@given(chances, st.floats(0, 2), st.floats(-3, 3))
def test_a_requests_reach_falls_and_stays_a_chance(reach, sd, deviate):
    card = AcceptanceCard(name="any", reach=reach, request_sd=sd)
    found = chain_reach(card, deviate=deviate)
    assert all(0 <= p <= 1 for p in found)
    assert all(a >= b for a, b in pairwise(found))
    better = chain_reach(card, deviate=deviate + 1)
    assert all(b >= a for a, b in zip(found, better, strict=True))


@pytest.mark.parametrize("sd", [0.2, 0.6, 1.0])
def test_over_many_requests_the_mean_is_the_cards(sd):
    card = AcceptanceCard(name="any", reach=(0.85, 0.6, 0.3, 0.05), request_sd=sd)
    rng = random.Random(7)
    drawn = [chain_reach(card, deviate=rng.gauss(0, 1)) for _ in range(20_000)]
    for k, p in enumerate(card.reach):
        assert sum(reach[k] for reach in drawn) / len(drawn) == pytest.approx(p, abs=0.012)


def test_acceptance_changes_along_the_output():
    card = AcceptanceCard(
        name="any", reach=(0.7, 0.4), position=((0, -0.5), (100, 0.0), (300, 0.4))
    )
    at = [chain_reach(card, output_tok=tok)[0] for tok in (0, 50, 100, 200, 300, 5000)]
    assert at == sorted(at)
    assert at[2] == pytest.approx(0.7)
    assert at[-1] == at[-2]
    assert chain_reach(card) == card.reach


def test_thinking_has_its_own_reach():
    kimi = load_acceptance("kimi-k2.5-eagle3")
    assert chain_reach(kimi, thinking=True) == kimi.reach_thinking
    assert chain_reach(LLAMA, thinking=True) == LLAMA.reach


def test_a_better_second_candidate_makes_a_better_tree():
    def tau(share: float) -> float:
        tree = tree_reach(LLAMA.reach, num_steps=4, topk=4, num_draft_tokens=16, rank_share=share)
        return 1 + sum(tree)

    assert accept_len_tok(LLAMA.reach, 4) < tau(0.2) < tau(0.5) < tau(0.8) <= 5


@pytest.mark.parametrize("field", ["temperature_loss", "rank_share"])
def test_shares_are_shares(field):
    with pytest.raises(InputError, match=field):
        AcceptanceCard(name="any", reach=(0.5,), **{field: 1.5})
