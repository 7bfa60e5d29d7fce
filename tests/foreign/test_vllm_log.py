import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.foreign import EngineLine, SpecLine, parse_vllm_line, parse_vllm_log

NEW = (
    "(APIServer pid=1) INFO 09-04 11:01:16 [metrics.py:125] SpecDecoding metrics: Mean acceptance "
    "length: 6.82, Current speculative depth: 7, Accepted throughput: 6.46 tokens/s, Drafted "
    "throughput: 7.77 tokens/s, Accepted: 256 tokens, Drafted: 308 tokens, Per-position "
    "acceptance rate: 1.000, 1.000, 1.000, 1.000, 0.795, 0.614, 0.409, Avg Draft acceptance "
    "rate: 83.1%"
)


def test_every_field_of_a_line():
    assert parse_vllm_line(NEW) == SpecLine(
        time_text="09-04 11:01:16",
        accept_len_tok=6.82,
        accept_rate=pytest.approx(0.831),
        accepted_tok=256,
        drafted_tok=308,
        accepted_tok_per_s=6.46,
        drafted_tok_per_s=7.77,
        accept_at_position=(1.0, 1.0, 1.0, 1.0, 0.795, 0.614, 0.409),
        depth=7,
        is_truncated=False,
    )


def test_the_oldest_lines():
    first = parse_vllm_line(
        "SpecDecoding metrics: Draft acceptance rate: 70.5%, Accepted: 423 tokens, Drafted: 600 "
        "tokens"
    )
    assert isinstance(first, SpecLine)
    assert (first.accept_rate, first.accepted_tok, first.depth) == (0.705, 423, None)
    assert first.rate_agrees is True
    assert first.length_agrees is None
    v0 = parse_vllm_line(
        "INFO 02-11 14:50:38 metrics.py:477] Speculative metrics: Draft acceptance rate: 0.550, "
        "System efficiency: 0.133, Number of speculative tokens: 8, Number of accepted tokens: "
        "44, Number of draft tokens: 80, Number of emitted tokens: 12."
    )
    assert isinstance(v0, SpecLine)
    assert (v0.time_text, v0.depth, v0.accept_rate) == ("02-11 14:50:38", 8, 0.550)
    assert v0.accept_len_tok == pytest.approx(0.133 * 9, abs=0.005)
    assert not v0.is_truncated


def test_engine_lines():
    line = parse_vllm_line(
        "(APIServer pid=1) INFO 09-09 11:51:35 [loggers.py:123] Engine 001: Avg prompt "
        "throughput: 12.5 tokens/s, Avg generation throughput: 75.3 tokens/s, Running: 6 reqs, "
        "Waiting: 2 reqs, GPU KV cache usage: 9.2%, Prefix cache hit rate: 50.0%"
    )
    assert line == EngineLine(
        time_text="09-09 11:51:35",
        engine=1,
        prompt_tok_per_s=12.5,
        output_tok_per_s=75.3,
        running_ct=6,
        waiting_ct=2,
        kv_usage=pytest.approx(0.092),
        cache_hit_rate=0.5,
    )
    old = parse_vllm_line(
        "INFO 08-27 15:21:10 metrics.py:406] Avg prompt throughput: 0.0 tokens/s, Avg generation "
        "throughput: 75.3 tokens/s, Running: 6 reqs, Swapped: 0 reqs, Pending: 1 reqs"
    )
    assert isinstance(old, EngineLine)
    assert (old.engine, old.waiting_ct, old.kv_usage) == (None, 1, None)


@pytest.mark.parametrize(
    ("change", "broken"),
    [
        (("length: 6.82", "length: 6.50"), "length_agrees"),
        (("Accepted: 256", "Accepted: 250"), "rate_agrees"),
        (("0.409", "0.109"), "depth_agrees"),
    ],
)
def test_identities_that_do_not_hold(change, broken):
    whole = parse_vllm_line(NEW)
    assert isinstance(whole, SpecLine)
    assert getattr(whole, broken) is True
    line = parse_vllm_line(NEW.replace(*change))
    assert isinstance(line, SpecLine)
    assert getattr(line, broken) is False


