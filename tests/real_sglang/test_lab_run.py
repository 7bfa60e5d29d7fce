"""The real SGLang, launched and measured by `bench run scenarios/lab.yaml`."""

import json
import socket
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest
from lab_runs import SECRET, processes_in

from bench.model import BASELINE, CellStatus, FindingKind, Severity
from bench.sglang.log_lines import DecodeLine, parse_batch_line

pytestmark = [pytest.mark.sglang, pytest.mark.timeout(1800)]

EAGLE3 = "eagle3-3-1-4"
ARMS = [BASELINE, EAGLE3]
POINTS = [("chat", "1"), ("chat", "4"), ("completions", "1"), ("generate", "1")]
APIS = ["chat", "completions", "generate"]
BUSY_MACHINE = {
    FindingKind.CLIENT_LATE,
    FindingKind.CLIENT_SATURATED,
    FindingKind.CONCURRENCY_NOT_REACHED,
    FindingKind.SERVER_QUEUED,
    FindingKind.WINDOW_TOO_SHORT,
    FindingKind.DRIFTING,
    FindingKind.CYCLE_DISAGREES,
    FindingKind.FEW_REQUESTS,
    FindingKind.READS_COALESCED,  # client and server share the cores
}
"""What other work on the same cores may bring about."""
EXPECTED = {
    FindingKind.NO_REPEATS,
    FindingKind.LENGTHS_CENSORED,
    FindingKind.CONFIG_DIFFERS_BESIDE_SPECULATION,
    FindingKind.STREAM_COALESCED,
    FindingKind.CYCLE_DISAGREES,
    FindingKind.FEW_REQUESTS,
    FindingKind.READS_COALESCED,  # client and server share the cores
}
"""Notes that this scenario may well have."""


def cell(table, workload, load, arm=EAGLE3):
    return table[(table.arm == arm) & (table.workload == workload) & (table.load == load)]


@pytest.fixture(params=POINTS, ids="-".join)
def point(request):
    return request.param


@pytest.fixture(params=ARMS)
def arm(request):
    return request.param


@pytest.fixture
def requests(lab_run, point):
    """All requests of a speculative cell, warm-up included."""
    return cell(lab_run.samples, *point)


@pytest.fixture
def measurement(lab_run, point):
    return cell(lab_run.results.measurements, *point).iloc[0]


# ---------------------------------------------------------------------------------- the whole run


def test_it_answers(lab_run):
    statuses = set(lab_run.results.measurements.status)
    assert lab_run.exit_code == (0 if CellStatus.VALID in statuses else 4), lab_run.progress


def test_every_cell_is_measured_and_every_comparison_made(lab_run):
    measured = lab_run.results.measurements[["arm", "workload", "load"]].itertuples(index=False)
    assert sorted(map(tuple, measured)) == sorted((a, *at) for a in ARMS for at in POINTS)
    compared = lab_run.results.comparisons
    assert list(compared.arm) == [EAGLE3] * len(POINTS)
    assert sorted(zip(compared.workload, compared.load, strict=True)) == sorted(POINTS)
    assert compared.speedup.notna().all()
    assert compared.verdict.isna().all()  # one pair has none


def test_every_request_ends_well(lab_run):
    assert set(lab_run.samples.status) == {"ok"}
    measured = lab_run.samples[lab_run.samples.phase == "measure"]
    assert measured.groupby(["arm", "workload", "load"]).size().min() >= 24


def test_only_a_busy_machine_makes_cells_suspect(lab_run):
    suspect = lab_run.findings(Severity.SUSPECT)
    assert set(suspect.kind) <= BUSY_MACHINE, list(suspect.message)
    invalid = lab_run.findings(Severity.INVALID)
    assert set(invalid.kind) <= {FindingKind.CLIENT_SATURATED}, list(invalid.message)


def test_no_other_note_than_expected(lab_run):
    notes = lab_run.findings(Severity.NOTE)
    assert set(notes.kind) <= EXPECTED, list(notes.message)


def test_the_printed_answer_is_the_stored_one(lab_run):
    assert lab_run.answer["run"] == lab_run.folder.name
    assert lab_run.answer["simulated"] is False
    printed = {(c["arm"], c["workload"], c["load"]): c for c in lab_run.answer["cells"]}
    for stored in lab_run.results.measurements.itertuples():
        shown = printed[stored.arm, stored.workload, stored.load]
        assert shown["output_tok_per_s"] == stored.output_tok_per_s
        assert shown["status"] == stored.status
    shown_again = subprocess.run(
        [Path(sys.executable).with_name("bench"), "show", "--out", lab_run.out, "--json"],
        capture_output=True,
        check=True,
    )
    assert json.loads(shown_again.stdout) == lab_run.answer


# ------------------------------------------------------------------------------ the configuration


def test_the_speculative_settings_are_read_back(lab_run):
    speculative = dict(lab_run.launch(EAGLE3).effective.speculative)
    triple = ("algorithm", "num_steps", "eagle_topk", "num_draft_tokens")
    assert [speculative[name] for name in triple] == ["EAGLE3", 3, 1, 4]
    assert speculative["draft_model_path"].endswith("tests/lab/models/tiny-eagle3")
    assert dict(lab_run.launch(BASELINE).effective.speculative)["algorithm"] is None


