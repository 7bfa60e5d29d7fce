from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from bench.model import Timeouts
from bench.scenario import load_scenario

SCENARIOS = Path(__file__).parents[2] / "scenarios"


def test_what_is_left_out_has_its_default(load, good):
    scenario = load(good).scenario
    workload = scenario.workloads["chat"]
    assert (workload.api, workload.dataset, workload.cache) == ("chat", "generated", "cold")
    assert (workload.sampling.temperature, workload.sampling.top_p) == (0.0, 1.0)
    assert scenario.measure.pairs == 3
    assert scenario.server.launcher.command == ("python3", "-m", "sglang.launch_server")
    assert scenario.sim is None


def test_time_outs_are_those_of_the_model(load, good):
    timeouts = load(good).scenario.timeouts.model_dump()
    assert Timeouts(**timeouts) == Timeouts()


def test_every_key_has_its_line(load, good):
    source = load(good).source
    assert source.position("name") == f"{source.path}:1"
    assert source.position("server.arguments.1") == f"{source.path}:9"
    assert source.position("arms.eagle3.speculative.num_steps") == f"{source.path}:13"


def test_a_key_that_is_not_given_stands_where_its_parent_does(load, good):
    source = load(good).source
    assert source.position("workloads.chat.sampling.top_p") == f"{source.path}:18"
    assert source.position("measure.pairs") == f"{source.path}:1"


def test_the_source_keeps_the_text_verbatim(load, good):
    text = "# a remark\n" + good.replace("\n", "\r\n")
    source = load(text).source
    assert source.text == text
    assert source.sha256 == hashlib.sha256(text.encode()).hexdigest()


def test_an_alias_has_the_lines_of_its_anchor_and_a_merge_those_of_both(load, good):
    text = good.replace(
        "arms:\n",
        "arms:\n"
        "  one: &one\n"
        "    speculative: &spec {algorithm: EAGLE3, num_steps: 5}\n"
        "    environment: {A: x}\n"
        "  two:\n"
        "    <<: *one\n"
        "    environment: {B: y}\n"
        "  three: {speculative: *spec}\n",
    )
    loaded = load(text)
    two = loaded.scenario.arms["two"]
    assert two.speculative is not None
    assert two.speculative.num_steps == 5
    assert two.environment == {"B": "y"}
    at = loaded.source.position
    assert at("arms.two.speculative.num_steps").endswith(":12")
    assert at("arms.two.environment.B").endswith(":16")
    assert at("arms.three.speculative").endswith(":17")
    assert at("arms.three.speculative.num_steps").endswith(":12")


def test_of_several_merged_mappings_the_first_wins(load, good):
    text = good.replace(
        "arms:\n",
        "arms:\n"
        "  a: &a {environment: {X: a}}\n"
        "  b: &b {environment: {X: b}, arguments: --foo}\n"
        "  c: {<<: [*a, *b]}\n",
    )
    arm = load(text).scenario.arms["c"]
    assert arm.environment == {"X": "a"}
    assert arm.arguments == ("--foo",)


@pytest.mark.parametrize("written", ["on", "010", "1e3", "true", "'010'", "0x10", "1:30"])
def test_text_by_nature_is_taken_as_written(load, good, written):
    text = good.replace("  gpus: 2\n", f"  gpus: 2\n  environment: {{A: {written}}}\n")
    assert load(text).scenario.server.environment == {"A": written.strip("'")}


def test_a_revision_of_digits_stays_a_text(load, good):
    assert load(good.replace("revision: main", "revision: 0123456")).scenario.target.revision == (
        "0123456"
    )


@pytest.mark.parametrize(
    ("written", "value"),
    [("1e3", 1000), ("1_000", 1000), ("0x10", 16), ("0o10", 8), ("+5", 5), ("2e0", 2)],
)
def test_whole_numbers(load, good, written, value):
    text = good.replace("max_output_tok: 128", f"max_output_tok: {written}")
    assert load(text).scenario.workloads["chat"].max_output_tok == value


@pytest.mark.parametrize(
    ("written", "value"), [("1e-1", 0.1), (".5", 0.5), ("1", 1.0), ("1.", 1.0), ("5e-01", 0.5)]
)
def test_numbers(load, good, written, value):
    text = good.replace("temperature: 0", f"temperature: {written}")
    temperature = load(text).scenario.workloads["chat"].sampling.temperature
    assert temperature == value
    assert isinstance(temperature, float)


def test_keys_are_texts_whatever_they_look_like(load, good):
    text = good.replace("  eagle3:\n", "  8:\n").replace(
        "  baseline: {}", "  baseline:\n  off: {}"
    )
    assert list(load(text).scenario.arms) == ["baseline", "off", "8"]


def test_arguments_may_be_one_text_or_a_list(load, good):
    lines = "  arguments:\n    - --tp-size 2\n    - --max-running-requests 8\n"
    block = "  arguments: >-\n    --tp-size 2\n    --max-running-requests 8\n"
    from bench.scenario import split_arguments

    both = [load(text).scenario.server.arguments for text in (good, good.replace(lines, block))]
    assert split_arguments(both[0]) == split_arguments(both[1])
    assert split_arguments(["--a 'x y'", """--b='{"c": 1}'""", "--d"]) == (
        "--a",
        "x y",
        '--b={"c": 1}',
        "--d",
    )


def test_paths_are_relative_to_the_scenario(load, good, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", "/home/someone")
    source = load(good).source
    assert source.resolve("./a/../b") == str(tmp_path / "b")
    assert source.resolve("../b") == str(tmp_path.parent / "b")
    assert source.resolve("~/b") == "/home/someone/b"
    for elsewhere in ("org/model", "/abs/./x", ".hidden", "~other/x", "..."):
        assert source.resolve(elsewhere) == elsewhere


@pytest.mark.parametrize("path", sorted(SCENARIOS.glob("*.yaml")), ids=lambda path: path.stem)
def test_the_shipped_scenarios_load_and_are_named(path):
    scenario = load_scenario(path).scenario
    assert scenario.question.endswith("?")
    assert f"`{path.name}`" in (SCENARIOS / "README.md").read_text()


def test_a_rejection_by_a_later_room_has_file_and_line(load, good):
    loaded = load(good)
    error = loaded.rejected("arms.eagle3.speculative.num_steps", "too many. Give 3")
    assert str(error) == (
        f"{loaded.source.path}:13 arms.eagle3.speculative.num_steps: too many. Give 3"
    )


def test_the_scenario_to_begin_with_is_whole(load):
    text = (SCENARIOS / "README.md").read_text(encoding="utf-8")
    example = text.partition("```yaml\n")[2].partition("```")[0]
    assert list(load(example).scenario.arms) == ["baseline", "eagle3"]
