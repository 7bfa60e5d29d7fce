"""Step times, limits and capacities: properties, and the worked example they were made after."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.physics import (
    Speculation,
    accept_len_tok,
    allreduce_us,
    decode_step,
    kv_bytes_per_token_per_gpu,
    kv_capacity_tok,
    limit_tok_per_s,
    load_acceptance,
    load_hardware,
    load_target,
    prefill_time,
    unique_experts,
    weight_bytes_per_gpu,
)

QUICK = settings(deadline=None, max_examples=80)
RTX = load_hardware("rtx-pro-6000-x8")
H200 = load_hardware("h200-x8")
KIMI = load_target("kimi-k2.5")
CHAIN_3 = Speculation(num_steps=3, topk=1, num_draft_tokens=4)
hardware = st.sampled_from([RTX, H200])
batches = st.integers(1, 256)


def test_kimi_is_as_large_as_it_says():
    assert KIMI.total_parameters == pytest.approx(1026e9, rel=0.002)
    assert KIMI.active_parameters == pytest.approx(31.7e9, rel=0.002)


@pytest.mark.parametrize(
    ("n_tokens", "experts"), [(1, 8), (2, 16), (4, 31), (8, 60), (16, 110), (64, 284)]
)
def test_unique_experts_of_uniform_routing(n_tokens, experts):
    assert unique_experts(n_tokens, 384, 8) == pytest.approx(experts, abs=0.51)


@QUICK
@given(st.integers(1, 4096))
def test_unique_experts_grow_to_all_of_them(n_tokens):
    assert unique_experts(1, 384, 8) == pytest.approx(8)
    assert unique_experts(n_tokens, 384, 8) < unique_experts(n_tokens + 1, 384, 8) + 1e-9
    assert unique_experts(n_tokens, 384, 8) <= min(384, 8 * n_tokens) + 1e-9


def test_a_dense_model_has_no_experts():
    assert unique_experts(100, 0, 0) == 0.0


def test_bytes_of_one_token_per_gpu():
    assert weight_bytes_per_gpu(KIMI, 1, 8) == pytest.approx(6.03e9, rel=0.002)
    # Replicated parts do not shrink with more ranks.
    assert weight_bytes_per_gpu(KIMI, 1, 8) > weight_bytes_per_gpu(KIMI, 1, 1) / 8
    assert kv_bytes_per_token_per_gpu(KIMI, 8) == pytest.approx(70.3e3, rel=0.001)
    assert kv_bytes_per_token_per_gpu(KIMI, 8) == kv_bytes_per_token_per_gpu(KIMI, 1)


@pytest.mark.parametrize(
    ("card", "tokens", "accept_len", "limit"),
    [(H200, 1, 1.0, 796), (RTX, 1, 1.0, 297), (H200, 4, 2.88, 1340), (RTX, 4, 2.88, 500)],
)
def test_the_bandwidth_floor_at_batch_1(card, tokens, accept_len, limit):
    found = limit_tok_per_s(
        card, KIMI, batch=1, tokens_per_request=tokens, accept_len_tok=accept_len
    )
    assert found == pytest.approx(limit, rel=0.005)


@QUICK
@given(hardware, batches, st.floats(0, 1e5), st.booleans(), st.integers(1, 8))
def test_no_step_is_faster_than_the_limit(card, batch, context, speculative, num_steps):
    speculation = (
        Speculation(num_steps=num_steps, topk=1, num_draft_tokens=num_steps + 1)
        if speculative
        else None
    )
    step = decode_step(card, KIMI, batch=batch, context_tok_mean=context, speculation=speculation)
    accept_len = num_steps + 1.0 if speculative else 1.0
    limit = limit_tok_per_s(
        card,
        KIMI,
        batch=batch,
        context_tok_mean=context,
        tokens_per_request=num_steps + 1 if speculative else 1,
        accept_len_tok=accept_len,
    )
    assert batch * accept_len / step.total_ms * 1e3 <= limit


@QUICK
@given(hardware, batches, st.floats(0, 1e5))
def test_more_work_takes_longer(card, batch, context):
    def total(**more) -> float:
        asked = {"batch": batch, "context_tok_mean": context} | more
        return decode_step(card, KIMI, **asked).total_ms

    assert total() < total(batch=batch + 1)
    assert total() < total(context_tok_mean=context + 1000)
    assert total() < total(speculation=CHAIN_3)
    assert total(cuda_graph=False) == pytest.approx(total() + card.eager_extra_ms)


@QUICK
@given(hardware, st.floats(1, 1e9))
def test_all_reduces_grow_with_the_message(card, size):
    assert allreduce_us(card, size) <= allreduce_us(card, size * 1.1)
    for message, us in card.allreduce_us:
        assert allreduce_us(card, message) == pytest.approx(us)


def test_beyond_the_table_the_bandwidth_goes_on():
    size, us = RTX.allreduce_us[-1]
    assert allreduce_us(RTX, 2 * size) == pytest.approx(2 * us, rel=0.01)


def test_one_gpu_needs_no_all_reduce():
    step = decode_step(RTX, KIMI, batch=1, tp=1, speculation=CHAIN_3)
    assert step.allreduce_ms == 0.0
    assert step.draft_ms == pytest.approx(3 * RTX.draft_step_ms)


def test_the_parts_of_a_step_add_up_and_are_named_rightly():
    step = decode_step(RTX, KIMI, batch=4, context_tok_mean=1000, speculation=CHAIN_3)
    parts = step.weights_ms + step.compute_ms + step.kv_ms + step.allreduce_ms
    assert step.total_ms == pytest.approx(parts + step.fixed_ms + step.draft_ms)
    assert step.kv_ms == pytest.approx(4 * 1000 * 70272 / (1.79e12 * 0.75) * 1e3)
    assert step.draft_ms == pytest.approx(
        3 * (RTX.draft_step_ms + 2 * allreduce_us(RTX, 4 * 7168 * 2) / 1e3)
    )


@pytest.mark.parametrize(
    ("allreduce", "baseline", "cycle_ms", "at_157", "at_241", "break_even"),
    [
        ((36, 39), 84, 17.4, 90, 138, 1.47),
        ((30, 60), 90, 20.0, 79, 121, 1.79),
        ((30, 90), 90, 23.6, 67, 102, 2.12),
        ((30, 120), 90, 27.3, 57.5, 88.3, 2.45),
        ((30, 150), 90, 30.9, 51, 78, 2.78),
    ],
)
def test_the_worked_example(allreduce, baseline, cycle_ms, at_157, at_241, break_even):
    """What one and four tokens' all-reduce decides, with 3 ms of host time; docs/simulator.md."""
    table = ((14336, allreduce[0]), (57344, allreduce[1]))
    box = replace(RTX, fixed_ms=3.0, allreduce_us=table)
    base = decode_step(box, KIMI, batch=1).total_ms
    cycle = decode_step(box, KIMI, batch=1, speculation=CHAIN_3).total_ms
    assert 1e3 / base == pytest.approx(baseline, rel=0.05)
    assert cycle == pytest.approx(cycle_ms, rel=0.05)
    assert 1.57 / cycle * 1e3 == pytest.approx(at_157, rel=0.05)
    assert 2.41 / cycle * 1e3 == pytest.approx(at_241, rel=0.05)
    assert cycle / base == pytest.approx(break_even, rel=0.05)


