import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.sglang.failures import (
    ACTIONS,
    HANG_S,
    Action,
    FailureClass,
    classify_start,
    find_end,
    find_failure,
    find_hang,
)
from bench.sglang.start_lines import READY_TEXT

BEGIN = "Capture cuda graph begin. This can take up to several minutes. avail mem=13.38 GB"


@pytest.mark.parametrize(
    ("expected", "line"),
    [
        (
            "kv_pool_too_small",
            "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static.",
        ),
        ("kv_pool_too_small", "RuntimeError: Not enough memory; max_total_num_tokens=-1234"),
        ("kv_pool_too_small", "AssertionError: max_total_num_tokens = 0"),
        (
            "kv_pool_too_small",
            "RuntimeError: Loaded weights leave no GPU memory for the KV cache under mem_frac",
        ),
        (
            "kv_pool_too_small",
            (
                "ValueError: To serve at least one request with the model's max seq len (196608), "
                "23.25 GiB KV cache is needed, which is larger than the available KV cache memory"
            ),
        ),
        (
            "gpu_memory_taken",
            (
                "ValueError: The memory capacity is unbalanced. Some GPUs may be occupied by "
                "other processes. pre_model_load_memory=20.1, local_gpu_memory=78.9"
            ),
        ),
        ("host_oom", "Killed"),
        ("host_oom", "./start.sh: line 3:  4711 Killed                  python3 -m sglang"),
        ("host_oom", "RuntimeError: scheduler died during initialization (exit code: 137)"),
        ("host_oom", "kernel: oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null)"),
        (
            "nccl_port_in_use",
            "ValueError: Port is already in use. dist_init_port=4, nccl_port=5, scheduler_input_",
        ),
        ("cuda_oom", "Triton Error [CUDA]: out of memory"),
        ("cuda_oom", "RuntimeError: CUDA driver error: out of memory"),
        ("cuda_oom", "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB"),
        ("cuda_oom", "RuntimeError: CUDA error: out of memory"),
        ("cuda_oom", "torch.cuda.OutOfMemoryError: HIP out of memory. Tried to allocate"),
        (
            "port_in_use",
            "[Errno 98] error while attempting to bind on address: address already in use",
        ),
        ("port_in_use", "OSError: [Errno 98] Address already in use"),
        ("port_in_use", "ValueError: port 30000 is already in use"),
        (
            "nccl_port_in_use",
            "torch.distributed.DistNetworkError: The server socket failed (EADDRINUSE)",
        ),
        (
            "nccl_port_in_use",
            (
                "RuntimeError: The server socket has failed to listen on any local network "
                "address. port: 29500, useIpv6: false, code: -98, name: EADDRINUSE, message: "
                "address already in use"
            ),
        ),
        ("nccl_port_in_use", "NCCL WARN Call to bind failed: Address already in use"),
        ("bad_spec_args", "RuntimeError: selected index k out of range"),
        (
            "bad_spec_args",
            "TypeError: '>' not supported between instances of 'NoneType' and 'int'",
        ),
        ("bad_spec_args", "EAGLE is not supported in decode attention backend torch_native"),
        (
            "bad_spec_args",
            (
                "ValueError: speculative_eagle_topk > 1 with page_size > 1 is only supported for "
                "the flashinfer backend"
            ),
        ),
        ("bad_spec_args", "AttributeError: 'Qwen2ForCausalLM' has no attribute 'set_embed'"),
        (
            "bad_arguments",
            "launch_server.py: error: ambiguous option: --cuda-graph-max-bs could match",
        ),
        ("cuda_illegal_access", "torch.AcceleratorError: CUDA error: an illegal memory access"),
        ("cuda_illegal_access", "RuntimeError: CUDA error: device-side assert triggered"),
        (
            "spec_runtime_bug",
            (
                "RuntimeError: Sizes of tensors must match except in dimension 1. Expected size 6 "
                "but got size 8 for tensor number 1 in the list."
            ),
        ),
        (
            "spec_runtime_bug",
            "length of new_indices: 5 != length of topk_p: 7, this should not happen",
        ),
        ("graph_capture_failed", "Exception: Capture cuda graph failed: no kernel image"),
        (
            "host_oom",
            "RuntimeError: Rank 0 scheduler died during initialization (exit code: -9). ",
        ),
        ("engine_not_installed", "/usr/bin/python3: No module named sglang"),
        (
            "engine_not_installed",
            (
                "Error while finding module specification for 'sglang.launch_server' "
                "(ModuleNotFoundError: No module named 'sglang')"
            ),
        ),
        ("model_not_found", "OSError: /m does not appear to have a file named config.json"),
        ("hang", "Scheduler watchdog timeout (self.watchdog_timeout=300, self.soft=False)"),
        ("exception", "KeyError: 'x'"),
        ("exception", "TypeError: argument of type 'NoneType' is not iterable"),
        ("child_died", "Received sigquit from a child process. It usually means it failed."),
    ],
)
def test_failures_are_told_apart(expected, line):
    failure = find_failure(["Load weight begin.", line, "kill_process_tree called: pid=1"])
    assert failure is not None
    assert failure.failure_class == expected
    assert failure.line == line.strip()
    assert failure.advice


