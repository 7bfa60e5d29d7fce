"""Why a server did not start or died, by its log: the class of failure and what to do about it.

Messages: SGLang 0.5.23 and those of public reports. From the specific to the general: the first
row of the table that any line of the log shows is the failure, since the line that ends a log
mostly says only that some process died.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final, Literal

from bench.sglang.log_text import as_written
from bench.sglang.start_lines import READY_TEXT, meaningful_lines

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

HANG_S: Final = 300.0
"""A start without a new line for so long hangs, where nothing else tells of progress. It is
SGLang's own watchdog's time."""


class Action(StrEnum):
    """What a sweep over configurations does about a failure."""

    PRUNE_TRIAL = "prune_trial"  # the configuration cannot run here: never try it again
    RETRY_ONCE = "retry_once"  # the moment's fault: the same configuration may well start
    MARK_FAILED_AND_REPORT = "mark_failed_and_report"  # neither: somebody must look


class FailureClass(StrEnum):
    """What kind of failure a server's log tells."""

    KV_POOL_TOO_SMALL = "kv_pool_too_small"
    CUDA_OOM = "cuda_oom"
    HOST_OOM = "host_oom"
    PORT_IN_USE = "port_in_use"
    NCCL_PORT_IN_USE = "nccl_port_in_use"
    BAD_ARGUMENTS = "bad_arguments"
    BAD_SPEC_ARGS = "bad_spec_args"
    ENGINE_NOT_INSTALLED = "engine_not_installed"
    MODEL_NOT_FOUND = "model_not_found"
    CUDA_ILLEGAL_ACCESS = "cuda_illegal_access"
    HANG_IN_GRAPH_CAPTURE = "hang_in_graph_capture"
    GPU_SPIN_HANG = "gpu_spin_hang"
    HANG = "hang"
    SPEC_RUNTIME_BUG = "spec_runtime_bug"
    GPU_MEMORY_TAKEN = "gpu_memory_taken"
    GRAPH_CAPTURE_FAILED = "graph_capture_failed"
    WARMUP_FAILED = "warmup_failed"
    CHILD_DIED = "child_died"
    EXCEPTION = "exception"

    @property
    def action(self) -> Action:
        """What a sweep does about it."""
        return ACTIONS[self]


_F = FailureClass

ACTIONS: Final[Mapping[FailureClass, Action]] = {
    _F.KV_POOL_TOO_SMALL: Action.PRUNE_TRIAL,
    _F.CUDA_OOM: Action.PRUNE_TRIAL,
    _F.BAD_ARGUMENTS: Action.PRUNE_TRIAL,
    _F.BAD_SPEC_ARGS: Action.PRUNE_TRIAL,
    _F.GRAPH_CAPTURE_FAILED: Action.PRUNE_TRIAL,
    _F.PORT_IN_USE: Action.RETRY_ONCE,
    _F.NCCL_PORT_IN_USE: Action.RETRY_ONCE,
    _F.GPU_MEMORY_TAKEN: Action.RETRY_ONCE,
    _F.HANG_IN_GRAPH_CAPTURE: Action.RETRY_ONCE,
    _F.GPU_SPIN_HANG: Action.RETRY_ONCE,
    _F.HANG: Action.RETRY_ONCE,
    _F.HOST_OOM: Action.MARK_FAILED_AND_REPORT,
    _F.ENGINE_NOT_INSTALLED: Action.MARK_FAILED_AND_REPORT,
    _F.MODEL_NOT_FOUND: Action.MARK_FAILED_AND_REPORT,
    _F.CUDA_ILLEGAL_ACCESS: Action.MARK_FAILED_AND_REPORT,
    _F.SPEC_RUNTIME_BUG: Action.MARK_FAILED_AND_REPORT,
    _F.WARMUP_FAILED: Action.MARK_FAILED_AND_REPORT,
    _F.CHILD_DIED: Action.MARK_FAILED_AND_REPORT,
    _F.EXCEPTION: Action.MARK_FAILED_AND_REPORT,
}
"""What a sweep over configurations does about each class."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A failure found in a log: its class, the line that tells it and what to do."""

    failure_class: FailureClass
    line: str
    advice: str


