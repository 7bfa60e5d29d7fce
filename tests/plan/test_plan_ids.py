from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.plan import make_plan, request_seed
from bench.scenario import load_scenario

# Keys that can change a cell's numbers, each with another value.
MATTERS: dict[str, Any] = {
    "seed": 4,
    "target.path": "org/other",
    "target.revision": "v2",
    "server.gpus": 16,
    "server.arguments": ["--tp-size 4", "--max-running-requests 64"],
    "server.environment": {"A": "1"},
    "server.launcher": {"command": ["sglang", "serve"]},
    "workloads.chat.input_tok": 513,
    "workloads.chat.max_output_tok": 129,
    "workloads.chat.sampling": {"temperature": 0.1},
    "workloads.chat.ignore_eos": True,
    "workloads.chat.api": "chat",
    "workloads.chat.categories": ["code"],
    "workloads.chat.chat_template_kwargs": {"thinking": True, "more": 1},
    "workloads.chat.cache": "primed",
    "measure.steady_s": 61,
    "measure.requests_per_slot": 500,
    "measure.warmup_requests_per_slot": 2,
    "measure.expected_output_tok_per_s_per_user": 500,
    "slo.ttft_ms": 501,
    "timeouts.request_s": 601,
    "timeouts.drain_s": 121,
    "timeouts.connect_s": 11,
}
# Keys that say something else.
MATTERS_NOT: dict[str, Any] = {
    "name": "other",
    "question": "Why not?",
    "measure.practical_margin": 0.1,
    "measure.pairs": 5,
    "workloads.chat.store_text": True,
    "timeouts.ready_s": 1,
    "timeouts.term_s": 1,
    "timeouts.scrape_s": 2,
    "tune": {"x": 1},
    "draft.path": "org/otherdraft",  # the baseline has none
    "arms.eagle3.speculative": {"algorithm": "NGRAM"},  # another arm
    "arms.more": {},
}
MATTERS_NOT_HERE = {"workloads.chat.api"}  # the same value as before


