import json
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.errors import InputError
from bench.foreign import (
    CountDoubt,
    Rows,
    agrees_with_itself,
    count_doubts,
    parse_rows,
    read_results,
    read_rows,
    recomputed,
    strict_json,
    to_result,
)

SGLANG = {
    "backend": "sglang-oai",
    "dataset_name": "random",
    "request_rate": math.inf,
    "max_concurrency": 100,
    "completed": 1000,
    "duration": 418.03,
    "total_input_tokens": 512842,
    "total_output_tokens": 510855,
    "total_output_tokens_retokenized": 510773,
    "request_throughput": 2.3922,
    "input_throughput": 1226.81,
    "output_throughput": 1222.06,
    "total_throughput": 2448.87,
    "mean_e2e_latency_ms": 40720.71,
    "median_e2e_latency_ms": 28510.99,
    "p99_ttft_ms": 56565.52,
    "mean_tpot_ms": math.nan,
    "concurrency": 97.41,
    "accept_length": 2.86,
    "max_output_tokens_per_s": 3713.0,
    "server_info": {"internal_states": [{"avg_spec_accept_length": math.nan}]},
}
VLLM = {
    "model_id": "meta-llama/Llama-3.1-8B-Instruct",
    "tokenizer_id": "x",
    "request_rate": "inf",
    "completed": 50,
    "failed": 2,
    "duration": 20.0,
    "total_input_tokens": 1000,
    "total_output_tokens": 6371,
    "request_throughput": 2.5,
    "output_throughput": 318.55,
    "total_token_throughput": 368.55,
    "median_e2el_ms": 700.0,
    "p90_e2el_ms": 900.0,
    "p99.9_e2el_ms": 950.0,
    "spec_decode_acceptance_rate": 74.14,
    "spec_decode_acceptance_length": 3.2242,
    "spec_decode_num_drafts": 1976,
    "spec_decode_draft_tokens": 5928,
    "spec_decode_accepted_tokens": 4395,
    "spec_decode_per_position_acceptance_rates": [0.8649, 0.7247, 0.6346],
}


def result_of(row):
    return to_result(parse_rows(json.dumps(row)).rows[0])


def test_a_row_of_bench_serving():
    result = result_of(SGLANG)
    assert result.tool == "sglang"
    assert (result.completed_ct, result.failed_ct, result.duration_s) == (1000, None, 418.03)
    assert result.request_rate_per_s is None
    assert result.output_tok_retokenized == 510773
    assert result.e2e_ms is not None
    assert (result.e2e_ms.mean_ms, result.e2e_ms.std_ms) == (40720.71, None)
    assert result.ttft_ms is not None
    assert result.ttft_ms.percentiles_ms == ((99.0, 56565.52),)
    assert result.tpot_ms is None
    assert (result.accept_len_tok, result.accept_scope) == (2.86, "since_flush")
    assert result.spec is None
    assert result.row["server_info"]["internal_states"] == [{"avg_spec_accept_length": None}]
    assert agrees_with_itself(result) is True


def test_a_row_of_vllm():
    result = result_of(VLLM)
    assert result.tool == "vllm"
    assert (result.completed_ct, result.failed_ct) == (50, 2)
    assert result.total_tok_per_s == 368.55
    assert result.e2e_ms is not None
    assert result.e2e_ms.percentiles_ms == ((90.0, 900.0), (99.9, 950.0))
    assert result.spec is not None
    assert result.spec.accept_rate == pytest.approx(0.7414)
    assert result.spec.accept_at_position == (0.8649, 0.7247, 0.6346)
    assert result.accept_scope == "run"
    found = {check.field: check.value for check in recomputed(result)}
    assert found["spec_decode_acceptance_length"] == pytest.approx(1 + 4395 / 1976)
    assert agrees_with_itself(result) is True


@pytest.mark.parametrize(
    ("row", "field", "wrong"),
    [
        (SGLANG, "output_throughput", 1300.0),
        (SGLANG, "concurrency", 100.0),
        (SGLANG, "request_throughput", 2.5),
        (VLLM, "spec_decode_acceptance_length", 2.2),
        (VLLM, "total_token_throughput", 318.55),
    ],
)
def test_a_figure_that_does_not_follow_from_the_counts(row, field, wrong):
    result = result_of(row | {field: wrong})
    assert agrees_with_itself(result) is False
    assert len([check for check in recomputed(result) if not check.agrees]) == 1


def test_nothing_told_twice_neither_agrees_nor_disagrees():
    assert agrees_with_itself(result_of({"completed": 3})) is None
    assert recomputed(result_of({"completed": 3, "duration": 0.0, "request_throughput": 1})) == ()


def test_text_where_a_number_is_wanted_is_none():
    result = result_of({"completed": "many", "duration": True, "accept_length": "2.9"})
    assert (result.completed_ct, result.duration_s, result.accept_len_tok) == (None, None, None)


# -------------------------------------------------------------------------------------------- JSON


