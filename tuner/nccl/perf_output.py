"""nccl-tests' `all_reduce_perf`: which calls measure given sizes, and what it prints; pure.

Format: a row a size, `size count type [redop] [root]`, then twice `time algbw busbw wrong`, out of
place and in place; comments begin with `#`. Seen from nccl-tests 2.0 (`error`, no root) to 2.17
(`#wrong`, `N/A` where it does not check): https://github.com/NVIDIA/nccl-tests, src/common.cu.
SGLang reduces in place, so the second group counts.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_NUMBER: Final = re.compile(r"\d+(\.\d+)?(e[+-]?\d+)?")
_WRONG: Final = re.compile(r"\d+(\.\d+)?(e[+-]?\d+)?|N/A")
_FAILURE: Final = re.compile(
    r".*(Test (NCCL |CUDA )?failure|invalid option|unrecognized option).*"
)
_FROM_TYPE: Final = 2
_GROUP: Final = 4
_TYPE_BYTES: Final = {"half": 2, "bfloat16": 2, "float": 4}
_MOST_STEPS: Final = 1024
"""Sizes that one call may step over: each costs the time of the few that are wanted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PerfCall:
    """One call of all_reduce_perf: from `least_bytes` to `most_bytes` by `step_bytes`."""

    least_bytes: int
    most_bytes: int
    step_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PerfRow:
    """One size as measured.

    Attributes:
        message_bytes: Of each rank.
        us: Microseconds of one all-reduce in place.
        wrong: Elements that came out wrong; None: not checked.
    """

    message_bytes: int
    us: float
    wrong: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PerfOutput:
    """What a call printed.

    Attributes:
        rows: Sizes as measured, in order.
        damaged: Lines that begin like a row and are none.
        failure: The first line that tells of a failure; None: there is none.
    """

    rows: tuple[PerfRow, ...]
    damaged: int
    failure: str | None


def perf_calls(sizes: Sequence[int]) -> tuple[PerfCall, ...]:
    """The fewest calls that measure these sizes, without stepping over many others.

    Args:
        sizes: Bytes, positive, in any order.
    """
    calls: list[PerfCall] = []
    group: list[int] = []
    for size in sorted(set(sizes)):
        wider = [*group, size]
        if len(wider) > 1 and (wider[-1] - wider[0]) // _step(wider) > _MOST_STEPS:
            calls.append(_call(group))
            wider = [size]
        group = wider
    return tuple([*calls, _call(group)] if group else calls)


def perf_command(
    program: str, call: PerfCall, *, ranks: int, element_bytes: int, graphs: int
) -> tuple[str, ...]:
    """The words of one call: a thread a GPU, in CUDA graphs, sums checked.

    Args:
        program: all_reduce_perf.
        call: What it measures.
        ranks: GPUs.
        element_bytes: 2 or 4.
        graphs: How often each graph is replayed.
    """
    kind = "bfloat16" if element_bytes == _TYPE_BYTES["bfloat16"] else "float"
    return (
        *(program, "-t", str(ranks), "-g", "1", "-d", kind, "-o", "sum"),
        *("-b", str(call.least_bytes), "-e", str(call.most_bytes), "-i", str(call.step_bytes)),
        *("-n", "20", "-w", "5", "-G", str(graphs), "-c", "1"),
    )


def parse_perf(text: str) -> PerfOutput:
    """The rows of an output; a line that is damaged is counted and left out."""
    rows, damaged, failure = [], 0, None
    for line in text.splitlines():
        told = _FAILURE.fullmatch(line.strip())
        if told is not None and failure is None:
            failure = told[0]
        words = line.split()
        if not words or not words[0].isdecimal():
            continue
        row = _row(words)
        if row is None:
            damaged += 1
        else:
            rows.append(row)
    return PerfOutput(rows=tuple(rows), damaged=damaged, failure=failure)


def _row(words: Sequence[str]) -> PerfRow | None:
    """Two groups of four behind the type; what contradicts itself is no row."""
    head, groups = words[: -2 * _GROUP], words[-2 * _GROUP :]
    if len(head) <= _FROM_TYPE or not all(_is_number(word) for word in head[:_FROM_TYPE]):
        return None
    if not head[_FROM_TYPE].isidentifier() or len(head) > _FROM_TYPE + 3:
        return None
    size, count = (int(word) for word in head[:_FROM_TYPE])
    element_bytes = _TYPE_BYTES.get(head[_FROM_TYPE])
    if element_bytes is not None and size != count * element_bytes:
        return None
    out_of_place, in_place = groups[:_GROUP], groups[_GROUP:]
    if not (_is_group(out_of_place, size) and _is_group(in_place, size)):
        return None
    wrong = None if in_place[-1] == "N/A" else math.ceil(float(in_place[-1]))
    return PerfRow(message_bytes=size, us=float(in_place[0]), wrong=wrong)


def _is_number(word: str) -> bool:
    return word.isascii() and word.isdecimal()


def _is_group(words: Sequence[str], size: int) -> bool:
    """Whether time, bandwidth and errors are what they should be: bytes / time is the bandwidth.

    Both are printed to two places, so a damaged digit shows where the bandwidth is large enough.
    """
    if not all(_NUMBER.fullmatch(word) for word in words[:3]) or not _WRONG.fullmatch(words[3]):
        return False
    us, bandwidth = float(words[0]), float(words[1])
    if not 0 < us < math.inf:
        return False
    expected = size / us / 1e3
    return abs(bandwidth - expected) <= 0.0051 + expected * _rounding(words[0])


def _rounding(written: str) -> float:
    """The relative error of a number as it is written."""
    places = len(written.partition(".")[2])
    value = float(written)
    return float(0.51 * 10.0**-places / value) if value else math.inf


def _call(sizes: Sequence[int]) -> PerfCall:
    return PerfCall(least_bytes=sizes[0], most_bytes=sizes[-1], step_bytes=_step(sizes))


def _step(sizes: Sequence[int]) -> int:
    if len(sizes) == 1:
        return sizes[0]
    return math.gcd(*_differences(sizes))


def _differences(sizes: Sequence[int]) -> Iterator[int]:
    return (size - sizes[0] for size in sizes[1:])
