import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.sglang.arguments import (
    EffectiveSpeculative,
    Known,
    ModelFacts,
    Rejection,
    effective_speculative,
    gpu_class_of,
    is_speculative,
    known_options,
    model_facts,
    option_of,
    parse_arguments,
    read_model_facts,
    tree_capacity_tok,
    whole_number,
)

LAB_MODELS = Path(__file__).parents[1] / "lab" / "models"
COMMANDS = (Path(__file__).parent / "launch_commands.txt").read_text().splitlines()
EAGLE3 = ("--speculative-algorithm", "EAGLE3", "--max-running-requests", "64")

values = st.from_regex(r"[A-Za-z0-9_./{}:\"-][A-Za-z0-9_./{}:\"=-]*", fullmatch=True).filter(
    lambda text: not text.startswith("-")
)
value_options = st.sampled_from([o for o in known_options() if o.kind == "text" and not o.choices])
unknown_options = st.from_regex(r"--zz-[a-z-]{1,8}[a-z]", fullmatch=True)


def outcome(*arguments, architecture=None, **known):
    target = ModelFacts(architecture=architecture)
    return effective_speculative(parse_arguments(arguments), Known(target=target, **known))


def triple(*arguments, **known):
    effective = outcome(*arguments, **known)
    assert isinstance(effective, EffectiveSpeculative), effective
    return effective.num_steps, effective.eagle_topk, effective.num_draft_tokens


def rule(*arguments):
    rejection = outcome(*EAGLE3, *arguments)
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


# ------------------------------------------------------------------------------- the command line


@given(st.lists(st.tuples(value_options, values), max_size=6))
@settings(deadline=None, max_examples=50)
def test_both_forms_of_an_option_read_the_same(pairs):
    written = [(option.spellings[0], value) for option, value in pairs]
    spaced = [word for pair in written for word in pair]
    joined = [f"{spelling}={value}" for spelling, value in written]
    assert parse_arguments(spaced) == parse_arguments(joined)
    assert parse_arguments(spaced) == {option.dest: value for option, value in pairs}


@given(unknown_options, values)
@settings(deadline=None, max_examples=50)
def test_an_unknown_option_takes_the_next_word_unless_that_is_an_option(option, value):
    dest = option[2:].replace("-", "_")
    assert parse_arguments([option, value, "--tp", "8"]) == {dest: value, "tp_size": "8"}
    assert parse_arguments([option, "--tp", "8"]) == {dest: True, "tp_size": "8"}


@given(st.lists(st.text(max_size=12) | st.sampled_from(COMMANDS[0].split()), max_size=8))
@settings(deadline=None, max_examples=100)
def test_no_command_line_breaks_the_parser_or_the_rules(words):
    asked = parse_arguments(words)
    assert all(value is True or value or isinstance(value, str) for value in asked.values())
    effective_speculative(asked)
    is_speculative(words)


@pytest.mark.parametrize("option", known_options(), ids=lambda option: option.dest)
def test_every_spelling_leads_to_the_same_name(option):
    for spelling in option.spellings:
        assert list(parse_arguments([spelling, "1"])) == [option.dest]


def test_flags_take_no_word_and_lists_take_all():
    words = "--enable-metrics 7 --cuda-graph-bs-decode 1 2 4 --speculative-adaptive --tp 2"
    assert parse_arguments(words.split()) == {
        "enable_metrics": True,
        "cuda_graph_bs_decode": ["1", "2", "4"],
        "speculative_adaptive": True,
        "tp_size": "2",
    }


def test_a_flag_can_be_turned_off():
    assert parse_arguments(["--no-lora-strict-loading"]) == {"lora_strict_loading": "false"}


def test_the_last_of_a_repeated_option_counts():
    assert parse_arguments(["--tp", "2", "--tensor-parallel-size=4"]) == {"tp_size": "4"}


def test_a_negative_number_is_a_value():
    assert parse_arguments(["--random-seed", "-1"]) == {"random_seed": "-1"}


