import dataclasses
import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from metrics_cells import (
    MS,
    STEP_MS,
    STEPS,
    healthy_samples,
    healthy_telemetry,
    make_cell,
    make_effective,
    make_sample,
    point,
    run_summarize,
)

from bench.model import CellStatus, Distribution, FindingKind, Load, RequestStatus, Slo

TAU = 1 + sum(STEPS) / len(STEPS)
RATES = (
    "output_tok_per_s",
    "output_tok_per_s_per_user",
    "whole_run_output_tok_per_s",
    "request_per_s",
    "decode_tok_per_s_per_user",
)
TIMES = ("window_s", "cycle_ms", "cycle_from_gaps_ms")
LATENCIES = ("ttft_ms", "ttfo_ms", "tpot_ms", "chunk_gap_ms", "e2e_ms")
UNCHANGED = (
    "window_output_tok",
    "window_busy_slots_mean",
    "accept_len_tok",
    "accept_len_server_tok",
    "accept_at_position",
    "accept_rate",
    "residual_share",
    "prefill_share",
    "queue_share",
    "request_ct",
    "output_tok_sum",
    "cache_hit_ratio",
)


def numbers(measurement):
    return dataclasses.asdict(dataclasses.replace(measurement, client=None))


def test_a_speculative_cell_by_hand():
    m, _ = run_summarize(speculative=True, gpus=4, limit_tok_per_s=1000.0)
    assert (m.request_ct, m.ok_ct, m.failed_ct, m.output_tok_sum) == (20, 20, 0, 20 * 93)
    # Two slots, requests of 902 ms of which 93 tokens each: the steady rate is 2 * 93 / 0.902.
    assert m.output_tok_per_s == pytest.approx(2 * 93 / 0.902, rel=0.01)
    assert m.output_tok_per_s_per_user == pytest.approx(m.output_tok_per_s / 2)
    assert m.output_tok_per_s_per_gpu == pytest.approx(m.output_tok_per_s / 4)
    assert m.limit_share == pytest.approx(m.output_tok_per_s / 1000)
    assert m.window_output_tok == pytest.approx(m.output_tok_per_s * m.window_s)
    assert (m.spec_verify_ct, m.spec_num_correct_drafts) == (800, 20 * 52)
    assert m.accept_len_tok == pytest.approx(TAU)
    assert m.accept_len_server_tok == pytest.approx(93 / 40)
    assert m.accept_at_position == pytest.approx((0.8, 0.4, 0.1))
    assert m.accept_at_position_conditional == pytest.approx((0.8, 0.5, 0.25))
    assert m.accept_rate == pytest.approx((TAU - 1) / 3)
    assert m.cycle_ms == pytest.approx(STEP_MS, rel=0.002)
    assert m.cycle_from_gaps_ms == STEP_MS
    assert m.decode_tok_per_s_per_user == pytest.approx(1000 * TAU / STEP_MS, rel=0.002)
    assert m.residual_share == pytest.approx(0, abs=1e-9)
    assert m.prefill_share == pytest.approx(95 / 901)
    assert m.queue_share == pytest.approx(5 / 901)
    assert m.energy_j_per_output_tok == pytest.approx(4 * 300 / m.output_tok_per_s)
    assert m.energy_coverage == 1
    assert m.status is CellStatus.VALID


def test_a_baseline_cell_by_hand():
    m, _ = run_summarize()
    assert m.cycle_ms == pytest.approx(STEP_MS)
    assert m.decode_tok_per_s_per_user == pytest.approx(1000 / STEP_MS)
    assert (m.accept_len_tok, m.accept_rate, m.spec_verify_ct, m.accept_at_position) == (None,) * 4
    assert (m.output_tok_per_s_per_gpu, m.energy_j_per_output_tok, m.limit_share) == (None,) * 3
    assert m.goodput_request_per_s is None


def test_truncation_at_the_stop_shows_as_residual():
    cut = [
        dataclasses.replace(
            s, output_tok=s.output_tok - 1, event_tok=(*s.event_tok[:-1], s.output_tok - 1)
        )
        for s in healthy_samples(speculative=True)
    ]
    m, _ = run_summarize(speculative=True, samples=cut)
    assert m.accept_len_tok == pytest.approx(TAU)
    assert m.residual_share == pytest.approx(-1 / 92, rel=0.01)


