import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.sglang.arguments import (
    ARGUMENTS,
    EffectiveSpeculative,
    Rejection,
    effective_speculative,
    is_speculative,
    option_of,
    parse_arguments,
    tree_capacity_tok,
)

EAGLE3 = ("--speculative-algorithm", "EAGLE3", "--max-running-requests", "64")

values = st.from_regex(r"[A-Za-z0-9_./{}:\"-][A-Za-z0-9_./{}:\"=-]*", fullmatch=True).filter(
    lambda text: not text.startswith("--")
)
value_options = st.sampled_from([a for a in ARGUMENTS if a.kind == "value"])
unknown_options = st.from_regex(r"--zz-[a-z-]{1,8}[a-z]", fullmatch=True)


def triple(*arguments, architecture=None):
    effective = effective_speculative(parse_arguments(arguments), architecture)
    assert isinstance(effective, EffectiveSpeculative), effective
    return effective.num_steps, effective.eagle_topk, effective.num_draft_tokens


def rule(*arguments):
    rejection = effective_speculative(parse_arguments((*EAGLE3, *arguments)))
    assert isinstance(rejection, Rejection), rejection
    assert rejection.reason
    assert rejection.fix
    return rejection.rule


def drafting(steps=None, topk=None, draft_tokens=None):
    options = {
        "--speculative-num-steps": steps,
        "--speculative-eagle-topk": topk,
        "--speculative-num-draft-tokens": draft_tokens,
    }
    return [str(word) for pair in options.items() if pair[1] is not None for word in pair]


@given(st.lists(st.tuples(value_options, values), max_size=6))
@settings(deadline=None, max_examples=50)
def test_both_forms_of_an_option_read_the_same(pairs):
    spaced = [word for argument, value in pairs for word in (option_of(argument.dest), value)]
    joined = [f"{option_of(argument.dest)}={value}" for argument, value in pairs]
    assert parse_arguments(spaced) == parse_arguments(joined)
    assert parse_arguments(spaced) == {argument.dest: value for argument, value in pairs}


@given(unknown_options, values)
@settings(deadline=None, max_examples=50)
def test_an_unknown_option_takes_the_next_word_unless_that_is_an_option(option, value):
    dest = option[2:].replace("-", "_")
    assert parse_arguments([option, value, "--tp", "8"]) == {dest: value, "tp_size": "8"}
    assert parse_arguments([option, "--tp", "8"]) == {dest: True, "tp_size": "8"}


@given(st.lists(st.text(max_size=12), max_size=8))
@settings(deadline=None, max_examples=100)
def test_no_command_line_breaks_the_parser(words):
    asked = parse_arguments(words)
    assert all(value is True or value or isinstance(value, str) for value in asked.values())
    effective_speculative(asked)
    is_speculative(words)


@pytest.mark.parametrize("argument", ARGUMENTS, ids=lambda argument: argument.dest)
def test_every_spelling_leads_to_the_same_name(argument):
    for spelling in argument.spellings:
        assert list(parse_arguments([spelling, "1"])) == [argument.dest]


def test_flags_take_no_word_and_lists_take_all():
    words = "--enable-metrics 7 --cuda-graph-bs-decode 1 2 4 --speculative-adaptive --tp 2"
    assert parse_arguments(words.split()) == {
        "enable_metrics": True,
        "cuda_graph_bs_decode": ["1", "2", "4"],
        "speculative_adaptive": True,
        "tp_size": "2",
    }


def test_the_last_of_a_repeated_option_counts():
    assert parse_arguments(["--tp", "2", "--tensor-parallel-size=4"]) == {"tp_size": "4"}


def test_a_negative_number_is_a_value():
    assert parse_arguments(["--random-seed", "-1"]) == {"random_seed": "-1"}


def test_the_recorded_launch_command_parses_to_what_the_server_reported(eagle3):
    info = json.loads((eagle3 / "server_info.json").read_text())
    asked = parse_arguments(info["launch_command"].split())
    assert asked["speculative_draft_model_path"] == info["speculative_draft_model_path"]
    assert asked["enable_metrics"] is True
    assert set(asked) <= set(info)
    assert is_speculative(info["launch_command"].split())


@pytest.mark.parametrize(
    ("words", "speculative"),
    [
        ("--speculative-algorithm EAGLE3", True),
        ("--speculative-algorithm=NGRAM", True),
        ("--speculative-algo EAGLE", True),
        ("--tp 8", False),
        ("--speculative-num-steps 3", False),
        ("--speculative-algorithm", False),
        ("--speculative-attention-mode decode", False),
    ],
)
def test_speculation_is_what_names_an_algorithm(words, speculative):
    assert is_speculative(words.split()) is speculative