_NO_MEMORY = "the machine's memory ran out (see dmesg), or somebody killed a process of the server"
_SPEC_ADVICE = "change the arm's --speculative-… arguments"
_DRAFT_ADVICE = "the draft does not fit the target or the speculative settings"
_PATH_ADVICE = "check --model-path and --speculative-draft-model-path"
_TAKEN = r"(?i:address (is )?already in use)|EADDRINUSE|Errno 98\b"
_ERROR = r"\b(Value|Type|Assertion|NotImplemented|Runtime)Error: .*"

_FAILURES: tuple[tuple[FailureClass, str, tuple[str, ...]], ...] = (
    (
        _F.KV_POOL_TOO_SMALL,
        "raise --mem-fraction-static, or lower --max-running-requests or --context-length",
        (
            r"Not enough memory\b.*(mem-fraction-static|mem_fraction_static|_num_tokens|[Cc]ache)",
            r"\bmax_total_num_tokens ?= ?(-\d|0\b)",
            r"Not enough GPU memory for hybrid",
            r"leaves? no (room|GPU memory) for the .*KV",
            r"No available memory for the cache blocks",
            r"larger than the (available KV cache memory|maximum number of tokens that can be)",
        ),
    ),
    (
        _F.GPU_MEMORY_TAKEN,
        "see who holds memory on the GPUs (nvidia-smi) and end that, or use GPUs that are free",
        (
            r"Error: The memory capacity is unbalanced",
            r"Free memory on device .* is less than desired GPU memory utilization",
        ),
    ),
    (
        _F.CUDA_OOM,
        "lower --mem-fraction-static or the CUDA-graph batch sizes, or free the GPUs",
        (
            r"\b(?i:(CUDA|HIP)\b.{0,30}\bout of memory)",
            r"OutOfMemoryError",
            r"cudaErrorMemoryAllocation|CUDA_ERROR_OUT_OF_MEMORY",
            r"CUBLAS_STATUS_ALLOC_FAILED",
        ),
    ),
    (
        _F.HOST_OOM,
        _NO_MEMORY,
        (
            r"died during initialization \(exit code: (-9|137)\)",
            r"^Killed\s*$|: line \d+:\s+\d+ Killed\b",
            r"\b(?i:oom)[- _]?(?i:kill)",
            r"Out of memory: Kill",
            r"Cannot allocate memory",
            r"std::bad_alloc",
            r"^MemoryError\b",
        ),
    ),
    (
        _F.NCCL_PORT_IN_USE,
        "a port that NCCL wanted was taken by another process; start again",
        (  # so write PyTorch's store and NCCL; the HTTP server writes `[Errno 98] …`
            r"server socket has failed to (listen|bind)",
            r"code: -98\b",
            r"EADDRINUSE",
            rf"(NCCL|TCPStore|c10d|DistNetwork|DistStore|dist_init|gloo).*({_TAKEN})",
            rf"({_TAKEN}).*(NCCL|TCPStore|c10d)",
            r"(nccl|dist_init)[_ -]port.*(in use|being used|occupied|not available)",
            r"Port is already in use\..*nccl_port",
        ),
    ),
    (
        _F.PORT_IN_USE,
        "the port was taken by another process; start again",
        (
            _TAKEN,
            r"\b[Pp]ort:? \d+ is ((already|currently) )?(in use|being used|occupied)",
            r"\b[Pp]ort:? \d+ is not available",
            r"\b\w*port(_base)? at \d+ is not available",
        ),
    ),
    (
        _F.BAD_SPEC_ARGS,
        _SPEC_ADVICE,
        (
            r"selected index k out of range",
            r"'>' not supported between instances of 'NoneType'",
            r"is not supported in (\w+ )?attention backend",
            r"only supports topk",
            r"Target model's context_length .* greater than",
        ),
    ),
    (
        _F.BAD_SPEC_ARGS,
        "name an EAGLE draft in --speculative-draft-model-path: what was loaded is none",
        (r"has no attribute '(set_embed|set_embed_and_head|hot_token_id|get_embed_and_head)'",),
    ),
    (
        _F.BAD_ARGUMENTS,
        "correct the server's arguments",
        (r"error: (unrecognized arguments|ambiguous option|argument |the following arguments)",),
    ),
    (
        _F.MODEL_NOT_FOUND,
        _PATH_ADVICE,
        (
            r"Repository ?Not ?Found",
            r"not a valid model identifier",
            r"No such file .*config\.json",
            r"does not appear to have a file named",
            r"Can't load (the )?(config|tokenizer)",
        ),
    ),
    (
        _F.CUDA_ILLEGAL_ACCESS,
        "a kernel of the server failed; report it to SGLang, or try another attention backend",
        (
            r"illegal memory access",
            r"cudaErrorIllegalAddress|CUDA_ERROR_ILLEGAL_ADDRESS",
            r"\.cuh?:\d+: .*Assertion .* failed",
            r"illegal instruction was encountered",
            r"misaligned address",
            r"device-side assert triggered",
            r"unspecified launch failure",
            r"CUBLAS_STATUS_EXECUTION_FAILED",
        ),
    ),
    (
        _F.SPEC_RUNTIME_BUG,
        _DRAFT_ADVICE,
        (
            r"size of tensor a .* must match the size of tensor b",
            r"Sizes of tensors must match except",
            r"expanded size of the tensor .* must match",
            r"captured \d+ of \d+ aux hidden",
            r"length of new_indices: \d+ != length of topk_p",
        ),
    ),
    (
        _F.GRAPH_CAPTURE_FAILED,
        "lower --mem-fraction-static or --cuda-graph-max-bs-decode",
        (r"Capture cuda graph failed",),
    ),
    (
        _F.HANG,
        "a step took longer than --watchdog-timeout; look for a hang in the collectives (NCCL)",
        (r"watchdog timeout", r"Watchdog caught collective operation timeout"),
    ),
    (
        _F.BAD_SPEC_ARGS,
        _SPEC_ADVICE,
        (
            r'speculative_hook\.py"',
            rf"{_ERROR}([Ss]peculative|EAGLE|eagle|[Dd]raft|NGRAM|ngram|DFLASH|DSPARK)",
        ),
    ),
    # A traceback that goes through the speculative workers, and ends in none of the above.
    (_F.SPEC_RUNTIME_BUG, _DRAFT_ADVICE, (r'File ".*/speculative/\w+\.py"',)),
    (_F.WARMUP_FAILED, "the first generation failed", (r"Initialization failed\. warmup error",)),
    (
        _F.ENGINE_NOT_INSTALLED,
        (
            "install SGLang for the Python that was started, name another one in "
            "server.launcher.command, or measure a running server (--attach) or a simulated one "
            "(--sim)"
        ),
        (r"No module named '?sglang\b",),
    ),
    (
        _F.EXCEPTION,
        "read the traceback",
        (r"hit an exception", r"^[\w.]*(Error|Exception)\b", r"Initialization failed"),
    ),
    (
        _F.CHILD_DIED,
        "a process of the server crashed in native code; report its stack to SGLang",
        (r"Segmentation fault|Segfault encountered|^Fatal Python error",),
    ),
    (
        _F.CHILD_DIED,
        "a process of the server died; the lines before say why",
        (
            r"Received sigquit from a child process",
            r"SIGQUIT received",
            r"crashed with exit code",
        ),
    ),
)
_PATTERNS = tuple((kind, re.compile("|".join(texts)), advice) for kind, advice, texts in _FAILURES)
_USAGE = 2  # argparse's exit status
_KILLED = frozenset({-9, 137})  # by a signal, told as a status by a shell or a container
_OURS = "[specdyno: "  # notes of ours in a server's log
_WAITING = re.compile(r"\bWaiting for \d+ seconds? for ")
_PLACE = re.compile(r'^\s*File "')
_RAISED = re.compile(r"^[\w.]*(Error|Exception)\b")


