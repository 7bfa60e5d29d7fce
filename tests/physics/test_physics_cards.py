"""Cards and acceptance."""

from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import bench.physics
from bench.errors import InputError
from bench.physics import (
    accept_len_tok,
    load_acceptance,
    load_hardware,
    load_target,
    reach_of,
    tree_reach,
)

QUICK = settings(deadline=None, max_examples=100)
CARDS = Path(bench.physics.__file__).parent / "cards"
chances = st.lists(st.floats(0, 1), min_size=1, max_size=8).map(
    lambda found: tuple(sorted(found, reverse=True))
)


def test_every_card_loads():
    for path in CARDS.glob("hardware/*.yaml"):
        card = load_hardware(path.stem)
        sizes = [size for size, _ in card.allreduce_us]
        assert sizes == sorted(set(sizes))
        assert card.source
    for path in CARDS.glob("targets/*.yaml"):
        assert load_target(path.stem).source
    names = [path.stem for path in CARDS.glob("acceptance/*.yaml")]
    assert all(load_acceptance(name).source for name in names)
    assert len(names) == 3


@pytest.mark.parametrize(
    ("load", "name", "near"),
    [
        (load_hardware, "h200x8", "h200-x8"),
        (load_target, "kimi-k25", "kimi-k2.5"),
        (load_acceptance, "kimi-k2.5-eagle", "kimi-k2.5-eagle3"),
    ],
)
def test_an_unknown_name_is_told_the_nearest(load, name, near):
    with pytest.raises(InputError, match=name) as caught:
        load(name)
    assert f"Did you mean {near!r}?" in caught.value.hint


def test_a_name_cannot_leave_the_folder():
    with pytest.raises(InputError):
        load_hardware("../targets/kimi-k2.5")


def test_acceptance_as_numbers():
    assert load_acceptance("0.36,0.14,0.07").reach == (0.36, 0.14, 0.07)
    assert load_acceptance((0.9,)).reach == (0.9,)
    for wrong in ("0.1,0.2", "1.5", "-0.1", "nan"):
        with pytest.raises(InputError):
            load_acceptance(wrong)


def test_the_golden_draft_has_the_published_accept_lengths():
    card = load_acceptance("kimi-k2.5-eagle3")
    thinking = (1.83, 2.43, 2.88, 3.24, 3.46, 3.62, 3.71, 3.77)
    plain = (1.80, 2.33, 2.75, 3.06, 3.25, 3.43, None, 3.51)
    for steps, (on, off) in enumerate(zip(thinking, plain, strict=True), start=1):
        assert accept_len_tok(card.reach_thinking, steps) == pytest.approx(on)
        if off is not None:  # published position 7 and 8 rise, which cannot be
            assert accept_len_tok(card.reach, steps) == pytest.approx(off)


@QUICK
@given(chances, st.integers(1, 12))
def test_accept_length_grows_with_depth_and_stays_below_it(reach, steps):
    assert 1 <= accept_len_tok(reach, steps) <= steps + 1
    assert accept_len_tok(reach, steps) <= accept_len_tok(reach, steps + 1)
    found = reach_of(reach, steps)
    assert len(found) == steps
    assert list(found) == sorted(found, reverse=True)


@QUICK
@given(chances, st.integers(1, 8))
def test_a_tree_of_one_branch_is_the_chain(reach, steps):
    chain = reach_of(reach, steps)
    assert tree_reach(reach, num_steps=steps) == chain
    assert tree_reach(reach, num_steps=steps, topk=1, num_draft_tokens=steps + 1) == chain


@QUICK
@given(chances, st.integers(1, 5), st.integers(2, 6), st.data())
def test_a_tree_accepts_no_less_than_its_best_branches_and_at_most_its_depth(
    reach, steps, topk, data
):
    capacity = 1 + topk + (steps - 1) * topk**2
    tokens = data.draw(st.integers(2, capacity))
    found = tree_reach(reach, num_steps=steps, topk=topk, num_draft_tokens=tokens)
    assert len(found) == steps
    assert all(0 <= chance <= 1 for chance in found)
    assert all(a >= b - 1e-9 for a, b in pairwise(found))
    if tokens < capacity:
        wider = tree_reach(reach, num_steps=steps, topk=topk, num_draft_tokens=tokens + 1)
        assert sum(wider) >= sum(found) - 1e-9
    whole = tree_reach(reach, num_steps=steps, topk=topk, num_draft_tokens=capacity)
    assert sum(whole) >= sum(reach_of(reach, steps)) - 1e-9


def test_a_tree_needs_its_size():
    with pytest.raises(InputError, match="num_draft_tokens"):
        tree_reach((0.5,), num_steps=2, topk=2)