def test_goodput_stands_beside_throughput():
    m, _ = run_summarize(cell=make_cell(slo=Slo(ttft_ms=99.0)))
    assert m.goodput_request_per_s == 0
    m, _ = run_summarize(cell=make_cell(slo=Slo(ttft_ms=101.0)))
    assert m.goodput_request_per_s == m.request_per_s > 2


def test_an_open_loop_counts_from_the_due_times():
    samples = [
        make_sample(
            i,
            slot=None,
            start_ms=250 * i,
            phase="measure" if i > 3 else "warmup",
            events_ms=(100, 150, 400),
            ended_ms=401,
        )
        for i in range(24)
    ]
    late = [dataclasses.replace(s, sent_ns=s.sent_ns + 7 * MS) for s in samples]
    cell = make_cell(load=Load(kind="open", rate_per_s=4.0))
    m, _ = run_summarize(samples=late, cell=cell)
    assert m.window_s == pytest.approx(19 * 0.25)
    assert m.ttft_ms.p50 == 100
    # In a steady state as much is cut off at the end as is carried over from warm-up.
    assert m.output_tok_per_s == pytest.approx(12)
    assert m.request_per_s == pytest.approx(4)
    assert m.window_busy_slots_mean == pytest.approx(4 * 0.394)


def test_failed_requests_stay_in_the_count_and_add_nothing():
    whole, _ = run_summarize()
    samples = [
        dataclasses.replace(s, status=RequestStatus.SERVER_ERROR_IN_STREAM)
        if s.index in {10, 11, 12}
        else s
        for s in healthy_samples()
    ]
    m, _ = run_summarize(samples=samples)
    assert (m.request_ct, m.ok_ct, m.failed_ct) == (20, 17, 3)
    assert m.failures_by_kind == (("server_error_in_stream", 3),)
    assert m.window_output_tok == pytest.approx(whole.window_output_tok - 3 * 41)
    assert m.window_s == whole.window_s
    assert m.ttft_ms.n == 17


def test_everything_failed_gives_no_latency_and_no_rate_of_tokens_but_zero():
    samples = [dataclasses.replace(s, status=RequestStatus.HTTP_ERROR) for s in healthy_samples()]
    m, findings = run_summarize(samples=samples)
    assert m.status is CellStatus.INVALID
    assert FindingKind.ERROR_RATE in {f.kind for f in findings}
    assert (m.ttft_ms, m.tpot_ms, m.cycle_ms, m.whole_run_output_tok_per_s) == (None,) * 4
    assert m.output_tok_per_s == 0


def test_no_samples_at_all():
    m, _ = run_summarize(samples=[], telemetry=[])
    assert m.status is CellStatus.INVALID
    assert m.request_ct == 0
    assert m.output_tok_per_s is None


def test_a_depth_that_varied_gives_no_rate():
    samples = healthy_samples(speculative=True)
    points = healthy_telemetry(samples)
    points.append(point("sglang:spec_num_steps", points[-1].t_ns + 1, 1.0))
    m, _ = run_summarize(speculative=True, samples=samples, telemetry=points)
    assert m.accept_rate is None
    assert m.accept_len_tok == pytest.approx(TAU)
    adaptive = dataclasses.replace(
        make_effective(),
        speculative=(("algorithm", "EAGLE3"), ("num_steps", 3), ("adaptive", True)),
    )
    m, _ = run_summarize(speculative=True, effective=adaptive)
    assert m.accept_rate is None
    m, _ = run_summarize(speculative=True, effective=None)
    assert m.accept_rate is None


def test_guessed_counts_are_said_in_the_rule():
    samples = [dataclasses.replace(s, event_tok=None) for s in healthy_samples()]
    m, _ = run_summarize(samples=samples)
    assert "2 cut requests had no running counts" in m.window_rule
    whole, _ = run_summarize()
    assert m.output_tok_per_s == pytest.approx(whole.output_tok_per_s)
    assert "running counts" not in whole.window_rule


@settings(deadline=None, max_examples=15)
@given(st.randoms(use_true_random=False), st.booleans())
def test_order_of_samples_and_readings_changes_nothing(rng, speculative):
    samples = scattered(rng, speculative=speculative)
    points = healthy_telemetry(samples, gpus=1)
    plain = run_summarize(speculative=speculative, samples=samples, telemetry=points, gpus=1)
    mixed_samples, mixed_points = list(samples), list(points)
    rng.shuffle(mixed_samples)
    rng.shuffle(mixed_points)
    mixed = run_summarize(
        speculative=speculative, samples=mixed_samples, telemetry=mixed_points, gpus=1
    )
    assert mixed == plain