def test_the_other_settings_are_read_back(lab_run, arm):
    effective = lab_run.launch(arm).effective
    other = dict(effective.other)
    assert (effective.engine, effective.version) == ("sglang", "0.5.23")
    assert not effective.simulated
    assert effective.max_total_num_tokens == 32768
    assert effective.decode_graph_batch_sizes == ()
    assert (other["dtype"], other["max_running_requests"], other["device"]) == (
        "float32",
        "16",
        "cpu",
    )


def test_what_differs_beside_speculation_is_told(lab_run):
    notes = lab_run.findings(Severity.NOTE)
    told = notes[notes.kind == FindingKind.CONFIG_DIFFERS_BESIDE_SPECULATION]
    assert list(told.message) == [
        f"--disable-overlap-schedule: false in the baseline, true in {EAGLE3}."
    ]


def test_engine_columns(lab_run):
    assert set(lab_run.samples.engine) == {"sglang"}
    assert set(lab_run.results.measurements.engine_version) == {"0.5.23"}


# -------------------------------------------------------------------------------------- same work


def by_request(lab_run, arm):
    rows = lab_run.samples[lab_run.samples.arm == arm]
    return rows.set_index(["workload", "load", "index"]).sort_index()


def test_both_arms_get_the_same_requests(lab_run):
    baseline, eagle3 = by_request(lab_run, BASELINE), by_request(lab_run, EAGLE3)
    for name in ("prompt_id", "prompt_sha256", "seed", "prompt_tok", "phase"):
        assert baseline[name].equals(eagle3[name]), name
    assert baseline.prompt_sha256.is_unique


def test_both_arms_write_the_same_at_temperature_0(lab_run, point):
    baseline = by_request(lab_run, BASELINE).loc[point]
    eagle3 = by_request(lab_run, EAGLE3).loc[point]
    assert baseline.text.str.len().min() > 0
    different = [i for i in baseline.index if baseline.text[i] != eagle3.text[i]]
    assert different == []
    assert baseline.text_sha256.equals(eagle3.text_sha256)
    assert baseline.output_tok.equals(eagle3.output_tok)
    assert baseline.finish_reason.equals(eagle3.finish_reason)


# ------------------------------------------------------------------------------------- acceptance


def test_steps_of_the_histogram_are_the_verify_steps(requests):
    assert (requests.spec_correct_drafts_histogram.map(sum) == requests.spec_verify_ct).all()


def test_drafts_of_the_histogram_are_the_correct_drafts(requests):
    weighted = requests.spec_correct_drafts_histogram.map(
        lambda histogram: sum(k * n for k, n in enumerate(histogram))
    )
    assert (weighted == requests.spec_num_correct_drafts).all()
    assert requests.spec_correct_drafts_histogram.map(len).max() == 4  # of 0 … 3 drafts


def test_no_more_tokens_than_accepted_verified_and_prefilled(requests):
    made = requests.spec_num_correct_drafts + requests.spec_verify_ct + 1
    assert (requests.output_tok <= made).all()
    assert (requests.output_tok > made - 4).all()  # the last step may be cut short


def test_each_step_proposes_a_chain_of_three(requests):
    assert (requests.spec_num_proposed_drafts == 3 * requests.spec_verify_ct).all()


def test_events_are_verify_steps(requests):
    events = requests.event_ns_delta.map(len)
    steps = requests.spec_verify_ct + 1  # the first event is the prefill's
    assert (events <= steps).all()
    assert events.sum() >= 0.8 * steps.sum()  # a busy server merges a few


def test_the_measured_acceptance_is_the_requests(requests, measurement):
    measured = requests[requests.phase == "measure"]
    verify, correct = measured.spec_verify_ct.sum(), measured.spec_num_correct_drafts.sum()
    assert measurement.spec_verify_ct == verify
    assert measurement.spec_num_correct_drafts == correct
    assert measurement.accept_len_tok == pytest.approx(1 + correct / verify)
    assert measurement.accept_len_server_tok == pytest.approx(measured.output_tok.sum() / verify)
    assert measurement.accept_rate == pytest.approx(correct / (3 * verify))
    assert 1 < measurement.accept_len_tok < 4
    positions = list(measurement.accept_at_position)
    assert all(a >= b for a, b in pairwise([1.0, *positions]))
    assert sum(positions) == pytest.approx(measurement.accept_len_tok - 1)


def test_the_two_accept_lengths_differ_by_prefill_and_stop_alone(requests, measurement):
    measured = requests[requests.phase == "measure"]
    apart = measurement.accept_len_server_tok - measurement.accept_len_tok
    per_request = len(measured) / measured.spec_verify_ct.sum()
    assert -3 * per_request < apart <= per_request


def test_the_baseline_reports_no_acceptance(lab_run, point):
    baseline = cell(lab_run.samples, *point, arm=BASELINE)
    assert baseline.spec_verify_ct.isna().all()
    measured = cell(lab_run.results.measurements, *point, arm=BASELINE).iloc[0]
    assert measured[["accept_len_tok", "accept_len_server_tok", "accept_rate"]].isna().all()


