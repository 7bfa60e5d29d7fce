import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.sglang.log_lines import (
    DecodeLine,
    LogPrefix,
    PrefillLine,
    parse_batch_line,
    parse_batch_lines,
    parse_prefix,
)

FULL = (
    "[2025-10-22 10:27:57 DP2 TP1] Decode batch. #running-req: 1, #token: 186, token usage: 0.05, "
    "accept len: 1.95, accept rate: 0.49, cuda graph: True, gen throughput (token/s): 178.86, "
    "#queue-req: 0, "
)


def test_the_recorded_batch_lines_are_read_whole(recording):
    lines = [
        parse_batch_line(line) for line in (recording / "server.log").read_text().splitlines()
    ]
    decode = [line for line in lines if isinstance(line, DecodeLine)]
    prefill = [line for line in lines if isinstance(line, PrefillLine)]
    assert decode
    assert prefill
    assert not any(line.is_truncated for line in (*decode, *prefill))
    speculative = recording.name != "baseline"
    for line in decode:
        assert line.prefix.time_text is not None
        assert line.running_ct is not None
        assert line.gen_tok_per_s is not None
        assert line.cuda_graph is False
        assert (line.accept_len_tok is not None) is speculative
        assert (line.accept_rate is not None) is speculative
    assert all(line.new_tok is not None and line.input_tok_per_s is not None for line in prefill)


def test_every_field_of_a_line():
    assert parse_batch_line(FULL) == DecodeLine(
        prefix=LogPrefix(time_text="2025-10-22 10:27:57", dp_rank=2, tp_rank=1),
        running_ct=1,
        kv_tok=186,
        token_usage=0.05,
        accept_len_tok=1.95,
        accept_rate=0.49,
        cap_len_tok=None,
        cuda_graph=True,
        gen_tok_per_s=178.86,
        queue_ct=0,
        is_truncated=False,
    )


def test_hybrid_models_report_their_full_attention_layers():
    line = parse_batch_line(
        "[2026-08-15 05:37:25 TP0] Decode batch [17], #running-req: 1, #swa token: 512, swa token "
        "usage: 0.90, #full token: 768, full token usage: 0.25, cap len: 6.00, npu graph: False, "
        "gen throughput (token/s): 453.13, #queue-req: 3"
    )
    assert isinstance(line, DecodeLine)
    assert (line.kv_tok, line.token_usage, line.cap_len_tok) == (768, 0.25, 6.0)
    assert (line.cuda_graph, line.queue_ct) == (False, 3)


def test_every_field_of_a_hybrid_line_in_a_disaggregated_server():
    line = parse_batch_line(
        "[2026-08-15 05:37:25 DP3 PP1 TP2 EP5] Decode batch [1042], #running-req: 12, #full "
        "token: 768, full token usage: 0.25, mamba num: 14, mamba usage: 0.40, accept len: 3.10, "
        "accept rate: 0.70, cap len: 6.00, block accept len: 2.50, pre-allocated usage: 0.10, "
        "#prealloc-req: 1, #transfer-req: 2, #retracted-req: 3, musa graph: True, gen throughput "
        "(token/s): 453.13, #queue-req: 4, est. decode TFLOPS/s (per GPU): 1.25, "
        "est. read BW (GB/s per GPU): 812.00, fwd occupancy: 97.20%"
    )
    assert line == DecodeLine(
        prefix=LogPrefix(
            time_text="2026-08-15 05:37:25", dp_rank=3, tp_rank=2, pp_rank=1, ep_rank=5
        ),
        iteration=1042,
        running_ct=12,
        kv_tok=768,
        token_usage=0.25,
        mamba_ct=14,
        mamba_usage=0.40,
        accept_len_tok=3.10,
        accept_rate=0.70,
        cap_len_tok=6.0,
        block_accept_len_tok=2.5,
        retracted_ct=3,
        cuda_graph=True,
        gen_tok_per_s=453.13,
        queue_ct=4,
        is_truncated=False,
    )