def find_failure(lines: Sequence[str]) -> Failure | None:
    """The most specific failure that a log's lines tell, with its last line; None: none known.

    Lines that only say that something is waited for count where there is nothing else.
    """
    written = [as_written(line) for line in lines if not _tells_nothing(line)]
    done = [line for line in written if not _WAITING.search(line)]
    return _told(done) or _told(written)


def _tells_nothing(line: str) -> bool:
    """Our own notes, and the batch lines that a long log mostly consists of."""
    return line.startswith(_OURS) or ("#queue-req: " in line and "Error" not in line)


def _told(lines: Sequence[str]) -> Failure | None:
    for failure_class, pattern, advice in _PATTERNS:
        for index in range(len(lines) - 1, -1, -1):
            if pattern.search(lines[index]):
                line = _raised_at(lines, index)
                return Failure(failure_class=failure_class, line=line, advice=advice)
    return None


def _raised_at(lines: Sequence[str], index: int) -> str:
    """A line of a log; for a place in a traceback, what was raised there."""
    if _PLACE.search(lines[index]):
        raised = (line for line in lines[index:] if _RAISED.search(line))
        return next(raised, lines[index]).strip()
    return lines[index].strip()


# ------------------------------------------------------------------------------------------ hangs

_CAPTURING = re.compile(
    r"Capture .*graphs? (begin|bs)|Capturing batches"
    r"|^\s*\d+%\|"  # the bar of old versions; those of loading have a title
)