@pytest.mark.parametrize(
    ("written", "dest"),
    [
        ("--speculative-algo", "speculative_algorithm"),
        ("--mem-fraction", "mem_fraction_static"),
        ("--disable-radix", "disable_radix_cache"),
        ("--max-running", "max_running_requests"),
        ("--cuda-graph-max-bs", "cuda_graph_max_bs"),  # decode or prefill
        ("--speculative-draft", "speculative_draft"),  # one of many
        ("--model", "model_path"),  # a spelling of its own
    ],
)
def test_shortened_names_are_read_as_argparse_reads_them(written, dest):
    assert list(parse_arguments([written, "1"])) == [dest]


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("8", 8),
        (" 8 ", 8),
        ("-1", -1),
        ("1_000", 1000),
        ("4k", 4000),
        ("25.6k", 25600),
        ("4Ki", 4096),
        ("1M", 1_000_000),
        ("1.5Ki", None),
        ("4K", None),
        ("3.5", None),
        ("many", None),
        ("", None),
        ("1.0009k", 1000),
        (f"{'9' * 400}k", None),
        (f"{'9' * 4299}T", None),
        ("9" * 5000, None),
        ("9223372036854775807", 2**63 - 1),
        ("9223372036854775808", None),
    ],
)
def test_whole_numbers(text, number):
    assert whole_number(text) == number


def test_the_recorded_launch_command_parses_to_what_the_server_reported(eagle3):
    info = json.loads((eagle3 / "server_info.json").read_text())
    asked = parse_arguments(info["launch_command"].split())
    assert asked["speculative_draft_model_path"] == info["speculative_draft_model_path"]
    assert asked["enable_metrics"] is True
    assert set(asked) <= set(info)
    assert is_speculative(info["launch_command"].split())


@pytest.mark.parametrize("command", COMMANDS)
def test_launch_commands_that_people_published_are_read(command):
    words = command.split()
    asked = parse_arguments(words)
    options = [word for word in words if word.startswith("--")]
    assert len(asked) == len({word.partition("=")[0] for word in options})
    assert all(isinstance(value, str) or value is True for value in asked.values())
    assert is_speculative(words) == ("--speculative-algo" in command)
    found = effective_speculative(asked, Known(version="0.4.9"))
    assert isinstance(found, EffectiveSpeculative), found
    for dest, name in (("num_steps", "num-steps"), ("eagle_topk", "eagle-topk")):
        if f"--speculative-{name} " in command:
            after = words[words.index(f"--speculative-{name}") + 1]
            assert getattr(found, dest) == int(after)


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


# ---------------------------------------------------------------------------------- what is known


def test_a_models_config_is_read_from_its_folder():
    facts = read_model_facts(str(LAB_MODELS / "tiny-llama"))
    assert facts == ModelFacts(
        architecture="LlamaForCausalLM",
        attention="mha",
        layers=8,
        context_len_tok=2048,
        vocab_size=2048,
        has_dspark=False,
    )
    assert read_model_facts(str(LAB_MODELS / "tiny-eagle3")).draft_vocab_size == 2048


@pytest.mark.parametrize("text", [None, "no JSON", "[]"])
def test_a_model_that_cannot_be_read_is_not_known(tmp_path, text):
    if text is not None:
        (tmp_path / "config.json").write_text(text)
    assert read_model_facts(str(tmp_path)) is None


def test_facts_of_nested_and_odd_configs():
    kimi = model_facts(
        {
            "architectures": ["KimiK25ForConditionalGeneration"],
            "text_config": {"num_hidden_layers": 61, "max_position_embeddings": 262144},
        }
    )
    assert (kimi.attention, kimi.layers, kimi.context_len_tok) == ("mla", 61, 262144)
    scaled = model_facts({"max_position_embeddings": 8192, "rope_scaling": {"factor": 4.0}})
    assert (scaled.architecture, scaled.attention, scaled.context_len_tok) == (None, None, 32768)
    for scaling in (
        {"factor": 4.0, "original_max_position_embeddings": 8192},
        {"factor": 4.0, "rope_type": "llama3"},
        {"factor": "x"},
    ):
        config = {"max_position_embeddings": 8192, "rope_scaling": scaling}
        assert model_facts(config).context_len_tok == 8192
    assert model_facts({"architectures": [], "vocab_size": True}) == ModelFacts(has_dspark=False)
    assert model_facts({"dflash_config": {"block_size": 8}, "block_size": 4}).block_size == 8


