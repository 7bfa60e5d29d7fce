"""Every check fires on the smallest example of its trouble, and none on a healthy cell."""

import dataclasses

import pytest
from metrics_cells import (
    MS,
    STEP_MS,
    STEPS,
    changed,
    closed,
    healthy_samples,
    healthy_telemetry,
    make_cell,
    make_client,
    make_effective,
    make_sample,
    make_workload,
    run_summarize,
    with_counter,
    with_series,
)

from bench.metrics import checks
from bench.model import (
    CellStatus,
    Finding,
    FindingKind,
    Load,
    RequestStatus,
    Severity,
    TokenSource,
)

K = FindingKind
NOTE, SUSPECT, INVALID = Severity.NOTE, Severity.SUSPECT, Severity.INVALID


def found(**given):
    _, findings = run_summarize(**given)
    return {f.kind: f.severity for f in findings}


@pytest.mark.parametrize("speculative", [False, True])
@pytest.mark.parametrize("gpus", [0, 2])
def test_a_healthy_cell_has_no_finding(speculative, gpus):
    measurement, findings = run_summarize(speculative=speculative, gpus=gpus)
    assert findings == ()
    assert measurement.status is CellStatus.VALID


def test_every_kind_has_advice():
    assert set(checks.ADVICE) == set(FindingKind)
    assert all(text.endswith(".") and len(text) > 20 for text in checks.ADVICE.values())


def test_findings_carry_cell_arm_advice_and_figures():
    _, findings = run_summarize(client=make_client(send_late_p99_ms=900.0))
    (late,) = findings
    assert (late.cell_id, late.arm) == ("baseline-chat-2-p0", "baseline")
    assert late.advice == checks.ADVICE[K.CLIENT_LATE]
    assert "900.0 ms" in late.message


# -- client and load


@pytest.mark.parametrize(
    ("client", "expected"),
    [
        ({"cpu_share": 0.95}, {K.CLIENT_SATURATED: INVALID}),
        ({"cpu_share": 0.95, "workers": 2}, {}),
        ({"loop_lag_p99_ms": 21.0}, {K.CLIENT_SATURATED: SUSPECT}),
        ({"loop_lag_p99_ms": 101.0}, {K.CLIENT_SATURATED: INVALID}),
        (
            {
                "send_late_p99_ms": None,
                "send_late_p50_ms": None,
                "loop_lag_p99_ms": None,
                "cpu_share": None,
            },
            {},
        ),
    ],
)
def test_client(client, expected):
    assert found(client=make_client(**client)) == expected


def test_a_slot_that_waits_a_hundredth_of_a_request_is_late():
    measurement, _ = run_summarize()
    limit_ms = measurement.e2e_ms.p50 / 100
    for which, share in (("send_late_p50_ms", 1), ("send_late_p99_ms", 10)):
        late = make_client(**{which: limit_ms * share * 1.01})
        in_time = make_client(**{which: limit_ms * share * 0.99})
        assert found(client=late) == {K.CLIENT_LATE: SUSPECT}
        assert found(client=in_time) == {}


@pytest.mark.parametrize(
    ("client", "speed", "late"),
    [
        ({"send_late_p99_ms": 5.1}, 1, True),
        ({"send_late_p99_ms": 4.9}, 1, False),
        ({"send_late_p99_ms": 40.0}, 10, False),
        ({"send_late_p50_ms": 5.1, "send_late_p99_ms": 40.0}, 10, True),  # ttft is 100 ms
        ({"send_late_p50_ms": 4.9, "send_late_p99_ms": 40.0}, 10, False),
    ],
)
def test_open_arrivals_are_late_by_the_worlds_clock_or_beside_the_first_token(client, speed, late):
    cell = make_cell(load=Load(kind="open", rate_per_s=2.0))
    measurement, findings = run_summarize(cell=cell, client=make_client(**client), speed=speed)
    assert measurement.ttft_ms.p50 == 100
    assert (K.CLIENT_LATE in {f.kind for f in findings}) is late


