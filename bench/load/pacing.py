"""When requests are started: on an absolute schedule, and never too many at once.

The event loop's own timers are 1 ms coarse, which is a third of a request's patience at 300 a
second; a timerfd of the kernel is not. A burst of requests in one turn of the loop delays them
all, and every event that arrives meanwhile: each costs some 0.05 ms.
"""

from __future__ import annotations

import collections
import ctypes
import os
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from bench.clock import monotonic_ns

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

T = TypeVar("T")

STARTS_A_MS: Final = 16
_STARTS_A_TURN: Final = 4
_CLOCK_MONOTONIC: Final = 1
_NONBLOCK: Final = os.O_NONBLOCK
_CLOEXEC: Final = os.O_CLOEXEC
_ABSOLUTE: Final = 1


class _Timespec(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


class _Timer(ctypes.Structure):
    _fields_ = (("interval", _Timespec), ("value", _Timespec))


class Alarm:
    """A timer of the kernel, exact to some 0.05 ms, on the event loop (timerfd_create(2))."""

    def __init__(self, loop: asyncio.AbstractEventLoop, ring: Callable[[], None]) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._loop = loop
        self._ring = ring
        self._fd = self._libc.timerfd_create(_CLOCK_MONOTONIC, _NONBLOCK | _CLOEXEC)
        if self._fd < 0:
            raise OSError(ctypes.get_errno(), "no timer to be had")
        loop.add_reader(self._fd, self._rang)

    def set(self, when_ns: int) -> None:
        """Ring once, when CLOCK_MONOTONIC shows `when_ns`; at once if that is past."""
        timer = _Timer()
        timer.value.seconds, timer.value.nanoseconds = divmod(max(when_ns, 1), 1_000_000_000)
        if self._libc.timerfd_settime(self._fd, _ABSOLUTE, ctypes.byref(timer), None):
            raise OSError(ctypes.get_errno(), "the timer could not be set")

    def close(self) -> None:
        """Never ring again."""
        if self._fd >= 0:
            self._loop.remove_reader(self._fd)
            os.close(self._fd)
            self._fd = -1

    def _rang(self) -> None:
        try:
            os.read(self._fd, 8)
        except BlockingIOError:
            return
        self._ring()


class Pacer(Generic[T]):
    """Starts what is ready, in order: at most so many a turn of the loop and a millisecond."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, start: Callable[[T], None], *, starts_a_ms: int
    ) -> None:
        self._loop = loop
        self._start = start
        self._waiting: collections.deque[T] = collections.deque()
        self._spacing_ns = 1_000_000 // starts_a_ms
        self._free_at_ns = 0  # when the next start would be, were all evenly spaced
        self._alarm = Alarm(loop, self._turn)
        self._is_turning = False

    def push(self, ready: T) -> None:
        """Start this as soon as may be: at once, where nothing waits and few have started."""
        if not self._waiting and not self._is_turning and self._may_start():
            self._start(ready)
            return
        self._waiting.append(ready)
        if not self._is_turning:
            self._is_turning = True
            self._loop.call_soon(self._turn)

    def stop(self) -> None:
        """Start nothing any more."""
        self._waiting.clear()
        self._alarm.close()

    def _may_start(self) -> bool:
        now_ns = monotonic_ns()
        free_at_ns = max(self._free_at_ns, now_ns)
        if free_at_ns - now_ns > 1_000_000:
            return False
        self._free_at_ns = free_at_ns + self._spacing_ns
        return True

    def _turn(self) -> None:
        self._is_turning = True
        for _ in range(_STARTS_A_TURN):
            if not self._waiting:
                self._is_turning = False
                return
            if not self._may_start():
                self._alarm.set(self._free_at_ns - 1_000_000)
                return
            self._start(self._waiting.popleft())
        self._loop.call_soon(self._turn)