def test_a_new_prefill_line():
    line = parse_batch_line(
        "[2026-07-04 04:31:24 TP0] Prefill batch [7], #new-seq: 12, #new-token: 43008, "
        "#cached-token: 5, full token usage: 0.14, swa token usage: 0.11, mamba usage: 0.20, "
        "#running-req: 1, #queue-req: 97, #pending-token: 109585, npu graph: False, "
        "input throughput (token/s): 15734.14"
    )
    assert line == PrefillLine(
        prefix=LogPrefix(time_text="2026-07-04 04:31:24", dp_rank=None, tp_rank=0),
        iteration=7,
        new_request_ct=12,
        new_tok=43008,
        cached_tok=5,
        token_usage=0.14,
        swa_usage=0.11,
        mamba_usage=0.20,
        running_ct=1,
        queue_ct=97,
        pending_tok=109585,
        cuda_graph=False,
        input_tok_per_s=15734.14,
        is_truncated=False,
    )


def test_a_prefill_line_cut_behind_its_queue():
    line = parse_batch_line(
        "[2026-07-04 04:31:24 TP0] Prefill batch, #new-seq: 1, #new-token: 2, #cached-token: 0, "
        "token usage: 0.14, #running-req: 1, #queue-req: 97, #pending-token: 0, cuda gra"
    )
    assert isinstance(line, PrefillLine)
    assert line.is_truncated
    assert line.queue_ct == 97


def test_a_line_that_lost_its_head_keeps_the_rest():
    whole = parse_batch_line(FULL)
    line = parse_batch_line(FULL[FULL.index("accept len") :])
    assert isinstance(line, DecodeLine)
    assert isinstance(whole, DecodeLine)
    assert line.is_truncated
    assert (line.accept_len_tok, line.gen_tok_per_s) == (1.95, whole.gen_tok_per_s)
    assert line.running_ct is None
    prefill = parse_batch_line("oken: 5, #new-token: 7, input throughput (token/s): 1.00")
    assert isinstance(prefill, PrefillLine)
    assert (prefill.new_tok, prefill.is_truncated) == (7, True)


@pytest.mark.parametrize(
    ("end", "gen"),
    [("gen throughput (token/s): 178.86", 178.86), ("gen throughput (token/s): 178", None)],
)
def test_the_last_value_of_a_cut_line_counts_only_when_it_is_whole(end, gen):
    line = parse_batch_line(FULL[: FULL.index("gen throughput")] + end)
    assert isinstance(line, DecodeLine)
    assert (line.gen_tok_per_s, line.is_truncated) == (gen, True)


def test_ranks_that_wrote_into_one_line_are_told_apart():
    other = FULL.replace("DP2 TP1", "DP3 TP1").replace("178.86", "99.00")
    lines = parse_batch_lines([FULL.strip() + other, " 50%|#####", other])
    assert [line.prefix.dp_rank for line in lines] == [2, 3, 3]
    assert not any(line.is_truncated for line in lines)


@pytest.mark.parametrize(
    ("text", "time", "ranks"),
    [
        ("[2026-04-05 20:02:51.123 TP0] x", "2026-04-05 20:02:51.123", (None, None, 0, None)),
        (
            "2026-03-18 11:22:05.874 INFO 1 [ DP1 TP0 scheduler_metrics_mixin.py:415] ",
            "2026-03-18 11:22:05.874",
            (1, None, 0, None),
        ),
        (
            "2025-07-25T07:53:08.2+08:00 stdout F [2025-07-25 07:53:08 TP2] ",
            "2025-07-25 07:53:08",
            (None, None, 2, None),
        ),
        ("(EngineCore pid=7) [2026-04-05 20:02:51] ", "2026-04-05 20:02:51", (None,) * 4),
        ("no date", None, (None,) * 4),
    ],
)
def test_prefixes(text, time, ranks):
    prefix = parse_prefix(text)
    assert (prefix.time_text, prefix.ranks) == (time, (*ranks, None, None))


