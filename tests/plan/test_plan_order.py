from __future__ import annotations

import pytest

from bench.model import BASELINE
from bench.plan import make_plan

CHAIN = {"algorithm": "EAGLE3", "num_steps": 3, "eagle_topk": 1, "num_draft_tokens": 4}


def _order(plan) -> list[list[str]]:
    return [
        [launch.arm for launch in plan.launches if launch.pair == pair]
        for pair in range(plan.pairs)
    ]


def test_one_arm_alternates(loaded, small):
    plan = make_plan(loaded(small))
    assert _order(plan) == [["baseline", "eagle3"], ["eagle3", "baseline"], ["baseline", "eagle3"]]
    assert [launch.ordinal for launch in plan.launches] == [0, 1, 2, 3, 4, 5]
    assert [launch.pair for launch in plan.launches] == [0, 0, 1, 1, 2, 2]


def test_each_of_two_arms_is_a_neighbour_of_the_baseline(loaded, small):
    small["arms"] = {"one": {"speculative": CHAIN}, "baseline": {}, "two": {"speculative": CHAIN}}
    plan = make_plan(loaded(small))
    assert plan.arms == ("baseline", "one", "two")
    assert _order(plan)[:2] == [["one", "baseline", "two"], ["two", "baseline", "one"]]


@pytest.mark.parametrize("arms", range(6))
def test_every_arm_is_launched_once_a_pair_with_the_baseline_in_the_middle(loaded, small, arms):
    names = [f"a{i}" for i in range(arms)]
    small["arms"] = {"baseline": {}, **{name: {"speculative": CHAIN} for name in names}}
    first, second, third = _order(make_plan(loaded(small)))
    assert sorted(first) == sorted([BASELINE, *names])
    assert abs(2 * first.index(BASELINE) - arms) <= 1
    assert second == first[::-1]
    assert third == first


def test_a_launch_measures_every_workload_and_load_lightest_first(loaded, small):
    small["loads"]["capacity"] = {"min_rate_per_s": 1, "max_rate_per_s": 8}
    small["loads"]["rates"] = [{"rate_per_s": 4}, {"rate_per_s": 0.5, "gaps": "constant"}]
    for launch in make_plan(loaded(small)).launches:
        assert [(cell.workload.name, cell.load.label) for cell in launch.cells] == [
            ("chat", "1"),
            ("chat", "8"),
            ("chat", "rate=0.5"),
            ("chat", "rate=4"),
            ("chat", "capacity"),
            ("long", "2"),
        ]
        assert {(cell.arm, cell.pair) for cell in launch.cells} == {(launch.arm, launch.pair)}


def test_every_cell_has_its_own_id_and_compared_ones_share_a_key(loaded, small):
    plan = make_plan(loaded(small))
    cells = [cell for launch in plan.launches for cell in launch.cells]
    assert len({cell.cell_id for cell in cells}) == len(cells) == 6 * 4
    keys = {}
    for cell in cells:
        keys.setdefault(cell.comparison_key, set()).add((cell.workload.name, cell.load.label))
    assert sorted(len(points) for points in keys.values()) == [1, 1, 1, 1]


def test_the_plan_carries_what_the_scenario_says(loaded, small):
    small["measure"] = {"practical_margin": 0.05, "pairs": 2, "steady_s": 7}
    small["workloads"]["long"]["cache"] = "shared-prefix:0.25"
    small["timeouts"] = {"request_s": 33}
    plan = make_plan(loaded(small))
    assert (plan.scenario, plan.question) == ("small", "Does it pay?")
    assert (plan.pairs, plan.practical_margin, plan.gpus) == (2, 0.05, 8)
    assert (plan.simulated, plan.speed) == (False, 1)
    cell = plan.launches[1].cells[-1]
    assert cell.arm_is_speculative
    assert (cell.seed, cell.steady_s) == (3, 7.0)
    assert (cell.slo.ttft_ms, cell.slo.tpot_ms) == (500.0, None)
    assert cell.timeouts.request_s == 33
    assert (cell.workload.cache, cell.workload.shared_prefix_share) == ("shared-prefix", 0.25)
    assert (cell.workload.sampling.temperature, cell.workload.sampling.top_p) == (0.5, 0.9)
    assert not plan.launches[0].cells[0].arm_is_speculative


def test_added_pairs_leave_the_others_as_they_were(loaded, small):
    before = make_plan(loaded(small))
    after = make_plan(loaded(small), add_pairs=2)
    assert after.pairs == 5
    assert after.launches[: len(before.launches)] == before.launches
    assert [launch.arm for launch in after.launches[6:]] == [
        "eagle3",
        "baseline",
        "baseline",
        "eagle3",
    ]


def test_files_are_where_this_checkout_has_them(loaded, small, tmp_path):
    (tmp_path / "p.jsonl").write_text("{}")
    small["workloads"]["chat"] |= {
        "dataset": "jsonl",
        "dataset_path": "./p.jsonl",
        "tokenizer_path": "./p.jsonl",
    }
    workload = make_plan(loaded(small)).launches[0].cells[0].workload
    assert workload.dataset_path == workload.tokenizer_path == str(tmp_path / "p.jsonl")
