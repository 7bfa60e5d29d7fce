import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.sglang.start_lines import (
    CaptureLine,
    LimitsLine,
    LoadLine,
    meaningful_lines,
    parse_start_line,
    start_phase,
    start_times,
)


@pytest.mark.parametrize(
    ("line", "stage", "model_class", "elapsed_s", "available_gb", "used_gb"),
    [
        (
            "[2025-12-02 12:01:17] Load weight begin. avail mem=92.50 GB",
            "begin",
            *([None] * 2),
            92.5,
            None,
        ),
        (
            (
                "[2025-12-02 12:01:19] Load weight end. type=LlamaForCausalLM, "
                "dtype=torch.float16, avail mem=77.39 GB"
            ),
            "end",
            "LlamaForCausalLM",
            None,
            77.39,
            None,
        ),
        (
            (
                "[2026-08-28 21:34:13 TP0] Load weight end. elapsed=94.49 s, type=Qwen4ExpMTP, "
                "quant=modelopt_fp4, quant_algo=NVFP4, avail mem=30.67 GB, mem usage=-1.86 GB."
            ),
            "end",
            "Qwen4ExpMTP",
            94.49,
            30.67,
            -1.86,
        ),
        ("Load weight end. elapsed=1", "end", None, 1.0, None, None),
    ],
)
def test_loading(line, stage, model_class, elapsed_s, available_gb, used_gb):
    loaded = parse_start_line(line)
    assert isinstance(loaded, LoadLine)
    assert (loaded.stage, loaded.model_class) == (stage, model_class)
    assert (loaded.elapsed_s, loaded.available_gb) == (elapsed_s, available_gb)
    assert loaded.used_gb == used_gb


@pytest.mark.parametrize(
    ("line", "graph", "stage", "sizes", "elapsed_s", "available_gb", "used_gb"),
    [
        (
            (
                "[2025-03-08 12:29:21 TP1] Capture cuda graph begin. This can take up to several "
                "minutes. avail mem=1.45 GB"
            ),
            "target",
            "begin",
            None,
            None,
            1.45,
            None,
        ),
        (
            (
                "[2025-03-08 12:29:28 TP1] Capture cuda graph end. Time elapsed: 7.25 s. "
                "avail mem=0.53 GB. mem usage=0.93 GB."
            ),
            "target",
            "end",
            None,
            7.25,
            0.53,
            0.93,
        ),
        ("[t] Capture cuda graph bs [1, 2, 4, 8]", "target", "sizes", (1, 2, 4, 8), *[None] * 3),
        (
            (
                "[2025-09-05 20:50:29 TP6] Capture draft extend cuda graph end. Time elapsed: "
                "62.67 s. mem usage=0.21 GB. avail mem=15.31 GB."
            ),
            "draft extend",
            "end",
            None,
            62.67,
            15.31,
            0.21,
        ),
        (
            (
                "[2026-08-28 21:34:50] Capture target verify CUDA graph begin. backend=full, "
                "num_tokens_per_req=4, bs=[1, 2], avail mem=26.27 GB"
            ),
            "target verify",
            "begin",
            (1, 2),
            None,
            26.27,
            None,
        ),
        (
            (
                "[2026-08-28 21:34:51] Capture target verify CUDA graph end. elapsed=1.61 s, mem "
                "usage=0.11 GB, avail mem=26.15 GB."
            ),
            "target verify",
            "end",
            None,
            1.61,
            26.15,
            0.11,
        ),
    ],
)
def test_capturing(line, graph, stage, sizes, elapsed_s, available_gb, used_gb):
    captured = parse_start_line(line)
    assert isinstance(captured, CaptureLine)
    assert (captured.graph, captured.stage, captured.batch_sizes) == (graph, stage, sizes)
    assert (captured.elapsed_s, captured.available_gb) == (elapsed_s, available_gb)
    assert captured.used_gb == used_gb