def test_a_fast_clock_stretches_the_clients_own_lag():
    slow = make_client(loop_lag_p99_ms=150.0)
    assert found(client=slow, speed=10) == {}
    assert set(found(client=slow)) == {K.CLIENT_SATURATED}


@pytest.mark.parametrize(
    ("client", "starved"),
    [
        ({"cpu_share": 0.01}, True),
        ({"cpu_share": 0.6, "workers": 2}, True),
        ({"cpu_share": 0.6}, False),
        ({"cpu_share": None}, False),
    ],
)
def test_a_client_that_got_no_processor_is_not_said_to_have_used_it(client, starved):
    _, findings = run_summarize(client=make_client(loop_lag_p99_ms=50.0, **client))
    [saturated] = [f for f in findings if f.kind is K.CLIENT_SATURATED]
    assert ("gave it no processor time" in saturated.message) is starved
    assert "lagged 50.0 ms" in saturated.message


def test_no_client_statistics_are_no_finding():
    assert found(client=None) == {}


def test_no_window():
    samples = [s for s in healthy_samples() if s.slot == 0]
    measurement, findings = run_summarize(samples=samples)
    assert {f.kind: f.severity for f in findings} == {K.NO_WINDOW: INVALID}
    assert measurement.status is CellStatus.INVALID
    assert measurement.output_tok_per_s is None
    assert measurement.window_rule.startswith("closed")
    assert measurement.cycle_ms is None
    assert measurement.ttft_ms.p50 == 100


def test_window_too_short():
    assert found(cell=make_cell(steady_s=60.0)) == {K.WINDOW_TOO_SHORT: SUSPECT}


