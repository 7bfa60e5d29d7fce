"""SGLang's log while it starts: what it is doing, and lines worth showing.

Formats: SGLang 0.5.23 (`model_runner_components/cuda_graph_setup.py`) and older: `Capture cuda
graph begin` became `Capture target verify CUDA graph begin. backend=…`, `Time elapsed: 7.23 s.`
became `elapsed=7.23 s`.
"""

from __future__ import annotations

import re
from collections import deque
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Final, Literal

from bench.sglang.log_lines import LogPrefix, parse_prefix
from bench.sglang.log_text import as_written, clipped, without_escapes

if TYPE_CHECKING:
    from collections.abc import Iterable

READY_TEXT = "The server is fired up and ready to roll!"


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadLine:
    """`Load weight begin` or `Load weight end`, once for the target and once for its draft.

    Attributes:
        prefix: When, and which rank.
        stage: Which of the two.
        model_class: The class that was loaded, which tells the draft from its target; end only.
        elapsed_s: How long it took; end only, newer versions only.
        available_gb: GPU memory left.
        used_gb: GPU memory taken; end only. Below 0 where the draft's load freed more.
    """

    prefix: LogPrefix
    stage: Literal["begin", "end"]
    model_class: str | None
    elapsed_s: float | None
    available_gb: float | None
    used_gb: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptureLine:
    """Capturing CUDA graphs: `Capture … graph begin`, `… graph bs [1, 2, 4]`, `… graph end`.

    Attributes:
        prefix: When, and which rank.
        graph: Which graphs, as in `target verify`, `draft`, `draft extend`; the old lines that
            name none are the target's.
        stage: Begin, the list of batch sizes (old versions only), or end.
        batch_sizes: The sizes captured; None where the line tells none.
        elapsed_s: How long it took; end only.
        available_gb: GPU memory left.
        used_gb: GPU memory taken; end only.
    """

    prefix: LogPrefix
    graph: str
    stage: Literal["begin", "sizes", "end"]
    batch_sizes: tuple[int, ...] | None
    elapsed_s: float | None
    available_gb: float | None
    used_gb: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitsLine:
    """`max_total_num_tokens=…`: what the server can hold once its memory is divided.

    Attributes:
        prefix: When, and which rank.
        kv_tok: Tokens that the KV cache holds.
        running_ct: Requests decoded together at most.
        prefill_chunk_tok: Tokens of a prompt computed in one step at most.
        context_tok: Longest context.
        available_gb: GPU memory left.
    """

    prefix: LogPrefix
    kv_tok: int | None
    running_ct: int | None
    prefill_chunk_tok: int | None
    context_tok: int | None
    available_gb: float | None


_LOAD = re.compile(r"Load weight (?P<stage>begin|end)\b(?P<rest>.*)")
_CAPTURE = re.compile(
    r"\bCapture (?P<graph>[\w ]{0,60}?)graphs? ?(?P<stage>begin|end|bs(?= ?\[))(?P<rest>.*)",
    re.IGNORECASE,
)
_LIMITS = re.compile(r"\bmax_total_num_tokens=.*")
_SIGNS = ("Load weight", "apture", "max_total_num_tokens=")
_PAIR = re.compile(r"([A-Za-z_][\w ]{0,40}?)=(\[[^\]]*\]|[^\s,]+)")
_OLD_ELAPSED = re.compile(r"Time elapsed: (\d{1,18}(?:\.\d+)?) s")
_COMMITTED = re.compile(r"after CUDA graph capture in (\d{1,18}(?:\.\d+)?) s")
_NUMBER = re.compile(r"-?\d{1,18}(?![\d])(?:\.\d+)?")


def parse_start_line(line: str) -> LoadLine | CaptureLine | LimitsLine | None:
    """A line that tells a step of the start with figures; None for any other line."""
    if not any(sign in line for sign in _SIGNS):
        return None
    line = clipped(without_escapes(line))
    load, capture, limits = _LOAD.search(line), _CAPTURE.search(line), _LIMITS.search(line)
    if load:
        late = _COMMITTED.search(load["rest"])
        found = _pairs(load["rest"])
        return LoadLine(
            prefix=parse_prefix(line),
            stage="begin" if load["stage"] == "begin" else "end",
            model_class=found.get("type"),
            elapsed_s=float(late[1]) if late else _number(found.get("elapsed")),
            available_gb=_number(found.get("avail mem")),
            used_gb=_number(found.get("mem usage")),
        )
    if capture:
        return _capture_line(line, capture)
    if limits:
        found = _pairs(limits[0])
        return LimitsLine(
            prefix=parse_prefix(line),
            kv_tok=_whole(found.get("max_total_num_tokens")),
            running_ct=_whole(found.get("max_running_requests")),
            prefill_chunk_tok=_whole(found.get("chunked_prefill_size")),
            context_tok=_whole(found.get("context_len")),
            available_gb=_number(found.get("available_gpu_mem")),
        )
    return None