def test_colours_are_no_part_of_a_line():
    coloured = "\x1b[32m" + FULL.replace("accept len", "\x1b[1maccept len\x1b[0m")
    assert parse_batch_line(coloured) == parse_batch_line(FULL)


def test_an_old_prefill_line():
    line = parse_batch_line(
        "[2025-01-07 20:16:02 TP0] Prefill batch. #new-seq: 1, #new-token: 48, #cached-token: 0, "
        "cache hit rate: 0.00%, token usage: 0.00, #running-req: 0, #queue-req: 0"
    )
    assert isinstance(line, PrefillLine)
    assert (line.new_request_ct, line.new_tok, line.cached_tok) == (1, 48, 0)
    assert line.input_tok_per_s is None
    assert line.cache_hit_rate == 0.0
    assert not line.is_truncated


@given(st.integers(0, len(FULL)))
@settings(deadline=None, max_examples=100)
def test_a_cut_line_keeps_whole_fields_and_says_that_it_was_cut(end):
    line = parse_batch_line(FULL[:end])
    if line is None:
        assert "#running-req: 1," not in FULL[:end]
        return
    whole = parse_batch_line(FULL)
    assert isinstance(line, DecodeLine)
    for name in ("running_ct", "kv_tok", "token_usage", "accept_len_tok", "gen_tok_per_s"):
        assert getattr(line, name) in {None, getattr(whole, name)}
    assert line.is_truncated == ("#queue-req: 0" not in FULL[:end])


def test_what_stands_before_a_cut_name_is_whole():
    line = parse_batch_line("Decode batch, #running-req: 12, #token: 900, token usa")
    assert isinstance(line, DecodeLine)
    assert (line.running_ct, line.kv_tok, line.token_usage) == (12, 900, None)
    assert line.is_truncated


@pytest.mark.parametrize(
    "line", ["", "Decode", "a Decode batch", '[2026-04-05 20:02:51] INFO: "POST /x" 200 OK']
)
def test_other_lines_are_none(line):
    assert parse_batch_line(line) is None


@given(st.text(max_size=80))
@settings(deadline=None, max_examples=50)
def test_no_text_breaks_the_parser(text):
    parse_batch_line("Decode batch" + text)
    parse_batch_line(text + ", gen throughput (token/s): " + text)
    parse_batch_lines([text, "Prefill batch" + text])


@pytest.mark.parametrize("number", ["9" * 5000, "9" * 400, "1e999", "-1", "٣" * 5000, "NaN"])
@pytest.mark.parametrize(
    "line",
    [
        (
            "[2026-01-01 00:00:00 DP{} TP{}] Decode batch [{}], #running-req: {}, #token: {}, "
            "token usage: {}, gen throughput (token/s): {}, #queue-req: {}"
        ),
        "Prefill batch, #new-seq: {}, #new-token: {}, #cached-token: {}, #queue-req: {}, ",
        "gen throughput (token/s): {}, #running-req: {}, #queue-req: {}",
    ],
)
def test_numbers_beyond_measure_break_nothing(line, number):
    parsed = parse_batch_line(line.replace("{}", number))
    assert parsed is None or parsed.running_ct in {None, 3}


OTHER = FULL.replace("DP2 TP1", "DP3 TP0").replace("186,", "99,").replace("178.86", "55.00")


@given(st.integers(FULL.index("#token"), len(FULL)))
@settings(deadline=None, max_examples=60)
def test_a_rank_that_writes_into_anothers_line_loses_nothing(place):
    lines = [FULL[:place] + OTHER, FULL[place:]]
    whole = [b for b in parse_batch_lines(lines) if b.prefix.dp_rank == 3]
    assert whole == [parse_batch_line(OTHER)]
    for cut in parse_batch_lines(lines):
        assert isinstance(cut, DecodeLine)
        if cut.prefix.dp_rank != 3:
            assert cut.kv_tok in {None, 186}
            assert cut.gen_tok_per_s in {None, 178.86}


