"""A suite: read with defaults, and every mistake told with its place."""

from pathlib import Path

import pytest

from bench.errors import InputError, ScenarioError
from bench.metrics.watched import WATCHED
from bench.nightly import load_suite, watch_of

TINY = Path(__file__).parents[1] / "cli" / "tiny.yaml"
WHOLE = f"""
name: demo
scenarios:
  - scenario: {TINY}
    sim: true
    only: [load=1]
    hardware: 8x H200
watch: [output_tok_per_s, ttft_p99_ms]
margins: {{ttft_p99_ms: 0.1}}
max_minutes: 30
webhook_env: HOOK
"""


def suite(tmp_path, text):
    path = tmp_path / "suite.yaml"
    path.write_text(text)
    return load_suite(path)


def test_a_whole_suite_is_read(tmp_path):
    read = suite(tmp_path, WHOLE)
    assert (read.name, read.max_minutes, read.webhook_env) == ("demo", 30, "HOOK")
    watch = watch_of(read)
    assert (watch.scenarios, watch.metrics) == (("tiny",), ("output_tok_per_s", "ttft_p99_ms"))
    assert watch.margin("ttft_p99_ms") == pytest.approx(0.0953, abs=1e-3)


def test_the_smallest_suite_has_defaults(tmp_path):
    (tmp_path / "below").mkdir()
    (tmp_path / "below" / "t.yaml").write_text(TINY.read_text())
    read = suite(tmp_path, "name: s\nscenarios: [{scenario: below/t.yaml}]\n")
    assert read.watch == WATCHED
    assert Path(read.scenarios[0].scenario) == tmp_path / "below" / "t.yaml"
    assert watch_of(read).scenarios == ("tiny",)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("name: s\n", "suite.yaml:1 scenarios: missing"),
        ("name: s\nscenarios: []\n", "suite.yaml:2 scenarios: wanted one or more"),
        ("name: s\nscenarios:\n  - a.yaml\n", "suite.yaml:3 scenarios.0: wanted a mapping"),
        (
            "name: s\nscenarios:\n  - scenario: a\n    only: load=1\n",
            "suite.yaml:4 scenarios.0.only: wanted a list, .*found the text 'load=1'",
        ),
        (
            "name: s\nscenarios: [{scenario: a}]\nwatch:\n  - speedup\n  - tok\n",
            "suite.yaml:5 watch.1: 'tok' is no metric",
        ),
        (
            "name: s\nscenarios: [{scenario: a}]\nmargins:\n  cycle_ms: 0.1\n  tok: 0.1\n",
            "suite.yaml:5 margins.tok: 'tok' is no metric",
        ),
        ("name: a b\nscenarios: [{scenario: a}]\n", "suite.yaml:1 name: 'a b' is no name"),
        ("name: s\nscenarios: [{scenario: a}]\nwach: [x]\n", r"suite.yaml:3 wach: unknown key"),
        (
            "name: s\nscenarios:\n  - scenario: a\n    simm: true\n",
            r"suite.yaml:4 scenarios.0.simm: unknown key. .*sim",
        ),
        ("name: s\nscenarios: [{scenario: a}]\nwatch: [tok]\n", "'tok' is no metric"),
        ("name: s\nscenarios: [{scenario: a}]\nmargins: {tok: 0.1}\n", "'tok' is no metric"),
        ("name: s\nscenarios: [{scenario: a}]\nmax_minutes: 0\n", "suite.yaml:3 max_minutes"),
        ("name: s\nscenarios: [{scenario: a}]\nmargins: {speedup: 5}\n", "margins.speedup"),
        ("name: s\nscenarios: [{scenario: a, sim: yes please}]\n", "scenarios.0.sim"),
    ],
)
def test_a_mistake_is_told_with_its_place(tmp_path, text, said):
    with pytest.raises(ScenarioError, match=said):
        suite(tmp_path, text)


def test_one_mistake_is_told_once(tmp_path):
    with pytest.raises(ScenarioError) as caught:
        suite(tmp_path, "name: s\nscenarios:\n  - scenario: a\n    simm: true\n")
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ("scenario: none.yaml", "no such scenario"),
        (f"{{scenario: {TINY}, set: [measure.stedy_s=3]}}", "stedy_s"),
    ],
)
def test_a_scenario_that_cannot_be_read_is_told_with_its_place(tmp_path, entry, said):
    read = suite(tmp_path, f"name: s\nscenarios:\n  - {{scenario: {TINY}}}\n  - {entry}\n")
    with pytest.raises(InputError, match=rf"suite\.yaml:4 scenarios\.1: .*{said}"):
        watch_of(read)


@pytest.mark.parametrize("text", ["", "- a\n", "name: [\n"])
def test_what_is_no_mapping_is_refused(tmp_path, text):
    with pytest.raises(InputError, match=r"suite\.yaml"):
        suite(tmp_path, text)


def test_a_suite_that_is_not_there_is_told(tmp_path):
    with pytest.raises(InputError, match="cannot be read"):
        load_suite(tmp_path / "none.yaml")
