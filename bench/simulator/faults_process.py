"""Faults of the whole process: what SGLang 0.5.23 writes when it dies, and how it ends.

A scheduler that fails tells its main process by SIGQUIT, which then kills all and itself: the exit
status is that of a KILL and means nothing (`srt/utils/common.py`, `srt/entrypoints/engine.py`).
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import traceback
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, NoReturn

from bench import clock
from bench.simulator.log import log

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_SHARDS: Final = 10

_OUT_OF_MEMORY: Final = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total "
    "capacity of 94.97 GiB of which 1.22 GiB is free. Including non-PyTorch memory, this process "
    "has 93.74 GiB memory in use."
)
_CAPTURE_ADVICE: Final = (
    "Possible solutions:",
    "1. set --mem-fraction-static to a smaller value (e.g., 0.8 or 0.7)",
    "2. set --cuda-graph-max-bs-decode to a smaller value (e.g., 16)",
    "3. disable CUDA graph by --disable-cuda-graph. (Not recommended. Huge performance loss)",
)


def load_slowly(s: float) -> None:
    """Take `s` seconds of the clock, with the progress lines of SGLang's weight loader."""
    for done in range(1, _SHARDS + 1):
        _pause(s / _SHARDS)
        share = f"{done * 100 // _SHARDS:3d}%"
        log(f"Multi-thread loading shards: {share} Completed | {done}/{_SHARDS}")


def hang_forever() -> None:
    """Write nothing and do nothing until a signal ends it."""
    while True:
        _pause(3600.0)


def out_of_memory(stage: str) -> NoReturn:
    """The GPU has no room for the weights (`load`) or for the graphs (`capture`)."""
    if stage == "load":
        _scheduler_fails(("model_executor/model_runner.py", "load_model"), [_OUT_OF_MEMORY])
    failed = f"Exception: Capture cuda graph failed: {_OUT_OF_MEMORY}"
    _scheduler_fails(
        ("model_executor/model_runner.py", "init_device_graphs"), [failed, *_CAPTURE_ADVICE]
    )


def crash() -> NoReturn:
    """A kernel of a running server fails."""
    _scheduler_fails(
        ("managers/scheduler.py", "event_loop_overlap"),
        ["torch.AcceleratorError: CUDA error: an illegal memory access was encountered"],
        running=True,
    )


@contextmanager
def scheduler_work() -> Iterator[None]:
    """End the process where the scheduler's own work raises: a server that hangs helps nobody."""
    try:
        yield
    except Exception:  # noqa: BLE001  # as SGLang's scheduler process, whatever it is
        log(f"Scheduler hit an exception: {traceback.format_exc()}")
        _killed(running=True)


def watchdog_ends(patience_s: float) -> NoReturn:
    """A step took longer than the watchdog allows."""
    log(
        f"Scheduler watchdog timeout (self.watchdog_timeout={patience_s:g}, self.soft=False)",
    )
    _killed(running=True)


def _scheduler_fails(
    place: tuple[str, str], last: Sequence[str], *, running: bool = False
) -> NoReturn:
    file, function = place
    log("Scheduler hit an exception: Traceback (most recent call last):")
    _raw(f'  File "sglang/srt/{file}", line 1, in {function}')
    for line in last:
        _raw(line)
    _raw("")
    _killed(running=running)


def _killed(*, running: bool) -> NoReturn:
    if running:
        log("SIGQUIT received. signum=None, frame=None. It usually means one child failed.")
    else:
        log("Received sigquit from a child process. It usually means the child failed.")
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("a killed process does nothing more")


def _raw(line: str) -> None:
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()


def _pause(s: float) -> None:
    threading.Event().wait(clock.world_s(s))
