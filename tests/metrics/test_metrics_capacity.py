"""A capacity cell's numbers are those of the highest rate that met the limits."""

import pytest
from metrics_cells import healthy_samples, make_cell, point, run_summarize

from bench.metrics.capacity import PROBE_MET, PROBE_RATE, carried_rate, judged_probe, probes
from bench.metrics.series import group_series
from bench.model import Load

CAPACITY = make_cell(load=Load(kind="capacity", min_rate_per_s=1.0, max_rate_per_s=8.0))


def probed(*tried):
    """Telemetry of probes (rate, met, first due time, last response)."""
    return [
        p
        for rate, met, began_ns, ended_ns in tried
        for p in (
            point(PROBE_RATE, began_ns, rate, source="client"),
            point(PROBE_MET, ended_ns, float(met), source="client"),
        )
    ]


def test_probes_are_read_back_in_order():
    found = probes(group_series(probed((1.0, True, 10, 20), (8.0, False, 30, 40))))
    assert [(p.rate_per_s, p.met, p.began_ns, p.ended_ns) for p in found] == [
        (1.0, True, 10, 20),
        (8.0, False, 30, 40),
    ]
    assert probes(group_series([])) == []


def test_a_rate_above_one_that_failed_is_not_carried():
    assert carried_rate([(1.0, True), (64.0, True), (8.0, False), (4.0, True)]) == 4.0
    assert carried_rate([(1.0, False)]) is None


@pytest.mark.parametrize(("met", "rate"), [(True, 1.0), (False, None)])
def test_the_numbers_are_of_the_probe_that_is_judged(met, rate):
    samples = healthy_samples()
    half = sorted(s.due_ns for s in samples)[len(samples) // 2]
    first = [s for s in samples if s.due_ns < half]
    points = probed(
        (1.0, met, min(s.due_ns for s in samples), half - 1),
        (8.0, False, half, max(s.ended_ns for s in samples)),
    )
    measurement, _ = run_summarize(samples=samples, cell=CAPACITY, telemetry=points)
    assert measurement.capacity_rate_per_s == rate
    assert measurement.request_ct == sum(s.phase == "measure" for s in first)


def test_without_probes_no_rate_and_all_requests():
    measurement, _ = run_summarize(cell=CAPACITY)
    assert measurement.capacity_rate_per_s is None
    assert measurement.request_ct == 20
    assert judged_probe([]) is None
