from __future__ import annotations

from pathlib import Path

import pytest


@pytest.mark.parametrize(
    ("override", "key", "value"),
    [
        ("measure.pairs=5", "measure.pairs", 5),  # a block the file does not have
        ("arms.eagle3.speculative.num_steps=5", "arms.eagle3.speculative.num_steps", 5),
        ("loads.concurrency=[2, 4]", "loads.concurrency", (2, 4)),
        ("loads.concurrency.1=4", "loads.concurrency", (1, 4)),
        ("server.environment.A=on", "server.environment", {"A": "on"}),
        ("server.environment.A=x=y", "server.environment", {"A": "x=y"}),
        ("draft=null", "draft", None),
        ("draft=", "draft", None),
        ("question=It is: so", "question", "It is: so"),
        ("target.revision=007", "target.revision", "007"),
        (" measure.pairs = 5", "measure.pairs", 5),
    ],
)
def test_a_key_is_set(load, good, override, key, value):
    if override.startswith("question"):
        override = 'question="It is: so"'
    here: object = load(good, override).scenario
    for part in key.split("."):
        here = here[part] if isinstance(here, dict) else getattr(here, part)
    assert here == value


def test_the_last_of_several_counts_and_all_are_kept(load, good):
    loaded = load(good, "measure={pairs: 2, steady_s: 5}", "measure.pairs=4")
    assert (loaded.scenario.measure.pairs, loaded.scenario.measure.steady_s) == (4, 5.0)
    assert loaded.source.overrides == ("measure={pairs: 2, steady_s: 5}", "measure.pairs=4")


def test_a_key_that_was_set_stands_on_the_command_line(load, good):
    source = load(good, "measure={pairs: 2}", "arms.eagle3.speculative.num_steps=5").source
    assert source.position("measure.pairs") == "--set measure"
    assert source.position("arms.eagle3.speculative.num_steps") == (
        "--set arms.eagle3.speculative.num_steps"
    )
    assert source.position("arms.eagle3.speculative.eagle_topk").endswith("s.yaml:13")
    assert source.position("name").endswith("s.yaml:1")


def test_the_file_is_kept_as_it_was(load, good):
    source = load(good, "measure.pairs=2").source
    assert source.text == good


def test_names_may_hold_dots(load, good):
    text = good.replace("  eagle3:", "  eagle3.v1:")
    loaded = load(text, "arms.eagle3.v1.speculative.num_steps=6")
    assert loaded.scenario.arms["eagle3.v1"].speculative.num_steps == 6


GOLDEN = Path(__file__).parents[1] / "golden/scenario_override_mistakes.txt"
LINES = GOLDEN.read_text(encoding="utf-8").splitlines()


@pytest.mark.parametrize(
    ("override", "said"), [(LINES[at], LINES[at + 1].strip()) for at in range(0, len(LINES), 2)]
)
def test_a_mistake_is_told_with_the_option(mistakes, good, override, said):
    assert mistakes(good, override) == [said]


def test_mistakes_of_several_overrides_are_told_at_once(mistakes, good):
    assert len(mistakes(good, "x", "arms.y.draft=null", "measure.pairs=2")) == 2
