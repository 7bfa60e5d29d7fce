from __future__ import annotations

import copy
import json
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.errors import InputError, ScenarioError
from bench.scenario import load_scenario

GOLDEN = Path(__file__).parents[1] / "golden/scenario_mistakes.yaml"
CASES = {case["mistake"]: case for case in yaml.safe_load(GOLDEN.read_text(encoding="utf-8"))}


@pytest.mark.parametrize("case", CASES)
def test_a_mistake_is_told_with_line_key_and_what_to_do(mistakes, good, case):
    written, instead, said = (CASES[case][key] for key in ("written", "instead", "said"))
    assert written in good
    assert mistakes(good.replace(written, instead, 1)) == [said]


@pytest.mark.parametrize(
    ("instead", "said"),
    [
        ("[" * 10_000, "s.yaml:6: nested deeper than 40 levels. No scenario needs more than 8"),
        (
            "9" * 5000,
            "s.yaml:6 server.gpus: found a number of 5000 characters. Give one below 2^63",
        ),
        ("\0", "s.yaml:6: found the control character U+0000. Remove it"),
        (
            '2\n  "gpus\\u2028": 1',
            r"s.yaml:7 server.gpus\u2028: unknown key. Did you mean gpus?",
        ),
    ],
    ids=["deep", "endless", "control", "line separator"],
)
def test_a_mistake_that_could_break_the_message_or_the_reader(mistakes, good, instead, said):
    assert mistakes(good.replace("gpus: 2", f"gpus: {instead}")) == [said]


@pytest.mark.parametrize(
    "written", ["--model-p /x", "--mod=/x", "--hos 0.0.0.0", "--por 1", "--rev x"]
)
def test_an_argument_that_bench_gives_is_no_less_refused_when_shortened(mistakes, good, written):
    (line,) = mistakes(good.replace("- --tp-size 2", f"- {written}"))
    assert line.startswith("s.yaml:8 server.arguments.0: --")
    assert "does not belong here" in line


def test_several_mistakes_are_told_at_once_in_the_order_of_the_file(mistakes, good):
    text = good.replace("temperature: 0", "temperature: hot").replace("gpus: 2", "gpu: 2")
    assert [line.partition(": ")[0] for line in mistakes(text)] == [
        "s.yaml:5 server.gpus",
        "s.yaml:6 server.gpu",
        "s.yaml:18 workloads.chat.sampling.temperature",
    ]


def test_endless_mistakes_are_cut(mistakes, good):
    text = good.replace("  gpus: 2", "  gpus: 2\n" + "\n".join(f"  k{i}: 1" for i in range(50)))
    lines = mistakes(text)
    assert len(lines) == 21
    assert lines[-1] == "… and 30 more"


def test_a_workload_fitting_all_rules_beside_one_that_does_not(mistakes, good):
    text = good.replace("concurrency: [1, 8]", "rates: [{rate_per_s: 1}]").replace(
        "    - --max-running-requests 8\n", ""
    )
    assert len(mistakes(text)) == 1  # open loads need the limit as well


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("", "s.yaml: is empty. scenarios/README.md says how to begin"),
        ("# nothing\n", "s.yaml: is empty. scenarios/README.md says how to begin"),
        ("- a\n", "s.yaml:1: wanted a mapping, found a list. Begin with name: and question:"),
        ("a", "s.yaml:1: wanted a mapping, found the text 'a'. Begin with name: and question:"),
        (b"a: 1\nb: \xe4\n", "s.yaml:2: is not UTF-8 (byte 0xe4). Save the file as UTF-8"),
        (b"\xff\xfea\0", "s.yaml:1: is not UTF-8 (byte 0xff). Save the file as UTF-8"),
    ],
)
def test_a_file_that_is_no_scenario(mistakes, text, line):
    assert mistakes(text) == [line]


def test_aliases_that_unfold_without_end(mistakes):
    lists = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n" + "".join(
        f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 12)
    )
    merges = "a0: &a0 {x: 1}\n" + "".join(
        f"a{i}: &a{i} {{<<: [{', '.join([f'*a{i - 1}'] * 9)}]}}\n" for i in range(1, 12)
    )
    for text in (lists, merges):
        (line,) = mistakes(text)
        assert line.endswith("has more than 10000 values. Use fewer aliases")


