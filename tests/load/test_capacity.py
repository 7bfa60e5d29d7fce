from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scripted import client_of, make_cell, serve

from bench.load.capacity import next_rate, probe_cell
from bench.metrics.capacity import carried_rate
from bench.model import Load, RequestStatus, Slo


def load(low: float = 1.0, high: float = 64.0, probes: int = 8) -> Load:
    return Load(kind="capacity", min_rate_per_s=low, max_rate_per_s=high, probes=probes)


def search(true_capacity: float, of: Load):
    tried = []
    while (rate := next_rate(of, tried)) is not None:
        tried.append((rate, rate <= true_capacity))
    return tried


@settings(deadline=None, max_examples=100)
@given(st.floats(1.0, 63.0), st.integers(3, 12))
def test_the_search_closes_in_on_the_true_capacity(true_capacity, probes):
    tried = search(true_capacity, load(probes=probes))
    assert len(tried) == probes
    found = carried_rate(tried)
    assert found <= true_capacity
    assert true_capacity / found <= 64.0 ** (1 / 2 ** (probes - 2)) * (1 + 1e-9)


def test_a_range_without_any_capacity_costs_one_probe():
    tried = search(0.5, load())
    assert tried == [(1.0, False)]
    assert carried_rate(tried) is None


def test_a_range_that_is_carried_whole_costs_two():
    tried = search(100.0, load())
    assert tried == [(1.0, True), (64.0, True)]
    assert carried_rate(tried) == 64.0


def test_a_rate_above_a_refused_one_is_not_believed():
    assert carried_rate([(1.0, True), (64.0, True), (8.0, False), (4.0, True)]) == 4.0


def test_a_probe_lasts_as_long_as_a_window_must():
    probe = probe_cell(make_cell(load=load(), steady_s=30.0), 4.0)
    assert (probe.load.kind, probe.load.label) == ("open", "rate=4")
    assert probe.requests == 120
    assert probe.comparison_key == make_cell().comparison_key


async def test_a_search_against_a_server():
    cell = make_cell(load=load(20.0, 60.0, probes=3), steady_s=0.4, slo=Slo(ttft_ms=60_000.0))
    async with serve() as served, client_of(served) as client:
        got = await client.run_cell(cell, model_name="m")
    assert [s.index for s in got.samples] == list(range(len(got.samples)))
    assert {s.status for s in got.samples} == {RequestStatus.OK}
    assert len({s.prompt_sha256 for s in got.samples}) == len(got.samples)
    rates = [p.value for p in got.telemetry if p.name == "probe_rate_per_s"]
    assert rates == [20.0, 60.0]
    assert [p.value for p in got.telemetry if p.name == "probe_met"] == [1.0, 1.0]


@pytest.mark.parametrize("probes", [1, 2])
def test_few_probes(probes):
    assert len(search(10.0, load(probes=probes))) == probes