def test_concurrency_not_reached():
    # Each slot waits as long again after each of its requests.
    spaced = [
        dataclasses.replace(
            s,
            **{
                name: shift(getattr(s, name), s.index // 2 * 900 * MS)
                for name in (
                    "due_ns",
                    "sent_ns",
                    "first_byte_ns",
                    "ended_ns",
                    "event_ns",
                    "first_visible_ns",
                )
            },
        )
        for s in healthy_samples()
    ]
    assert found(samples=spaced) == {K.CONCURRENCY_NOT_REACHED: SUSPECT}


def shift(value, by):
    return tuple(t + by for t in value) if isinstance(value, tuple) else value + by


@pytest.mark.parametrize(
    ("failed", "each", "severity"), [(1, 60, NOTE), (2, 20, SUSPECT), (3, 20, INVALID)]
)
def test_error_rate(failed, each, severity):
    samples = changed(
        healthy_samples(each=each),
        slice(4, 4 + failed),
        status=RequestStatus.HTTP_ERROR,
        error_message="503: too busy",
    )
    measurement, findings = run_summarize(samples=samples)
    (errors,) = [f for f in findings if f.kind is K.ERROR_RATE]
    assert errors.severity is severity
    assert f"{failed} of {2 * each} requests failed: {failed} http_error" in errors.message
    assert "503: too busy" in errors.message
    assert measurement.failures_by_kind == (("http_error", failed),)


def test_no_measured_request_is_an_error():
    samples = [dataclasses.replace(s, phase="warmup") for s in healthy_samples()]
    assert found(samples=samples) == {K.NO_WINDOW: INVALID, K.ERROR_RATE: INVALID}


def slower_in_the_end(factors):
    samples = []
    for s in healthy_samples():
        start, factor = s.event_ns[0], factors[s.index // 2]
        events = tuple(start + round((t - start) * factor) for t in s.event_ns)
        samples.append(
            dataclasses.replace(s, event_ns=events, ended_ns=max(s.ended_ns, events[-1]))
        )
    return samples


def test_drifting():
    steady, drifting = [1.0] * 11, [0.85] * 6 + [1.0] * 5
    assert found(samples=slower_in_the_end(steady)) == {}
    assert found(samples=slower_in_the_end(drifting)) == {K.DRIFTING: SUSPECT}


def test_scatter_is_no_drift():
    scattered = [0.7, 1.0] * 5 + [0.7]
    assert K.DRIFTING not in found(samples=slower_in_the_end(scattered))


@pytest.mark.parametrize(
    ("each", "words"),
    [
        (9, "18 requests were measured: one that takes twice as long changes tok/s by up to 5%"),
        (2, "the window is 1.7 requests long: drift cannot be told from slots that move in waves"),
    ],
)
def test_few_requests(each, words):
    _, findings = run_summarize(samples=healthy_samples(each=each))
    (few,) = findings
    assert (few.kind, few.severity) == (K.FEW_REQUESTS, NOTE)
    assert words in few.message


def test_enough_requests_are_not_few():
    assert found(samples=healthy_samples(each=10)) == {}
    assert (
        found(samples=healthy_samples(each=5, concurrency=4), cell=make_cell(load=closed(4))) == {}
    )


# -- output


def test_tokens_unknown():
    samples = changed(
        healthy_samples(), slice(3, 4), output_tok=None, event_tok=None, token_source=None
    )
    measurement, findings = run_summarize(samples=samples)
    assert {f.kind: f.severity for f in findings} == {K.TOKENS_UNKNOWN: INVALID}
    assert measurement.output_tok_per_s is None
    assert measurement.whole_run_output_tok_per_s is None
    assert measurement.output_tok.n == 19


def test_tokens_retokenized():
    samples = changed(healthy_samples(), slice(3, 4), token_source=TokenSource.RETOKENIZED)
    assert found(samples=samples) == {K.TOKENS_RETOKENIZED: NOTE}


def test_tokens_hidden():
    samples = changed(healthy_samples(), slice(3, 5), tokens_before_first_event=True)
    measurement, findings = run_summarize(samples=samples)
    assert {f.kind: f.severity for f in findings} == {K.TOKENS_HIDDEN: SUSPECT}
    assert measurement.tpot_ms.n == 18
    assert measurement.cycle_ms is not None


@pytest.mark.parametrize("speculative", [True, False])
def test_the_few_requests_that_hide_no_tokens_time_no_step(speculative):
    healthy = healthy_samples(speculative=speculative)
    samples = changed(healthy, slice(3, 17), tokens_before_first_event=True)
    measurement, findings = run_summarize(samples=samples, speculative=speculative)
    assert measurement.tpot_ms is None  # what open loops are compared by
    assert measurement.cycle_ms is None
    assert measurement.cycle_from_gaps_ms is None
    assert measurement.decode_tok_per_s_per_user is None
    assert measurement.residual_share is None
    assert measurement.output_tok_per_s is not None
    (hidden,) = (f for f in findings if f.kind is K.TOKENS_HIDDEN)
    assert "withheld" in hidden.message


def test_lengths_censored():
    capped = changed(healthy_samples(), slice(0, 3), finish_reason="length")
    assert found(samples=capped) == {K.LENGTHS_CENSORED: NOTE}
    tail = changed(healthy_samples(), slice(0, 2), finish_reason="length")
    assert found(samples=tail) == {}


def test_a_cap_below_every_answer_is_the_length_that_was_asked_for():
    every = changed(healthy_samples(), slice(None), finish_reason="length")
    assert found(samples=every) == {}
    most = changed(healthy_samples(), slice(0, 18), finish_reason="length")
    assert found(samples=most) == {K.LENGTHS_CENSORED: NOTE}


def test_ignore_eos_says_it_instead():
    capped = changed(healthy_samples(), slice(None), finish_reason="length")
    cell = make_cell(workload=make_workload(ignore_eos=True))
    assert found(samples=capped, cell=cell) == {K.IGNORE_EOS: NOTE}


def test_output_degenerate():
    pooled = changed(healthy_samples(), slice(None), distinct_bigram_ct=29)
    assert found(samples=pooled) == {K.OUTPUT_DEGENERATE: SUSPECT}
    loops = changed(healthy_samples(), slice(0, 5), distinct_bigram_ct=5)
    assert found(samples=loops) == {K.OUTPUT_DEGENERATE: SUSPECT}
    few = changed(healthy_samples(), slice(0, 4), distinct_bigram_ct=5)
    assert found(samples=few) == {}
    short = changed(healthy_samples(), slice(None), bigram_ct=31, distinct_bigram_ct=1)
    assert found(samples=short) == {}


# -- server


def test_telemetry_missing():
    assert found(telemetry=[]) == {K.TELEMETRY_MISSING: NOTE}
    assert found(telemetry=healthy_telemetry(healthy_samples()), gpus=1) == {
        K.TELEMETRY_MISSING: NOTE
    }
    assert found(telemetry=[], gpus=1, simulated=True) == {
        K.TELEMETRY_MISSING: NOTE,
        K.SIMULATED: NOTE,
    }


def missing(**more):
    _, findings = run_summarize(**more)
    return [f.message for f in findings if f.kind is K.TELEMETRY_MISSING]


def test_why_telemetry_is_missing_is_told():
    [told] = missing(telemetry=[], unread="the server has no /metrics")
    assert told.startswith("the server's metrics could not be read (the server has no /metrics):")
    [told] = missing(telemetry=[])  # a reason that is not known is not made up
    assert told.startswith("the server's metrics could not be read: queueing")
    watched = healthy_telemetry(healthy_samples())
    [told] = missing(telemetry=watched, unread="the last reading failed: gone")
    assert "some of the server's metrics could not be read (the last reading failed: gone)" in told
    [told] = missing(telemetry=watched, gpus=1, gpus_unread="no gpu_watch command")
    assert told.startswith("the GPUs could not be watched (no gpu_watch command): throttling")
    whole = healthy_telemetry(healthy_samples(), gpus=1)
    [told] = missing(telemetry=whole, gpus=1, gpus_unread="ssh ended with status 255")
    assert told.startswith("the GPUs were watched in part (ssh ended with status 255)")
    assert missing(telemetry=whole, gpus=1) == []
    assert missing(telemetry=watched) == []


def without(*left_out):
    """Healthy telemetry of two GPUs without the (name, GPU) given; GPU None: of both."""
    return [
        p
        for p in healthy_telemetry(healthy_samples(), gpus=2)
        if (p.name, p.rank) not in left_out and (p.name, None) not in left_out
    ]


@pytest.mark.parametrize(
    ("left_out", "unknown"),
    [
        ([("total_energy_j", None)], None),
        ([("total_energy_j", 1), ("power_limit_w", 1)], "spinning collectives of 1 of 2 GPUs"),
        ([("total_energy_j", 1), ("power_w", 1)], "energy of 1 of 2 GPUs (total_energy_j or pow"),
        ([("throttle_reasons", None)], "throttling (throttle_reasons)"),
        ([("throttle_reasons", 0)], "throttling of 1 of 2 GPUs (throttle_reasons)"),
        ([("utilisation_pct", None)], "spinning collectives (utilisation_pct and power_w and"),
    ],
)
def test_what_gpus_do_not_tell_is_told_with_what_is_unknown_for_it(left_out, unknown):
    told = missing(telemetry=without(*left_out), gpus=2)
    if unknown is None:
        assert told == []
    else:
        [message] = told
        assert unknown in message


def test_a_gpu_that_tells_nothing_leaves_everything_of_it_unknown():
    names = {p.name for p in without() if p.source == "gpu"}
    measurement, findings = run_summarize(
        telemetry=without(*((name, 1) for name in names)), gpus=2
    )
    [told] = [f.message for f in findings if f.kind is K.TELEMETRY_MISSING]
    assert told.count("of 1 of 2 GPUs") == 3
    assert measurement.energy_j_per_output_tok is None


def test_joules_of_a_part_of_the_window_say_so():
    whole = healthy_telemetry(healthy_samples(), gpus=1)
    middle = sorted(p.t_ns for p in whole)[len(whole) // 2]
    half = [p for p in whole if p.source != "gpu" or p.t_ns <= middle]
    [told] = missing(telemetry=half, gpus=1)
    assert "of the GPUs' time in the window: the joules of the rest are not in" in told


def test_scrapes_that_do_not_enclose_the_cell_compare_nothing():
    samples = healthy_samples()
    late = [p for p in healthy_telemetry(samples) if p.t_ns > samples[0].sent_ns]
    assert found(samples=samples, telemetry=late) == {K.TELEMETRY_MISSING: NOTE}


def test_config_not_as_asked():
    assert found(effective=make_effective(speculative=True)) == {K.CONFIG_NOT_AS_ASKED: INVALID}
    assert found(speculative=True, effective=make_effective())[K.CONFIG_NOT_AS_ASKED] is INVALID
    assert found(effective=make_effective(speculative=(), version=None)) == {}
    assert found(effective=None) == {}


def test_a_baseline_that_reports_verify_steps_speculates():
    samples = healthy_samples(speculative=True)
    given = found(samples=samples, cell=make_cell(), effective=None)
    assert given[K.CONFIG_NOT_AS_ASKED] is INVALID


def test_server_restarted():
    samples = healthy_samples()
    points = healthy_telemetry(samples)
    middle = sorted({p.t_ns for p in points})[4]
    fallen = [
        dataclasses.replace(p, value=0.0)
        if p.name == "sglang:prompt_tokens_total" and p.t_ns == middle
        else p
        for p in points
    ]
    assert found(samples=samples, telemetry=fallen) == {K.SERVER_RESTARTED: INVALID}


def test_server_queued():
    samples = healthy_samples()
    queued = with_series(samples, "sglang:num_queue_reqs", 0.2)
    assert found(samples=samples, telemetry=queued) == {K.SERVER_QUEUED: SUSPECT}
    hardly = with_series(samples, "sglang:num_queue_reqs", 0.1)
    assert found(samples=samples, telemetry=hardly) == {}


def test_queueing_in_an_open_loop_is_the_loads_doing():
    samples = [dataclasses.replace(s, slot=None) for s in healthy_samples()]
    queued = with_series(samples, "sglang:num_queue_reqs", 0.2)
    cell = make_cell(load=Load(kind="open", rate_per_s=2.0))
    assert found(samples=samples, telemetry=queued, cell=cell) == {K.SERVER_QUEUED: NOTE}


def test_server_retracted():
    samples = changed(healthy_samples(), slice(3, 4), num_retractions=1)
    assert found(samples=samples) == {K.SERVER_RETRACTED: SUSPECT}
    plain = healthy_samples()
    counted = with_counter(plain, "sglang:num_retracted_requests_total", 3)
    assert found(samples=plain, telemetry=counted) == {K.SERVER_RETRACTED: SUSPECT}


def test_kv_full():
    samples = healthy_samples()
    full = with_series(samples, "sglang:token_usage", 0.99)
    assert found(samples=samples, telemetry=full) == {K.KV_FULL: SUSPECT}


def test_no_cuda_graph_by_the_passes_counted():
    samples = healthy_samples()
    points = with_counter(samples, "sglang:cuda_graph_passes_total{mode=decode_none}", 100)
    points += [p for p in healthy_telemetry(samples, gpus=1) if p.source == "gpu"]
    assert found(samples=samples, telemetry=points, gpus=1) == {K.NO_CUDA_GRAPH: SUSPECT}
    cpu = [p for p in points if p.source == "server"]
    assert found(samples=samples, telemetry=cpu) == {}


@pytest.mark.parametrize(
    ("sizes", "ranks", "fires"),
    [
        ((1,), "1", True),
        ((1,), "2", False),
        ((1, 2), "1", False),
        ((), "1", False),
        (None, "1", False),
    ],
)
def test_no_cuda_graph_by_the_captured_sizes(sizes, ranks, fires):
    samples = healthy_samples()
    points = [p for p in healthy_telemetry(samples, gpus=1) if "cuda_graph" not in p.name]
    for name in ("dp_size", "attn_dp_size"):
        effective = make_effective(decode_graph_batch_sizes=sizes, other=((name, ranks),))
        given = found(samples=samples, telemetry=points, gpus=1, effective=effective)
        assert given == ({K.NO_CUDA_GRAPH: SUSPECT} if fires else {})


@pytest.mark.parametrize(
    ("bits", "expected"),
    [
        (0x40, {K.THROTTLED: SUSPECT}),
        (0x08 | 0x04, {K.THROTTLED: SUSPECT}),
        (0x04, {K.THROTTLED: NOTE}),
        (0x01, {}),
        (0x02 | 0x10 | 0x100, {}),
    ],
)
def test_throttled(bits, expected):
    samples = healthy_samples()
    points = with_series(samples, "throttle_reasons", float(bits), gpus=1, source="gpu")
    assert found(samples=samples, telemetry=points, gpus=1) == expected


@pytest.mark.parametrize(
    ("cache", "share", "cached_tok", "fires"),
    [
        ("cold", 0.0, 82, False),  # the chat template's head, and 5 %
        ("cold", 0.0, 83, True),
        ("primed", 0.0, 960, False),
        ("primed", 0.0, 700, True),
        ("shared-prefix", 0.5, 450, False),
        ("shared-prefix", 0.5, 390, True),
        ("shared-prefix", 0.5, 1000, True),
        ("cold", 0.0, None, False),
    ],
)
def test_cache_as_stated(cache, share, cached_tok, fires):
    samples = changed(healthy_samples(), slice(None), cached_tok=cached_tok)
    cell = make_cell(workload=make_workload(cache=cache, shared_prefix_share=share))
    given = found(samples=samples, cell=cell)
    assert given == ({K.CACHE_NOT_AS_STATED: SUSPECT} if fires else {})


def test_cache_by_the_servers_counters_where_requests_tell_nothing():
    samples = changed(healthy_samples(), slice(None), cached_tok=None)
    points = with_counter(samples, "sglang:cached_tokens_total", 11_000)
    measurement, findings = run_summarize(samples=samples, telemetry=points)
    assert measurement.cache_hit_ratio == pytest.approx(0.5, rel=0.01)
    assert [f.kind for f in findings] == [K.CACHE_NOT_AS_STATED]


def test_simulated_is_said():
    measurement, findings = run_summarize(simulated=True)
    assert [(f.kind, f.severity) for f in findings] == [(K.SIMULATED, NOTE)]
    assert measurement.simulated
    assert measurement.status is CellStatus.VALID


# -- counts against one another


def test_foreign_traffic():
    samples = healthy_samples()
    some = with_counter(samples, "sglang:num_requests_total", len(samples) + 2)
    assert found(samples=samples, telemetry=some) == {K.FOREIGN_TRAFFIC: SUSPECT}
    many = with_counter(samples, "sglang:num_requests_total", len(samples) + 3)
    assert found(samples=samples, telemetry=many) == {K.FOREIGN_TRAFFIC: INVALID}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"spec_correct_drafts_histogram": (9, 16, 12, 4)}, "steps are not the verify steps"),
        ({"spec_correct_drafts_histogram": (7, 17, 12, 4)}, "drafts are not the correct drafts"),
        ({"output_tok": 94}, "more tokens came out"),
    ],
)
def test_a_requests_counters_disagree(change, words):
    samples = changed(healthy_samples(speculative=True), slice(3, 4), **change)
    _, findings = run_summarize(speculative=True, samples=samples)
    (disagree,) = findings
    assert (disagree.kind, disagree.severity) == (K.COUNTERS_DISAGREE, SUSPECT)
    assert words in disagree.message
    assert "1 of 20 requests" in disagree.message


