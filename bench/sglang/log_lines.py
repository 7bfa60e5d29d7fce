"""SGLang's log: decode and prefill batch lines, progress of a start, and what a failure was.

Formats: SGLang 0.5.23 (`scheduler_components/metrics_reporter.py`) and the older forms seen in
public logs. Every field is looked for by itself, in any order, so that an unknown field in between
or a line that a terminal cut keeps what parses.
"""

from __future__ import annotations

import re
from collections import deque
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


@dataclass(frozen=True, slots=True, kw_only=True)
class LogPrefix:
    """The bracket in front of a line: `[2026-04-05 20:02:51 DP0 TP1]`.

    Attributes:
        time_text: The server's local date and time, as written; None without a bracket.
        dp_rank: Data-parallel rank; None when the line names none.
        tp_rank: Tensor-parallel rank; None when the line names none.
    """

    time_text: str | None
    dp_rank: int | None
    tp_rank: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodeLine:
    """One `Decode batch` line: an interval of decode steps (40 by default) of one rank.

    Attributes:
        prefix: When, and which rank.
        running_ct: Requests decoded together.
        kv_tok: Tokens held in the KV cache (of the full-attention layers in hybrid models).
        token_usage: Share of the KV cache in use.
        accept_len_tok: Accepted drafts and the bonus token a step, over the interval.
        accept_rate: Accepted drafts over proposed ones (tree nodes when topk > 1).
        cap_len_tok: DSpark's cap.
        cuda_graph: Whether the last step ran from a graph (CUDA, CPU or NPU).
        gen_tok_per_s: Tokens over the wall time since the last line: idle time and prefill
            included, so the first line after idleness says nothing.
        queue_ct: Requests waiting.
        is_truncated: Whether a field that every such line has is missing.
    """

    prefix: LogPrefix
    running_ct: int | None
    kv_tok: int | None
    token_usage: float | None
    accept_len_tok: float | None
    accept_rate: float | None
    cap_len_tok: float | None
    cuda_graph: bool | None
    gen_tok_per_s: float | None
    queue_ct: int | None
    is_truncated: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefillLine:
    """One `Prefill batch` line.

    Attributes:
        prefix: When, and which rank.
        new_request_ct: Requests prefilled together.
        new_tok: Tokens computed.
        cached_tok: Tokens found in the prefix cache.
        token_usage: Share of the KV cache in use.
        running_ct: Requests decoding meanwhile.
        queue_ct: Requests waiting.
        cuda_graph: Whether the step ran from a graph.
        input_tok_per_s: Tokens over the wall time since the last line.
        is_truncated: Whether a field that every such line has is missing.
    """

    prefix: LogPrefix
    new_request_ct: int | None
    new_tok: int | None
    cached_tok: int | None
    token_usage: float | None
    running_ct: int | None
    queue_ct: int | None
    cuda_graph: bool | None
    input_tok_per_s: float | None
    is_truncated: bool


_PREFIX = re.compile(r"\[(?P<time>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:[.,]\d+)?)(?P<ranks>[^\]]*)\]")
_BATCH = re.compile(r"\b(?P<kind>Decode|Prefill) batch\b(?P<fields>.*)")
_NUMBER = re.compile(r"\d+(?:\.\d+)?(?=%?$)")


def parse_batch_line(line: str) -> DecodeLine | PrefillLine | None:
    """The fields of a decode or prefill batch line; None for any other line."""
    batch = _BATCH.search(line)
    if batch is None:
        return None
    prefix = parse_prefix(line[: batch.start()])
    fields, is_truncated = _fields(batch["fields"])
    if batch["kind"] == "Prefill":
        return PrefillLine(
            prefix=prefix,
            new_request_ct=_count(fields, "#new-seq"),
            new_tok=_count(fields, "#new-token"),
            cached_tok=_count(fields, "#cached-token"),
            token_usage=_number(fields, "token usage", "full token usage"),
            running_ct=_count(fields, "#running-req"),
            queue_ct=_count(fields, "#queue-req"),
            cuda_graph=_graph(fields),
            input_tok_per_s=_number(fields, "input throughput (token/s)"),
            is_truncated=is_truncated,
        )
    return DecodeLine(
        prefix=prefix,
        running_ct=_count(fields, "#running-req"),
        kv_tok=_count(fields, "#token", "#full token"),
        token_usage=_number(fields, "token usage", "full token usage"),
        accept_len_tok=_number(fields, "accept len"),
        accept_rate=_number(fields, "accept rate"),
        cap_len_tok=_number(fields, "cap len"),
        cuda_graph=_graph(fields),
        gen_tok_per_s=_number(fields, "gen throughput (token/s)"),
        queue_ct=_count(fields, "#queue-req"),
        is_truncated=is_truncated,
    )


