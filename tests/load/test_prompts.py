from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest
from scripted import make_workload

from bench.errors import InputError
from bench.load.prompts import build_prompts, priming_prompts, retokenize
from bench.load.writing import CATEGORIES, task_for

TOKENIZER = str(Path(__file__).parents[1] / "lab" / "models" / "tiny-llama" / "tokenizer.json")


def build(workload, count, *, seed=1, salt="s"):
    return build_prompts(workload, seed=seed, count=count, cell_salt=salt)


def unsalted(count, *, seed=1, **changes):
    return build(make_workload(cache="primed", **changes), count, seed=seed)


def bodies(prompts):
    """Texts without their salts."""
    return [prompt.text.split("]\n\n", 1)[1] for prompt in prompts]


def test_two_thousand_distinct_prompts():
    assert len({prompt.text for prompt in unsalted(2400)}) == 2400


def test_every_category_comes_up_equally_often():
    categories = [prompt.prompt_id.rpartition("-")[2] for prompt in unsalted(80)]
    assert {c: categories.count(c) for c in CATEGORIES} == dict.fromkeys(CATEGORIES, 10)


def test_asked_categories_only():
    ids = {p.prompt_id.rpartition("-")[2] for p in unsalted(9, categories=("maths", "code"))}
    assert ids == {"maths", "code"}


@pytest.mark.parametrize("category", CATEGORIES)
def test_no_slot_of_a_template_is_left_open(category):
    import random

    for seed in range(40):
        task = task_for(category, random.Random(seed))
        text = task.before + task.after + task.write(random.Random(seed), 2500)
        assert "{" not in text.replace("= {}", "")


def test_the_same_seed_gives_the_same_prompts_and_another_seed_others():
    assert unsalted(20) == unsalted(20)
    assert not {p.text for p in unsalted(20)} & {p.text for p in unsalted(20, seed=2)}


def test_a_longer_list_begins_with_the_shorter_one():
    workload = make_workload(input_tok=300)
    assert build(workload, 30)[:10] == build(workload, 10)


@pytest.mark.parametrize("input_tok", [200, 2000, 30_000])
def test_prompts_have_the_length_asked_for_at_four_bytes_a_token(input_tok):
    for prompt in build(make_workload(input_tok=input_tok), 8):
        assert len(prompt.text.encode()) / 4 == pytest.approx(input_tok, rel=0.05, abs=6)


@pytest.mark.parametrize("cache", ["cold", "primed", "shared-prefix"])
def test_prompts_have_the_length_asked_for_by_a_tokenizer(cache):
    workload = make_workload(
        input_tok=700, tokenizer_path=TOKENIZER, cache=cache, shared_prefix_share=0.4
    )
    for prompt in build(workload, 8):
        # A salt of random hex takes more of this small vocabulary than of a large one.
        assert retokenize(TOKENIZER, prompt.text) == pytest.approx(700, abs=40)


def test_long_prompts_do_not_degenerate_into_repetition():
    for prompt in unsalted(16, input_tok=8000):
        words = prompt.text.split()
        runs = list(zip(*(words[k:] for k in range(8)), strict=False))
        assert len(set(runs)) > 0.6 * len(runs), prompt.prompt_id


# ---------------------------------------------------------------------------------------- caches


def common_prefix(a: str, b: str) -> int:
    return sum(
        1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], zip(a, b, strict=False))
    )


def test_cold_prompts_share_no_prefix():
    texts = [prompt.text for prompt in build(make_workload(), 40)]
    longest = max(common_prefix(a, b) for a, b in itertools.combinations(texts, 2))
    assert longest < len("[request ") + 8


def test_cold_salts_differ_between_loads_but_not_what_is_behind_them():
    workload = make_workload()
    ours, theirs = build(workload, 12), build(workload, 12, salt="another load")
    assert bodies(ours) == bodies(theirs)
    assert not {p.sha256 for p in ours} & {p.sha256 for p in theirs}


def test_primed_prompts_are_sent_as_they_are_and_each_once_before():
    workload = make_workload(cache="primed")
    prompts = build(workload, 12)
    assert priming_prompts(workload, prompts, seed=1, cell_salt="s") == prompts


def test_a_shared_prefix_is_the_asked_share_of_each_prompt():
    workload = make_workload(cache="shared-prefix", shared_prefix_share=0.75, input_tok=1000)
    prompts = build(workload, 10)
    texts = [prompt.text for prompt in prompts]
    shared = {common_prefix(a, b) for a, b in itertools.combinations(texts, 2)}
    assert all(2990 <= length <= 3030 for length in shared)
    [priming] = priming_prompts(workload, prompts, seed=1, cell_salt="s")
    assert all(text.startswith(priming.text) for text in texts)
    assert build(workload, 1, salt="t")[0].text[:100] != texts[0][:100]


