"""The draft doctor on the real SGLang: broken drafts served, and its forward held against it."""

import json
from pathlib import Path

import numpy as np
import pytest
import pytest_asyncio
from broken_drafts import (
    absolute_map,
    map_of_zeros,
    states_in_another_order,
    tiny_draft,
    trained_embedding,
    with_config,
    with_ids,
    without_fc,
)
from doctor_servers import MODELS, PROMPTS, doctor, generated, returning_states, serving

from bench.doctor.captures import read_captures
from bench.doctor.capturing import MOST_SEQUENCES, capture, write_captures
from bench.doctor.wirings import Wiring, material_of, score_of
from bench.draft.checkpoint import read_checkpoint
from bench.draft.draft import draft_of
from bench.draft.target import read_target

pytestmark = [
    pytest.mark.sglang_long,
    pytest.mark.timeout(900),
    pytest.mark.asyncio(loop_scope="module"),
]

TARGET, TINY_DRAFT = MODELS / "tiny-llama", MODELS / "tiny-eagle3"
LAYERS = (0, 1, 3, 4, 6)
STATES = (1, 2, 4, 5, 7)
"""Those that the server captures of them: a Llama counts from 1."""
READ = (1, 2, 3)
"""The slots of the default states, 2, 4 and 5."""
OUTPUT_TOK = 64
BEYOND_TOK = 8
"""Tokens that the last step drafts beyond the answer's end."""
ACCURACY = "0.71,0.69,0.68"
"""Of the tiny draft, by `bench doctor wiring` on what the target writes behind these prompts."""


@pytest.fixture(scope="module")
def training(tmp_path_factory):
    """Prompts like those of the tiny target's training."""
    path = tmp_path_factory.mktemp("prompts") / "training.jsonl"
    path.write_text("\n".join(json.dumps({"prompt": prompt}) for prompt in PROMPTS[::2]))
    return path


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def captures(lab, tmp_path_factory):
    """What SGLang feeds for 32 greedy texts, and how long the prompt of each is."""
    folder = tmp_path_factory.mktemp("states")
    async with returning_states(folder, *LAYERS) as url:
        texts = [await generated(url, prompt, OUTPUT_TOK + BEYOND_TOK) for prompt in PROMPTS]
        ids = [np.array([*prompt, *answer]) for prompt, answer, _ in texts]
        for first in range(0, len(ids), MOST_SEQUENCES):
            captured = await capture(url, layers=8, token_ids=ids[first : first + MOST_SEQUENCES])
            assert captured.numbers == STATES
            write_captures(folder / "captures" / str(first), captured)
    return folder / "captures", [len(prompt) for prompt, _, _ in texts]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def healthy(captures, training, tmp_path_factory):
    """The healthy draft served: what the doctor says, and 32 answers with their counts."""
    async with serving(tmp_path_factory.mktemp("healthy"), TINY_DRAFT) as url:
        answers = [await generated(url, prompt, OUTPUT_TOK) for prompt in PROMPTS]
        told = await doctor("server", url, "--training", training, "--train-acc", ACCURACY)
    return told, answers


def shown(name, told):
    """The figures that docs/draft-doctor.md gives (`pytest -s`)."""
    lengths = {group["group"]: round(group["accept_len_tok"], 2) for group in told["groups"]}
    rules = sorted({finding["rule"] for finding in told["files"]})
    print(f"\n{name}: {[named['pattern'] for named in told['patterns']]}, {lengths}, {rules}")


async def test_the_healthy_draft_is_healthy(healthy):
    code, told = healthy[0]
    shown("healthy", told)
    assert code == 0
    assert [named["pattern"] for named in told["patterns"]] == ["healthy"]
    assert told["files"] == []


def walked(right, prompt_tok):
    """Steps by accepted drafts, for a greedy answer that the rows tell the drafts of."""
    histogram, row, made = [0, 0, 0, 0], prompt_tok - 1, 1
    while made < OUTPUT_TOK:
        accepted = int(right[row])
        histogram[accepted] += 1
        row, made = row + accepted + 1, made + accepted + 1
    return histogram


