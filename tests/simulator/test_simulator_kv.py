"""KV slots: no more are given than there are, all come back, and who is admitted or thrown out."""

from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.simulator.kv_pool import (
    KvPool,
    NewTokenRatio,
    PrefillBudget,
    expected_tok,
    fits_to_the_end,
    missing_tok,
    retraction_order,
)
from bench.simulator.prefix_cache import BLOCK_TOK

QUICK = settings(deadline=None, max_examples=80)


@dataclass(eq=False)
class Slots:
    """The part of a request that the pool looks at."""

    prompt_tok: int
    output_tok: int = 0
    cap_tok: int = 100
    ignore_eos: bool = False
    blocks: list[int] = field(default_factory=list)
    locked_blocks: list[int] = field(default_factory=list)
    own_tok: int = 0

    @property
    def context_tok(self) -> int:
        return self.prompt_tok + self.output_tok


@QUICK
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(17, 90)), max_size=40))
def test_slots_are_conserved(moves):
    pool = KvPool(2000)
    held: list[Slots] = []
    for kind, size in moves:
        if kind == 0 and held:
            pool.give_back(held.pop(0))
            continue
        blocks = list(range(kind * 100, kind * 100 + (size - 1) // BLOCK_TOK))
        request = Slots(prompt_tok=size, blocks=blocks)
        found = pool.find(request)
        if size - found > pool.free_tok:
            pool.give_back(request)
            continue
        pool.take(request, size - found)
        pool.keep_prompt(request)
        held.append(request)
        assert request.own_tok + len(request.locked_blocks) * BLOCK_TOK == size
    cached = {block for request in held for block in request.locked_blocks}
    assert pool.used_tok == sum(r.own_tok for r in held) + len(cached) * BLOCK_TOK
    assert 0 <= pool.empty_tok <= pool.free_tok <= pool.capacity_tok
    for request in held:
        pool.give_back(request)
    assert pool.used_tok == 0


def test_a_step_wants_a_slot_a_token_and_drafts_want_room_ahead():
    plain = Slots(prompt_tok=10, output_tok=1, own_tok=10)
    assert missing_tok(plain, 1) == 1
    drafting = Slots(prompt_tok=10, output_tok=1, own_tok=10)
    assert missing_tok(drafting, 8) == 8
    drafting.own_tok += 8
    drafting.output_tok += 3  # what a verify step made
    assert missing_tok(drafting, 8) == 3


def test_the_ratio_falls_with_each_step_and_follows_what_was_kept():
    ratio = NewTokenRatio(1.0)
    assert ratio.current == pytest.approx(0.7)
    for _ in range(700):
        ratio.step()
    assert ratio.current == pytest.approx(0.7 * 0.14)
    # The first retraction of tests/lab/scenes/retraction: 5 were kept, with 194 to 203 tokens.
    kept = [Slots(84, output_tok=made, cap_tok=400) for made in (203, 199, 194, 190, 189)]
    ratio.retracted(kept)
    assert ratio.current == pytest.approx((975 + 100) / 2001)
    ratio.reset()
    assert ratio.current == pytest.approx(0.7)
    assert NewTokenRatio(9.0).current == 1.0


def test_admission_counts_the_cap_of_the_new_and_a_share_of_the_old():
    running = [Slots(10, output_tok=20, cap_tok=120), Slots(10, cap_tok=9000, ignore_eos=True)]
    assert expected_tok(running, 0.5) == 100 * 0.5 + 4096
    budget = PrefillBudget(total_tok=500, chunk_tok=8192, input_tok=16384)
    assert budget.fits(300, 198)
    assert not budget.fits(300, 199)
    budget.charge(300, 100)
    assert budget.total_tok == 99
    assert not budget.is_spent
    budget.charge(8000, 0)
    assert budget.is_spent


def test_of_known_lengths_it_is_seen_whether_all_come_to_their_ends():
    short, long = Slots(10, output_tok=90, cap_tok=100), Slots(10, cap_tok=200)
    # The long one's 200 tokens have the 100 slots that the short one leaves; one must be over.
    assert fits_to_the_end(long, [short], free_tok=102)
    assert not fits_to_the_end(long, [short], free_tok=101)
    assert not fits_to_the_end(short, [Slots(10, cap_tok=10)], free_tok=22)  # both make 10
    assert not fits_to_the_end(long, [], free_tok=100)


@QUICK
@given(st.lists(st.tuples(st.integers(1, 50), st.integers(0, 50)), min_size=1, max_size=20))
def test_the_shortest_answer_goes_first_and_of_these_the_longest_prompt(sizes):
    order = retraction_order([Slots(prompt, output_tok=made) for prompt, made in sizes])
    first = order[-1]
    assert first.output_tok == min(made for _, made in sizes)
    assert first.prompt_tok == max(p for p, made in sizes if made == first.output_tok)
