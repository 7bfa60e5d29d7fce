import dataclasses

import pytest
from metrics_cells import MS, T0, S, healthy_samples, make_sample, point, run_summarize

from bench.metrics.hang import GpuSpan, is_spin_hang
from bench.metrics.series import gauge_mean, group_series
from bench.metrics.window import Window
from bench.model import FindingKind, RequestStatus, Severity

GIB = 2.0**30
SPINNING = GpuSpan(
    utilisation_pct=[100.0] * 24,
    power_w=[138.0, 142.0] * 12,
    memory_bytes=[31 * GIB] * 24,
    power_limit_w=600.0,
)
IDLE = dataclasses.replace(SPINNING, utilisation_pct=[0.0] * 24, power_w=[90.0] * 24)
WORKING = dataclasses.replace(SPINNING, power_w=[138.0] * 23 + [400.0])
LOADING = dataclasses.replace(SPINNING, memory_bytes=[n * GIB for n in range(24)])


@pytest.mark.parametrize(
    ("gpus", "silent_s", "hangs"),
    [
        ([SPINNING] * 2, 120, True),
        ([SPINNING] * 2, 10, False),
        ([SPINNING] * 7 + [IDLE], 120, True),
        ([SPINNING] + [IDLE] * 3, 120, False),
        ([SPINNING, WORKING], 120, False),
        ([SPINNING, LOADING], 120, False),
        ([IDLE] * 2, 120, False),
        ([dataclasses.replace(SPINNING, power_limit_w=None)] * 2, 120, False),
        ([dataclasses.replace(SPINNING, power_w=[])] * 2, 120, False),
        ([dataclasses.replace(SPINNING, utilisation_pct=[])] * 2, 120, False),
        ([dataclasses.replace(SPINNING, memory_bytes=[])] * 2, 120, True),
        ([dataclasses.replace(SPINNING, utilisation_pct=[100.0] * 23 + [97.0])] * 2, 120, True),
        ([dataclasses.replace(SPINNING, utilisation_pct=[100.0, 60.0] * 12)] * 2, 120, False),
        ([], 120, False),
    ],
)
def test_spinning_is_told_from_work_idleness_and_loading(gpus, silent_s, hangs):
    assert is_spin_hang(gpus, silent_s=silent_s) is hangs


def telemetry(*, power_w, until_s=60):
    return [
        point(name, T0 + k * S // 10, value, rank=gpu, source="gpu")
        for k in range(until_s * 10)
        for gpu in range(2)
        for name, value in [
            ("utilisation_pct", 100.0),
            ("power_w", power_w),
            ("power_limit_w", 600.0),
            ("memory_used_bytes", 31 * GIB),
        ]
    ]


def hung_samples():
    """Healthy ones, and one at the end that never gets a token and times out."""
    done = healthy_samples()
    begins_ms = (max(s.ended_ns for s in done) - T0) / MS
    stuck = make_sample(
        len(done),
        start_ms=begins_ms,
        events_ms=(),
        ended_ms=40_000.0,
        slot=0,
        output_tok=None,
        status=RequestStatus.TIMEOUT,
    )
    return [*done, stuck]


def kinds(findings):
    return {finding.kind: finding.severity for finding in findings}


def test_a_cell_whose_gpus_spun_without_a_token_is_invalid():
    _, findings = run_summarize(samples=hung_samples(), telemetry=telemetry(power_w=140.0), gpus=2)
    assert kinds(findings)[FindingKind.GPU_SPIN_HANG] is Severity.INVALID
    [spun] = [f for f in findings if f.kind is FindingKind.GPU_SPIN_HANG]
    assert "40 s" in spun.message


def test_readings_of_a_part_of_the_silence_prove_nothing():
    samples = hung_samples()
    early = [p for p in telemetry(power_w=140.0) if p.t_ns < samples[-1].sent_ns + 5 * S]
    _, findings = run_summarize(samples=samples, telemetry=early, gpus=2)
    assert FindingKind.GPU_SPIN_HANG not in kinds(findings)


def test_a_long_silence_of_gpus_that_work_is_no_spin():
    _, findings = run_summarize(samples=hung_samples(), telemetry=telemetry(power_w=500.0), gpus=2)
    assert FindingKind.GPU_SPIN_HANG not in kinds(findings)


def test_spinning_while_no_request_waits_is_the_servers_own_business():
    samples = healthy_samples()
    shifted = [
        dataclasses.replace(s, sent_ns=s.sent_ns + 60 * S, ended_ns=s.ended_ns + 60 * S)
        for s in healthy_samples()
    ]
    late = [
        dataclasses.replace(
            s,
            index=s.index + len(samples),
            due_ns=s.sent_ns,
            event_ns=tuple(t + 60 * S for t in s.event_ns),
        )
        for s in shifted
    ]
    _, findings = run_summarize(
        samples=[*samples, *late], telemetry=telemetry(power_w=140.0, until_s=90), gpus=2
    )
    assert FindingKind.GPU_SPIN_HANG not in kinds(findings)


# -- acceptance that collapses


def with_lengths(lengths):
    """Telemetry whose accept length is as given, one a second from the cell's start."""
    return [
        point("sglang:spec_accept_length", T0 + k * S, length) for k, length in enumerate(lengths)
    ]


@pytest.mark.parametrize(
    ("lengths", "found"),
    [
        ([2.3] * 12, False),
        ([2.3] * 2 + [1.0] * 6 + [2.3] * 2, True),
        ([2.3] * 2 + [1.0] * 4 + [2.3] * 4, False),
        ([1.0] * 10, False),
        ([2.3] + [1.0] * 9, True),
    ],
)
def test_acceptance_that_collapsed_for_a_while(lengths, found):
    _, findings = run_summarize(speculative=True, telemetry=with_lengths(lengths))
    assert (kinds(findings).get(FindingKind.ACCEPT_COLLAPSED) is Severity.SUSPECT) is found


def test_a_baseline_has_no_acceptance_to_lose():
    _, findings = run_summarize(telemetry=with_lengths([2.3] * 2 + [1.0] * 8))
    assert FindingKind.ACCEPT_COLLAPSED not in kinds(findings)


@pytest.mark.parametrize(
    "name", ["sglang:gen_throughput", "sglang:spec_accept_length", "sglang:num_requests_total"]
)
def test_what_is_no_state_is_never_averaged(name):
    window = Window(start_ns=T0, end_ns=T0 + S, rule="")
    series = group_series([point(name, T0, 5.0)])
    with pytest.raises(ValueError, match="must not be averaged"):
        gauge_mean(series, name, window)
