import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.foreign import agrees_with_itself, parse_tables, recomputed

SGLANG = """\
some log line: with a colon
============ Serving Benchmark Result ============
Backend:                                 sglang
Traffic request rate:                    inf
Max reqeuest concurrency:                not set
Successful requests:                     5
Benchmark duration (s):                  176.41
Total input tokens:                      20480
Total generated tokens:                  20480
Total generated tokens (retokenized):    20480
Request throughput (req/s):              0.03
Input token throughput (tok/s):          116.09
Output token throughput (tok/s):         116.09      ← key metric
Total token throughput (tok/s):          232.19
Concurrency:                             1.00
----------------End-to-End Latency----------------
Mean E2E Latency (ms):                   35279.06
P90 E2E Latency (ms):                    35294.13
---------------Inter-Token Latency----------------
Mean ITL (ms):                           nan
Max ITL (ms):                            12.5
==================================================
"""
VLLM = """\
============ Serving Benchmark Result ============
Successful requests:                     1,024
Failed requests:                         0
Maximum request concurrency:             24
Benchmark duration (s):                  100.00
Total input tokens:                      1000
Total generated tokens:                  2000
Request throughput (req/s):              10.24
Output token throughput (tok/s):         20.00
Peak output token throughput (tok/s):    9.00
Peak concurrent requests:                26.00
Total Token throughput (tok/s):          30.00
-----Time per Output Token (excl. 1st token)------
Mean TPOT (ms):                          146.79
P99 TPOT (ms):                           20.62
----------------End-to-end Latency----------------
Mean E2EL (ms):                          730035.75
---------------Speculative Decoding---------------
Acceptance rate (%):                     74.14
Acceptance length:                       3.22
Drafts:                                  1976
Draft tokens:                            5928
Accepted tokens:                         4395
Per-position acceptance (%):
  Position 0:                            86.49
  Position 1:                            72.47
  Position 2:                            63.46
==================================================
"""


def test_a_table_of_sglang():
    [table] = parse_tables(SGLANG)
    assert (table.backend, table.request_rate_per_s, table.max_concurrency) == (
        "sglang",
        None,
        None,
    )
    assert (table.completed_ct, table.output_tok_per_s) == (5, 116.09)
    assert table.e2e_ms is not None
    assert table.e2e_ms.percentiles_ms == ((90.0, 35294.13),)
    assert table.itl_ms is None
    assert table.row["max_itl_ms"] == 12.5
    assert "some log line" not in table.row


def test_rounding_of_small_figures_is_no_disagreement():
    [table] = parse_tables(SGLANG)
    checks = {check.field: check for check in recomputed(table)}
    assert abs(checks["request_throughput"].value - 0.03) > 0.005 * 0.03
    assert agrees_with_itself(table) is True
    [wrong] = parse_tables(SGLANG.replace("0.03\n", "0.04\n"))
    assert agrees_with_itself(wrong) is False


def test_a_table_of_vllm():
    [table] = parse_tables(VLLM)
    assert (table.tool, table.completed_ct, table.failed_ct) == ("vllm", 1024, 0)
    assert (table.max_concurrency, table.max_concurrent_ct) == (24, 26)
    assert table.total_tok_per_s == 30.0
    assert table.spec is not None
    assert table.spec.drafts == 1976
    assert table.spec.accept_at_position == (0.8649, 0.7247, 0.6346)
    assert (table.accept_len_tok, table.accept_scope) == (3.22, "run")
    assert agrees_with_itself(table) is True


def test_several_tables_in_one_text():
    assert [table.tool for table in parse_tables(SGLANG + "\nnext\n" + VLLM)] == ["sglang", "vllm"]


def test_a_table_without_its_title_and_texts_without_a_table():
    [table] = parse_tables("Successful requests:   7\nAccept length:  2.5\n")
    assert (table.completed_ct, table.accept_len_tok) == (7, 2.5)
    assert parse_tables("") == []
    assert parse_tables("no table: here\n") == []


@pytest.mark.parametrize(
    "carrier", ["bench-1  | ", "2026-08-15T05:37:25.1Z stdout F ", "\x1b[32m", "  ", "3: "]
)
@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("text", [SGLANG, VLLM])
def test_a_table_is_read_through_whatever_carries_it(text, carrier, end):
    carried = "".join(f"{carrier}{line}{end}" for line in text.splitlines())
    assert [table.row for table in parse_tables("\ufeff" + carried)] == [
        table.row for table in parse_tables(text)
    ]


@given(st.integers(SGLANG.index("Backend"), len(SGLANG)), st.sampled_from([SGLANG, VLLM]))
@settings(deadline=None, max_examples=60)
def test_a_table_that_was_cut_has_no_figure_that_the_whole_one_has_not(end, text):
    [whole] = parse_tables(text)
    for cut in parse_tables(text[:end]):
        for name, value in cut.row.items():
            same = name.endswith(("_ms", "throughput", "duration")) or isinstance(value, list)
            assert not same or value in (whole.row.get(name), None) or isinstance(value, list)


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("176,41", None),
        ("1,176.41", 1176.41),
        ("1.7641e+02", 176.41),
        ("1e999", None),
        ("-", None),
        ("not set", None),
    ],
)
def test_numbers_of_other_forms_are_read_or_left_out_and_never_made_up(written, read):
    [table] = parse_tables(SGLANG.replace("176.41", written))
    assert table.duration_s == read