def test_counters_that_disagree_by_a_tenth_are_invalid():
    # Every second request claims a third more tokens than its steps can have made.
    samples = changed(healthy_samples(speculative=True), slice(0, None, 2), output_tok=124)
    points = healthy_telemetry(samples)
    assert (
        found(speculative=True, samples=samples, telemetry=points)[K.COUNTERS_DISAGREE] is INVALID
    )


def test_a_retraction_explains_one_more_token():
    samples = changed(
        healthy_samples(speculative=True), slice(3, 4), output_tok=94, num_retractions=1
    )
    assert K.COUNTERS_DISAGREE not in found(speculative=True, samples=samples)


def test_more_drafts_than_the_depth_disagree():
    effective = make_effective(speculative=True)
    shallow = dataclasses.replace(
        effective, speculative=(("algorithm", "EAGLE3"), ("num_steps", 2))
    )
    samples = healthy_samples(speculative=True)
    points = [p for p in healthy_telemetry(samples) if p.name != "sglang:spec_num_steps"]
    given = found(speculative=True, samples=samples, telemetry=points, effective=shallow)
    assert given == {K.COUNTERS_DISAGREE: SUSPECT}


def test_the_servers_token_counter_disagrees():
    samples = healthy_samples()
    points = with_counter(samples, "sglang:generation_tokens_total", 1.05 * 41 * 22)
    assert found(samples=samples, telemetry=points) == {K.COUNTERS_DISAGREE: SUSPECT}
    close = with_counter(samples, "sglang:generation_tokens_total", 1.01 * 41 * 22)
    assert found(samples=samples, telemetry=close) == {}


