"""The one clock: monotonic nanoseconds, and the wall-clock anchor that turns them into dates.

Only this module may import `time` (import-linter keeps it). Every timestamp in specdyno is an
integer of nanoseconds of CLOCK_MONOTONIC, which all processes of a machine share.

Simulated runs may pass faster than the world: after `set_speed(6)` a second of the clock takes a
sixth of a second, here and, by SPECDYNO_CLOCK_SPEED in the environment, in the processes started
from here (the load worker, the simulated server). At speed 1, the only speed for a real server,
`now_ns` is `time.monotonic_ns` itself, so that measuring pays nothing for this. Say
`clock.now_ns()`, never `from bench.clock import now_ns`, which would keep the old one.
"""

from __future__ import annotations

import asyncio
import os
import time
from dataclasses import dataclass
from datetime import UTC, datetime

SPEED_VARIABLE = "SPECDYNO_CLOCK_SPEED"
MAX_SPEED = 10


def _speed_from_environment() -> int:
    text = os.environ.get(SPEED_VARIABLE, "1")
    return int(text) if text.isdigit() and 1 <= int(text) <= MAX_SPEED else 1


_speed = _speed_from_environment()


def _fast_now_ns() -> int:
    return time.monotonic_ns() * _speed


now_ns = time.monotonic_ns if _speed == 1 else _fast_now_ns


def set_speed(speed: int) -> None:
    """Set the clock's speed for this process and those it starts; only before anything was timed.

    Raises:
        ValueError: Not a whole number from 1 to 10.
    """
    global _speed, now_ns  # noqa: PLW0603  # a process has one clock
    if not 1 <= speed <= MAX_SPEED:
        raise ValueError(f"speed must be from 1 to {MAX_SPEED}, not {speed}")
    _speed = speed
    now_ns = time.monotonic_ns if speed == 1 else _fast_now_ns
    os.environ[SPEED_VARIABLE] = str(speed)


def speed() -> int:
    """Nanoseconds of the clock in one of the world: 1 for a real server, up to 10 simulated."""
    return _speed


async def sleep_ns(duration_ns: int) -> None:
    """Sleep for `duration_ns` of the clock: shorter in the world when the clock is fast."""
    await asyncio.sleep(max(duration_ns, 0) / 1e9 / _speed)


async def sleep_until_ns(when_ns: int) -> None:
    """Sleep until the clock shows `when_ns`; returns at once when that is past."""
    await sleep_ns(when_ns - now_ns())


def world_s(duration_s: float) -> float:
    """Seconds of the world that `duration_s` of the clock take: for a library's own time-out."""
    return duration_s / _speed


def monotonic_ns() -> int:
    """The world's monotonic nanoseconds at any speed: for how long the harness itself takes."""
    return time.monotonic_ns()


@dataclass(frozen=True, slots=True, kw_only=True)
class WallAnchor:
    """One reading of both clocks, taken together, that dates every other timestamp of a run.

    Attributes:
        wall_ns: Nanoseconds since 1970-01-01 UTC.
        clock_ns: `now_ns()` at the same moment.
        speed: The clock's speed.
    """

    wall_ns: int
    clock_ns: int
    speed: int

    def wall_time(self, clock_ns: int) -> datetime:
        """The UTC date of a timestamp of the clock."""
        wall_ns = self.wall_ns + (clock_ns - self.clock_ns) // self.speed
        return datetime.fromtimestamp(wall_ns / 1e9, tz=UTC)


def wall_anchor() -> WallAnchor:
    """Read both clocks now."""
    return WallAnchor(wall_ns=time.time_ns(), clock_ns=now_ns(), speed=_speed)


def utc_now() -> datetime:
    """The present date, in UTC; for names of runs and manifests, never for durations."""
    return datetime.now(tz=UTC)