def test_every_class_says_what_to_do():
    assert set(ACTIONS) == set(FailureClass)
    assert FailureClass.PORT_IN_USE.action is Action.RETRY_ONCE


def test_the_most_specific_line_tells_the_class():
    failure = find_failure(
        [
            "Scheduler hit an exception: Traceback (most recent call last):",
            '  File "/x/sglang/srt/speculative/eagle_worker.py", line 325, in verify',
            "torch.OutOfMemoryError: CUDA out of memory.",
            "Received sigquit from a child process. It usually means the child failed.",
        ]
    )
    assert failure is not None
    assert failure.failure_class is FailureClass.CUDA_OOM


@pytest.mark.parametrize(
    ("place", "raised", "expected"),
    [
        ("speculative/eagle_worker.py", "KeyError: 7", "spec_runtime_bug"),
        ("arg_groups/speculative_hook.py", "AssertionError", "bad_spec_args"),
        ("managers/scheduler.py", "KeyError: 7", "exception"),
    ],
)
def test_a_traceback_is_told_by_where_it_went(place, raised, expected):
    failure = find_failure(
        [
            "[2026-01-01 00:00:00 TP0] Scheduler hit an exception: Traceback (most recent …",
            f'  File "/x/sglang/srt/{place}", line 325, in f',
            "    self.g()",
            raised,
        ]
    )
    assert failure is not None
    assert failure.failure_class == expected
    if expected != "exception":
        assert failure.line == raised


def test_a_log_without_a_failure_has_none():
    assert find_failure(["Load weight begin.", READY_TEXT]) is None


@pytest.mark.parametrize(
    "last",
    [
        BEGIN,
        "Capture target verify CUDA graph begin. backend=full, bs=[1, 2], avail mem=26.27 GB",
        "Capturing batches (bs=160 avail_mem=3.2 GB):   4%|4 | 1/23 [00:03<01:13,  3.34s/it]",
        "  4%|4         | 1/23 [00:03<01:13,  3.34s/it]",
    ],
)
def test_a_silent_graph_capture_is_a_hang_there(last):
    assert find_hang([last]).failure_class is FailureClass.HANG_IN_GRAPH_CAPTURE


def test_another_silence_is_a_hang():
    assert find_hang([BEGIN, "Capture cuda graph end."]).failure_class is FailureClass.HANG
    assert find_hang([]).failure_class is FailureClass.HANG
    loading = "Loading safetensors checkpoint shards:  90% Completed | 128/142 [00:08<00:02]"
    assert find_hang([loading]).failure_class is FailureClass.HANG


@pytest.mark.parametrize(
    ("lines", "exit_code", "silent_s", "expected"),
    [
        ([BEGIN], None, 10, None),
        ([BEGIN], None, HANG_S, "hang_in_graph_capture"),
        (["Load weight begin. avail mem=92.50 GB"], None, 900, "hang"),
        ([READY_TEXT], None, 5000, "ready"),
        ([READY_TEXT, "torch.OutOfMemoryError: CUDA out of memory."], None, 1, "cuda_oom"),
        ([READY_TEXT], -9, 1, "host_oom"),
        (["usage: launch_server.py"], 2, 1, "bad_arguments"),
        ([], 1, 1, "child_died"),
        ([], None, 0, None),
    ],
)
def test_what_became_of_a_start(lines, exit_code, silent_s, expected):
    assert classify_start(lines, exit_code=exit_code, silent_s=silent_s) == expected


def test_an_end_without_a_word_is_told_by_its_exit_status():
    usage = find_end(["usage: launch_server", "error: unrecognized arguments: --x"], 2)
    assert usage.failure_class is FailureClass.BAD_ARGUMENTS
    assert usage.failure_class.action is Action.PRUNE_TRIAL
    assert find_end(["something"], 1).failure_class is FailureClass.CHILD_DIED
    assert find_end([], -9).line == ""
    oom = find_end(["torch.OutOfMemoryError: CUDA out of memory."], 2)
    assert oom.failure_class is FailureClass.CUDA_OOM


@given(st.lists(st.text(max_size=60), max_size=5))
@settings(deadline=None, max_examples=50)
def test_no_log_breaks_the_reading(lines):
    find_failure(lines)
    classify_start(lines, exit_code=None, silent_s=1000)


