"""The command line as argparse reads it, and words that no server could mean."""

import argparse
import contextlib
import io
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.sglang.arguments import (
    SUPPORTED,
    EffectiveSpeculative,
    Known,
    ModelFacts,
    Rejection,
    effective_speculative,
    known_graph_batch_sizes,
    known_options,
    model_facts,
    parse_arguments,
    read_model_facts,
    whole_number,
)

DEEP = "[" * 100_000
EAGLE3 = "--speculative-algorithm EAGLE3 --speculative-draft-model-path d"


# ------------------------------------------------------------------------------ beside argparse


def size(word):
    number = whole_number(word)
    if number is None:
        raise ValueError
    return number


class Parser(argparse.ArgumentParser):
    def error(self, message):
        raise ValueError(message)


@pytest.fixture(scope="module")
def parser():
    """Python's own, with the same options."""
    made = Parser()
    types = {"int": int, "float": float, "size": size, "json": json.loads}
    for option in known_options():
        kind = option.kind.removesuffix("s")
        if kind == "flag":
            for spelling in option.spellings:
                made.add_argument(
                    spelling,
                    dest=option.dest,
                    action="store_const",
                    const="false" if spelling.startswith("--no-") else True,
                )
            continue
        nargs = {(True, True): "*", (True, False): "+", (False, True): "?"}.get(
            (option.takes_many, option.may_be_bare)
        )
        read = types.get(kind, str)
        choices = [read(choice) for choice in option.choices] or None
        made.add_argument(
            *option.spellings, dest=option.dest, nargs=nargs, type=read, choices=choices, const=""
        ) if nargs == "?" else made.add_argument(
            *option.spellings, dest=option.dest, nargs=nargs, type=read, choices=choices
        )
    return made


spellings = st.sampled_from([name for o in known_options() for name in o.spellings])
written = st.one_of(
    spellings,
    spellings,
    st.tuples(spellings, st.integers(4, 30)).map(lambda pair: pair[0][: pair[1]]),
)
words = st.sampled_from(
    [
        *("8", "-1", "-1.5", "1e3", "+3", " 3 ", "", "-x", "a b", "-a b", "4Ki", "4.5k", "1_000"),
        *("٣", "0x10", "True", "false", '{"a":1}', "{", "-", "1k", "nan", "-inf", "2K", "None"),
        *("auto", "triton", "none", "float16", "stray", "-h", "--tp", "--no-such"),
    ]
)
parts = st.one_of(
    written.map(lambda name: [name]),
    st.tuples(written, words).map(list),
    st.tuples(written, words).map(lambda pair: [f"{pair[0]}={pair[1]}"]),
    st.tuples(written, words, words).map(list),
)


@given(lines=st.lists(parts, max_size=3))
@settings(deadline=None, max_examples=100)
def test_what_argparse_refuses_is_a_fault_and_nothing_else_is(parser, lines):
    line = [word for part in lines for word in part]
    asked = parse_arguments(line)
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            read = parser.parse_args(line)
    except (ValueError, SystemExit):
        assert asked.faults
        return
    assert not [fault for fault in asked.faults if not fault.reason.startswith("--cuda-graph-c")]
    given = {dest: value for dest, value in vars(read).items() if value is not None}
    assert set(asked) == set(given)
    for option in known_options():
        if option.dest in given and option.kind == "text":
            assert (asked[option.dest] or "") == given[option.dest] or not given[option.dest]
        if option.dest in given and option.kind in {"int", "size"}:
            assert whole_number(asked[option.dest]) == given[option.dest]
        if option.dest in given and option.takes_many:
            assert len(asked[option.dest]) == len(given[option.dest])


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("--disable-cuda-graph=1", "--disable-cuda-graph takes no value and was given '1'."),
        ("--speculative-adaptive=true", "--speculative-adaptive takes no value and was given "),
        ("--dtype float17", "--dtype takes auto, bfloat16, float, float16, float32 or half and "),
        ("--tp-size 8 16", "'16' is no option and the value of none."),
        ("--revision", "--revision wants a value and was given nothing."),
        ("--page-size", "--page-size wants a whole number and was given nothing."),
        ("--mm-process-config x", "--mm-process-config wants JSON and was given 'x'."),
        (f"--mm-process-config {DEEP}", "--mm-process-config wants JSON and was given "),
        (f"--cuda-graph-config {DEEP}", "--cuda-graph-config wants JSON and was given "),
        (f"--page-size {'9' * 5000}", "--page-size wants a whole number and was given "),
    ],
)
def test_what_is_wrong_is_told(line, reason):
    [fault] = parse_arguments(line.split()).faults
    assert fault.reason.startswith(reason)
    assert len(fault.reason) < 200
    found = effective_speculative(parse_arguments(line.split()), Known(version=SUPPORTED))
    assert isinstance(found, Rejection)
    assert found.reason == f"{fault.reason} SGLang 0.5.23 ends at once."


def test_on_another_version_only_numbers_that_are_none_are_certain():
    asked = parse_arguments(["--dtype", "float17", "--disable-radix-cache=1", "stray"])
    found = effective_speculative(asked, Known(version="0.7.0"))
    assert isinstance(found, EffectiveSpeculative)
    assert [advice.rule for advice in found.advice if advice.refused] == ["value"] * 3


def test_values_of_an_option_that_is_not_known_are_no_strays():
    faults = parse_arguments(["--new-sizes", "1", "2", "3", "--tp", "2"]).faults
    assert [fault.rule for fault in faults] == ["name"]


def test_plain_values_have_the_same_faults():
    line = ["--disable-cuda-graph=1", "--dtype", "f17", "--no-such", "--page-size", "x"]
    asked = parse_arguments(line)
    for version in (SUPPORTED, "0.7.0"):
        known = Known(version=version)
        assert effective_speculative(dict(asked), known) == effective_speculative(asked, known)