def test_jsonl_with_nan_and_a_line_that_was_cut():
    rows = parse_rows('{"a": NaN, "b": [1.5, -Infinity]}\n\n7\n{"a": 1e999}\n{"a": 1')
    assert rows.rows == ({"a": None, "b": [1.5, None]}, {"a": None})
    assert rows.damaged == (3, 5)


def test_one_object_and_a_list_of_objects():
    assert parse_rows('{\n "a": 1\n}').rows == ({"a": 1},)
    assert parse_rows('[{"a": 1}, {"a": 2}]').rows == ({"a": 1}, {"a": 2})
    assert parse_rows("").rows == ()


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda parts: st.lists(parts) | st.dictionaries(st.text(), parts),
    max_leaves=10,
)


def refuse(constant):
    raise AssertionError(constant)


@given(json_values)
@settings(deadline=None, max_examples=100)
def test_what_is_written_is_strict_json_and_reads_back(value):
    text = strict_json({"value": value})
    read = json.loads(text, parse_constant=refuse)
    assert parse_rows(text).rows == (read,)
    assert strict_json(read) == text


def test_files(tmp_path):
    path = tmp_path / "result.jsonl"
    path.write_text("\n".join(json.dumps(row) for row in (SGLANG, VLLM)))
    assert [result.tool for result in read_results(path)] == ["sglang", "vllm"]
    with pytest.raises(InputError, match="No such file"):
        read_rows(tmp_path / "none.jsonl")
    path.write_text("not JSON\n")
    with pytest.raises(InputError, match="no JSON object"):
        read_results(path)


# ----------------------------------------------------------------------------------- token counts


@pytest.mark.parametrize(
    ("row", "doubts"),
    [
        (
            {"total_output_tokens": 10, "total_output_tokens_retokenized": 1000},
            [CountDoubt.RETOKENIZED_DIFFERS],
        ),
        ({"total_output_tokens": 1040, "total_output_tokens_retokenized": 1000}, []),
        (
            {"total_output_tokens": 5, "total_output_tokens_retokenized": 0},
            [CountDoubt.RETOKENIZED_DIFFERS],
        ),
        (
            {"total_output_tokens": 516, "requested_output_tokens": 900, "ignore_eos": True},
            [CountDoubt.FEWER_THAN_FORCED],
        ),
        ({"total_output_tokens": 516, "requested_output_tokens": 900}, []),
        (
            {"total_output_tokens": 0, "mean_itl_ms": 77.9},
            [CountDoubt.GAPS_WITHOUT_TOKENS],
        ),
        ({"total_output_tokens": 0, "mean_itl_ms": 0.0}, []),
        ({"total_output_tokens": 0, "mean_itl_ms": None}, []),
        ({"mean_itl_ms": 3.0}, []),
    ],
)
def test_doubtful_token_counts(row, doubts):
    assert list(count_doubts(row)) == doubts


ROWS = [{"completed": 5, "generated_texts": ["a\u2028b\x85c"]}, {"completed": 7, "model": "Ä"}]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
@pytest.mark.parametrize("indent", [None, 1])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_a_file_is_read_whatever_wrote_it(tmp_path, encoding, indent, end):
    """A byte-order mark, other line ends, separators of Unicode within texts, printed objects."""
    path = tmp_path / "result.jsonl"
    text = "\n".join(json.dumps(row, ensure_ascii=False, indent=indent) for row in ROWS) + "\n"
    path.write_bytes(text.replace("\n", end).encode(encoding))
    assert read_rows(path) == Rows(rows=tuple(ROWS), damaged=())


@given(
    st.recursive(
        st.none() | st.booleans() | st.floats() | st.text(max_size=5) | st.just("\ud83d"),
        lambda part: st.lists(part, max_size=3) | st.dictionaries(st.text(max_size=3), part),
        max_leaves=8,
    )
)
@settings(deadline=None, max_examples=60)
def test_whatever_is_read_can_be_written_strictly_and_read_again(value):
    [row] = parse_rows(json.dumps({"x": value})).rows
    text = strict_json(row)
    assert json.loads(text.encode("utf-8"), parse_constant=pytest.fail) == row


@pytest.mark.parametrize("depth", [99, 101, 900, 100_000])
def test_a_row_beyond_measure_is_damaged_and_what_is_read_can_be_written(depth):
    rows = parse_rows('{"a":' * depth + "1" + "}" * depth)
    assert (rows.damaged == (1,)) is (depth > 100)
    assert all(strict_json(row) for row in rows.rows)


@pytest.mark.parametrize(
    ("row", "is_doubtful"),
    [
        ({"total_output_tokens": 0, "p99_itl_ms": 5.0}, True),
        ({"total_output_tokens": 0, "std_tpot_ms": 5.0}, True),
        ({"total_output_tokens": 0, "itls": [[], [0.1]]}, True),
        ({"total_output_tokens": 0, "itls": [[], []]}, False),
        ({"total_output_tokens": 0, "itls": 5, "mean_itl_ms": 0.0}, False),
        ({"total_output_tokens": None, "mean_itl_ms": 5.0}, False),
    ],
)
def test_gaps_under_any_name_need_tokens(row, is_doubtful):
    assert bool(count_doubts(row)) is is_doubtful
