"""A log of SGLang as a whole."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.errors import InputError
from bench.foreign import parse_sglang_log, read_sglang_log
from bench.sglang.accept_rate import AcceptRate
from bench.sglang.failures import FailureClass

RECORDINGS = Path(__file__).parents[1] / "lab" / "recordings"


def decode(accept_len, accept_rate, tok_per_s=100.0):
    return (
        f"[2026-08-28 21:40:00 TP0] Decode batch, #running-req: 1, #token: 9, token usage: 0.00, "
        f"accept len: {accept_len:.2f}, accept rate: {accept_rate:.2f}, cuda graph: True, "
        f"gen throughput (token/s): {tok_per_s:.2f}, #queue-req: 0"
    )


ARGUMENTS = "server_args=ServerArgs(speculative_num_draft_tokens=4, tp_size=1)"


def test_a_recorded_log_is_read_whole():
    log = read_sglang_log(RECORDINGS / "eagle3-3-1-4" / "server.log")
    assert log.became == "ready"
    assert log.failure is None
    assert log.times.load_s > 0
    assert log.limits.kv_tok > 0
    assert log.num_draft_tokens == 4
    assert len(log.decode) > 1
    assert len(log.prefill) > 1
    assert log.speed.accept_len_tok > 1
    assert log.accept_rate_is is AcceptRate.DRAFTS_ONLY
    assert 0 < log.accept_rate_of_depth < 1


def test_without_speculation_there_is_no_acceptance():
    log = read_sglang_log(RECORDINGS / "baseline" / "server.log")
    assert log.speed.gen_tok_per_s > 0
    assert (log.speed.accept_len_tok, log.accept_rate_is) == (None, None)
    assert (log.accept_rate_of_depth, log.collapses) == (None, ())


@pytest.mark.parametrize(
    ("lines", "meaning", "of_depth"),
    [
        ([decode(2.8, 0.70), decode(2.4, 0.60)], AcceptRate.WITH_BONUS, 0.533),
        ([decode(2.8, 0.60), decode(2.5, 0.50)], AcceptRate.DRAFTS_ONLY, 0.55),
        ([decode(2.8, 0.70), decode(2.5, 0.50)], None, None),  # they contradict one another
        ([decode(2.8, 0.15)], None, None),  # a tree's: neither definition fits
    ],
)
def test_one_rate_whatever_the_version_calls_it(lines, meaning, of_depth):
    log = parse_sglang_log([ARGUMENTS, *lines])
    assert log.accept_rate_is is meaning
    wanted = None if of_depth is None else pytest.approx(of_depth, abs=0.01)
    assert log.accept_rate_of_depth == wanted


def test_acceptance_that_collapsed_is_found():
    lines = [decode(2.8, 0.60), *[decode(1.0, 0.0)] * 3, decode(2.8, 0.60)]
    (episode,) = parse_sglang_log([ARGUMENTS, *lines]).collapses
    assert episode.indices == (1, 2, 3)


def test_what_ended_a_server_is_told():
    lines = ["Load weight begin. avail mem=9 GB", "torch.OutOfMemoryError: CUDA out of memory."]
    log = parse_sglang_log(lines, exit_code=1)
    assert log.became is FailureClass.CUDA_OOM
    assert "OutOfMemory" in log.failure.line
    assert (log.speed, log.limits, log.decode) == (None, None, ())
    assert parse_sglang_log(lines[:1]).became is None
    assert parse_sglang_log(["usage: x"], exit_code=2).became is FailureClass.BAD_ARGUMENTS


def test_a_log_that_is_not_there(tmp_path):
    with pytest.raises(InputError, match="No such file"):
        read_sglang_log(tmp_path / "x.log")


@given(st.lists(st.text(max_size=60), max_size=5))
@settings(deadline=None, max_examples=50)
def test_no_text_breaks_the_reading(lines):
    parse_sglang_log(lines)
    parse_sglang_log([ARGUMENTS, decode(2.0, 0.3), *lines], exit_code=-9)