def scattered(rng, *, speculative):
    """Healthy samples whose events, sends and counts are scattered a little."""
    samples = []
    for s in healthy_samples(speculative=speculative):
        jitter = sorted(rng.randrange(0, 15 * MS) for _ in s.event_ns)
        events = tuple(t + j for t, j in zip(s.event_ns, jitter, strict=True))
        samples.append(
            dataclasses.replace(
                s,
                event_ns=events,
                ended_ns=max(s.ended_ns, events[-1]),
                sent_ns=s.sent_ns + rng.randrange(MS),
            )
        )
    return samples


def stretched(samples, factor):
    origin = min(s.due_ns for s in samples)

    def at(t):
        return None if t is None else origin + (t - origin) * factor

    return [
        dataclasses.replace(
            s,
            due_ns=at(s.due_ns),
            sent_ns=at(s.sent_ns),
            first_byte_ns=at(s.first_byte_ns),
            ended_ns=at(s.ended_ns),
            first_visible_ns=at(s.first_visible_ns),
            event_ns=tuple(at(t) for t in s.event_ns),
            queue_ns=s.queue_ns * factor,
        )
        for s in samples
    ]


@settings(deadline=None, max_examples=15)
@given(st.integers(2, 50), st.randoms(use_true_random=False), st.booleans())
def test_stretching_time_stretches_latencies_and_divides_rates(factor, rng, speculative):
    samples = scattered(rng, speculative=speculative)
    plain, _ = run_summarize(speculative=speculative, samples=samples, telemetry=[])
    slow, _ = run_summarize(
        speculative=speculative, samples=stretched(samples, factor), telemetry=[]
    )
    for name in RATES:
        assert getattr(slow, name) == pytest.approx(getattr(plain, name) / factor), name
    for name in TIMES:
        assert getattr(slow, name) == pytest.approx(getattr(plain, name) * factor), name
    for name in LATENCIES:
        fast_d, slow_d = getattr(plain, name), getattr(slow, name)
        for field in dataclasses.fields(Distribution):
            scale = 1 if field.name == "n" else factor
            assert getattr(slow_d, field.name) == pytest.approx(
                scale * getattr(fast_d, field.name)
            ), name
    for name in UNCHANGED:
        assert getattr(slow, name) == pytest.approx(getattr(plain, name)), name


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 10**6))
def test_no_number_is_ever_nan_or_infinite(seed):
    rng = random.Random(seed)
    hurts = [
        {"status": RequestStatus.TIMEOUT},
        {
            "status": RequestStatus.REFUSED,
            "sent_ns": None,
            "event_ns": (),
            "event_tok": None,
            "output_tok": None,
        },
        {"output_tok": None, "event_tok": None},
        {"event_ns": (), "event_tok": None, "first_visible_ns": None},
        {"event_tok": None},
        {"output_tok": 0},
        {"tokens_before_first_event": True},
        {"prompt_tok": None, "cached_tok": None, "queue_ns": None},
        {"prompt_tok": 0, "bigram_ct": 0, "distinct_bigram_ct": 0},
        {"spec_verify_ct": 0, "spec_num_correct_drafts": 0, "spec_correct_drafts_histogram": ()},
        {"spec_verify_ct": None},
        {"slot": None},
    ]
    speculative = rng.random() < 0.5
    samples = [
        dataclasses.replace(s, **rng.choice(hurts)) if rng.random() < 0.4 else s
        for s in healthy_samples(speculative=speculative, each=3)
    ]
    m, findings = run_summarize(
        speculative=speculative,
        samples=samples,
        gpus=rng.choice([0, 1]),
        cell=make_cell(
            arm="eagle3" if speculative else "baseline",
            load=rng.choice(
                [Load(kind="closed", concurrency=2), Load(kind="open", rate_per_s=1.0)]
            ),
        ),
    )

    def check(value):
        if isinstance(value, dict):
            for v in value.values():
                check(v)
        elif isinstance(value, (list, tuple)):
            for v in value:
                check(v)
        elif isinstance(value, float):
            assert math.isfinite(value)

    check(numbers(m))
    total = sum(s.output_tok or 0 for s in samples if s.status is RequestStatus.OK)
    if m.window_output_tok is not None:
        assert -1e-6 <= m.window_output_tok <= total + 1e-6
    assert all(f.message and f.advice for f in findings)
    assert m.request_ct == m.ok_ct + m.failed_ct
