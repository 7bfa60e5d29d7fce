"""Step times, limits and capacities: properties, and the worked example they were made after."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.physics import (
    SGLANG_0_4_4,
    SGLANG_0_5_23,
    SGLANG_0_5_SPEC_V1,
    Speculation,
    accept_len_tok,
    decode_step,
    flop_per_token,
    kv_bytes_per_token_per_gpu,
    kv_capacity_tok,
    limit_tok_per_s,
    load_acceptance,
    load_draft,
    load_hardware,
    load_target,
    mixed_step,
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
every_hardware = st.sampled_from(
    [RTX, H200, *map(load_hardware, ("b200-x8", "h100-x1", "h100-x2"))]
)
every_target = st.sampled_from(
    [
        KIMI,
        *map(load_target, ("deepseek-v3", "llama-3.1-8b", "llama-3.3-70b", "qwen3-30b-a3b")),
    ]
)
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
@given(every_hardware, every_target, batches, st.floats(0, 1e5), st.booleans(), st.integers(1, 8))
def test_no_step_is_faster_than_the_limit(card, target, batch, context, speculative, num_steps):
    speculation = (
        Speculation(num_steps=num_steps, topk=1, num_draft_tokens=num_steps + 1)
        if speculative
        else None
    )
    step = decode_step(
        card, target, batch=batch, context_tok_mean=context, speculation=speculation
    )
    accept_len = num_steps + 1.0 if speculative else 1.0
    limit = limit_tok_per_s(
        card,
        target,
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
    assert total() <= total(graph_batches=())


def test_one_gpu_needs_no_all_reduce():
    step = decode_step(RTX, KIMI, batch=1, tp=1, speculation=CHAIN_3)
    assert step.allreduce_ms == 0.0
    bytes_per_ms = RTX.bandwidth_gb_per_s * 1e6 * RTX.bandwidth_efficiency
    read = weight_bytes_per_gpu(KIMI.draft, 4, 1) + 2 * weight_bytes_per_gpu(
        KIMI.draft, 1, 1, extend=False
    )
    assert step.draft_ms == pytest.approx(3 * RTX.draft_fixed_ms + read / bytes_per_ms)


def test_the_parts_of_a_step_add_up_and_are_named_rightly():
    step = decode_step(RTX, KIMI, batch=4, context_tok_mean=1000, speculation=CHAIN_3)
    parts = step.weights_ms + step.compute_ms + step.kv_ms + step.allreduce_ms
    assert step.total_ms == pytest.approx(parts + step.fixed_ms + step.draft_ms + step.cycle_ms)
    assert step.kv_ms == pytest.approx(4 * 1000 * 70272 / (1.79e12 * 0.75) * 1e3)
    assert step.cycle_ms == RTX.cycle_fixed_ms == 0.0


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
    box, kimi = replace(RTX, allreduce_us=table), replace(KIMI, fixed_ms=3.0)
    base = decode_step(box, kimi, batch=1).total_ms
    cycle = decode_step(box, kimi, batch=1, speculation=CHAIN_3).total_ms
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

    assert total((new, context)) <= total((new + 1, context))
    assert total((new, context)) < total((new + 8192, context))
    assert total((new, context)) <= total((new, context + 100))
    assert total((new, 0), (new, 0)) <= 2 * total((new, 0))


def test_kv_capacity():
    def capacity(share: float, **more) -> int:
        return kv_capacity_tok(RTX, KIMI, mem_fraction_static=share, **more)

    assert capacity(0.5) == 0
    assert 0 < capacity(0.85) < capacity(0.9)
    assert capacity(0.9, speculative=True) < capacity(0.9)
    assert capacity(0.9) == pytest.approx((96 * 2**30 * 0.9 - 75.9e9 - 0.39e9) / 70272, rel=0.01)
    # The draft's KV: 64 heads, of which each of 8 ranks has 8.
    slot = 70272 + 32768 / 8
    draft = 1.192e9 * 2 / 8 + 7 / 8 * 154140672 * 2
    free = 96 * 2**30 * 0.9 - 75.9e9 - 0.39e9 - draft
    assert capacity(0.9, speculative=True) == pytest.approx(free / slot, rel=0.01)


def step_ms(hardware=RTX, target=KIMI, **asked) -> float:
    return decode_step(hardware, target, **{"batch": 4} | asked).total_ms


def test_a_batch_is_padded_to_the_next_captured_size():
    captured = (1, 2, 4, 8)
    assert step_ms(batch=5, graph_batches=captured) == step_ms(batch=8)
    assert step_ms(batch=8, graph_batches=captured) == step_ms(batch=8)
    # Padding rows have no context of their own.
    padded = decode_step(RTX, KIMI, batch=5, context_tok_mean=1000, graph_batches=captured)
    whole = decode_step(RTX, KIMI, batch=8, context_tok_mean=1000)
    assert padded.kv_ms == pytest.approx(whole.kv_ms * 5 / 8)


def test_beyond_the_captured_sizes_the_host_launches_every_kernel():
    llama, h100 = load_target("llama-3.1-8b"), load_hardware("h100-x1")
    eager = decode_step(h100, llama, batch=5, graph_batches=(1, 2, 4)).total_ms
    launching = h100.fixed_ms + 32 * h100.eager_layer_us / 1e3
    assert eager == pytest.approx(launching)
    # A forward that keeps the GPUs busy for longer hides the launches.
    busy = [decode_step(h100, llama, batch=2000, graph_batches=given) for given in ((), None)]
    assert busy[0] == busy[1]


def test_older_engines_take_longer_for_a_cycle_and_nothing_else():
    engines = (SGLANG_0_5_23, SGLANG_0_5_SPEC_V1, SGLANG_0_4_4)
    times = [step_ms(speculation=CHAIN_3, engine=engine) for engine in engines]
    assert times == sorted(set(times))
    assert len({step_ms(engine=engine) for engine in engines}) == 1


@QUICK
@given(hardware, st.integers(1, 64), st.integers(1, 8), st.integers(2, 8))
def test_a_tree_takes_longer_than_the_chain_of_its_size(card, batch, num_steps, topk):
    chain = Speculation(num_steps=num_steps, topk=1, num_draft_tokens=num_steps + 1)
    tree = replace(chain, topk=topk)
    assert step_ms(card, batch=batch, speculation=chain) < step_ms(
        card, batch=batch, speculation=tree
    )


def test_a_draft_reads_its_head_and_layer_each_step_and_its_fc_once():
    draft = load_draft("llama-3.1-8b-eagle3")
    step, extend = (weight_bytes_per_gpu(draft, 1, 1, extend=extend) for extend in (False, True))
    assert step == 2 * (3 * 4096 * 4096 + 2 * 8192 * 1024 + 3 * 4096 * 14336 + 32000 * 4096)
    assert extend - step == 2 * 3 * 4096 * 4096
    # fc is a copy on every rank.
    assert weight_bytes_per_gpu(draft, 1, 8) == pytest.approx(step / 8 + extend - step)


def test_kv_heads_are_copied_where_there_are_more_ranks_than_heads():
    qwen = load_target("qwen3-30b-a3b")  # 4 KV heads
    kv = [kv_bytes_per_token_per_gpu(qwen, tp) for tp in (1, 2, 4, 8)]
    assert kv == [48 * 2048, 48 * 1024, 48 * 512, 48 * 512]
    alone = replace(qwen, parts=tuple(p for p in qwen.parts if p.name == "attention k v"))
    four, eight = (weight_bytes_per_gpu(alone, 0, tp) for tp in (4, 8))
    assert four == eight


def test_eight_bit_operands_go_twice_as_fast():
    llama = load_target("llama-3.1-8b")
    fast = replace(llama, parts=tuple(replace(p, bits=8, compute_bits=8) for p in llama.parts))
    assert flop_per_token(fast, 1) == flop_per_token(llama, 1) / 2
    assert weight_bytes_per_gpu(fast, 1, 1) == weight_bytes_per_gpu(llama, 1, 1) / 2


def test_a_mixed_forward_is_cheaper_than_two():
    chunks = [(512, 0)]
    mixed = mixed_step(RTX, KIMI, chunks=chunks, batch=8, context_tok_mean=1000).total_ms
    apart = prefill_time(RTX, KIMI, chunks=chunks).total_ms
    assert apart < mixed < apart + step_ms(batch=8, context_tok_mean=1000)
    assert mixed_step(RTX, KIMI, chunks=chunks) == prefill_time(RTX, KIMI, chunks=chunks)


def test_a_draft_takes_in_the_prompt_too():
    chunks = [(2048, 0)]
    plain = prefill_time(RTX, KIMI, chunks=chunks)
    drafting = prefill_time(RTX, KIMI, chunks=chunks, speculative=True)
    assert drafting.draft_ms > 0
    assert drafting.total_ms == pytest.approx(plain.total_ms + drafting.draft_ms)


def test_a_found_prefix_costs_only_its_attention():
    cached = prefill_time(RTX, KIMI, chunks=[(64, 1984)]).total_ms
    assert cached < prefill_time(RTX, KIMI, chunks=[(2048, 0)]).total_ms / 4
    assert cached > prefill_time(RTX, KIMI, chunks=[(64, 0)]).total_ms


def test_chunks_of_a_prompt_cost_at_least_the_whole():
    whole = prefill_time(RTX, KIMI, chunks=[(8192, 0)]).total_ms
    halves = [prefill_time(RTX, KIMI, chunks=[(4096, done)]).total_ms for done in (0, 4096)]
    assert whole < sum(halves)


def test_fitted_constants_take_the_hardwares_place():
    plain = decode_step(RTX, replace(KIMI, fixed_ms=5.0), batch=1)
    assert plain.fixed_ms == 5.0
    fitted = replace(KIMI, cycle_fixed_ms=1.5)
    drafting = decode_step(RTX, fitted, batch=1, speculation=CHAIN_3)
    assert drafting.cycle_ms == 1.5


def test_without_a_draft_card_drafting_takes_its_fixed_time():
    step = decode_step(RTX, replace(KIMI, draft=None), batch=1, speculation=CHAIN_3)
    assert step.draft_ms == pytest.approx(3 * RTX.draft_fixed_ms)


@pytest.mark.parametrize(
    ("name", "total", "active"),
    [
        ("llama-3.1-8b", 8.03, 7.5),
        ("llama-3.3-70b", 70.55, 69.5),
        ("qwen3-30b-a3b", 30.5, 3.04),
        ("deepseek-v3", 671.0, 36.6),
    ],
)
def test_the_models_are_as_large_as_their_makers_say(name, total, active):
    card = load_target(name)
    assert card.total_parameters / 1e9 == pytest.approx(total, rel=0.002)
    assert card.active_parameters / 1e9 == pytest.approx(active, rel=0.005)
