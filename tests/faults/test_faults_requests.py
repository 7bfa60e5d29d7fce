"""Faults of requests and of what a server tells: counted, marked, and no reason to stop.

One run; each cell of each launch has a fault of its own.
"""

import json
import statistics

import pytest
from rehearsal import rehearse

from bench.model import CellStatus

FAULTS = {
    "baseline": {
        "stalls": "stall:p=0.15",
        "pauses": "stall:s=1:p=0.4",
        "errors": "error:p=0.4",
        "resets": "reset:p=0.4",
    },
    "refusing": {
        "byte 0": "reset:byte=0:p=0.7",
        "busy": "status-503:p=0.4",
        "refused": "status-400:p=0.4",
        "loops": "repeat",
    },
    "wrong": {
        "miscounts": "counters",
        "drifts": "drift:per_min=60",
        "clock": "clock-step:s=-7200",
        "collapses": "accept-collapse",
    },
    "strange": {
        "slower": "throttle:by=3",
        "nan": "nan",
        "long": "long-lines",
        "several": "error:p=0.2,reset:p=0.2,nan,stall:s=0.5:p=0.3",
    },
}
"""By arm, then by what a cell of it is called here: the faults of the first cell, the second …"""

CELLS = {
    name: (arm, str(place + 1))
    for arm, cells in FAULTS.items()
    for place, name in enumerate(cells)
}


def faults_of(cells):
    return [
        ":".join([fault, f"cell={place}"])
        for place, faults in enumerate(cells.values(), start=1)
        for fault in faults.split(",")
    ]


@pytest.fixture(scope="module")
def rehearsed(tmp_path_factory):
    arms = {arm: faults_of(cells) for arm, cells in FAULTS.items()}
    run = rehearse(
        tmp_path_factory.mktemp("requests"),
        arms,
        loads={"concurrency": [1, 2, 3, 4]},
        overrides=("sim.measure.requests_per_slot=7",),
    )
    return Cells(run)


class Cells:
    """The run's cells by their names here."""

    def __init__(self, rehearsal):
        self.rehearsal = rehearsal
        self.run = rehearsal.run

    def cell(self, name):
        return self.rehearsal.cell(*CELLS[name])

    def findings(self, name):
        return self.rehearsal.findings(*CELLS[name])

    def samples(self, name):
        return self.rehearsal.samples(*CELLS[name])

    def message(self, name, kind):
        (found,) = [
            f for f in self.run.findings if f.cell_id == self.cell(name).cell_id and f.kind == kind
        ]
        return found.message

    def steps(self, name):
        """The decoding steps of a cell, by the server's own account."""
        samples = self.samples(name)
        began_ns, ended_ns = samples[0].sent_ns, samples[-1].ended_ns
        (launch,) = self.rehearsal.launches(CELLS[name][0])
        truth = self.rehearsal.folder / f"logs/{launch.launch_id}.truth.jsonl"
        lines = map(json.loads, truth.read_text().splitlines())
        return [
            line
            for line in lines
            if line.get("step") == "decode" and began_ns <= line["start_ns"] <= ended_ns
        ]

    def log(self, name):
        return self.rehearsal.log(CELLS[name][0])


def test_every_cell_is_finished_and_every_request_counted(rehearsed):
    run = rehearsed.run
    assert {(m.arm, m.load) for m in run.measurements} == set(CELLS.values())
    assert len(run.measurements) == len(CELLS)
    assert all(launch.failure is None for launch in run.manifest.launches)
    for name in CELLS:
        m, samples = rehearsed.cell(name), rehearsed.samples(name)
        assert m.request_ct == sum(s.phase == "measure" for s in samples)
        assert m.ok_ct + m.failed_ct == m.request_ct
        assert sum(count for _, count in m.failures_by_kind) == m.failed_ct


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("stalls", "timeout"),
        ("errors", "server_error_in_stream"),
        ("byte 0", "disconnected"),
        ("busy", "http_error"),
        ("refused", "http_error"),
    ],
)
def test_a_failed_request_is_counted_by_its_kind_and_the_cell_marked(rehearsed, name, kind):
    cell = rehearsed.cell(name)
    assert {found for found, _ in cell.failures_by_kind} == {kind}
    assert 0 < cell.failed_ct < cell.request_ct
    assert ("error_rate", "invalid") in rehearsed.findings(name)
    assert cell.status is CellStatus.INVALID