def find_hang(lines: Sequence[str]) -> Failure:
    """What a server was doing that tells nothing any more: capturing graphs, or something else."""
    last = next(iter(reversed(meaningful_lines(lines, 1))), "")
    if _CAPTURING.search(last):
        return Failure(
            failure_class=_F.HANG_IN_GRAPH_CAPTURE,
            line=last,
            advice="graph capture hangs, mostly in a collective: check NCCL settings, start again",
        )
    return Failure(
        failure_class=_F.HANG,
        line=last,
        advice="raise timeouts.ready_s if it only needs longer",
    )


_USAGE_LINE = re.compile(r"^(Run|See) '.+ --help'")  # what docker ends its own errors with


def find_end(lines: Sequence[str], exit_code: int) -> Failure:
    """Why a server ended that was not asked to: by its log, else by its exit status."""
    failure = find_failure(lines)
    if failure is not None:
        return failure
    telling = (line for line in lines if not _USAGE_LINE.match(line))
    last = next(iter(reversed(meaningful_lines(telling, 1))), "")
    if exit_code == _USAGE:
        return Failure(failure_class=_F.BAD_ARGUMENTS, line=last, advice="check its arguments")
    if exit_code in _KILLED:
        return Failure(failure_class=_F.HOST_OOM, line=last, advice=_NO_MEMORY)
    return Failure(failure_class=_F.CHILD_DIED, line=last, advice="read its log")


def classify_start(
    lines: Sequence[str], *, exit_code: int | None, silent_s: float
) -> FailureClass | Literal["ready"] | None:
    """What became of a start, by its log alone.

    Args:
        lines: The log's last lines.
        exit_code: Of the server's process; None while it runs.
        silent_s: Time since the last line.

    Returns:
        `ready`, a class of failure, or None while it is still starting.
    """
    ready = next((i for i, line in enumerate(lines) if READY_TEXT in line), None)
    failure = find_failure(lines[ready or 0 :])
    if failure is not None:
        return failure.failure_class
    if ready is not None and exit_code is None:
        return "ready"
    if exit_code is not None:
        return find_end(lines[ready or 0 :], exit_code).failure_class
    return find_hang(lines).failure_class if silent_s >= HANG_S else None
