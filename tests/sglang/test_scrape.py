import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.sglang.metric_meanings import MEANINGS, SERIES, SeriesKind, may_be_averaged
from bench.sglang.scrape import counter_delta, parse_scrape, readings

WITH_RANKS = """\
# TYPE sglang:gen_throughput gauge
sglang:gen_throughput{dp_rank="0",tp_rank="0"} 186.12
sglang:gen_throughput{dp_rank="1",tp_rank="4"} NaN
sglang:spec_accept_length{dp_rank="0",tp_rank="0"} 2.93
sglang:spec_accept_length{dp_rank="1",tp_rank="4"} 0.0
sglang:generation_tokens_total{is_streaming="true",model_name="m"} 1.0e+06
sglang:generation_tokens_total{is_streaming="false",model_name="m"} 30794
sglang_cache_hit_rate{model_name="a \\"quote\\", a comma",worker_addr="grpc://x:1"} 0.5
sglang:realtime_tokens_total{mode="decode",tp_rank="0"} 7
sglang:realtime_tokens_total{mode="prefill_cache",tp_rank="0"} 3
"""


def by_name(text):
    return {(reading.name, reading.rank): reading.value for reading in readings(text)}


def test_a_recorded_scrape_is_read_whole(recording):
    text = (recording / "metrics.prom").read_text()
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    samples = parse_scrape(text)
    assert len(samples) == len(lines)
    assert all(sample.value is None or math.isfinite(sample.value) for sample in samples)
    assert any(sample.value is None for sample in samples)  # fwd_occupancy is NaN when idle


def test_the_recorded_servers_give_the_series_we_use(eagle3, baseline):
    found = by_name((eagle3 / "metrics.prom").read_text())
    assert found["sglang:spec_num_steps", None] == 3
    assert 1 < found["sglang:spec_accept_length", None] <= 4
    generated = found["sglang:generation_tokens_total", None]
    verified = found["sglang:spec_verify_calls_total", None]
    assert 1 < generated / verified <= 5
    assert found["sglang:cuda_graph_passes_total{mode=decode_none}", None] >= verified
    assert found["sglang:num_running_reqs", None] == 0
    never_counted = {"sglang:num_aborted_requests_total", "sglang:num_retracted_requests_total"}
    of_sglang = {name for name in SERIES if name.startswith("sglang:")}
    assert {name.partition("{")[0] for name, _ in found} >= of_sglang - never_counted
    assert (
        by_name((baseline / "metrics.prom").read_text())["sglang:spec_accept_length", None] is None
    )


def test_ranks_modes_and_label_sets():
    found = by_name(WITH_RANKS)
    assert found == {
        ("sglang:gen_throughput", 0): 186.12,
        ("sglang:gen_throughput", 1): None,
        ("sglang:spec_accept_length", 0): 2.93,
        ("sglang:spec_accept_length", 1): None,
        ("sglang:generation_tokens_total", None): 1_030_794,
        ("sglang:cache_hit_rate", None): 0.5,
        ("sglang:realtime_tokens_total{mode=decode}", None): 7,
        ("sglang:realtime_tokens_total{mode=prefill_cache}", None): 3,
    }


def test_a_routers_workers_are_told_apart():
    text = "".join(
        f'sglang_num_running_reqs{{worker_addr="grpc://{worker}",tp_rank="0"}} {count}\n'
        for worker, count in (("b", 7), ("a", 5))
    )
    assert by_name(text) == {
        ("sglang:num_running_reqs", None): 5,
        ("sglang:num_running_reqs", 1000): 7,
    }


def test_only_states_may_be_averaged():
    averaged = {name for name in MEANINGS if may_be_averaged(name)}
    assert "sglang:num_queue_reqs" in averaged
    for name in ("spec_accept_length", "spec_accept_rate", "gen_throughput", "cache_hit_rate"):
        assert MEANINGS[f"sglang:{name}"].kind is SeriesKind.LAST_INTERVAL
        assert f"sglang:{name}" not in averaged
    assert not any(name.endswith("_total") for name in averaged)
    assert not may_be_averaged("sglang:realtime_tokens_total{mode=decode}")


def test_counters_are_named_as_such(recording):
    """Prometheus' own naming tells counters from gauges; the server declares the types."""
    declared = {}
    for line in (recording / "metrics.prom").read_text().splitlines():
        if line.startswith("# TYPE sglang:"):
            _, _, name, kind = line.split()
            declared[name] = kind
    known = {name: kind for name, kind in declared.items() if name in MEANINGS}
    assert len(known) > 25
    for name, kind in known.items():
        assert (MEANINGS[name].kind is SeriesKind.COUNTER) is (kind == "counter"), name


def test_schedulers_that_repeat_one_rank_are_not_added_up():
    text = "".join(f'sglang:num_running_reqs{{tp_rank="{rank}"}} 5\n' for rank in range(8))
    assert by_name(text) == {("sglang:num_running_reqs", None): 5}


def test_a_sum_with_a_missing_part_is_missing():
    text = 'sglang:num_used_tokens{priority="0"} 5\nsglang:num_used_tokens{priority="1"} NaN\n'
    assert by_name(text) == {("sglang:num_used_tokens", None): None}


def test_infinite_values_are_no_values():
    assert [s.value for s in parse_scrape("a +Inf\nb -Inf\nc 1\n")] == [None, None, 1]


def test_damaged_lines_cost_only_themselves():
    text = 'a 1\nb{x="1 2\nc 3 4 5 6\n\x00\n{} 1\nd{x="y"} 4\na 1\nsglang:gen_thr'
    assert [(s.name, s.value) for s in parse_scrape(text) if s.name in {"a", "d"}] == [
        ("a", 1),
        ("d", 4),
        ("a", 1),
    ]