def test_without_an_algorithm_there_is_no_speculation():
    effective = effective_speculative(parse_arguments(drafting(3)))
    assert effective == EffectiveSpeculative(
        algorithm=None,
        num_steps=None,
        eagle_topk=None,
        num_draft_tokens=None,
        max_running_requests=None,
        adjustments=("--speculative-num-steps ignored: no --speculative-algorithm",),
    )


def test_steps_without_topk_is_c1():
    assert rule(*drafting(steps=3)) == "C1"
    assert rule(*drafting(steps=3, draft_tokens=4)) == "C1"


def test_topk_or_draft_tokens_without_steps_is_c2():
    assert rule(*drafting(topk=1)) == "C2"
    assert rule(*drafting(draft_tokens=4)) == "C2"
    assert rule(*drafting(topk=4, draft_tokens=8)) == "C2"


def test_a_tree_without_draft_tokens_is_c4():
    assert rule(*drafting(steps=3, topk=2)) == "C4"


@given(st.integers(1, 12), st.none() | st.integers(1, 40))
@settings(deadline=None, max_examples=60)
def test_a_chain_always_verifies_steps_and_one_and_says_when_that_was_not_asked(steps, asked):
    parsed = parse_arguments((*EAGLE3, *drafting(steps, 1, asked)))
    effective = effective_speculative(parsed)
    assert isinstance(effective, EffectiveSpeculative)
    assert effective.num_draft_tokens == steps + 1
    said = any(text.startswith("C3") for text in effective.adjustments)
    assert said == (asked != steps + 1)


@given(st.integers(1, 8), st.integers(2, 10))
@settings(deadline=None, max_examples=60)
def test_a_tree_holds_what_its_layers_hold(steps, topk):
    capacity = 1 + topk + sum(topk * topk for _ in range(steps - 1))
    assert tree_capacity_tok(steps, topk) == capacity
    assert triple(*EAGLE3, *drafting(steps, topk, capacity)) == (steps, topk, capacity)
    assert rule(*drafting(steps, topk, capacity + 1)) == "tree"


@pytest.mark.parametrize(
    ("algorithm", "architecture", "expected"),
    [
        ("EAGLE3", "LlamaForCausalLM", (5, 4, 8)),
        ("EAGLE", "Grok1ForCausalLM", (5, 4, 8)),
        ("NEXTN", "DeepseekV3ForCausalLM", (3, 1, 4)),
        ("EAGLE3", "KimiK25ForConditionalGeneration", (3, 1, 4)),
        ("STANDALONE", "LlamaForCausalLM", (3, 1, 4)),
        ("STANDALONE", None, (3, 1, 4)),
        ("EAGLE3", None, (None, None, None)),
    ],
)
def test_automatic_parameters_follow_the_target(algorithm, architecture, expected):
    arguments = ("--speculative-algorithm", algorithm)
    assert triple(*arguments, architecture=architecture) == expected


def test_nextn_is_eagle_and_names_are_upper_cased():
    effective = effective_speculative(parse_arguments(["--speculative-algorithm", "nextn"]), "X")
    assert isinstance(effective, EffectiveSpeculative)
    assert effective.algorithm == "EAGLE"


@pytest.mark.parametrize(
    ("algorithm", "limit"), [("EAGLE3", 48), ("NGRAM", 48), ("DFLASH", 48), ("UNO", None)]
)
def test_an_unset_running_limit_becomes_48_with_speculation(algorithm, limit):
    asked = parse_arguments(["--speculative-algorithm", algorithm])
    effective = effective_speculative(asked, "X")
    assert isinstance(effective, EffectiveSpeculative)
    assert effective.max_running_requests == limit
    assert any(text.startswith("C10") for text in effective.adjustments) == (limit is not None)
    pinned = effective_speculative({**asked, "max_running_requests": "64"}, "X")
    assert isinstance(pinned, EffectiveSpeculative)
    assert pinned.max_running_requests == 64


def test_other_algorithms_and_adaptive_speculation_pass_through():
    assert triple("--speculative-algorithm", "NGRAM", *drafting(draft_tokens=12)) == (
        None,
        None,
        12,
    )
    assert triple(*EAGLE3, "--speculative-adaptive", *drafting(topk=1)) == (None, 1, None)


@pytest.mark.parametrize("value", ["three", "0", "-1", "3.5", ""])
def test_what_is_no_count_is_rejected(value):
    assert rule("--speculative-num-steps", value, "--speculative-eagle-topk", "1") == "number"


def test_an_option_without_its_value_is_rejected():
    assert rule("--speculative-num-steps") == "number"


def test_a_shortened_name_is_rejected_with_the_whole_one():
    rejection = effective_speculative(parse_arguments(["--speculative-algo", "EAGLE3"]))
    assert isinstance(rejection, Rejection)
    assert rejection.rule == "name"
    assert "--speculative-algorithm" in rejection.fix