def _capture_line(line: str, capture: re.Match[str]) -> CaptureLine:
    rest = capture["rest"]
    found = _pairs(rest)
    stage = capture["stage"].lower()
    sizes = rest if stage == "bs" else found.get("bs")
    old = _OLD_ELAPSED.search(rest)
    graph = " ".join(word for word in capture["graph"].lower().split() if word != "cuda")
    return CaptureLine(
        prefix=parse_prefix(line),
        graph=graph or "target",
        stage="sizes" if stage == "bs" else "begin" if stage == "begin" else "end",
        batch_sizes=None
        if sizes is None
        else tuple(map(int, re.findall(r"(?<!\d)\d{1,9}(?!\d)", sizes))),
        elapsed_s=float(old[1]) if old else _number(found.get("elapsed")),
        available_gb=_number(found.get("avail mem")),
        used_gb=_number(found.get("mem usage")),
    )


def _pairs(text: str) -> dict[str, str]:
    """The `name=value` pairs of a line; names may have blanks in them."""
    return {name.strip(): value for name, value in _PAIR.findall(text)}


def _number(text: str | None) -> float | None:
    match = _NUMBER.match(text or "")
    return float(match[0]) if match else None


def _whole(text: str | None) -> int | None:
    number = _number(text)
    return None if number is None else int(number)


# ------------------------------------------------------------------------------------------- times


@dataclass(frozen=True, slots=True, kw_only=True)
class StartTimes:
    """What a start was spent on, in seconds as the server counts them.

    Attributes:
        load_s: Loading weights, of the target and its draft; None: no such line.
        capture_s: Capturing CUDA graphs, all of them; None: no such line.
    """

    load_s: float | None
    capture_s: float | None


NOT_TOLD: Final = StartTimes(load_s=None, capture_s=None)


def start_times(lines: Iterable[str]) -> StartTimes:
    """How long the steps of a start took, by the slowest rank.

    Lines of versions that do not tell it are taken by their dates, in whole seconds.
    """
    spent_s: dict[type, dict[tuple[int | None, ...], float]] = {LoadLine: {}, CaptureLine: {}}
    begun: dict[tuple[type, tuple[int | None, ...]], str | None] = {}
    for line in lines:
        step = parse_start_line(line)
        if not isinstance(step, LoadLine | CaptureLine):
            continue
        kind, rank = type(step), step.prefix.ranks
        if step.stage == "begin":
            begun[kind, rank] = step.prefix.time_text
        elif step.stage == "end":
            began = begun.pop((kind, rank), None)
            took_s = step.elapsed_s
            if took_s is None:
                took_s = _seconds_between(began, step.prefix.time_text)
            if took_s is not None:
                spent_s[kind][rank] = spent_s[kind].get(rank, 0.0) + took_s
    return StartTimes(
        load_s=max(spent_s[LoadLine].values(), default=None),
        capture_s=max(spent_s[CaptureLine].values(), default=None),
    )


def _seconds_between(began: str | None, ended: str | None) -> float | None:
    try:
        first, last = (
            datetime.fromisoformat((text or "").replace(",", ".")) for text in (began, ended)
        )
    except ValueError:
        return None
    seconds = (last - first).total_seconds()
    return seconds if seconds >= 0 else None


# --------------------------------------------------------------------------------------- progress

_PERCENT = re.compile(r"(\d{1,3})%")
_PHASES = (
    (re.compile(r"Loading safetensors|loading shards"), "loading weights"),
    (re.compile(r"KV Cache is allocated|Memory pool end"), "KV cache allocated"),
    (re.compile(r"Capturing batches"), "capturing CUDA graphs"),
    (re.compile(r"Uvicorn running on|Application startup complete"), "serving HTTP"),
    (re.compile(re.escape(READY_TEXT)), "ready"),
)


def start_phase(line: str) -> str | None:
    """What a starting server is doing, in a few words; None for a line that does not tell."""
    parsed = parse_start_line(line)
    if isinstance(parsed, LoadLine):
        loaded = (
            f"weights loaded: {parsed.model_class}" if parsed.model_class else "weights loaded"
        )
        return "loading weights" if parsed.stage == "begin" else loaded
    if isinstance(parsed, CaptureLine):
        ended = parsed.stage == "end"
        return (
            f"CUDA graphs captured: {parsed.graph}"
            if ended
            else (f"capturing CUDA graphs: {parsed.graph}")
        )
    phase = next((phase for pattern, phase in _PHASES if pattern.search(line)), None)
    percents = _PERCENT.findall(line)  # of a progress bar whose states share a line, the newest
    return f"{phase} {percents[-1]} %" if phase and percents else phase


_NOISE = re.compile(
    r"^\s*$|^nanobind: |^See https://nanobind\S*$|^ - (leaked |\.\.\. skipped)|Warning: "
    r"|^\s*warnings\.warn\(|INFO:  "
    r"|Ignore import error|^\s*\^+\s*$|server_args="
)


def meaningful_lines(lines: Iterable[str], count: int) -> list[str]:
    """The last `count` lines worth showing: no blanks, warnings, access log or import noise."""
    kept: deque[str] = deque(maxlen=count)
    for line in lines:
        last = as_written(line.rstrip("\r\n").rpartition("\r")[2])  # a bar's newest state
        if not _NOISE.search(last):
            kept.append(last)
    return list(kept)