@given(st.text(max_size=200))
@settings(deadline=None, max_examples=100)
def test_no_text_breaks_the_parser(text):
    parse_scrape(text)
    readings(text + "\nsglang:" + text)


@given(end=st.integers(0, len(WITH_RANKS)))
@settings(deadline=None, max_examples=60)
def test_a_scrape_that_was_cut_keeps_what_came(end):
    whole, cut = parse_scrape(WITH_RANKS), parse_scrape(WITH_RANKS[:end])
    assert cut[:-1] == whole[: max(0, len(cut) - 1)]


BEFORE = """\
vllm:spec_decode_num_drafts_total{engine="0"} 1000.0
vllm:spec_decode_num_drafts_total{engine="1"} 0.0
vllm:spec_decode_num_drafts_created{engine="0"} 1.7e+09
"""
AFTER = """\
vllm:spec_decode_num_drafts_total{engine="0"} 1400.0
vllm:spec_decode_num_drafts_total{engine="1"} 100.0
vllm:spec_decode_num_drafts_created{engine="0"} 1.8e+09
late_total{mode="a"} 5
late_total{mode="b"} 7
"""


def delta(name, before=BEFORE, after=AFTER, labels=None):
    return counter_delta(parse_scrape(before), parse_scrape(after), name, labels)


def test_a_counter_rises_over_all_engines():
    assert delta("vllm:spec_decode_num_drafts_total") == 500


def test_a_counter_that_appears_counts_from_zero():
    assert delta("late_total") == 12
    assert delta("late_total", labels={"mode": "b"}) == 7


def test_a_counter_that_was_never_there_is_unknown_not_zero():
    assert delta("never_total") is None


def test_a_counter_that_fell_or_vanished_is_unknown():
    assert delta("vllm:spec_decode_num_drafts_total", before=AFTER, after=BEFORE) is None
    one_engine = AFTER.splitlines()[0]
    assert delta("vllm:spec_decode_num_drafts_total", after=one_engine) is None


@pytest.mark.parametrize("rank", ["9" * 5000, "²", "٣", "-1", "1.0", ""])
def test_a_label_that_is_no_rank_is_none(rank):
    text = f'sglang:num_running_reqs{{dp_rank="{rank}",tp_rank="{rank}"}} 3\n'
    [reading] = readings(text)
    assert (reading.rank, reading.value) == (None, 3.0)


def test_a_total_beside_its_priorities_is_not_added_to_them():
    """With priorities a gauge has its total under no priority; a counter has no total."""
    text = "".join(
        f'sglang:{name}{{priority="{priority}",tp_rank="0"}} {value}\n'
        for name in ("num_running_reqs", "num_queue_reqs", "generation_tokens_total")
        for priority, value in (("", 5), ("1", 3), ("2", 2))
    )
    assert by_name(text) == {
        ("sglang:num_running_reqs", None): 5,
        ("sglang:num_queue_reqs", None): 5,
        ("sglang:generation_tokens_total", None): 10,
    }


@given(
    st.lists(st.integers(0, 10**6), min_size=1, max_size=4),
    st.integers(1, 8),
    st.booleans(),
    st.sampled_from(["\n", "\r\n"]),
)
@settings(deadline=None, max_examples=40)
def test_every_data_parallel_rank_counts_once(counts, tensor_ranks, has_priorities, end):
    """Whatever the schedulers that repeat it, its priorities and the lines' ends."""
    parts = [("", 1), ("7", 1)] if has_priorities else [("", 1)]
    text = "\ufeff" + "".join(
        f'sglang:num_running_reqs{{dp_rank="{dp}",tp_rank="{dp * tensor_ranks + tp}",'
        f'priority="{priority}"}} {count}{end}'
        for dp, count in enumerate(counts)
        for tp in range(tensor_ranks)
        for priority, _ in parts
    )
    assert by_name(text) == {
        ("sglang:num_running_reqs", dp): float(count) for dp, count in enumerate(counts)
    }


def test_lines_end_with_newlines_alone():
    text = 'sglang:gen_throughput{model="a\u2028b\x85c"} 5\n'
    assert by_name("\ufeff" + text) == {("sglang:gen_throughput", None): 5}
    assert by_name("  " + text.replace(" 5", "\t5")) == {("sglang:gen_throughput", None): 5}


def test_a_counter_below_zero_is_no_value():
    assert by_name("sglang:generation_tokens_total -5\n") == {
        ("sglang:generation_tokens_total", None): None
    }
    assert delta("x_total", before="x_total -5\n", after="x_total 5\n") is None


def test_time_in_the_queue_is_read_from_its_histogram():
    assert by_name('sglang:queue_time_seconds_sum{tp_rank="0"} 4.5\n') == {
        ("sglang:queue_time_seconds_sum", None): 4.5
    }


def test_a_counter_that_schedulers_repeat_rises_once():
    before, after = (
        "".join(
            f'x_total{{dp_rank="{dp}",tp_rank="{tp}",mode="{mode}"}} {value}\n'
            for dp in range(2)
            for tp in (2 * dp, 2 * dp + 1)
            for mode in ("a", "b")
        )
        for value in (10, 15)
    )
    assert delta("x_total", before=before, after=after) == 4 * 5


def test_one_label_set_that_comes_twice_is_added_up():
    """As from a router that passes on two workers without saying whose a line is."""
    before, after = (
        'x_total{a="b"} 1\nx_total{a="b"} 2\n',
        'x_total{a="b"} 4\nx_total{a="b"} 7\n',
    )
    assert delta("x_total", before=before, after=after) == 8