def parse_prefix(line: str) -> LogPrefix:
    """The date and ranks in front of a log line."""
    match = _PREFIX.search(line)
    if match is None:
        return LogPrefix(time_text=None, dp_rank=None, tp_rank=None)
    return LogPrefix(
        time_text=match["time"],
        dp_rank=_rank(match["ranks"], "DP"),
        tp_rank=_rank(match["ranks"], "TP"),
    )


def _rank(text: str, kind: str) -> int | None:
    match = re.search(rf"\b{kind}(\d+)\b", text)
    return int(match[1]) if match else None


def _fields(text: str) -> tuple[dict[str, str], bool]:
    """The `name: value` pairs of a batch line, and whether the line was cut.

    A whole line has `#queue-req`. The last value of a cut line may be cut itself and is dropped.
    """
    pairs = [part.partition(": ") for part in text.split(",")]
    fields = {name.strip(" ."): value.strip() for name, _, value in pairs if value.strip()}
    is_truncated = "#queue-req" not in fields
    if is_truncated and fields and not text.rstrip().endswith(","):
        fields.popitem()
    return fields, is_truncated


def _number(fields: dict[str, str], *names: str) -> float | None:
    for name in names:
        match = _NUMBER.match(fields.get(name, ""))
        if match:
            return float(match[0])
    return None


def _count(fields: dict[str, str], *names: str) -> int | None:
    number = _number(fields, *names)
    return None if number is None else int(number)


def _graph(fields: dict[str, str]) -> bool | None:
    for name, value in fields.items():
        if name.endswith(" graph") and value in {"True", "False"}:
            return value == "True"
    return None


# ---------------------------------------------------------------------------------------- a start

READY_TEXT = "The server is fired up and ready to roll!"

_PHASES = (
    (re.compile(r"Load weight begin|Loading safetensors|loading shards"), "loading weights"),
    (re.compile(r"Load weight end"), "weights loaded"),
    (re.compile(r"KV Cache is allocated|Memory pool end"), "KV cache allocated"),
    (re.compile(r"Capture .*graph begin|Capturing batches"), "capturing CUDA graphs"),
    (re.compile(r"Capture .*graph end"), "CUDA graphs captured"),
    (re.compile(r"Uvicorn running on|Application startup complete"), "serving HTTP"),
    (re.compile(re.escape(READY_TEXT)), "ready"),
)


def start_phase(line: str) -> str | None:
    """What a starting server is doing, in a few words; None for a line that does not tell."""
    return next((phase for pattern, phase in _PHASES if pattern.search(line)), None)


_NOISE = re.compile(
    r"^\s*$|^nanobind: |^See https://nanobind\S*$|^ - (leaked |\.\.\. skipped)|Warning: "
    r"|^\s*warnings\.warn\(|INFO:  "
    r"|Ignore import error|^\s*\^+\s*$|server_args=",
)


def meaningful_lines(lines: Iterable[str], count: int) -> list[str]:
    """The last `count` lines worth showing: no blanks, warnings, access log or import noise."""
    kept: deque[str] = deque(maxlen=count)
    for line in lines:
        last = line.rstrip("\r\n").rpartition("\r")[2]  # of a progress bar, its newest state
        if not _NOISE.search(last):
            kept.append(last.rstrip())
    return list(kept)


# --------------------------------------------------------------------------------------- failures