def test_what_failed_requests_generated_is_no_disagreement():
    samples = changed(healthy_samples(), slice(3, 4), status=RequestStatus.DISCONNECTED)
    assert found(samples=samples, telemetry=healthy_telemetry(healthy_samples())) == {
        K.ERROR_RATE: SUSPECT
    }


def test_the_servers_accept_length_disagrees():
    samples = healthy_samples(speculative=True)
    points = with_counter(samples, "sglang:spec_verify_calls_total", 0.95 * 40 * 22)
    _, findings = run_summarize(speculative=True, samples=samples, telemetry=points)
    (disagree,) = findings
    assert disagree.kind is K.COUNTERS_DISAGREE
    assert "2.325 by the requests and 2.447 by the server's counters" in disagree.message


def test_the_logs_accept_length_disagrees():
    samples = healthy_samples(speculative=True)
    points = with_series(samples, "sglang:spec_accept_length", 2.7)
    assert found(speculative=True, samples=samples, telemetry=points) == {
        K.COUNTERS_DISAGREE: SUSPECT
    }
    lagging = with_series(samples, "sglang:spec_accept_length", 2.5)
    assert found(speculative=True, samples=samples, telemetry=lagging) == {}


def test_stream_coalesced():
    samples = [
        dataclasses.replace(s, event_ns=s.event_ns[::2], event_tok=s.event_tok[::2])
        for s in healthy_samples(speculative=True)
    ]
    measurement, findings = run_summarize(speculative=True, samples=samples)
    assert {f.kind: f.severity for f in findings} == {K.STREAM_COALESCED: NOTE}
    assert measurement.cycle_from_gaps_ms is None
    assert measurement.cycle_ms == pytest.approx(STEP_MS, rel=0.01)


