import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.sglang.log_lines import (
    DecodeLine,
    FailureClass,
    LogPrefix,
    PrefillLine,
    find_failure,
    find_hang,
    meaningful_lines,
    parse_batch_line,
    start_phase,
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


def test_an_old_prefill_line():
    line = parse_batch_line(
        "[2025-01-07 20:16:02 TP0] Prefill batch. #new-seq: 1, #new-token: 48, #cached-token: 0, "
        "cache hit rate: 0.00%, token usage: 0.00, #running-req: 0, #queue-req: 0"
    )
    assert isinstance(line, PrefillLine)
    assert (line.new_request_ct, line.new_tok, line.cached_tok) == (1, 48, 0)
    assert line.input_tok_per_s is None
    assert not line.is_truncated


@given(st.integers(0, len(FULL)))
@settings(deadline=None, max_examples=100)
def test_a_cut_line_keeps_whole_fields_and_says_that_it_was_cut(end):
    line = parse_batch_line(FULL[:end])
    if line is None:
        assert "Decode batch" not in FULL[:end]
        return
    whole = parse_batch_line(FULL)
    assert isinstance(line, DecodeLine)
    for name in ("running_ct", "kv_tok", "token_usage", "accept_len_tok", "gen_tok_per_s"):
        assert getattr(line, name) in {None, getattr(whole, name)}
    assert line.is_truncated == ("#queue-req: 0" not in FULL[:end])


@pytest.mark.parametrize("line", ["", "Decode", '[2026-04-05 20:02:51] INFO: "POST /x" 200 OK'])
def test_other_lines_are_none(line):
    assert parse_batch_line(line) is None


@given(st.text(max_size=80))
@settings(deadline=None, max_examples=50)
def test_no_text_breaks_the_parser(text):
    parse_batch_line("Decode batch" + text)
    find_failure([text])
    start_phase(text)


@pytest.mark.parametrize(
    ("expected", "line"),
    [
        (
            "kv_pool_too_small",
            "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static.",
        ),
        ("cuda_oom", "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB"),
        (
            "port_in_use",
            "[Errno 98] error while attempting to bind on address: address already in use",
        ),
        (
            "nccl_port_in_use",
            "torch.distributed.DistNetworkError: The server socket failed (EADDRINUSE)",
        ),
        ("bad_spec_args", "RuntimeError: selected index k out of range"),
        (
            "bad_spec_args",
            "TypeError: '>' not supported between instances of 'NoneType' and 'int'",
        ),
        ("bad_spec_args", "EAGLE is not supported in decode attention backend torch_native"),
        (
            "bad_arguments",
            "launch_server.py: error: ambiguous option: --cuda-graph-max-bs could match",
        ),
        ("cuda_illegal_access", "torch.AcceleratorError: CUDA error: an illegal memory access"),
        (
            "host_oom",
            "RuntimeError: Rank 0 scheduler died during initialization (exit code: -9). ",
        ),
        ("model_not_found", "OSError: /m does not appear to have a file named config.json"),
        ("hang", "Scheduler watchdog timeout (self.watchdog_timeout=300, self.soft=False)"),
        ("exception", "KeyError: 'x'"),
        ("child_died", "Received sigquit from a child process. It usually means it failed."),
    ],
)
def test_failures_are_told_apart(expected, line):
    failure = find_failure(["Load weight begin.", line, "kill_process_tree called: pid=1"])
    assert failure is not None
    assert failure.failure_class == expected
    assert failure.line == line.strip()
    assert failure.advice


def test_the_most_specific_line_tells_the_class():
    failure = find_failure(
        [
            "Scheduler hit an exception: Traceback (most recent call last):",
            "torch.OutOfMemoryError: CUDA out of memory.",
            "Received sigquit from a child process. It usually means the child failed.",
        ]
    )
    assert failure is not None
    assert failure.failure_class is FailureClass.CUDA_OOM


def test_a_log_without_a_failure_has_none():
    assert (
        find_failure(["Load weight begin.", "The server is fired up and ready to roll!"]) is None
    )


def test_a_silent_graph_capture_is_a_hang_there():
    begin = "Capture cuda graph begin. This can take up to several minutes. avail mem=13.38 GB"
    assert find_hang([begin]).failure_class is FailureClass.HANG_IN_GRAPH_CAPTURE
    assert find_hang([begin, "Capture cuda graph end."]).failure_class is FailureClass.HANG
    assert find_hang([]).failure_class is FailureClass.HANG


def test_a_recorded_start_goes_through_its_phases(recording):
    lines = (recording / "server.log").read_text().splitlines()
    phases = [phase for line in lines if (phase := start_phase(line))]
    for earlier, later in [
        ("loading weights", "weights loaded"),
        ("weights loaded", "KV cache allocated"),
        ("KV cache allocated", "ready"),
    ]:
        assert phases.index(earlier) < phases.index(later)


def test_noise_is_left_out_and_progress_bars_show_their_end(recording):
    lines = (recording / "server.log").read_text().splitlines(keepends=True)
    shown = meaningful_lines(lines, 1000)
    assert any("The server is fired up" in line for line in shown)
    assert not any("nanobind: " in line or "UserWarning" in line for line in shown)
    assert meaningful_lines(["a\n", " \n", "  0%|\r 50%|\r100%|\n"], 2) == ["a", "100%|"]
    assert meaningful_lines(["a", "b", "c"], 2) == ["b", "c"]