class FailureClass(StrEnum):
    """What kind of failure a server's log tells."""

    KV_POOL_TOO_SMALL = "kv_pool_too_small"
    CUDA_OOM = "cuda_oom"
    HOST_OOM = "host_oom"
    PORT_IN_USE = "port_in_use"
    NCCL_PORT_IN_USE = "nccl_port_in_use"
    BAD_ARGUMENTS = "bad_arguments"
    BAD_SPEC_ARGS = "bad_spec_args"
    MODEL_NOT_FOUND = "model_not_found"
    CUDA_ILLEGAL_ACCESS = "cuda_illegal_access"
    HANG_IN_GRAPH_CAPTURE = "hang_in_graph_capture"
    HANG = "hang"
    SPEC_RUNTIME_BUG = "spec_runtime_bug"
    GRAPH_CAPTURE_FAILED = "graph_capture_failed"
    WARMUP_FAILED = "warmup_failed"
    CHILD_DIED = "child_died"
    EXCEPTION = "exception"


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A failure found in a log: its class, the line that tells it and what to do."""

    failure_class: FailureClass
    line: str
    advice: str


_F = FailureClass
_TAKEN = r"address already in use|EADDRINUSE"
_FAILURES: tuple[tuple[FailureClass, str, str], ...] = (
    # from the specific to the general: the first row that any line of the log shows is taken
    (
        _F.KV_POOL_TOO_SMALL,
        r"Not enough memory\. Please try to increase --mem-fraction-static",
        "raise --mem-fraction-static, or lower --max-running-requests or --context-length",
    ),
    (
        _F.CUDA_OOM,
        r"CUDA out of memory|torch\.OutOfMemoryError|CUDA error: out of memory",
        "lower --mem-fraction-static or the CUDA-graph batch sizes, or free the GPUs",
    ),
    (
        _F.HOST_OOM,
        r"died during initialization \(exit code: -9\)|Cannot allocate memory",
        "the machine's memory ran out while loading",
    ),
    (
        _F.NCCL_PORT_IN_USE,
        rf"(NCCL|TCPStore|c10d|DistNetwork).*({_TAKEN})|({_TAKEN}).*(NCCL|TCPStore|c10d)",
        "a port that NCCL wanted was taken by another process; start again",
    ),
    (
        _F.PORT_IN_USE,
        rf"{_TAKEN}|port \d+ is (already )?in use",
        "the port was taken by another process; start again",
    ),
    (
        _F.BAD_SPEC_ARGS,
        r"selected index k out of range|'>' not supported between instances of 'NoneType'",
        "change the arm's --speculative-… arguments",
    ),
    (
        _F.BAD_SPEC_ARGS,
        r"is not supported in (decode )?attention backend|only supports topk",
        "change the arm's --speculative-… arguments",
    ),
    (
        _F.BAD_ARGUMENTS,
        r"error: (unrecognized arguments|ambiguous option|argument |the following arguments)",
        "correct the server's arguments",
    ),
    (
        _F.MODEL_NOT_FOUND,
        r"Repository Not Found|not a valid model identifier|No such file .*config\.json",
        "check --model-path and --speculative-draft-model-path",
    ),
    (
        _F.MODEL_NOT_FOUND,
        r"does not appear to have a file named|Can't load (the )?(config|tokenizer)",
        "check --model-path and --speculative-draft-model-path",
    ),
    (
        _F.CUDA_ILLEGAL_ACCESS,
        r"illegal memory access|device-side assert triggered|unspecified launch failure",
        "a kernel of the server failed; report it to SGLang, or try another attention backend",
    ),
    (
        _F.SPEC_RUNTIME_BUG,
        r"The size of tensor a .* must match the size of tensor b|captured \d+ of \d+ aux hidden",
        "the draft does not fit the target or the speculative settings",
    ),
    (
        _F.GRAPH_CAPTURE_FAILED,
        r"Capture cuda graph failed",
        "lower --mem-fraction-static or --cuda-graph-max-bs-decode",
    ),
    (
        _F.HANG,
        r"watchdog timeout",
        "a step took longer than --watchdog-timeout; look for a hang in the collectives (NCCL)",
    ),
    (_F.WARMUP_FAILED, r"Initialization failed\. warmup error", "the first generation failed"),
    (
        _F.EXCEPTION,
        r"hit an exception|^[\w.]*(Error|Exception)\b|Initialization failed",
        "read the traceback",
    ),
    (
        _F.CHILD_DIED,
        r"Received sigquit from a child process|SIGQUIT received|crashed with exit code",
        "a process of the server died; the lines before say why",
    ),
)
_PATTERNS = tuple((kind, re.compile(text), advice) for kind, text, advice in _FAILURES)


def find_failure(lines: Sequence[str]) -> Failure | None:
    """The most specific failure that a log's lines tell, with its last line; None: none known."""
    for failure_class, pattern, advice in _PATTERNS:
        for line in reversed(lines):
            if pattern.search(line):
                return Failure(failure_class=failure_class, line=line.strip(), advice=advice)
    return None


_CAPTURE_BEGIN = re.compile(r"Capture .*graph begin")


def find_hang(lines: Sequence[str]) -> Failure:
    """What a server was doing that tells nothing any more: capturing graphs, or something else."""
    last = next(iter(reversed(meaningful_lines(lines, 1))), "")
    if _CAPTURE_BEGIN.search(last):
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
