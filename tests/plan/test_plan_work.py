from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.model import Api, Load, Sampling, Workload
from bench.plan import estimate, make_plan
from bench.plan.points import MAX_EVENT_PER_S
from bench.plan.throughput import expected, expected_output_tok_per_s_per_user
from bench.plan.work import work_of
from bench.scenario import load_scenario

SCENARIOS = Path(__file__).parents[2] / "scenarios"


def _cells(plan):
    return [cell for launch in plan.launches for cell in launch.cells]


def test_every_arm_of_a_comparison_does_the_same_work(loaded, with_sim):
    for simulated in (False, True):
        work: dict[str, set[tuple[int, int]]] = {}
        for cell in _cells(make_plan(loaded(with_sim), simulated=simulated)):
            key = cell.comparison_key
            work.setdefault(key, set()).add((cell.requests, cell.warmup_requests))
        assert {len(amounts) for amounts in work.values()} == {1}


def test_closed_work_from_the_stated_expectation(loaded, small):
    # 60 s x 1.3 x 50 tok/s / 128 tok = 30.5 requests a slot, and 7/8 of one where 8 slots end one
    # after the other
    first = make_plan(loaded(small)).launches[0].cells
    assert [(cell.load.label, cell.requests, cell.warmup_requests) for cell in first[:2]] == [
        ("1", 31, 1),
        ("8", 256, 8),
    ]
    small["measure"] = {"steady_s": 1, "requests_per_slot": 5, "warmup_requests_per_slot": 2}
    first = make_plan(loaded(small)).launches[0].cells
    assert [(cell.requests, cell.warmup_requests) for cell in first[:2]] == [(5, 2), (40, 16)]


def test_open_work_follows_the_rate_and_has_at_least_20_requests(loaded, small):
    small["loads"] = {
        "rates": [{"rate_per_s": 4}, {"rate_per_s": 0.1}],
        "capacity": {"min_rate_per_s": 1, "max_rate_per_s": 8},
    }
    cells = {cell.load.label: cell for cell in make_plan(loaded(small)).launches[0].cells}
    assert cells["rate=4"].requests == 240
    assert cells["rate=4"].warmup_requests == 20
    assert cells["rate=0.1"].requests == 20
    assert cells["capacity"].requests == 480


CLOSED = Workload(
    name="w",
    api=Api.CHAT,
    dataset="generated",
    max_output_tok=100,
    sampling=Sampling(temperature=0.0),
)


@settings(max_examples=50, deadline=None)
@given(
    concurrency=st.integers(1, 256),
    steady_s=st.floats(0.1, 600),
    per_slot=st.integers(1, 50),
    rates=st.lists(st.floats(0.1, 500), min_size=1, max_size=4),
)
def test_closed_work_keeps_the_fastest_arm_busy_for_the_whole_window(
    concurrency, steady_s, per_slot, rates
):
    work = work_of(
        Load(kind="closed", concurrency=concurrency),
        CLOSED,
        steady_s=steady_s,
        requests_per_slot=per_slot,
        warmup_requests_per_slot=1,
        expected_tok_per_s_per_user=rates,
    )
    each, rest = divmod(work.requests, concurrency)
    assert rest == 0
    assert each >= per_slot
    window_requests = (
        each - 1 + 1 / concurrency
    )  # from the last warm-up's end to the first idle slot
    assert window_requests * CLOSED.max_output_tok / max(rates) >= steady_s


def test_cards_tell_what_a_user_gets(loaded, with_sim):
    """The worked example: 8 RTX PRO 6000, one user, 2k of context (docs/simulator.md)."""
    plan = make_plan(load_scenario(SCENARIOS / "kimi.yaml"), simulated=True)
    servers = {launch.arm: launch.server for launch in plan.launches}
    workload, load = plan.launches[0].cells[0].workload, plan.launches[0].cells[0].load
    assert load.label == "1"
    told = {
        arm: expected_output_tok_per_s_per_user(server, load, workload)
        for arm, server in servers.items()
    }
    assert told["baseline"] == pytest.approx(89, abs=4)
    assert told["eagle3-as-trained"] == pytest.approx(56, abs=3)
    assert told["eagle3-rewired"] == pytest.approx(87, abs=5)