@pytest.mark.parametrize(
    ("name", "gpu"),
    [
        ("NVIDIA H200", "hopper"),
        ("NVIDIA H100 80GB HBM3", "hopper"),
        ("NVIDIA B200", "sm100"),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "sm120"),
        ("NVIDIA A100-SXM4-80GB", "other"),
        ("", None),
    ],
)
def test_the_class_of_a_gpu(name, gpu):
    assert gpu_class_of(name) == gpu


# ------------------------------------------------------------------------- what it will become


def test_without_an_algorithm_there_is_no_speculation():
    effective = outcome(*drafting(3))
    assert (effective.algorithm, triple(*drafting(3))) == (None, (None, None, None))
    assert effective.without_effect == ("speculative_num_steps",)
    assert effective.adjustments == ("ignored: --speculative-num-steps",)


@given(st.integers(1, 12), st.none() | st.integers(1, 40))
@settings(deadline=None, max_examples=60)
def test_a_chain_always_verifies_steps_and_one_and_says_when_that_was_not_asked(steps, asked):
    effective = outcome(*EAGLE3, *drafting(steps, 1, asked))
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
        ("EAGLE", "Grok1ForCausalLM", (5, 4, 8)),
        ("NEXTN", "DeepseekV3ForCausalLM", (3, 1, 4)),
        ("EAGLE3", "KimiK25ForConditionalGeneration", (3, 1, 4)),
        ("STANDALONE", None, (3, 1, 4)),
        ("EAGLE3", None, (None, None, None)),
    ],
)
def test_automatic_parameters_follow_the_target(algorithm, architecture, expected):
    arguments = ("--speculative-algorithm", algorithm)
    assert triple(*arguments, architecture=architecture) == expected


def test_nextn_is_eagle_and_names_are_upper_cased():
    effective = outcome("--speculative-algorithm", "nextn", architecture="X")
    assert effective.algorithm == "EAGLE"


@pytest.mark.parametrize(
    ("algorithm", "limit"), [("EAGLE3", 48), ("NGRAM", 48), ("DFLASH", 48), ("UNO", None)]
)
def test_c10_an_unset_running_limit_becomes_48_with_speculation(algorithm, limit):
    words = ["--speculative-algorithm", algorithm]
    effective = outcome(*words, architecture="X")
    assert effective.max_running_requests == limit
    assert any(text.startswith("C10") for text in effective.adjustments) == (limit is not None)
    assert outcome(*words, "--max-running-requests", "64").max_running_requests == 64


def test_an_algorithm_of_a_plug_in_passes_through():
    assert triple("--speculative-algorithm", "MINE", *drafting(2, 3, 4)) == (2, 3, 4)


@pytest.mark.parametrize("value", ["three", "-1", "3.5", "", "9" * 400, "-inf"])
def test_what_is_no_count_is_rejected(value):
    assert rule("--speculative-num-steps", value, "--speculative-eagle-topk", "1") == "number"


def test_an_option_without_its_value_is_rejected():
    assert rule("--speculative-num-steps") == "number"


def test_an_ambiguous_name_is_told_with_the_whole_ones():
    words = ("--cuda-graph-max-bs", "8")
    rejection = outcome(*words, version="0.5.23")
    assert isinstance(rejection, Rejection)
    assert "--cuda-graph-max-bs-decode or --cuda-graph-max-bs-prefill" in rejection.reason
    [advice] = outcome(*words).advice  # an older version may have it
    assert (advice.rule, advice.refused) == ("name", True)


def test_options_are_written_with_hyphens():
    assert option_of("tp_size") == "--tp-size"