def test_more_events_than_steps_disagree():
    split = [
        dataclasses.replace(
            s,
            event_ns=(*s.event_ns, *(s.event_ns[-1] + k for k in (1, 2))),
            event_tok=(*s.event_tok, s.event_tok[-1], s.event_tok[-1]),
        )
        for s in healthy_samples(speculative=True)
    ]
    assert found(speculative=True, samples=split) == {K.COUNTERS_DISAGREE: SUSPECT}


def test_acceptance_missing():
    names = ("verify_ct", "num_correct_drafts", "num_proposed_drafts", "correct_drafts_histogram")
    silent = {f"spec_{name}": None for name in names}
    samples = changed(healthy_samples(speculative=True), slice(3, 5), **silent)
    points = healthy_telemetry(healthy_samples(speculative=True))
    given = found(speculative=True, samples=samples, telemetry=points)
    assert given[K.ACCEPTANCE_MISSING] is SUSPECT


def test_a_single_token_needs_no_verify_step():
    single = make_sample(
        99,
        start_ms=3000,
        events_ms=(100.0,),
        output_tok=1,
        event_tok=(1,),
        bigram_ct=0,
        distinct_bigram_ct=0,
    )
    samples = [*healthy_samples(speculative=True), single]
    assert K.ACCEPTANCE_MISSING not in found(speculative=True, samples=samples)


