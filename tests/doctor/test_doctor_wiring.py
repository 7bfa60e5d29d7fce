"""Faults of the forward pass planted in draft or captures: the right wiring comes first."""

import json
from dataclasses import replace
from pathlib import Path
from shutil import copytree

import numpy as np
import pytest
from tiny_target import TINY_DRAFT, TINY_TARGET, states_of, weights

from bench.doctor.captures import Sample, read_captures
from bench.doctor.capturing import Captured, write_captures
from bench.doctor.comparing import compare
from bench.doctor.reference import Forward
from bench.doctor.wiring import examine_wiring
from bench.doctor.wirings import Material, Wiring, material_of, rank, score_of
from bench.draft.checkpoint import read_checkpoint
from bench.draft.draft import draft_of
from bench.draft.target import read_target
from bench.errors import InputError

TEXTS = json.loads(Path(__file__).with_name("tiny_texts.json").read_text())[1:4]
STATES = (0, 2, 4, 5, 7)
RIGHT = Wiring(slots=(1, 2, 3), vocabulary="none")
CLEAR = 3.0


@pytest.fixture(scope="module")
def samples():
    ids = [np.array(text) for text in TEXTS]
    return tuple(
        Sample(name=str(n), token_ids=i, states=states_of(i)[:, list(STATES)], numbers=STATES)
        for n, i in enumerate(ids)
    )


@pytest.fixture(scope="module")
def material(samples):
    draft = draft_of(read_checkpoint(str(TINY_DRAFT)))
    return material_of(draft, samples, read_target(str(TINY_TARGET)))


def test_the_right_wiring_predicts_the_targets_text(material):
    found = score_of(material, RIGHT)
    assert found.accept_len_tok > 2.4
    assert found.accepted[0] == pytest.approx(found.top1[0])
    assert list(found.accepted) == sorted(found.accepted, reverse=True)


WRONG = {
    "another layer": {"slots": (1, 2, 4)},
    "the embedding in": {"slots": (0, 1, 2)},
    "the last of four cut off": {"slots": (0, 1, 2)},
    "another order": {"slots": (3, 1, 2)},
    "states of the token before": {"shift": -1},
    "states of the token after": {"shift": 1},
    "the head tied": {"is_tied": True},
    "the residual after its norm": {"forward": Forward(residual="after")},
    "no norm of the hidden state": {"forward": Forward(norms_hidden=False)},
    "no norm of the embedding": {"forward": Forward(norms_embedding=False)},
    "the next step fed after the norm": {"forward": Forward(output="after")},
    "no rotary positions": {"forward": Forward(theta=0.0)},
    "positions stretched": {"forward": Forward(scale=32.0)},
}


@pytest.mark.parametrize("name", WRONG)
def test_the_right_wiring_is_found_from_a_wrong_one(name, material):
    ranking = rank(material, replace(RIGHT, **WRONG[name]))
    best = ranking.ranked[0].wiring
    assert ranking.gain_errors > CLEAR
    assert (best.slots, best.shift, best.is_tied) == ((1, 2, 3), 0, False)
    assert replace(best.forward, theta=0.0) == Forward(theta=0.0)
    assert best.forward.theta in {10000.0, 50000.0}  # these texts are short


def test_an_absolute_map_is_found(material):
    chosen = np.unique(np.concatenate([ids for _, ids, *_ in material.samples]))
    head = replace(material.head, head=material.head.head[chosen])
    drafts = {}  # the same for both maps
    for written, told in (
        (chosen, "absolute"),
        (chosen - np.arange(len(chosen)), "offset"),
    ):
        reduced = Material(head=head, samples=material.samples, d2t=written, drafts=drafts)
        wrong = "offset" if told == "absolute" else "absolute"
        ranking = rank(reduced, replace(RIGHT, vocabulary=wrong))
        assert ranking.ranked[0].wiring.vocabulary == told
        assert ranking.gain_errors > CLEAR
        assert ranking.margin_errors >= 0


def written(folder, samples, *, numbers=STATES, places=None):
    places = list(range(len(STATES))) if places is None else places
    sequences = tuple((s.token_ids, s.states[:, places]) for s in samples)
    write_captures(folder, Captured(numbers=numbers, sequences=sequences))
    return str(folder)