def test_limits_old_and_new():
    line = (
        "[2026-05-15 08:40:32 TP0] max_total_num_tokens=3080960, chunked_prefill_size=8192, "
        "max_prefill_tokens=16384, max_running_requests=256, context_len=1048576"
    )
    old, new = parse_start_line(line), parse_start_line(line + ", available_gpu_mem=8.16 GB")
    assert isinstance(old, LimitsLine)
    assert isinstance(new, LimitsLine)
    assert (old.kv_tok, old.running_ct, old.prefill_chunk_tok) == (3_080_960, 256, 8192)
    assert (old.context_tok, old.available_gb) == (1_048_576, None)
    assert new.available_gb == 8.16
    assert new.prefix.tp_rank == 0


@given(st.text(max_size=80))
@settings(deadline=None, max_examples=50)
def test_no_text_breaks_the_parser(text):
    for head in ("", "Load weight end. ", "Capture cuda graph bs [", "max_total_num_tokens="):
        parse_start_line(head + text)
        start_phase(head + text)


def test_a_recorded_start_goes_through_its_phases(recording):
    lines = (recording / "server.log").read_text().splitlines()
    phases = [phase for line in lines if (phase := start_phase(line))]
    loaded = next(phase for phase in phases if phase.startswith("weights loaded"))
    assert loaded == "weights loaded: LlamaForCausalLM"
    for earlier, later in [
        ("loading weights", loaded),
        (loaded, "KV cache allocated"),
        ("KV cache allocated", "ready"),
    ]:
        assert phases.index(earlier) < phases.index(later)
    is_speculative = recording.name != "baseline"
    assert ("weights loaded: LlamaForCausalLMEagle3" in phases) is is_speculative


def test_phases_of_graphs_name_them():
    begin = "Capture draft cuda graph begin. avail mem=1 GB"
    assert start_phase(begin) == "capturing CUDA graphs: draft"
    assert start_phase("Capture cuda graph end. Time elapsed: 1.0 s.") == (
        "CUDA graphs captured: target"
    )
    assert start_phase("Capturing batches (bs=8): 10%|") == "capturing CUDA graphs 10 %"
    assert start_phase("anything else") is None


@pytest.mark.parametrize(
    ("line", "phase"),
    [
        ("Loading safetensors checkpoint shards:  45% Completed | 64/142", "loading weights 45 %"),
        ("Multi-thread loading shards:   0% Completed | 0/1", "loading weights 0 %"),
        ("loading shards:   0% | 0/2 loading shards:  50% | 1/2", "loading weights 50 %"),
        ("Capturing batches (bs=160 avail_mem=3.2 GB):   4%|4 |", "capturing CUDA graphs 4 %"),
        ("KV Cache is allocated. #tokens: 1", "KV cache allocated"),
        ("Load weight begin. avail mem=92.50 GB", "loading weights"),
    ],
)
def test_how_far_a_step_is(line, phase):
    assert start_phase(line) == phase


NEW_START = """\
[2026-08-28 21:33:00 TP0] Load weight begin. avail mem=92.50 GB
[2026-08-28 21:33:00 TP1] Load weight begin. avail mem=92.50 GB
[2026-08-28 21:34:10 TP0] Load weight end. elapsed=70.00 s, type=Target, avail mem=30.67 GB
[2026-08-28 21:34:13 TP1] Load weight end. elapsed=73.00 s, type=Target, avail mem=30.67 GB
[2026-08-28 21:34:20 TP0] Load weight end. elapsed=4.50 s, type=Draft, avail mem=30.67 GB
[2026-08-28 21:34:20 TP1] Load weight end. elapsed=4.00 s, type=Draft, avail mem=30.67 GB
[2026-08-28 21:34:50 TP0] Capture target verify CUDA graph begin. backend=full, bs=[1, 2]
[2026-08-28 21:34:51 TP0] Capture target verify CUDA graph end. elapsed=1.61 s, mem usage=0.11 GB
[2026-08-28 21:34:52 TP0] Capture draft decode CUDA graph end. elapsed=0.39 s, mem usage=0.11 GB
"""
OLD_START = """\
[2025-12-02 12:01:17] Load weight begin. avail mem=92.50 GB
[2025-12-02 12:01:59] Load weight end. type=LlamaForCausalLM, avail mem=77.39 GB
[2025-12-02 12:02:00] Capture cuda graph begin. avail mem=1.45 GB
[2025-12-02 12:02:07] Capture cuda graph end. Time elapsed: 7.25 s. avail mem=0.53 GB.
"""