def stalled(after_ms):
    """The second half of every answer comes later by so much."""
    return [
        dataclasses.replace(
            s,
            event_ns=tuple(t + (after_ms * MS if k > 20 else 0) for k, t in enumerate(s.event_ns)),
            ended_ns=s.ended_ns + after_ms * MS,
        )
        for s in healthy_samples(speculative=True)
    ]


def test_stalls_that_no_prefill_explains_are_told():
    assert found(speculative=True, samples=stalled(300))[K.CYCLE_DISAGREES] is NOTE


def test_stalls_while_another_awaits_its_first_token_are_the_schedulers():
    # The slots' requests overlap by two thirds: each is sent in the middle of the other's stall.
    samples = stalled(300)
    waits = [
        dataclasses.replace(
            other,
            index=1000 + other.index,
            slot=0,
            phase="warmup",
            event_ns=tuple(t + 600 * MS for t in other.event_ns),
            sent_ns=s.event_ns[20] + 1,
            ended_ns=other.ended_ns + 600 * MS,
        )
        for s, other in zip(samples, samples, strict=True)
    ]
    measurement, findings = run_summarize(
        speculative=True, samples=[*samples, *waits], telemetry=[], effective=None
    )
    assert measurement.cycle_ms > 1.1 * measurement.cycle_from_gaps_ms
    assert K.CYCLE_DISAGREES not in {f.kind for f in findings}


