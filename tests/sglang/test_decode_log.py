import dataclasses

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from bench.sglang.decode_log import collapsed, collapses, decode_speed
from bench.sglang.log_lines import DecodeLine, LogPrefix, parse_batch_lines


def line(gen, *, accept=None, running=1, dp=None):
    return DecodeLine(
        prefix=LogPrefix(time_text=None, dp_rank=dp, tp_rank=0),
        running_ct=running,
        kv_tok=100,
        token_usage=0.1,
        accept_len_tok=accept,
        accept_rate=None,
        cap_len_tok=None,
        cuda_graph=True,
        gen_tok_per_s=gen,
        queue_ct=0,
        is_truncated=False,
    )


def test_the_first_line_after_idle_is_left_out_of_rates_and_keeps_its_acceptance():
    lines = [line(0.39, accept=2.2), line(200, accept=2.0), line(180, accept=1.8)]
    speed = decode_speed(lines)
    assert speed.after_idle == (0,)
    assert speed.gen_tok_per_s == 190
    assert speed.step_ms == pytest.approx(10.0)
    assert speed.accept_len_tok == pytest.approx(2.0)


def test_idle_in_the_middle_and_a_line_of_nothing():
    lines = [line(100), line(0.0), line(101), line(3.0), line(99)]
    assert decode_speed(lines).after_idle == (1, 3)
    assert decode_speed([line(0.0)]).after_idle == (0,)
    assert decode_speed([line(0.0)]).gen_tok_per_s is None


def test_a_small_batch_beside_large_ones_is_not_idle():
    lines = [line(1600, running=32), line(1590, running=32), line(150, running=1)]
    assert decode_speed(lines).after_idle == ()


def test_steps_without_accepted_drafts_are_not_idle():
    lines = [line(400, accept=4.0), line(410, accept=4.0), line(75, accept=1.0)]
    assert decode_speed(lines).after_idle == ()


def test_each_rank_has_its_own_usual_step():
    lines = [line(100, dp=0), line(10, dp=1), line(101, dp=0), line(11, dp=1), line(1, dp=1)]
    assert decode_speed(lines).after_idle == (4,)


def test_lines_that_tell_too_little_count_for_nothing():
    cut = dataclasses.replace(line(None), running_ct=None)
    speed = decode_speed([cut, line(100), cut])
    assert speed.after_idle == ()
    assert speed.gen_tok_per_s == 100
    assert decode_speed([]).step_ms is None


def test_a_recorded_log_has_a_step_time(recording):
    parsed = parse_batch_lines((recording / "server.log").read_text().splitlines())
    decode = [batch for batch in parsed if isinstance(batch, DecodeLine)]
    speed = decode_speed(decode)
    assert speed.step_ms is not None
    assert speed.step_ms > 0
    assert (speed.accept_len_tok is not None) is (recording.name != "baseline")


def test_episodes_of_collapsed_acceptance():
    lengths = [3.1, 1.0, 2.9, 1.0, 1.05, None, 1.0, 3.0, 1.0, 1.02]
    assert [episode.indices for episode in collapsed(lengths)] == [(3, 4, 6), (8, 9)]
    assert collapsed([]) == []
    assert collapsed([1.0]) == []
    assert collapsed([None, None]) == []


def test_episodes_are_of_one_rank():
    lines = [line(1, accept=1.0, dp=0), line(1, accept=3.0, dp=1), line(1, accept=1.0, dp=0)]
    assert [episode.indices for episode in collapses(lines)] == [(0, 2)]
    alternating = [line(1, accept=1.0, dp=0), line(1, accept=1.0, dp=1)]
    assert collapses(alternating) == []


@given(st.lists(st.one_of(st.none(), st.floats(1, 6))))
@hypothesis_settings(deadline=None, max_examples=100)
def test_an_episode_is_nothing_but_collapsed_readings(lengths):
    inside = [index for episode in collapsed(lengths) for index in episode.indices]
    assert inside == sorted(set(inside))
    assert all(lengths[index] <= 1.05 for index in inside)
    assert all(len(episode.indices) >= 2 for episode in collapsed(lengths))