def test_more_users_get_less_each_and_more_together(loaded, with_sim):
    plan = make_plan(loaded(with_sim), simulated=True)
    server, workload = plan.launches[0].server, plan.launches[0].cells[0].workload
    told = [
        expected_output_tok_per_s_per_user(
            server, Load(kind="closed", concurrency=users), workload
        )
        for users in (1, 4, 16, 64)
    ]
    assert told == sorted(told, reverse=True)
    together = [users * rate for users, rate in zip((1, 4, 16, 64), told, strict=True)]
    assert together == sorted(together)


def test_an_open_load_has_as_many_in_flight_as_its_rate_keeps_there(loaded, with_sim):
    plan = make_plan(loaded(with_sim), simulated=True)
    server, workload = plan.launches[0].server, plan.launches[0].cells[0].workload
    told = expected(server, Load(kind="open", rate_per_s=4.0), workload)
    assert told is not None
    request_s = workload.max_output_tok / told.output_tok_per_s_per_user
    assert told.batch == pytest.approx(4.0 * request_s, rel=0.1)


def test_nothing_is_expected_without_cards(loaded, small):
    launch = make_plan(loaded(small)).launches[0]
    cell = launch.cells[0]
    assert expected_output_tok_per_s_per_user(launch.server, cell.load, cell.workload) is None


def test_the_speed_keeps_the_events_within_what_a_worker_can_do(loaded, with_sim):
    with_sim["loads"] = {"concurrency": [1]}
    light = make_plan(loaded(with_sim), simulated=True, only=["workload=chat"])
    assert light.speed == 10
    with_sim["loads"] = {"concurrency": [1, 16]}
    heavy = make_plan(loaded(with_sim), simulated=True)
    assert 1 <= heavy.speed < 10
    launch = heavy.launches[0]
    busiest = max(
        told.event_per_s
        for cell in launch.cells
        if (told := expected(launch.server, cell.load, cell.workload))
    )
    assert busiest * heavy.speed <= MAX_EVENT_PER_S
    with_sim["sim"]["speed"] = 1
    assert make_plan(loaded(with_sim), simulated=True).speed == 1


# ------------------------------------------------------------------------------------ estimates


def test_a_real_launch_counts_twelve_minutes(loaded, small):
    plan = make_plan(loaded(small))
    cost = estimate(plan)
    assert (cost.cells, cost.launches) == (24, 6)
    assert cost.hours > 6 * 12 / 60
    assert cost.gpu_hours == pytest.approx(8 * cost.hours)
    small["measure"] = {"steady_s": 600}
    assert estimate(make_plan(loaded(small))).hours > cost.hours


def test_attached_servers_need_no_start(loaded, small):
    cost = estimate(make_plan(loaded(small), attach={"": "http://h:1", "eagle3": "http://h:2"}))
    started = estimate(make_plan(loaded(small), only=["pair=0"]))
    assert (started.launches, started.cells) == (2, cost.cells)
    assert started.hours - cost.hours == pytest.approx(2 * 12 / 60)


def test_simulation_holds_no_gpu_and_takes_less(loaded, with_sim):
    cost = estimate(make_plan(loaded(with_sim), simulated=True))
    assert cost.gpu_hours == 0
    assert 0 < cost.hours < 0.1


def test_capacity_counts_its_probes(loaded, small):
    small["loads"] = {"capacity": {"min_rate_per_s": 1, "max_rate_per_s": 8, "probes": 1}}
    one = estimate(make_plan(loaded(small), only=["pair=0", "arm=baseline", "load=capacity"]))
    small["loads"]["capacity"]["probes"] = 5
    five = estimate(make_plan(loaded(small), only=["pair=0", "arm=baseline", "load=capacity"]))
    assert five.hours > one.hours + 4 * 60 / 3600


def test_the_main_scenario_fits_an_afternoon_and_its_simulation_two_minutes():
    kimi = load_scenario(SCENARIOS / "kimi.yaml")
    assert estimate(make_plan(kimi)).hours <= 4
    cells = _cells(make_plan(kimi))
    assert {cell.load.label for cell in cells} == {"1", "8", "64"}
    assert {cell.workload.input_tok for cell in cells} == {2048, 32768}
    for cell in cells:
        assert cell.steady_s >= 60
        assert cell.requests >= 5 * cell.load.concurrency
    assert estimate(make_plan(kimi, simulated=True)).hours * 3600 < 120
    quick = load_scenario(SCENARIOS / "quick.yaml")
    assert estimate(make_plan(quick, simulated=True)).hours * 3600 < 30