@pytest.mark.parametrize("end", [", ", "", "\r\n"])
def test_lines_without_a_date_that_share_a_line_are_told_apart(end):
    bare, other = (text.partition("] ")[2].removesuffix(", ") for text in (FULL, OTHER))
    first, second = parse_batch_lines([bare + end + other])
    assert isinstance(first, DecodeLine)
    assert isinstance(second, DecodeLine)
    assert (first.kv_tok, first.queue_ct, second.kv_tok, second.queue_ct) == (186, 0, 99, 0)


@pytest.mark.parametrize(
    ("written", "field", "value"),
    [
        ("token usage: 5%", "token_usage", 0.05),
        ("token usage: 5.00%", "token_usage", 0.05),
        ("#token: 37,217", "kv_tok", 37217),
        ("#token: 1,037,217", "kv_tok", 1037217),
        ("#token: -3", "kv_tok", None),
        ("accept len: nan", "accept_len_tok", None),
        ("gen throughput (token/s): inf", "gen_tok_per_s", None),
        ("#queue-req: 4)", "queue_ct", 4),
    ],
)
def test_values_in_another_unit_or_none(written, field, value):
    name = written.partition(":")[0]
    old = next(part for part in FULL.split(", ") if name in part).partition("Decode batch. ")
    line = parse_batch_line(FULL.replace(old[2] or old[0], written))
    assert isinstance(line, DecodeLine)
    assert getattr(line, field) == value
    assert not line.is_truncated


def test_a_log_of_json_and_tabs_between_fields():
    message = FULL.partition("] ")[2].removesuffix(", ")
    for text in (f'{{"time": "x", "message": "{message}"}}', message.replace(", ", ",\t")):
        line = parse_batch_line(text)
        assert isinstance(line, DecodeLine)
        assert (line.kv_tok, line.gen_tok_per_s, line.queue_ct) == (186, 178.86, 0)
        assert not line.is_truncated


@pytest.mark.parametrize(
    "head",
    [
        "[2026-04-05 20:02:51] Receive: obj=GenerateReqInput(text='",
        "[2026-04-05 20:02:51] Finish: obj=",
        '[2026-04-05 20:02:51] INFO:     127.0.0.1 - "POST /',
    ],
)
def test_what_a_logged_request_quotes_is_no_line_of_the_server(head):
    message = FULL.partition("] ")[2]
    assert parse_batch_lines([head + message + "'"]) == []
    assert parse_batch_lines([head + message.partition("batch.")[2] + "'"]) == []


def test_ranks_of_every_kind():
    prefix = parse_prefix("[2026-04-05 20:02:51 DP0 PP1 ATTN_CP2 MOE_DP3 TP4 EP5] x")
    assert (prefix.dp_rank, prefix.pp_rank, prefix.cp_rank) == (0, 1, 2)
    assert (prefix.moe_dp_rank, prefix.tp_rank, prefix.ep_rank) == (3, 4, 5)
    assert prefix.ranks == (0, 1, 4, 5, 2, 3)


@given(
    st.integers(0, 10**6),
    st.decimals(0, 1, places=2),
    st.decimals(1, 9, places=2) | st.none(),
    st.sampled_from(["cuda", "cpu", "npu", "musa"]),
    st.booleans(),
    st.sampled_from(["Decode batch, ", "Decode batch. ", "Decode batch [7], "]),
    st.permutations(range(6)),
)
@settings(deadline=None, max_examples=60)
def test_fields_in_any_order_and_form(tokens, usage, length, kind, graph, head, order):
    fields = [
        "#running-req: 3",
        f"#token: {tokens}",
        f"token usage: {usage}",
        "#unknown-thing: 5" if length is None else f"accept len: {length}",
        f"{kind} graph: {graph}",
        "gen throughput (token/s): 12.50",
    ]
    text = head + ", ".join(fields[i] for i in order) + ", #queue-req: 1"
    line = parse_batch_line(text)
    assert isinstance(line, DecodeLine)
    assert (line.running_ct, line.kv_tok, line.cuda_graph) == (3, tokens, graph)
    assert line.token_usage == float(usage)
    assert line.accept_len_tok == (None if length is None else float(length))
    assert not line.is_truncated