@pytest.mark.parametrize("exit_code", [-9, 137])
def test_a_server_that_was_killed_is_told_so(exit_code):
    for lines in ([], ["Load weight begin. avail mem=10 GB"], ["Killed"]):
        assert classify_start(lines, exit_code=exit_code, silent_s=0) == "host_oom"
    told = ["KeyError: 'x'", "Received sigquit from a child process."]
    assert classify_start(told, exit_code=exit_code, silent_s=0) == "exception"
    assert classify_start(["Load weight begin."], exit_code=-11, silent_s=0) == "child_died"


@pytest.mark.parametrize(
    "line",
    [
        "[2026-01-01 00:00:00 TP0] The memory capacity is unbalanced. Some GPUs may be occupied",
        "[2026-01-01 00:00:00] max_total_num_tokens=8192, chunked_prefill_size=4096",
        "[2026-01-01 00:00:00] Killed requests are retried",
        "[specdyno: stop: ended with status 1: Error: no such container]",
    ],
)
def test_what_is_no_failure(line):
    assert find_failure([line]) is None


@pytest.mark.parametrize("ending", ["Run 'docker run --help' for more information", "", None])
def test_the_cause_heads_and_not_dockers_advice(ending):
    cause = "docker: Cannot connect to the Docker daemon at unix:///var/run/docker.sock."
    lines = [cause] if ending is None else [cause, "", ending, "See 'docker run --help'."]
    assert find_end(lines, 125).line == cause


TOLD = [
    ("cuda_oom", "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB"),
    ("host_oom", "Killed"),
    ("host_oom", "MemoryError"),
    ("port_in_use", "OSError: [Errno 98] Address already in use"),
    ("port_in_use", "ValueError: port_base at 31234 is not available in 60 seconds."),
    ("nccl_port_in_use", "ValueError: nccl_port at 31234 is not available in 60 seconds."),
    ("nccl_port_in_use", "ValueError: dist_init_port at 31234 is not available in 30 seconds."),
    ("bad_spec_args", "RuntimeError: selected index k out of range"),
    ("cuda_illegal_access", "torch.AcceleratorError: cudaErrorIllegalAddress"),
    (
        "cuda_illegal_access",
        '/aten/native/cuda/IndexKernel.cu:16: thread: [4,0,0] Assertion `ind >=0 && "x"` failed.',
    ),
    ("exception", "KeyError: 'x'"),
    ("child_died", "Fatal Python error: Segmentation fault"),
]


@pytest.mark.parametrize(("expected", "line"), TOLD)
@pytest.mark.parametrize(
    "carrier",
    [
        "",
        "sglang-1  | ",
        "2026-08-15T05:37:25.1Z stderr F ",
        "[rank3]: ",
        "12: ",
        "\x1b[31m",
        "Sep  5 10:00:00 gpu-7 sglang[4711]: ",
    ],
)
def test_a_failure_is_told_through_whatever_carries_the_log(expected, line, carrier):
    died = "Received sigquit from a child process. It usually means the child failed."
    failure = find_failure([f"{carrier}{line}\x1b[0m\r\n", carrier + died])
    assert failure is not None
    assert failure.failure_class == expected
    assert failure.line == line


@given(st.permutations([line for _, line in TOLD[:4]]), st.integers(1, 8))
@settings(deadline=None, max_examples=20)
def test_ranks_that_repeat_a_failure_in_any_order_change_nothing(lines, ranks):
    repeated = [f"[2026-01-01 00:00:00 TP{r}] {line}" for line in lines for r in range(ranks)]
    assert classify_start(repeated, exit_code=1, silent_s=0) == "cuda_oom"


WAITING = (
    "port 31234 is in use. Waiting for 3 seconds for nccl_port to be available. nccl_port at "
    "31234 is not available"
)


def test_waiting_for_a_port_is_no_failure_unless_nothing_else_is_told():
    assert classify_start([WAITING], exit_code=1, silent_s=0) == "nccl_port_in_use"
    assert classify_start([WAITING, "KeyError: 1"], exit_code=1, silent_s=0) == "exception"
    assert classify_start([WAITING, READY_TEXT], exit_code=None, silent_s=0) == "ready"


def test_batch_lines_of_a_long_log_tell_no_failure():
    batch = "[2026-01-01 00:00:00] Decode batch, #running-req: 1, #queue-req: 0"
    assert find_failure([batch] * 3) is None
    interleaved = f"{batch}RuntimeError: CUDA error: out of memory"
    failure = find_failure([batch, interleaved, batch])
    assert failure is not None
    assert failure.failure_class is FailureClass.CUDA_OOM