def test_cold_cells_need_no_priming():
    workload = make_workload()
    assert priming_prompts(workload, build(workload, 3), seed=1, cell_salt="s") == []


# ----------------------------------------------------------------------------------------- files


def jsonl(tmp_path, *rows) -> str:
    path = tmp_path / "prompts.jsonl"
    path.write_text("\n".join(r if isinstance(r, str) else json.dumps(r) for r in rows))
    return str(path)


def from_file(path, count, dataset="jsonl", **changes):
    workload = make_workload(dataset=dataset, dataset_path=path, **({"cache": "primed"} | changes))
    return build(workload, count)


def test_jsonl_of_prompts_and_messages(tmp_path):
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}]
    path = jsonl(tmp_path, {"prompt": "One", "id": 3}, "", {"messages": messages})
    prompts = {prompt.prompt_id: prompt for prompt in from_file(path, 2)}
    assert prompts["jsonl-0"].messages == (("user", "One"),)
    assert prompts["jsonl-0"].text == "One"
    assert prompts["jsonl-1"].messages == (("system", "Be brief."), ("user", "Hi"))
    assert prompts["jsonl-1"].text == "system: Be brief.\n\nuser: Hi\n\nassistant:"


def test_a_prompt_used_again_gets_a_salt(tmp_path):
    prompts = from_file(jsonl(tmp_path, {"prompt": "One"}, {"prompt": "Two"}), 6)
    assert {p.text for p in prompts[:2]} == {"One", "Two"}
    assert all(p.text.startswith("[request ") for p in prompts[2:])
    assert len({p.sha256 for p in prompts}) == 6
    assert [p.prompt_id for p in prompts].count("jsonl-0") == 3


@pytest.mark.parametrize("input_tok", [40, 400])
def test_prompts_of_files_are_filled_up_or_cut(tmp_path, input_tok):
    path = jsonl(tmp_path, {"prompt": "word " * 100 + "end"})
    [prompt] = from_file(path, 1, input_tok=input_tok)
    assert len(prompt.text) / 4 == pytest.approx(input_tok, abs=3)
    assert prompt.text.endswith("end") == (input_tok == 400)


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ("{oops", ":2: wanted a JSON object"),
        (
            {"text": "x"},
            ":2: wanted `prompt` (a text) or `messages` (a list), found the keys 'text'",
        ),
        ([1], ":2: wanted `prompt` (a text) or `messages` (a list), found a list"),
        ({"prompt": ""}, ":2: wanted"),
        ({"messages": [{"role": "robot", "content": "x"}]}, "found role 'robot'"),
        ({"messages": [{"role": "user", "content": None}]}, "nothing as content"),
    ],
)
def test_mistakes_in_jsonl_are_told_with_file_and_line(tmp_path, row, said):
    path = jsonl(tmp_path, {"prompt": "fine"}, row)
    with pytest.raises(InputError) as caught:
        from_file(path, 1)
    assert str(caught.value).startswith(path)
    assert said in str(caught.value)


def test_missing_empty_and_binary_files(tmp_path):
    with pytest.raises(InputError, match="cannot be read"):
        from_file(str(tmp_path / "none.jsonl"), 1)
    (tmp_path / "empty.jsonl").write_text("\n")
    with pytest.raises(InputError, match="found none"):
        from_file(str(tmp_path / "empty.jsonl"), 1)
    (tmp_path / "binary.jsonl").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="UTF-8"):
        from_file(str(tmp_path / "binary.jsonl"), 1)


def test_sharegpt_takes_the_first_human_turn(tmp_path):
    path = tmp_path / "s.json"
    path.write_text(
        json.dumps(
            [
                {
                    "conversations": [
                        {"from": "system", "value": "x"},
                        {"from": "human", "value": "A"},
                    ]
                },
                {"conversations": [{"from": "gpt", "value": "no human here"}]},
                {
                    "conversations": [
                        {"from": "human", "value": "B"},
                        {"from": "human", "value": "C"},
                    ]
                },
            ]
        )
    )
    assert {p.text for p in from_file(str(path), 2, "sharegpt")} == {"A", "B"}


@pytest.mark.parametrize("text", ["{oops", "{}", '[{"turns": []}]', '[{"conversations": []}]'])
def test_mistakes_in_sharegpt(tmp_path, text):
    path = tmp_path / "s.json"
    path.write_text(text)
    with pytest.raises(InputError, match=r"s\.json"):
        from_file(str(path), 1, "sharegpt")


def test_a_tokenizer_that_cannot_be_read(tmp_path):
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(InputError, match="cannot be read") as caught:
        retokenize(str(tmp_path / "tokenizer.json"), "x")
    assert "tokenizer.json" in (caught.value.hint or "")


def test_retokenizing_counts_without_special_tokens():
    assert retokenize(TOKENIZER, "") == 0
    assert 1 <= retokenize(TOKENIZER, "def f():\n    return 1\n") <= 12