def test_too_many_values_without_an_alias(mistakes):
    (line,) = mistakes("a: [" + "1, " * 20_000 + "1]\n")
    assert line.endswith("has more than 10000 values. Split it into several scenarios")


def test_what_is_empty_is_told_without_a_blank_at_the_end(mistakes, good):
    launcher = "server:\n  launcher: {kind: template, start: [''], stop: ['']}\n"
    lines = mistakes(launcher)
    assert any("is empty. " in line for line in lines)
    assert all(line == line.rstrip() for line in lines)


def test_a_byte_order_mark_is_no_mistake(load, good):
    assert load("\ufeff" + good).scenario.name == "small"


def test_files_that_cannot_be_read(tmp_path, good):
    (tmp_path / "kimi.yaml").write_text(good)
    (tmp_path / "huge.yaml").write_text("#" * 1_000_001)
    for path, found, hint in (
        ("kmi.yaml", "no such scenario", "Did you mean kimi.yaml?"),
        ("", "is a folder", "In it: huge.yaml, kimi.yaml."),
        ("no/kimi.yaml", "no such scenario", "There is no folder"),
        ("kimi.yaml/x", "Not a directory", "Give the path"),
        ("huge.yaml", "more than 1000000 bytes", "Give a scenario"),
        ("a\0b", "null", "Give the path"),
    ):
        with pytest.raises(InputError) as caught:
            load_scenario(tmp_path / path)
        assert found in str(caught.value)
        assert hint in (caught.value.hint or "")


yaml_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(max_size=8) | st.integers() | st.booleans(), inner, max_size=3)
    ),
    max_leaves=8,
)


def _paths(data: object, above: tuple = ()) -> list[tuple]:
    inside = data.items() if isinstance(data, dict) else enumerate(data)
    below = [
        path
        for key, value in inside
        if isinstance(value, (dict, list))
        for path in _paths(value, (*above, key))
    ]
    return [
        *below,
        *((*above, key) for key in (data if isinstance(data, dict) else range(len(data)))),
    ]


@settings(max_examples=100, deadline=None)
@given(data=st.data(), value=yaml_values)
def test_no_value_anywhere_gives_a_traceback(tmp_path_factory, good_data, data, value):
    scenario = copy.deepcopy(good_data)
    *parents, last = data.draw(st.sampled_from(_paths(scenario)))
    here = scenario
    for key in parents:
        here = here[key]
    here[last] = value
    path = tmp_path_factory.getbasetemp() / "fuzz.yaml"
    path.write_text(json.dumps(scenario), encoding="utf-8")  # which is YAML as well
    _loads_or_tells(path)


@settings(max_examples=100, deadline=None)
@given(text=st.text() | st.text("ab:-[]{}&*!'\"\n\t #|>%?<,1.", max_size=60))
def test_no_text_gives_a_traceback(tmp_path_factory, text):
    path = tmp_path_factory.getbasetemp() / "fuzz.yaml"
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    _loads_or_tells(path)


def _loads_or_tells(path: Path) -> None:
    try:
        load_scenario(path)
    except ScenarioError as error:
        for line in str(error).splitlines():
            assert line.startswith(("…", f"{path}"))


@pytest.fixture(scope="module")
def good_data() -> dict:
    from textwrap import dedent

    return yaml.safe_load(
        dedent("""
        name: small
        question: Does it pay?
        target: {path: org/model, revision: main}
        server: {gpus: 2, arguments: [--max-running-requests 8], environment: {A: b}}
        arms:
          baseline: {}
          e: {speculative: {algorithm: E, num_steps: 1}, sim: {acceptance: [0.5]}}
        workloads: {chat: {max_output_tok: 8, sampling: {temperature: 0}, cache: cold}}
        loads: {concurrency: [1], rates: [{rate_per_s: 1}]}
        measure: {steady_s: 1.5}
        sim: {hardware: h, target: t, measure: {pairs: 1}}
        tune: {a: [1, {b: 2}]}
        """)
    )
