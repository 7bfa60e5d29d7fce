"""Adaptive speculation decides as SGLang's own controller did, and acceptance can be forced."""

import json
import random
from pathlib import Path

import pytest

from bench.errors import InputError
from bench.simulator.adaptive import Adaptive, ConfigError, read_tiers
from bench.simulator.forced_acceptance import LENGTH, METHOD, TOKEN_MODE, Forced, read_forced
from bench.simulator.refusals import StartFailure
from bench.simulator.settings import read_settings

DECISIONS = Path(__file__).parents[1] / "lab" / "scenes" / "decisions" / "answers.json"
CASES = json.loads(DECISIONS.read_text())
EAGLE3 = ["--model-path", "m", "--tp-size", "8", "--speculative-algorithm", "EAGLE3"]
ADAPTIVE = [*EAGLE3, "--speculative-adaptive"]


@pytest.mark.parametrize("case", CASES, ids=lambda case: str(case["first_steps"]))
def test_every_decision_is_sglangs(case, tmp_path):
    config = tmp_path / "config.json"
    config.write_text(json.dumps(case["config"]))
    lines = []
    adaptive = Adaptive(
        read_tiers(str(config)),
        initial_steps=case["first_steps"],
        graph_batch_sizes=case["graph_batch_sizes"],
        log=lines.append,
    )
    for correct, (steps, after) in zip(case["batches"], case["decisions"], strict=True):
        assert adaptive.steps_for(len(correct)) == steps
        adaptive.verified(correct)
        assert adaptive.steps == after
    updates = [line for line in lines if line.startswith("Adaptive spec params updated: steps ")]
    assert updates
    assert len(updates) >= sum(steps != after for steps, after in case["decisions"])


def test_without_a_file_the_configuration_is_sglangs_own():
    tiers = read_tiers(None)
    own = CASES[0]["config"]
    assert {str(t.batch): list(t.candidates) for t in tiers} == {
        size: entry["candidate_steps"] for size, entry in own.items()
    }
    assert [tier.down for tier in tiers] == [entry["down_hysteresis"] for entry in own.values()]
    settings = read_settings(ADAPTIVE)
    assert settings.speculation.num_steps == 3  # the middle of 0, 1, 3, 5, 7
    assert settings.drafting.most_steps == 7
    assert settings.drafting.reserved_tok == 8
    assert read_settings(EAGLE3).adaptive_tiers is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "FileNotFoundError"),
        ("{", "JSONDecodeError"),
        ('{"all": {}}', "at least one integer-string BS key"),
        ('{"1": {"candidate_steps": []}}', "BS 1: candidate_steps must be a list"),
        ('{"1": {"candidate_steps": [-1]}}', "non-negative ints"),
        ("[]", "'list' object has no attribute"),
    ],
)
def test_a_configuration_that_sglang_refuses_ends_the_start(text, message, tmp_path):
    path = tmp_path / "config.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(ConfigError, match=message):
        read_tiers(str(path))
    with pytest.raises(StartFailure, match=message) as caught:
        read_settings([*ADAPTIVE, "--speculative-adaptive-config", str(path)])
    assert caught.value.exit_code == 1


def test_where_it_cannot_adapt_it_drafts_as_asked():
    three = "--speculative-num-steps 3 --speculative-eagle-topk 2 --speculative-num-draft-tokens 6"
    settings = read_settings([*ADAPTIVE, *three.split()])
    assert settings.adaptive_tiers is None
    assert settings.speculation.topk == 2


# ------------------------------------------------------------------------------------ forced


def drawn(forced: Forced, steps: int) -> list[int]:
    rng = random.Random(5)
    return [forced.correct(steps, rng) for _ in range(8000)]


def test_the_expected_length_is_matched_by_the_next_whole_numbers():
    forced = read_forced({LENGTH: "2.6"})
    draws = drawn(forced, steps=3)
    assert set(draws) == {1, 2}
    assert 1 + sum(draws) / len(draws) == pytest.approx(2.6, abs=0.02)
    assert set(drawn(forced, steps=1)) == {1}
    assert set(drawn(read_forced({LENGTH: "0.4"}), steps=3)) == {0}


def test_multinomial_is_a_rounded_normal_draw_within_its_bounds():
    draws = drawn(read_forced({LENGTH: "2.6", METHOD: "multinomial"}), steps=3)
    assert set(draws) == {0, 1, 2, 3}
    assert 1 + sum(draws) / len(draws) == pytest.approx(2.56, abs=0.05)


def test_what_the_environment_says_is_read_as_sglang_reads_it():
    assert read_forced({}) is None
    assert read_forced({LENGTH: "-1"}) is None
    assert read_forced({LENGTH: "long"}) is None
    assert not read_forced({LENGTH: "2", TOKEN_MODE: "whatever"}).keeps_text
    assert read_forced({LENGTH: "2", TOKEN_MODE: "real-draft-token"}).keeps_text
    with pytest.raises(InputError, match="exact"):
        read_forced({LENGTH: "2", METHOD: "exact"})