# ---------------------------------------------------------------------------------- extremes

numbers = st.sampled_from([option for option in known_options() if option.kind in {"int", "size"}])
extremes = st.sampled_from(
    ["0", "-1", "1", "2", "7", "100000000", "99999999999", str(2**63), "9" * 400, "1T"]
)
pairs = st.lists(st.tuples(numbers, extremes).map(lambda p: f"{p[0].spellings[0]}={p[1]}"))
algorithms = st.sampled_from(["", "EAGLE3", "NEXTN", "STANDALONE", "NGRAM", "DFLASH", "DSPARK"])
speculative = st.lists(
    st.tuples(
        st.sampled_from(
            [
                *("num-steps", "eagle-topk", "num-draft-tokens", "ngram-max-bfs-breadth"),
                *("dflash-block-size", "dspark-block-size", "draft-window-size"),
            ]
        ),
        extremes,
    ).map(lambda p: f"--speculative-{p[0]}={p[1]}"),
    max_size=4,
)
LLAMA = ModelFacts(architecture="LlamaForCausalLM", attention="mha")


@given(pairs, algorithms | st.just("UNO"), speculative, st.sampled_from([SUPPORTED, None]))
@settings(deadline=None, max_examples=100)
def test_no_number_breaks_the_rules(others, algorithm, own, version):
    words = [*others, *own, "--uno-lora-path=x", "--chunked-prefill-size=8"]
    words += [f"--speculative-algorithm={algorithm}"] if algorithm else []
    known = Known(version=version, gpu="hopper", gpu_memory_gib=141, target=LLAMA, draft=LLAMA)
    asked = parse_arguments(words)
    found = effective_speculative(asked, known)
    if isinstance(found, EffectiveSpeculative):
        assert all(text for text in found.adjustments)
        assert len(known_graph_batch_sizes(asked, found, known)) <= 1 << 17


@pytest.mark.parametrize(
    "line",
    [
        "--cuda-graph-max-bs-decode 99999999999",
        '--cuda-graph-config {"decode":{"max_bs":99999999999}}',
        "--cuda-graph-max-bs-decode 0",
        "--cuda-graph-max-bs-decode -5 --disable-cuda-graph-padding",
        "--cuda-graph-max-bs-decode 99999999999 --disable-cuda-graph-padding",
    ],
)
def test_graph_sizes_end_where_no_load_comes(line):
    asked = parse_arguments(line.split())
    found = effective_speculative(asked, Known(version=SUPPORTED))
    sizes = known_graph_batch_sizes(asked, found, Known(gpu="hopper", gpu_memory_gib=141))
    assert len(sizes) <= 1 << 20
    assert all(size > 0 for size in sizes)
    assert ("999" in line) == bool(sizes)


# ------------------------------------------------------------------------- files of this machine


@pytest.mark.parametrize("path", ["~nosuchuser/x", "\0", "x" * 5000, "/dev/null"])
def test_a_path_that_leads_nowhere_is_not_known(path):
    assert read_model_facts(path) is None
    line = [*EAGLE3.split(), "--speculative-adaptive", "--speculative-adaptive-config", path]
    found = effective_speculative(parse_arguments(line), Known(version=SUPPORTED))
    assert isinstance(found, EffectiveSpeculative)
    assert found.num_steps is None


@pytest.mark.parametrize("text", [DEEP, '{"a":' * 100_000, "\xff", "1" * 5000])
def test_a_file_that_is_no_json_is_not_known(tmp_path, text):
    (tmp_path / "config.json").write_text(text)
    assert read_model_facts(str(tmp_path)) is None
    assert read_model_facts(str(tmp_path / "config.json")) is None


@pytest.mark.parametrize("factor", ["1e999", "NaN", "-1e999", "1" + "0" * 400, "true"])
def test_a_context_that_is_no_number_is_not_known(factor):
    text = f'{{"max_position_embeddings": 8192, "rope_scaling": {{"factor": {factor}}}}}'
    assert model_facts(json.loads(text)).context_len_tok in {None, 8192}
    assert model_facts(json.loads(f'{{"seq_length": {factor}}}')).context_len_tok is None


@pytest.mark.parametrize(
    "text",
    [
        *("[]", "{}", "3", '{"1": 3}', '{"1": {}}', '{"x": {"candidate_steps": [1]}}'),
        *('{"1": {"candidate_steps": []}}', '{"1": {"candidate_steps": 3}}'),
        *('{"1": {"candidate_steps": [1.5]}}', '{"1": {"candidate_steps": [-1]}}'),
        *('{"1": {"candidate_steps": [1e999]}}', '{"1": {"candidate_steps": [NaN]}}'),
        '{"1": {"candidate_steps": [1]}, "8": null}',
    ],
)
def test_c29_a_file_without_candidates_is_refused(tmp_path, text):
    path = tmp_path / "adaptive.json"
    path.write_text(text)
    line = f"{EAGLE3} --speculative-adaptive --speculative-adaptive-config {path}"
    found = effective_speculative(parse_arguments(line.split()), Known(version=SUPPORTED))
    assert isinstance(found, Rejection)
    assert found.rule == "C29"


@pytest.mark.parametrize("folder", ["", "dspark"])
def test_a_dspark_draft_may_lie_beside_its_target(tmp_path, folder):
    (tmp_path / "config.json").write_text("{}")
    assert read_model_facts(str(tmp_path)).has_dspark is False
    (tmp_path / folder).mkdir(exist_ok=True)
    (tmp_path / folder / "config.json").write_text('{"dspark_block_size": 5}')
    assert read_model_facts(str(tmp_path)).has_dspark is True
