"""Which processors the server uses, so that load workers keep off them on a shared machine.

An SGLang scheduler keeps a core of its own busy all the time; a worker that the kernel puts on the
same core makes both late.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

import psutil

from bench.clock import monotonic_ns

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_WATCH_S: Final = 0.2
_BUSY_SHARE: Final = 0.5
"""Of a core: a thread that uses more has it, in effect, to itself."""
_STAT_TIMES: Final = slice(11, 13)  # utime and stime, after the name in parentheses (proc(5))
_STAT_PROCESSOR: Final = 36


async def keep_off(server_pid: int, worker_pids: Sequence[int]) -> frozenset[int] | None:
    """Bind the workers to processors that the server does not use.

    Those it uses are the ones that its processes are bound to, and those on which a thread of
    theirs is busy. If that leaves fewer than one a worker, the busy ones alone are kept off; if
    that does too, the kernel goes on deciding.

    Args:
        server_pid: Of its main process; its descendants count.
        worker_pids: Of the load workers.

    Returns:
        What they are bound to; None: they are not bound.
    """
    usable = frozenset(os.sched_getaffinity(0))
    pids = _tree(server_pid)
    bound = _bound(pids, usable)
    busy = await _busy(pids)
    for used in (bound | busy, busy):
        free = usable - used
        if used and len(free) >= len(worker_pids):
            for pid in worker_pids:
                with contextlib.suppress(OSError):
                    os.sched_setaffinity(pid, free)
            return free
    return None


def _tree(pid: int) -> list[int]:
    try:
        process = psutil.Process(pid)
        return [pid, *(child.pid for child in process.children(recursive=True))]
    except psutil.Error:
        return []


def _bound(pids: Iterable[int], usable: frozenset[int]) -> frozenset[int]:
    """Processors that processes are bound to which may not run on all that we may."""
    bound: frozenset[int] = frozenset()
    for pid in pids:
        with contextlib.suppress(OSError):
            own = usable & os.sched_getaffinity(pid)
            bound |= own if own < usable else frozenset()
    return bound


async def _busy(pids: Sequence[int]) -> frozenset[int]:
    """Processors on which a thread of these processes uses over half of the time."""
    began_ns, before = monotonic_ns(), _threads(pids)
    await asyncio.sleep(_WATCH_S)
    after = _threads(pids)
    elapsed = (monotonic_ns() - began_ns) / 1e9 * os.sysconf("SC_CLK_TCK")
    return frozenset(
        processor
        for thread, (ticks, processor) in after.items()
        if thread in before and ticks - before[thread][0] > _BUSY_SHARE * elapsed
    )


def _threads(pids: Iterable[int]) -> dict[str, tuple[int, int]]:
    """(ticks used, processor last run on) of each thread, by its place in /proc."""
    found: dict[str, tuple[int, int]] = {}
    for pid in pids:
        with contextlib.suppress(OSError):
            for place in Path(f"/proc/{pid}/task").iterdir():
                with contextlib.suppress(OSError):
                    stat = (place / "stat").read_text().rpartition(")")[2].split()
                    ticks = sum(map(int, stat[_STAT_TIMES]))
                    found[str(place)] = (ticks, int(stat[_STAT_PROCESSOR]))
    return found