def test_a_mean_step_shorter_than_the_usual_gap_cannot_be():
    quick = [
        dataclasses.replace(
            s,
            event_ns=tuple(
                s.event_ns[0] + round(sum(20.0 if j % 3 else 2.0 for j in range(k)) * MS)
                for k in range(len(STEPS) + 1)
            ),
        )
        for s in healthy_samples(speculative=True)
    ]
    assert found(speculative=True, samples=quick)[K.CYCLE_DISAGREES] is SUSPECT


# -- what findings do


def test_the_worst_finding_sets_the_status():
    def finding(severity, cell_id="a"):
        return Finding(kind=K.DRIFTING, severity=severity, message="", advice="", cell_id=cell_id)

    assert checks.status_of([]) is CellStatus.VALID
    assert checks.status_of([finding(NOTE)]) is CellStatus.VALID
    assert checks.status_of([finding(INVALID), finding(SUSPECT)]) is CellStatus.INVALID
    measurement, _ = run_summarize()
    later = finding(SUSPECT, cell_id=measurement.cell_id)
    assert checks.with_findings(measurement, [later]).status is CellStatus.SUSPECT
    assert checks.with_findings(measurement, [finding(INVALID)]).status is CellStatus.VALID
    invalid = dataclasses.replace(measurement, status=CellStatus.INVALID)
    assert checks.with_findings(invalid, [later]).status is CellStatus.INVALID
