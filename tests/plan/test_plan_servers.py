from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from bench.plan import make_plan
from bench.scenario import load_scenario

ROOT = Path(__file__).parents[2]
GOLDEN = Path(__file__).parents[1] / "golden"


def _argv(plan, arm: str) -> tuple[str, ...]:
    return next(launch.server.arguments for launch in plan.launches if launch.arm == arm)


@pytest.mark.parametrize("name", ["kimi", "quick", "lab"])
def test_the_command_lines_of_the_shipped_scenarios(name):
    plan = make_plan(load_scenario(ROOT / f"scenarios/{name}.yaml"))
    told = {
        launch.arm: [*launch.server.command, *launch.server.arguments]
        for launch in sorted(plan.launches, key=lambda launch: launch.arm)
    }
    here = {sys.executable: "{python}", str(ROOT): "{root}"}
    lines = []
    for arm, words in told.items():
        text = " ".join(json.dumps(word) if " " in word else word for word in words)
        for place, what in here.items():
            text = text.replace(place, what)
        lines.append(f"{arm}: {text}".replace(" --", "\n  --") + "\n")
    golden = GOLDEN / f"argv_{name}.txt"
    assert "".join(lines) == golden.read_text(encoding="utf-8")


def test_options_stand_in_a_fixed_order_and_an_arms_own_come_last(loaded, small):
    small["target"]["revision"] = "abc"
    small["draft"]["revision"] = "def"
    small["server"]["arguments"] = "--tp-size 8 --max-running-requests 64"
    small["arms"]["eagle3"]["arguments"] = ["--max-running-requests 96", "--page-size=1"]
    plan = make_plan(loaded(small))
    common = ("--model-path", "org/model", "--revision", "abc", "--tp-size", "8")
    common += ("--max-running-requests", "64")
    assert _argv(plan, "baseline") == common
    assert _argv(plan, "eagle3") == (
        *common,
        *("--speculative-algorithm", "EAGLE3"),
        *("--speculative-draft-model-path", "org/draft"),
        *("--speculative-draft-model-revision", "def"),
        *("--speculative-num-steps", "3"),
        *("--speculative-eagle-topk", "1"),
        *("--speculative-num-draft-tokens", "4"),
        *("--max-running-requests", "96"),
        "--page-size=1",
    )


def test_which_draft_an_arm_gets(loaded, small):
    chain = small["arms"]["eagle3"]["speculative"]
    small["arms"] |= {
        "own": {"speculative": chain, "draft": {"path": "./own", "revision": "main"}},
        "none": {"speculative": chain, "draft": None},
        "ngram": {"speculative": {"algorithm": "NGRAM", "num_draft_tokens": 8}},
    }
    plan = make_plan(loaded(small))
    drafts = {}
    for launch in plan.launches:
        words = launch.server.arguments
        at = [i for i, word in enumerate(words) if word == "--speculative-draft-model-path"]
        drafts[launch.arm] = words[at[0] + 1] if at else None
    assert drafts.pop("own").endswith("/own")
    assert drafts == {"baseline": None, "eagle3": "org/draft", "none": None, "ngram": None}


def test_local_paths_among_arguments_are_resolved(loaded, small, tmp_path):
    small["server"]["arguments"] = [
        "--max-running-requests 64",
        "--chat-template ./t.jinja",
        "--x=../y",
        "--z=a=./b",
    ]
    words = _argv(make_plan(loaded(small)), "baseline")
    assert words[4:] == (
        "--chat-template",
        str(tmp_path / "t.jinja"),
        f"--x={tmp_path.parent / 'y'}",
        "--z=a=./b",
    )


def test_an_arms_environment_wins_and_is_sorted(loaded, small):
    small["arms"]["eagle3"]["environment"] = {"C": "3", "A": "9"}
    plan = make_plan(loaded(small))
    servers = {launch.arm: launch.server for launch in plan.launches}
    assert servers["baseline"].environment == (("A", "1"), ("B", "2"))
    assert servers["eagle3"].environment == (("A", "9"), ("B", "2"), ("C", "3"))
    assert servers["baseline"].command == ("python3", "-m", "sglang.launch_server")


def test_a_simulated_server(loaded, with_sim):
    with_sim["arms"]["good"] = {
        "speculative": with_sim["arms"]["eagle3"]["speculative"],
        "sim": {"acceptance": "kimi-k2.5-eagle3"},
    }
    real = make_plan(loaded(with_sim))
    plan = make_plan(loaded(with_sim), simulated=True)
    assert plan.simulated
    assert plan.pairs == 2
    for launch in plan.launches:
        server = launch.server
        assert (server.launcher, server.command, server.url) == ("simulated", (), None)
        assert (server.hardware, server.target_card) == ("h200-x8", "kimi-k2.5")
        assert server.arguments == _argv(real, launch.arm)
        assert all(cell.steady_s == 4 for cell in launch.cells)
    accepted = {launch.arm: launch.server.acceptance for launch in plan.launches}
    assert accepted == {
        "baseline": None,
        "eagle3": (0.6, 0.4, 0.3),
        "good": "kimi-k2.5-eagle3",
    }
    seeds = [launch.server.simulation_seed for launch in plan.launches]
    assert len(set(seeds)) == len(seeds)  # launches differ from one another as real ones do
    assert all(launch.server.acceptance is None for launch in real.launches)


def test_other_hardware_can_be_simulated(loaded, with_sim):
    plan = make_plan(loaded(with_sim), simulated=True, sim_hardware="rtx-pro-6000-x8")
    assert {launch.server.hardware for launch in plan.launches} == {"rtx-pro-6000-x8"}


def test_another_seed_simulates_other_launches(loaded, with_sim):
    first = make_plan(loaded(with_sim), simulated=True)
    with_sim["sim"]["seed"] += 1
    second = make_plan(loaded(with_sim), simulated=True)
    for one, other in zip(first.launches, second.launches, strict=True):
        assert one.server.simulation_seed != other.server.simulation_seed