@pytest.mark.parametrize(
    ("text", "load_s", "capture_s"),
    [
        (NEW_START, 77.0, 2.0),  # the slowest rank's, target and draft together
        (OLD_START, 42.0, 7.25),  # by dates where no line tells
        ("[2025-12-02 12:01:17] Load weight begin.\n", None, None),
        ("Load weight begin.\nLoad weight end. type=A\n", None, None),
        ("", None, None),
    ],
)
def test_what_a_start_was_spent_on(text, load_s, capture_s):
    times = start_times(text.splitlines())
    assert times.load_s == (None if load_s is None else pytest.approx(load_s))
    assert times.capture_s == (None if capture_s is None else pytest.approx(capture_s))


def test_a_recorded_start_tells_what_it_was_spent_on(recording):
    times = start_times((recording / "server.log").read_text().splitlines())
    assert times.load_s > 0
    assert times.capture_s is None  # CPUs have no CUDA graphs


def test_noise_is_left_out_and_progress_bars_show_their_end(recording):
    lines = (recording / "server.log").read_text().splitlines(keepends=True)
    shown = meaningful_lines(lines, 1000)
    assert any("The server is fired up" in line for line in shown)
    assert not any("nanobind: " in line or "UserWarning" in line for line in shown)
    assert meaningful_lines(["a\n", " \n", "  0%|\r 50%|\r100%|\n"], 2) == ["a", "100%|"]
    assert meaningful_lines(["a", "b", "c"], 2) == ["b", "c"]


@pytest.mark.parametrize("number", ["9" * 5000, "9" * 400, "1.2.3", "...", "NaN", "-"])
@pytest.mark.parametrize(
    "line",
    [
        "Load weight end. elapsed={}, type=A, avail mem={} GB, mem usage={} GB.",
        "Capture cuda graph end. Time elapsed: {} s. mem usage={} GB. avail mem={} GB.",
        "Capture cuda graph bs [{}, 2, 4]",
        "max_total_num_tokens={}, max_running_requests={}, context_len={}",
        "Loading safetensors checkpoint shards: {}% Completed",
    ],
)
def test_numbers_beyond_measure_break_nothing(line, number):
    text = line.replace("{}", number)
    parse_start_line(text)
    start_phase(text)
    start_times([text.replace("end", "begin"), text])


def test_weights_that_are_committed_after_the_capture_tell_their_time():
    line = parse_start_line(
        "[2026-01-01 00:00:09 TP0] Load weight end. Committed real weights after CUDA graph "
        "capture in 12.50 s (capture overlap window 3.00 s, startup overlap total 15.50 s)"
    )
    assert isinstance(line, LoadLine)
    assert (line.stage, line.elapsed_s, line.prefix.tp_rank) == ("end", 12.5, 0)


def test_start_lines_are_read_through_colours_and_carriers():
    line = "Capture target verify CUDA graph end. bs=[1, 2], elapsed=7.23 s, mem usage=1.20 GB"
    plain = parse_start_line(line)
    assert isinstance(plain, CaptureLine)
    assert parse_start_line(f"sglang-1  | \x1b[32m{line}\x1b[0m\r\n") == plain
    assert meaningful_lines([f"sglang-1  | \x1b[32m{line}\x1b[0m"], 1) == [line]