async def test_the_reference_forward_accepts_what_sglang_does(captures, healthy):
    """On 32 greedy prompts, step by step: the same accepted counts."""
    folder, prompt_tok = captures
    samples = read_captures(str(folder), hidden=192)
    draft = draft_of(read_checkpoint(str(TINY_DRAFT)))
    wiring = Wiring(slots=READ, vocabulary="none")
    counted = {}
    for sample in samples:
        material = material_of(draft, [sample], read_target(str(TARGET)))
        counted[tuple(sample.token_ids)] = score_of(material, wiring).per_row
    agreeing, total = 0, np.zeros(4, int)
    for length, (prompt, answer, meta) in zip(prompt_tok, healthy[1], strict=True):
        text = (*prompt, *answer)
        right = next(rows for ids, rows in counted.items() if ids[: len(text)] == text)
        histogram = meta["spec_correct_drafts_histogram"]
        histogram = [*histogram, *[0] * (4 - len(histogram))]
        agreeing += walked(right, length) == histogram
        total += histogram
    print(f"\n{agreeing} of {len(PROMPTS)} agree; steps by accepted drafts: {total.tolist()}")
    assert agreeing == len(PROMPTS) == 32


SERVED = {
    "fc missing": (without_fc, "wiring", "M23"),
    "states in another order": (states_in_another_order, "below-training", None),
    "another embedding": (trained_embedding, "wiring", "M17"),
    "the head tied": (lambda: with_config(tie_word_embeddings=True), "wiring", "M16"),
    "states turned off": (
        lambda: with_config(eagle_config={"use_aux_hidden_state": False}),
        "wiring",
        "M7",
    ),
    "fed after the norm": (lambda: with_config(norm_output=True), "recurrence", "M14b"),
    "a map of zeros": (map_of_zeros, "wiring", "M9"),
    "a map of tokens": (absolute_map, "failing", "M8"),
}


@pytest.mark.parametrize("name", SERVED)
async def test_a_served_fault_is_named_by_its_pattern(name, lab, training, tmp_path):
    make, pattern, rule = SERVED[name]
    folder = make().write(tmp_path / "draft")
    async with serving(tmp_path, folder) as url:
        code, told = await doctor("server", url, "--training", training, "--train-acc", ACCURACY)
    shown(name, told)
    assert code == 4
    assert [named["pattern"] for named in told["patterns"]] == [pattern]
    assert {finding["rule"] for finding in told["files"]} == ({rule} if rule else set())


async def test_the_wrong_algorithm_is_named_by_its_pattern(lab, training, tmp_path):
    eagle = "arms.eagle3-3-1-4.speculative.algorithm=EAGLE"
    async with serving(tmp_path, TINY_DRAFT, eagle) as url:
        code, told = await doctor("server", url, "--training", training)
    shown("EAGLE for EAGLE3", told)
    assert code == 4
    assert [named["pattern"] for named in told["patterns"]] == ["wiring"]
    assert "M6" in {finding["rule"] for finding in told["files"]}


async def wired(captures, folder):
    return await doctor("wiring", folder, "--captures", captures[0] / "0", "--target", TARGET)


async def test_the_healthy_wiring_is_the_served_one(captures):
    code, told = await wired(captures, TINY_DRAFT)
    assert (code, told["states"], told["fix"]) == (0, list(STATES), None)


WIRED = {
    "other layers": (
        lambda: with_ids(0, 3, 6),
        "fc reads states [2, 4, 5] instead of states [1, 4, 7]",
    ),
    "states in another order": (states_in_another_order, "fc reads states [5, 2, 4]"),
    "the head tied": (lambda: with_config(tie_word_embeddings=True), "the head is its own"),
    "fed after the norm": (lambda: with_config(norm_output=True), "output before"),
    "another embedding": (trained_embedding, "the embedding of the tokens is the draft's"),
    "a map of tokens": (absolute_map, "d2t is read as absolute"),
}


@pytest.mark.parametrize("name", WIRED)
async def test_a_fault_is_found_on_what_the_server_feeds(name, captures, tmp_path):
    make, said = WIRED[name]
    code, told = await wired(captures, make().write(tmp_path / "draft"))
    best, served = told["ranked"][0], told["served"]
    lengths = f"{served['accept_len_tok']:.2f} -> {best['accept_len_tok']:.2f}"
    print(f"\n{name}: {lengths}, gain {told['gain_errors']:.0f} errors: {told['hypothesis']}")
    assert code == 4
    assert said in told["hypothesis"]


async def test_every_draft_here_differs_from_the_healthy_one(tmp_path):
    healthy = tiny_draft()
    for name, (make, *_) in {**SERVED, **WIRED}.items():
        made = make()
        assert (made.config, made.tensors) != (healthy.config, healthy.tensors), name
    assert Path(healthy.write(tmp_path)).is_dir()  # noqa: ASYNC240  # nothing else runs