def _set(data: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    data = copy.deepcopy(data)
    *parents, last = path.split(".")
    here = data
    for key in parents:
        here = here.setdefault(key, {})
    here[last] = value
    return data


def _cell(loaded, data: dict[str, Any], arm: str = "baseline", **options):
    for launch in make_plan(loaded(data), **options).launches:
        if launch.arm == arm and launch.pair == 0:
            return launch.cells[0]
    raise AssertionError(arm)


@pytest.mark.parametrize("path", sorted(set(MATTERS) - MATTERS_NOT_HERE))
def test_what_can_change_the_numbers_changes_the_id(loaded, small, path):
    before, after = _cell(loaded, small), _cell(loaded, _set(small, path, MATTERS[path]))
    assert after.cell_id != before.cell_id


@pytest.mark.parametrize("path", [*MATTERS_NOT, *MATTERS_NOT_HERE])
def test_what_cannot_does_not(loaded, small, path):
    value = (MATTERS_NOT | MATTERS)[path]
    before, after = _cell(loaded, small), _cell(loaded, _set(small, path, value))
    assert (after.cell_id, after.comparison_key) == (before.cell_id, before.comparison_key)


def test_arm_and_pair_are_in_the_id_and_not_in_the_comparison(loaded, small):
    small["arms"]["same"] = {}  # an A/A arm
    plan = make_plan(loaded(small))
    first = [launch.cells[0] for launch in plan.launches]
    assert len({cell.cell_id for cell in first}) == 9
    assert len({cell.comparison_key for cell in first}) == 1


def test_an_arms_own_server_is_in_its_id_and_not_in_the_comparison(loaded, small):
    before = _cell(loaded, small, "eagle3")
    for path, value in (
        ("arms.eagle3.speculative.num_draft_tokens", 3),
        ("arms.eagle3.environment", {"C": "3"}),
        ("arms.eagle3.arguments", "--page-size 1"),
        ("draft.path", "org/otherdraft"),
    ):
        after = _cell(loaded, _set(small, path, value), "eagle3")
        assert after.cell_id != before.cell_id
        assert after.comparison_key == before.comparison_key


def test_a_simulated_cell_is_another_and_so_is_one_at_another_speed(loaded, with_sim):
    real = _cell(loaded, with_sim)
    simulated = _cell(loaded, with_sim, simulated=True)
    slow = _cell(loaded, _set(with_sim, "sim.speed", 1), simulated=True)
    attached = _cell(loaded, with_sim, attach={"baseline": "http://h:1"})
    cells = (real, simulated, slow, attached)
    assert len({cell.cell_id for cell in cells}) == 4
    assert len({cell.comparison_key for cell in cells}) == 4


def test_cards_size_a_real_cell_and_are_not_asked_of_it(loaded, with_sim):
    """With the work the same, other cards make no other cell."""
    large = _set(with_sim, "measure.requests_per_slot", 1000)
    before = _cell(loaded, large)
    after = _cell(loaded, _set(large, "sim.hardware", "rtx-pro-6000-x8"))
    assert before.requests == after.requests
    assert before.cell_id == after.cell_id


def test_the_place_of_the_checkout_is_in_no_id(small, tmp_path):
    small["target"]["path"] = "./model"
    small["server"]["launcher"] = {"command": ["{python}", "../serve.py"]}
    plans = []
    for folder in (tmp_path / "a", tmp_path / "b"):
        folder.mkdir()
        (folder / "s.yaml").write_text(json.dumps(small))
        plans.append(make_plan(load_scenario(folder / "s.yaml")))
    servers = [plan.launches[0].server for plan in plans]
    assert servers[0].arguments[1] == str(tmp_path / "a/model")
    assert servers[0].command[1] == str(tmp_path / "serve.py")
    assert servers[0].arguments != servers[1].arguments
    ids = [[cell.cell_id for launch in plan.launches for cell in launch.cells] for plan in plans]
    assert ids[0] == ids[1]


def test_equal_servers_have_equal_keys(loaded, small):
    small["arms"]["same"] = {}
    keys: dict[str, set[str]] = {}
    for launch in make_plan(loaded(small)).launches:
        keys.setdefault(launch.arm, set()).add(launch.server_key)
    assert keys["baseline"] == keys["same"]
    assert len(keys["baseline"]) == 1
    assert keys["eagle3"].isdisjoint(keys["baseline"])


def _shuffled(data: Any, random: Any) -> Any:
    if isinstance(data, dict):
        keys = list(data)
        random.shuffle(keys)
        return {key: _shuffled(data[key], random) for key in keys}
    return data


@settings(max_examples=20, deadline=None)
@given(random=st.randoms(use_true_random=False))
def test_ids_do_not_depend_on_the_order_of_keys(tmp_path_factory, written, random):
    path = tmp_path_factory.getbasetemp() / "shuffled.yaml"
    ids = []
    for data in (written, _shuffled(written, random)):
        path.write_text(json.dumps(data))
        plan = make_plan(load_scenario(path))
        ids.append({cell.cell_id for launch in plan.launches for cell in launch.cells})
    assert ids[0] == ids[1]


def test_ids_are_stable_over_versions(loaded, small):
    """Old results are found by these: raise identity.FORMAT when they must change."""
    cell = _cell(loaded, small)
    assert (cell.cell_id, cell.comparison_key) == ("2d0f86bd95b61718", "621ce513f66b4d94")


def test_request_seeds_are_stable_31_bit_hashes():
    assert request_seed(20261129, "chat-2k", 0) == 1639923752
    seeds = {request_seed(1, name, index) for name in ("a", "b") for index in range(1000)}
    assert len(seeds) > 1990
    assert all(0 <= seed < 2**31 for seed in seeds)
    assert request_seed(1, "a", 0) != request_seed(2, "a", 0)