def measured(accept_len: float, overshoot: float, speculation: Speculation | None) -> float:
    """Tokens a second at concurrency 1: 2,048 prompt tokens, 32 of them new, 128 out."""
    step = decode_step(
        RTX, KIMI, batch=1, context_tok_mean=2048 + 64, speculation=speculation
    ).total_ms
    prefill = prefill_time(RTX, KIMI, chunks=[(32, 2016)]).total_ms
    return 128 / (prefill + (127 + overshoot) / accept_len * step) * 1e3


def test_calibration_of_whole_requests():
    # Of the card alone: what a client adds between two requests, 0.5-1 %, is not in it.
    assert measured(1.0, 0.0, None) == pytest.approx(89.5, rel=0.015)
    # The last step makes half a token (1.57) or one (2.41) beyond the cap in the mean.
    assert measured(1.57, 0.54, CHAIN_3) == pytest.approx(56, rel=0.03)
    assert measured(2.41, 1.0, CHAIN_3) == pytest.approx(88, rel=0.03)
    for name, accept_len in (("as-trained", 1.57), ("rewired", 2.41)):
        card = load_acceptance(f"kimi-k2.5-eagle3-{name}")
        assert accept_len_tok(card.reach, 3) == pytest.approx(accept_len)


def test_h200_is_near_its_realistic_floor():
    assert 1e3 / decode_step(H200, KIMI, batch=1).total_ms == pytest.approx(224, rel=0.05)


def test_prefill_makes_some_thousand_tokens_a_second():
    for tokens in (512, 2048, 8192):
        time = prefill_time(RTX, KIMI, chunks=[(tokens, 0)]).total_ms
        assert 3 <= tokens / time <= 5.5


@QUICK
@given(st.integers(1, 8192), st.integers(0, 100_000))
def test_prefill_grows_with_tokens_and_with_what_they_attend_to(new, context):
    def total(*chunks: tuple[int, int]) -> float:
        return prefill_time(RTX, KIMI, chunks=chunks).total_ms

    assert total((new, context)) < total((new + 1, context))
    assert total((new, context)) <= total((new, context + 100))
    assert total((new, 0), (new, 0)) <= 2 * total((new, 0))


def test_kv_capacity():
    def capacity(share: float, **more) -> int:
        return kv_capacity_tok(RTX, KIMI, mem_fraction_static=share, **more)

    assert capacity(0.5) == 0
    assert 0 < capacity(0.85) < capacity(0.9)
    assert capacity(0.9, speculative=True) < capacity(0.9)
    assert capacity(0.9) == pytest.approx((96 * 2**30 * 0.9 - 75.9e9 - 0.39e9) / 70272, rel=0.01)