def test_an_event_of_the_baseline_is_a_token(lab_run, point):
    baseline = cell(lab_run.samples, *point, arm=BASELINE)
    events = baseline.event_ns_delta.map(len)
    assert (events <= baseline.output_tok).all()
    assert events.sum() >= 0.8 * baseline.output_tok.sum()
    assert (baseline.event_tok_delta.map(sum) == baseline.output_tok).all()


# ---------------------------------------------------------------------------- the server's counts


def rise(lab_run, requests, name):
    """A counter's last reading of a cell less its first; both were taken while it was idle."""
    told = lab_run.telemetry
    readings = told[(told.cell_id == requests.cell_id.iloc[0]) & (told.name == name)]
    values = readings.sort_values("t_ns").value
    return values.iloc[-1] - values.iloc[0]


def test_the_counters_of_the_server_are_the_sums_of_its_answers(lab_run, point, arm):
    requests = cell(lab_run.samples, *point, arm=arm)
    sums = {
        "sglang:num_requests_total": len(requests),
        "sglang:prompt_tokens_total": requests.prompt_tok.sum(),
        "sglang:generation_tokens_total": requests.output_tok.sum(),
    }
    assert {name: rise(lab_run, requests, name) for name in sums} == sums


def test_the_counted_verify_steps_are_the_requests(lab_run, requests):
    verified = rise(lab_run, requests, "sglang:spec_verify_calls_total")
    assert verified == requests.spec_verify_ct.sum()
    generated = rise(lab_run, requests, "sglang:generation_tokens_total")
    ours = requests.output_tok.sum() / requests.spec_verify_ct.sum()
    assert generated / verified == pytest.approx(ours)


def test_the_log_shows_the_same_accept_length(lab_run):
    lines = map(parse_batch_line, lab_run.log(EAGLE3).splitlines())
    ticks = [line.accept_len_tok for line in lines if isinstance(line, DecodeLine)]
    requests = lab_run.samples[lab_run.samples.arm == EAGLE3]
    ours = 1 + requests.spec_num_correct_drafts.sum() / requests.spec_verify_ct.sum()
    assert len(ticks) > 20
    assert sum(ticks) / len(ticks) == pytest.approx(ours, rel=0.1)


# -------------------------------------------------------------------------------------- the APIs


@pytest.mark.parametrize("api", APIS)
def test_each_api_tells_what_it_can(lab_run, arm, api):
    requests = cell(lab_run.samples, api, "1", arm=arm)
    assert set(requests.token_source) == {"server"}
    assert (requests.event_tok_delta.map(sum) == requests.output_tok).all()
    assert requests.cached_tok.notna().all()
    assert not requests.tokens_before_first_event.any()
    assert set(requests.finish_reason) <= {"length", "stop"}
    assert (requests.queue_ns.notna() == (api == "generate")).all()
    assert (requests.num_retractions.notna() == (api == "generate")).all()


@pytest.mark.parametrize("name", ["first_byte_ns", "first_visible_ns", "ended_ns"])
def test_times_are_in_order(lab_run, name):
    assert (lab_run.samples[name] >= lab_run.samples.sent_ns).all()
    assert (lab_run.samples[name] <= lab_run.samples.ended_ns).all()


def test_cold_prompts_find_no_prefix_but_the_templates(lab_run):
    assert lab_run.samples.cached_tok.max() < 0.1 * lab_run.samples.prompt_tok.min()


# ----------------------------------------------------------------------------------- the clean end


def test_both_servers_end_by_themselves(lab_run):
    assert [launch.arm for launch in lab_run.launches] == ARMS
    for launch in lab_run.launches:
        assert launch.failure is None
        assert launch.exit_code == 0
        assert launch.started_ns < launch.ready_ns < launch.stopped_ns


def test_their_ports_are_closed(lab_run):
    for launch in lab_run.launches:
        port = int(launch.argv[launch.argv.index("--port") + 1])
        with socket.socket() as probe:
            assert probe.connect_ex(("127.0.0.1", port)) != 0


def test_no_process_is_left(lab_run):
    assert [process.cmdline() for process in processes_in(lab_run.out)] == []


def test_a_process_that_is_left_would_be_seen(tmp_path):
    with subprocess.Popen(["sleep", "60"], cwd=tmp_path) as left:
        assert [process.pid for process in processes_in(tmp_path)] == [left.pid]
        left.kill()


# -------------------------------------------------------------------------------- what is stored


def test_the_logs_are_kept(lab_run, arm):
    text = lab_run.log(arm)
    assert "The server is fired up and ready to roll!" in text
    assert "server_args=" in text
    assert any(isinstance(parse_batch_line(line), DecodeLine) for line in text.splitlines())


def test_no_secret_is_stored(lab_run):
    stored = [path for path in lab_run.out.rglob("*") if path.is_file()]
    assert len(stored) >= 6
    assert [path for path in stored if SECRET.encode() in path.read_bytes()] == []