def test_an_interval_without_drafts_has_no_values():
    line = parse_vllm_line(
        "SpecDecoding metrics: Mean acceptance length: nan, Accepted throughput: 0.00 tokens/s, "
        "Drafted throughput: 0.00 tokens/s, Accepted: 0 tokens, Drafted: 0 tokens, Per-position "
        "acceptance rate: nan, nan, Avg Draft acceptance rate: nan%"
    )
    assert isinstance(line, SpecLine)
    assert (line.accept_len_tok, line.accept_rate, line.accepted_tok) == (None, None, 0)
    assert (line.accept_at_position, line.rate_agrees) == ((), None)


@given(st.integers(NEW.index("metrics:"), len(NEW) - 1))
@settings(deadline=None, max_examples=100)
def test_a_cut_line_keeps_whole_fields_and_says_so(end):
    whole, line = parse_vllm_line(NEW), parse_vllm_line(NEW[:end])
    if line is None:
        assert "SpecDecoding metrics:" not in NEW[:end]
        return
    assert isinstance(line, SpecLine)
    assert line.is_truncated
    for name in ("accepted_tok", "drafted_tok", "accept_rate"):
        assert getattr(line, name) in {None, getattr(whole, name)}
    assert line.accept_at_position == whole.accept_at_position[: len(line.accept_at_position)]


def test_a_log_is_read_in_order_and_other_lines_are_left_out():
    log = ["INFO something else", NEW, "Avg prompt throughput: 1.0 tokens/s", ""]
    assert [type(line) for line in parse_vllm_log(log)] == [SpecLine, EngineLine]


@given(st.text(max_size=80))
@settings(deadline=None, max_examples=50)
def test_no_text_breaks_the_parser(text):
    for head in ("SpecDecoding metrics: ", "Speculative metrics: ", "Avg prompt throughput: "):
        parse_vllm_line(head + text)


OLD = (
    "(APIServer pid=1) INFO 09-09 11:51:35 [metrics.py:96] SpecDecoding metrics: Draft "
    "acceptance rate: 88.8%, Mean acceptance length: 5.44, Accepted throughput: 4.37 tokens/s, "
    "Drafted throughput: 4.92 tokens/s, Accepted: 262 tokens, Drafted: 295 tokens, Per-position "
    "acceptance rate: 0.983, 0.949, 0.915, 0.881, 0.712"
)


@given(st.integers(OLD.index("0.983"), len(OLD) - 1), st.sampled_from(["", "\r\n", " "]))
@settings(deadline=None, max_examples=60)
def test_a_line_cut_within_its_positions_says_so_and_tells_no_depth(end, behind):
    line = parse_vllm_line(OLD[:end] + behind)
    assert isinstance(line, SpecLine)
    assert line.is_truncated
    assert line.depth is None
    assert (
        line.accept_at_position
        == (0.983, 0.949, 0.915, 0.881, 0.712)[: len(line.accept_at_position)]
    )
    whole = parse_vllm_line(OLD + behind)
    assert isinstance(whole, SpecLine)
    assert (whole.depth, whole.is_truncated) == (5, False)


def test_an_interval_without_drafts_is_not_cut():
    line = parse_vllm_line(
        "SpecDecoding metrics: Draft acceptance rate: nan%, Mean acceptance length: nan, "
        "Accepted: 0 tokens, Drafted: 0 tokens"
    )
    assert isinstance(line, SpecLine)
    assert not line.is_truncated


def test_entries_that_share_a_line_are_told_apart_each_with_its_date():
    later = OLD.replace("11:51:35", "11:51:45").replace("262", "999")
    engine = "INFO 09-09 11:51:46 Engine 001: Avg prompt throughput: 1.0 tokens/s, Running: 2 reqs"
    first, second, third = parse_vllm_log([OLD + later + engine])
    assert isinstance(first, SpecLine)
    assert isinstance(second, SpecLine)
    assert isinstance(third, EngineLine)
    assert (first.accepted_tok, second.accepted_tok, third.engine) == (262, 999, 1)
    assert [line.time_text for line in (first, second, third)] == [
        "09-09 11:51:35",
        "09-09 11:51:45",
        "09-09 11:51:46",
    ]


def test_colours_and_thousands_change_nothing():
    coloured = (
        OLD.replace("INFO 09-09", "\x1b[32mINFO\x1b[0m \x1b[90m09-09").replace(
            "35 [", "35\x1b[0m ["
        )
    ).replace(" 88.8%", " \x1b[1m88.8%\x1b[0m")
    assert parse_vllm_line(coloured) == parse_vllm_line(OLD)
    line = parse_vllm_line(OLD.replace("262", "12,262"))
    assert isinstance(line, SpecLine)
    assert line.accepted_tok == 12262
