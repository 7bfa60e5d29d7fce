"""Servers that others use as well, and arms on different ones."""

import dataclasses

import pytest
from metrics_cells import S, healthy_samples, healthy_telemetry, make_cell, point, run_summarize

from bench.metrics.foreign_traffic import RUNNING, most_in_flight
from bench.metrics.machines import different_machines
from bench.model import FindingKind, RequestStatus, Severity


def running(samples, *values):
    """Healthy telemetry in which so many requests run at each scrape inside the cell."""
    telemetry = [p for p in healthy_telemetry(samples) if p.name != RUNNING]
    inside = sorted({p.t_ns for p in telemetry})[1:-1]
    filled = [*values, *[2] * len(inside)]
    return telemetry + [point(RUNNING, t, filled[n]) for n, t in enumerate(inside)]


def kinds(telemetry, samples):
    _, findings = run_summarize(samples=samples, telemetry=telemetry)
    return {f.kind: f for f in findings}


def test_more_running_requests_than_ours_are_somebody_elses():
    samples = healthy_samples()
    finding = kinds(running(samples, 5, 5, 4), samples)[FindingKind.FOREIGN_TRAFFIC]
    assert finding.severity is Severity.SUSPECT
    assert "up to 5 requests at once, of which at most 2 were ours (3 of" in finding.message


@pytest.mark.parametrize("values", [(), (8,), (2, 2, 2)])
def test_one_reading_of_the_cell_before_is_nobody(values):
    samples = healthy_samples()
    assert FindingKind.FOREIGN_TRAFFIC not in kinds(running(samples, *values), samples)


def test_a_request_given_up_still_runs_for_a_while():
    samples = healthy_samples()
    assert most_in_flight(samples) == 2
    first, *others = samples
    gone = dataclasses.replace(
        first, status=RequestStatus.TIMEOUT, ended_ns=others[2].sent_ns - 2 * S
    )
    assert most_in_flight([gone, *others]) >= 2
    assert most_in_flight([]) == 0


def machines(url):
    cells = [(make_cell(), None), (make_cell(arm="eagle3"), None)]
    return list(different_machines(cells, {"baseline": "http://box-1:30000", "eagle3": url}))


def test_an_arm_on_another_host_is_suspect():
    (finding,) = machines("http://box-2:30000")
    assert (finding.severity, finding.arm) == (Severity.SUSPECT, "eagle3")
    assert finding.cell_id == make_cell(arm="eagle3").cell_id
    assert "ran on box-2, the baseline on box-1" in finding.message


def test_all_names_of_the_loopback_are_one_host():
    cells = [(make_cell(), None), (make_cell(arm="eagle3"), None)]
    for name in ("localhost", "[::1]", "127.0.0.2"):
        urls = {"baseline": "http://127.0.0.1:30000", "eagle3": f"http://{name}:30001"}
        (finding,) = different_machines(cells, urls)
        assert finding.severity is Severity.NOTE


def test_two_servers_of_one_host_are_a_note_and_one_server_is_nothing():
    (finding,) = machines("http://box-1:30001")
    assert (finding.severity, finding.cell_id) == (Severity.NOTE, None)
    assert machines("http://box-1:30000") == []
