"""Heads with DeepSeek's attention: computed as loops compute them, and their wiring found."""

import numpy as np
import pytest
from draft_checkpoints import Files
from latent_head import TARGET, THETA, WIDTH, YARN, Looping, draft, text_of, weights

from bench.doctor.captures import Sample
from bench.doctor.capturing import Captured, write_captures
from bench.doctor.heads import read_head
from bench.doctor.reference import Forward, project, run
from bench.doctor.wiring import examine_wiring
from bench.draft.checkpoint import read_checkpoint
from bench.draft.draft import draft_of
from bench.errors import InputError

PLAIN = {"rope_type": "default", "rope_theta": THETA}
STATES = (2, 3, 4, 5)
READ = (0, 2, 3)
"""Slots of the default states: 2, 4, 5 of eight layers."""
IDS = "eagle_aux_hidden_state_layer_ids"


def samples(rope, *, count=3, tokens=48, neighbours=True):
    draws = np.random.default_rng(4)
    found = []
    for place in range(count):
        states = draws.normal(size=(tokens, len(STATES), WIDTH)).astype(np.float32)
        ids = text_of(rope, states, READ, neighbours=neighbours)
        found.append(Sample(name=str(place), token_ids=ids, states=states, numbers=STATES))
    return found


@pytest.mark.parametrize("neighbours", [True, False])
@pytest.mark.parametrize("rope", [PLAIN, YARN], ids=["plain", "yarn"])
def test_it_computes_what_plain_loops_do(rope, neighbours, tmp_path):
    files = draft(rope, rope_interleave=neighbours)
    head = read_head(draft_of(read_checkpoint(files.write(tmp_path / "draft"))))
    (sample,) = samples(rope, count=1, tokens=20, neighbours=neighbours)
    rows = 12
    hidden = project(head, sample.states[:rows][:, list(READ)], Forward())
    embedded = weights()["embed_tokens"][sample.token_ids[1:]]
    outputs = run(head, hidden, embedded, Forward(), steps=3)
    looping = Looping(rope, neighbours=neighbours)
    fed = [looping.row(h, sample.token_ids[i + 1], i) for i, h in enumerate(hidden)]
    for row, (first, state, _) in enumerate(fed):
        assert outputs[0][row] == pytest.approx(first, abs=2e-4)
        seen, fed_back = looping.rows[: row + 1], state
        for step in (1, 2):  # each step looks back at step 1's rows and its own earlier steps
            token = sample.token_ids[row + 1 + step]
            output, fed_back, own = looping.row(fed_back, token, row + step, seen=seen)
            seen = [*seen, own]
            assert outputs[step][row] == pytest.approx(output, abs=2e-3)


@pytest.fixture(scope="module")
def captures(tmp_path_factory):
    folder = tmp_path_factory.mktemp("latent") / "captures"
    sequences = tuple((s.token_ids, s.states) for s in samples(YARN))
    write_captures(folder, Captured(numbers=STATES, sequences=sequences))
    return str(folder)


def examined(tmp_path, captures, rope=YARN, **config):
    target = Files(TARGET).write(tmp_path / "target")
    folder = draft(rope, **config).write(tmp_path / "draft")
    return examine_wiring(folder, captures, target=target)


def test_the_right_wiring_is_the_served_one(captures, tmp_path):
    report = examined(tmp_path, captures)
    assert not report.is_suspect
    assert report.ranking.served.wiring.slots == READ
    assert report.ranking.served.top1[0] == 1.0  # the text is its own


def test_a_wrong_layer_on_deepseeks_class_is_named_with_its_fix(captures, tmp_path):
    report = examined(tmp_path, captures, eagle_config={IDS: [3, 4, 5]})
    assert report.ranking.gain_errors > 3
    assert "fc reads states [2, 4, 5] instead of states [3, 4, 5]" in report.hypothesis
    assert "default" in report.fix


def test_positions_that_the_config_does_not_stretch_are_found(captures, tmp_path):
    """The target's config says how, the draft's lost it."""
    target = Files({**TARGET, "rope_parameters": YARN}).write(tmp_path / "target")
    folder = draft(PLAIN).write(tmp_path / "draft")
    report = examine_wiring(folder, captures, target=target)
    assert report.ranking.gain_errors > 3
    assert "scaling target instead of own" in report.hypothesis


def test_positions_that_the_config_stretches_without_need_are_found(tmp_path):
    folder = tmp_path / "captures"
    sequences = tuple((s.token_ids, s.states) for s in samples(PLAIN))
    write_captures(folder, Captured(numbers=STATES, sequences=sequences))
    report = examined(tmp_path, str(folder))
    assert report.ranking.gain_errors > 3
    assert "scaling none instead of own" in report.hypothesis


def test_a_tied_head_is_found(captures, tmp_path):
    report = examined(tmp_path, captures, tie_word_embeddings=True)
    assert report.ranking.gain_errors > 3
    assert "the head is its own" in report.hypothesis


def test_a_size_that_the_config_lacks_is_told(captures, tmp_path):
    with pytest.raises(InputError, match="qk_nope_head_dim"):
        examined(tmp_path, captures, qk_nope_head_dim=None)