def test_a_capture_is_read_as_it_was_written(samples, tmp_path):
    again = read_captures(written(tmp_path / "c", samples), hidden=192)
    for one, other in zip(samples, again, strict=True):
        assert other.numbers == STATES
        assert np.array_equal(one.token_ids, other.token_ids)
        assert np.array_equal(one.states, other.states)


def test_the_story_is_told(samples, tmp_path):
    """Four states were captured, the embedding first, and training took [:-1] of them."""
    server = written(tmp_path / "server", samples)
    trainer = written(tmp_path / "trainer", samples, numbers=None, places=[0, 1, 2, 3])
    report = examine_wiring(str(TINY_DRAFT), trainer, target=str(TINY_TARGET), served=server)
    assert [slot.state for slot in report.slots] == [0, 2, 4, 5]
    # What is served are states 2, 4, 5: the draft reads these best, whatever the trainer's slice.
    assert report.ranking.gain_errors <= CLEAR
    assert (report.side.wrong, report.is_suspect) == ("trainer", True)
    assert "trains on [0, 2, 4]; SGLang feeds [2, 4, 5]" in report.side.text
    assert report.ranking.served.wiring.slots == (1, 2, 3)
    blind = examine_wiring(str(TINY_DRAFT), trainer, target=str(TINY_TARGET))
    for name, scored in (("[:-1]", blind.ranking.served), ("best", blind.ranking.ranked[0])):
        print(f"\n{name}: accept length {scored.accept_len_tok:.2f}, top-1 {scored.top1}")
    print(report.side.text)  # docs/draft-doctor.md gives these (pytest -s)
    assert blind.is_suspect
    assert blind.ranking.served.wiring.slots == (0, 1, 2)
    assert blind.ranking.ranked[0].wiring.slots == (1, 2, 3)
    assert "Hypothesis" in blind.hypothesis
    assert "confirms" in blind.hypothesis


def test_a_wrong_layer_in_the_config_is_named_with_its_fix(samples, tmp_path):
    ids = {"eagle_aux_hidden_state_layer_ids": [1, 3, 6]}
    draft = changed_draft(tmp_path / "draft", eagle_config=ids)
    captures = written(tmp_path / "captures", samples)
    report = examine_wiring(draft, captures, target=str(TINY_TARGET))
    assert report.is_suspect
    assert "states [2, 4, 5] instead of states [2, 4, 7]" in report.hypothesis
    assert "default" in report.fix


def changed_draft(folder, **config):
    copytree(TINY_DRAFT, folder)
    known = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**known, **config}))
    return str(folder)


def test_four_ids_of_which_three_were_trained_are_found(samples, tmp_path):
    ids = {"eagle_aux_hidden_state_layer_ids": [1, 3, 4, 6]}
    draft = changed_draft(tmp_path / "draft", eagle_config=ids)
    captures = written(tmp_path / "captures", samples)
    report = examine_wiring(draft, captures, target=str(TINY_TARGET))
    assert report.ranking.served.accept_len_tok == 1  # SGLang would stop
    assert "states [2, 4, 5] instead of states [2, 4, 5, 7]" in report.hypothesis


@pytest.mark.parametrize("wrong", [{"num_attention_heads": 5}, {"num_attention_heads": "three"}])
def test_weights_that_do_not_fit_the_config_are_told(wrong, samples, tmp_path):
    draft = changed_draft(tmp_path / "draft", **wrong)
    with pytest.raises(
        InputError, match=r"num_attention_heads|num_key_value_heads|as large as its config says"
    ):
        examine_wiring(draft, written(tmp_path / "captures", samples), target=str(TINY_TARGET))


def test_slots_are_recognised_by_their_states_alone(samples):
    shuffled = [replace(s, states=s.states[:, [3, 0, 1]], numbers=None) for s in samples]
    assert [slot.state for slot in compare(shuffled, samples)] == [5, 0, 2]
    draws = np.random.default_rng(1)
    noise = [
        replace(s, states=draws.normal(size=s.states.shape).astype(np.float32)) for s in samples
    ]
    assert {slot.state for slot in compare(noise, samples)} == {None}
    with pytest.raises(InputError, match="share no sequence"):
        compare([replace(s, token_ids=s.token_ids + 1) for s in samples], samples)


def test_the_embedding_is_the_targets(material):
    ids = material.samples[0][1]
    assert np.array_equal(material.samples[0][2], weights()["model.embed_tokens.weight"][ids])
