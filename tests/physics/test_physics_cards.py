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
    load_draft,
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


def names(kind: str) -> list[str]:
    return sorted(path.stem for path in CARDS.glob(f"{kind}/*.yaml"))


def test_there_are_cards_of_every_kind():
    assert {"rtx-pro-6000-x8", "h200-x8", "h100-x1", "b200-x8"} <= set(names("hardware"))
    assert {
        "kimi-k2.5",
        "deepseek-v3",
        "llama-3.1-8b",
        "llama-3.3-70b",
        "qwen3-30b-a3b",
    } <= set(names("targets"))


@pytest.mark.parametrize("name", names("hardware"))
def test_hardware_loads(name):
    card = load_hardware(name)
    sizes = [size for size, _ in card.allreduce_us]
    assert sizes == sorted(set(sizes))
    assert (card.gpus > 1) == bool(sizes) == (card.links is not None)
    assert card.source


@pytest.mark.parametrize("name", names("targets"))
def test_targets_load_with_their_draft(name):
    card = load_target(name)
    assert card.source
    assert card.draft is not None
    assert card.draft.hidden == card.hidden


@pytest.mark.parametrize("name", names("drafts"))
def test_drafts_load(name):
    assert load_draft(name).source


@pytest.mark.parametrize("name", names("acceptance"))
def test_acceptance_loads(name):
    card = load_acceptance(name)
    assert card.source
    assert card.method


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


def test_cards_by_path(tmp_path):
    own = tmp_path / "mine.yaml"
    own.write_text((CARDS / "hardware" / "h200-x8.yaml").read_text().replace("4800", "4900"))
    card = load_hardware(str(own))
    assert (card.name, card.bandwidth_gb_per_s) == ("mine", 4900)
    text = (CARDS / "targets" / "llama-3.1-8b.yaml").read_text()
    (tmp_path / "target.yaml").write_text(text)
    assert load_target(str(tmp_path / "target.yaml")).draft == load_draft("llama-3.1-8b-eagle3")
    draft = (CARDS / "drafts" / "llama-3.1-8b-eagle.yaml").read_text()
    (tmp_path / "beside.yml").write_text(draft)
    (tmp_path / "target.yaml").write_text(
        text.replace("draft: llama-3.1-8b-eagle3", "draft: beside.yml")
    )
    assert load_target(str(tmp_path / "target.yaml")).draft.method == "EAGLE"
    (tmp_path / "drafts.yaml").write_text("reach: [0.5, 0.25]\nsource: a test\n")
    assert load_acceptance(str(tmp_path / "drafts.yaml")).reach == (0.5, 0.25)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "wanted fields"),
        ("- 1\n", "wanted fields"),
        ("reach: [0.5\n", "no YAML"),
        ("reach: [0.5]\nreech: 1\n", "reech: no such field. Did you mean 'reach'"),
        ("source: x\n", "reach: missing"),
        ("reach: 0.5\n", "reach: wanted a list"),
        ("reach: [0.5, true]\n", "reach: wanted a list"),
        ("reach: [0.5]\nrequest_sd: much\n", "request_sd: wanted a number"),
        ("reach: [0.5]\nposition: [1, 2]\n", "position: wanted a list"),
        ("reach: [0.5]\ncategories: [1]\n", "categories: wanted"),
        ("reach: [0.5]\ncategories: {a: 1}\n", "categories.a: wanted a list"),
        ("reach: [0.5, 0.6]\n", "falling numbers"),
    ],
)
def test_a_wrong_file_is_told_where_and_what(text, said, tmp_path):
    path = tmp_path / "wrong.yaml"
    path.write_text(text)
    with pytest.raises(InputError) as caught:
        load_acceptance(str(path))
    assert said in str(caught.value)
    assert caught.value.hint


@pytest.mark.parametrize(
    ("kind", "load", "old", "new", "said"),
    [
        ("hardware", load_hardware, "gpus: 8", "gpus: eight", "gpus: wanted a number"),
        ("hardware", load_hardware, "gpus: 8", "gpus: true", "gpus: wanted a number"),
        ("hardware", load_hardware, "[4096, 4.5]", "[4096]", "allreduce_us: wanted a list"),
        ("hardware", load_hardware, "[4096, 4.5]", "[99999, 4.5]", "sizes that rise"),
        ("hardware", load_hardware, "transport: nvlink", "transport: wire", "nvlink or pcie"),
        ("hardware", load_hardware, "nvls: true", "nvls: 1", "true or false"),
        ("targets", load_target, "shards: 1}", "shards: one}", "parts[0], shards"),
        ("targets", load_target, "parts:", "partz:", "parts: wanted a list"),
        ("targets", load_target, "draft: kimi-k2.5-eagle3", "draft: kimi", "no draft card 'kimi'"),
        ("targets", load_target, "draft: kimi-k2.5-eagle3", "draft: 3", "draft: wanted fields"),
        ("targets", load_target, "hidden: 7168", "name: x", "name: no such field"),
    ],
)
def test_a_wrong_field_is_told_where_and_what(kind, load, old, new, said, tmp_path):
    shipped = {"hardware": "h200-x8", "targets": "kimi-k2.5"}[kind]
    text = (CARDS / kind / f"{shipped}.yaml").read_text()
    assert old in text
    path = tmp_path / "wrong.yaml"
    path.write_text(text.replace(old, new, 1))
    with pytest.raises(InputError) as caught:
        load(str(path))
    told = str(caught.value).replace(": shards", ", shards")
    assert said in told


def test_a_path_that_leads_nowhere(tmp_path):
    with pytest.raises(InputError, match="No such file"):
        load_target(str(tmp_path / "none.yaml"))
    (tmp_path / "folder.yaml").mkdir()
    with pytest.raises(InputError, match="Is a directory"):
        load_target(str(tmp_path / "folder.yaml"))


@pytest.mark.parametrize(
    ("line", "key"),
    [
        ("layers: 80", "layers: -80"),
        ("hidden: 8192", "hidden: 0"),
        ("vocab_size: 128256", "vocab_size: 1" + "0" * 4000),
        ("vocab_size: 128256", "vocab_size: 1" + "0" * 5000),
    ],
)
def test_numbers_that_no_card_has_are_refused(line, key, tmp_path):
    text = (CARDS / "targets/llama-3.3-70b.yaml").read_text()
    assert line in text
    path = tmp_path / "own.yaml"
    path.write_text(text.replace(line, key, 1))
    with pytest.raises(InputError, match=r"wanted a number from|cannot be read"):
        load_target(str(path))
