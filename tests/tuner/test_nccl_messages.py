"""How large the messages of a step are, and how many."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.physics import load_target
from tuner.nccl import Draft, Widths, message_bytes, steps_of
from tuner.nccl.messages import prefill_step, step_of

KIMI = Widths(hidden=7168, layers=61, draft_hidden=7168, draft_layers=1)
CHAIN = Draft(algorithm="EAGLE3", num_steps=3, topk=1, num_draft_tokens=4)


def sizes(step):
    return {m.kind: (m.message_bytes, m.per_step) for m in step.messages}


def test_a_message_is_batch_times_tokens_times_hidden_times_two():
    assert message_bytes(batch=1, tokens=1, hidden=7168) == 14 * 1024
    assert message_bytes(batch=1, tokens=8, hidden=7168) == 112 * 1024
    assert message_bytes(batch=4, tokens=2, hidden=100, element_bytes=4) == 3200


def test_decoding_reduces_twice_a_layer():
    assert sizes(step_of(KIMI, Draft(), load="1", batch=1)) == {"decode": (14336, 122)}


def test_a_chain_verifies_wide_and_drafts_narrow():
    assert sizes(step_of(KIMI, CHAIN, load="8", batch=8)) == {
        "verify": (8 * 4 * 14336, 122),
        "draft extend": (8 * 4 * 14336, 2),
        "draft step": (8 * 14336, 4),
    }


def test_a_trees_draft_steps_are_topk_wide():
    tree = Draft(algorithm="EAGLE3", num_steps=4, topk=8, num_draft_tokens=16)
    assert sizes(step_of(KIMI, tree, load="1", batch=1))["draft step"] == (8 * 14336, 6)


@pytest.mark.parametrize(
    ("draft", "kinds"),
    [
        (Draft(algorithm="NGRAM", num_draft_tokens=8), ["verify"]),
        (
            Draft(algorithm="EAGLE3", num_steps=1, num_draft_tokens=2),
            ["verify", "draft extend"],
        ),
        (Draft(algorithm="DFLASH", num_steps=7, num_draft_tokens=8), ["verify", "draft extend"]),
    ],
)
def test_which_forwards_a_draft_has(draft, kinds):
    assert [m.kind for m in step_of(KIMI, draft, load="1", batch=1).messages] == kinds


def test_a_draft_of_which_nothing_is_known_has_no_messages_of_its_own():
    only_target = Widths(hidden=7168, layers=61)
    assert [m.kind for m in step_of(only_target, CHAIN, load="1", batch=1).messages] == ["verify"]


def test_a_batch_is_padded_to_the_next_graph_with_and_without_speculation_apart():
    plain, verify = steps_of(
        KIMI, [Draft(), CHAIN], {"9": 9}, graph_batches={False: (8, 16), True: (8, 10)}
    )
    assert (plain.batch, verify.batch) == (16, 10)
    unpadded, beyond = steps_of(KIMI, [Draft(), CHAIN], {"9": 9}, graph_batches={True: (8,)})
    assert (unpadded.batch, beyond.batch) == (9, 9)


def test_prefill_is_one_chunk():
    assert sizes(prefill_step(KIMI, 8192)) == {"prefill": (8192 * 14336, 122)}


@settings(max_examples=60, deadline=None)
@given(
    batch=st.integers(1, 512),
    steps=st.integers(1, 12),
    topk=st.integers(1, 8),
    tokens=st.integers(2, 64),
    hidden=st.integers(64, 16384),
)
def test_every_message_is_whole_rows_of_the_hidden_size(batch, steps, topk, tokens, hidden):
    widths = Widths(hidden=hidden, layers=3, draft_hidden=2 * hidden, draft_layers=1)
    draft = Draft(algorithm="EAGLE3", num_steps=steps, topk=topk, num_draft_tokens=tokens)
    for message in step_of(widths, draft, load="x", batch=batch).messages:
        wide = 2 * hidden if message.of_draft else hidden
        assert message.message_bytes == message.rows * wide * 2
        assert message.rows % batch == 0


def test_the_cards_width_is_what_the_physics_counts_with():
    card = load_target("kimi-k2.5")
    widths = Widths(hidden=card.hidden, layers=card.layers)
    assert sizes(step_of(widths, Draft(), load="1", batch=1)) == {"decode": (14336, 122)}