def test_a_connection_that_breaks_at_any_byte_is_a_failure_or_came_after_the_end(rehearsed):
    for s in rehearsed.samples("resets"):
        assert s.status in {"ok", "disconnected", "incomplete_stream", "malformed_stream"}
        assert (s.error_message is None) == (s.status == "ok")
    assert rehearsed.cell("resets").failed_ct > 0


def test_what_the_server_said_is_told(rehearsed):
    assert "HTTP 503" in rehearsed.message("busy", "error_rate")
    assert "HTTP 400" in rehearsed.message("refused", "error_rate")
    assert "The model failed on request." in rehearsed.message("errors", "error_rate")


def test_a_pause_is_no_failure(rehearsed):
    assert rehearsed.cell("pauses").failed_ct == 0
    assert max(s.ended_ns - s.sent_ns for s in rehearsed.samples("pauses")) > 1e9


def test_a_loop_is_marked(rehearsed):
    assert ("output_degenerate", "suspect") in rehearsed.findings("loops")
    assert ("output_degenerate", "suspect") not in rehearsed.findings("slower")


def test_counters_that_disagree_are_marked(rehearsed):
    assert ("counters_disagree", "invalid") in rehearsed.findings("miscounts")
    assert not [kind for kind, _ in rehearsed.findings("slower") if kind == "counters_disagree"]


def test_nan_infinity_and_long_lines_cost_no_request(rehearsed):
    for name in ("nan", "long"):
        cell = rehearsed.cell(name)
        assert (cell.failed_ct, cell.accept_len_tok is None) == (0, False)
    assert max(len(line) for line in rehearsed.log("long").splitlines()) > 128 * 1024


def test_a_drift_slows_step_after_step(rehearsed):
    took = [step["end_ns"] - step["start_ns"] for step in rehearsed.steps("drifts")]
    quarter = len(took) // 4
    assert statistics.median(took[-quarter:]) > 1.5 * statistics.median(took[:quarter])


def test_a_step_of_the_servers_wall_clock_changes_no_figure(rehearsed):
    log = rehearsed.log("clock")
    stamps = sorted({line[1:14] for line in log.splitlines() if line.startswith("[20")})
    assert len(stamps) >= 2  # hours apart
    cell, calm = rehearsed.cell("clock"), rehearsed.cell("slower")
    assert cell.failed_ct == 0
    assert 0 < cell.window_s < 10 * calm.window_s
    assert all(s.sent_ns < s.ended_ns for s in rehearsed.samples("clock"))


def test_acceptance_that_collapses_shows_in_the_accept_length(rehearsed):
    collapsed, well = rehearsed.cell("collapses"), rehearsed.cell("slower")
    assert 1.0 <= collapsed.accept_len_tok < well.accept_len_tok - 0.5


def test_throttling_shows_in_the_step(rehearsed):
    slow_ms, calm_ms = (
        statistics.median(step["end_ns"] - step["start_ns"] for step in rehearsed.steps(name))
        for name in ("slower", "nan")
    )
    assert slow_ms > 2 * calm_ms
    assert rehearsed.cell("slower").cycle_ms > slow_ms / 1e6 / 2


def test_the_faults_are_told_in_log_and_command_line(rehearsed):
    (launch,) = rehearsed.rehearsal.launches("wrong")
    told = (
        "counters:cell=1,drift:per_min=60:cell=2,clock-step:s=-7200:cell=3,accept-collapse:cell=4"
    )
    assert launch.argv[launch.argv.index("--sim-faults") + 1] == told
    assert f"SIMULATED: faults on request: {told.replace(',', ', ')}" in rehearsed.log("clock")
