from __future__ import annotations

import json

from scripted import make_cell, make_workload

from bench.load.work import plan_requests
from bench.model import Load


def plan(cell=None, **options):
    return plan_requests(cell or make_cell(), model_name="m", **options)


def caps(planned):
    return [json.loads(request.body)["max_completion_tokens"] for request in planned]


def test_warm_up_comes_first_with_caps_that_set_slots_out_of_step():
    cell = make_cell(
        load=Load(kind="closed", concurrency=20),
        warmup_requests=40,
        requests=3,
        workload=make_workload(max_output_tok=800),
    )
    planned = plan(cell)
    assert [r.phase for r in planned] == ["warmup"] * 40 + ["measure"] * 3
    first = caps(planned)[:20]
    assert sorted(first) == list(range(40, 801, 40))
    assert first != sorted(first)
    assert caps(planned)[20:] == [800] * 23


def test_bodies_are_the_same_bytes_in_every_arm_and_pair():
    a = make_cell(cell_id="a", arm="baseline")
    b = make_cell(cell_id="b", arm="eagle", pair=2, arm_is_speculative=True)
    assert plan(a) == plan(b)


def test_another_seed_gives_other_work():
    assert {r.body for r in plan()}.isdisjoint({r.body for r in plan(make_cell(seed=8))})


def test_the_same_requests_stand_behind_another_load_under_another_salt():
    one = plan()
    two = plan(make_cell(comparison_key="k2", load=Load(kind="closed", concurrency=4)))
    assert [(r.seed, r.prompt_id) for r in one] == [(r.seed, r.prompt_id) for r in two]
    assert {r.prompt_sha256 for r in one}.isdisjoint({r.prompt_sha256 for r in two})


def test_closed_loads_have_no_schedule_and_open_ones_do():
    assert {request.offset_ns for request in plan()} == {None}
    opened = make_cell(
        load=Load(kind="open", rate_per_s=5.0), workload=make_workload(cache="primed")
    )
    planned = plan(opened)
    offsets = [request.offset_ns for request in planned if not request.is_priming]
    assert offsets == sorted(offsets)
    assert offsets[0] > 0
    assert set(caps(planned)) == {1, 16}


def test_counting_goes_on_from_a_first_index():
    first, then = plan(), plan(first_index=8)
    assert [request.index for request in then] == list(range(8, 16))
    assert {r.prompt_sha256 for r in first}.isdisjoint({r.prompt_sha256 for r in then})
    assert {r.seed for r in first}.isdisjoint({r.seed for r in then})
