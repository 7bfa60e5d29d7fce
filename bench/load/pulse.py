"""How a load worker itself is doing: event-loop lag, CPU share, requests in flight."""

from __future__ import annotations

import array
import asyncio
import os
from typing import TYPE_CHECKING, Final

from bench.clock import monotonic_ns, now_ns, speed
from bench.load.frames import JobEnd, Pulse

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.load.exchange import Exchange

_SAMPLE_S: Final = 0.01
_SAMPLES_A_PULSE: Final = 50


class Pulsimeter:
    """Watches one job; times are of the world, but lags are told in milliseconds of the clock."""

    def __init__(self) -> None:
        self._running: set[Exchange] = set()
        self._max_in_flight = 0
        self._ended_read_ct = 0
        self._lags_ms = array.array("d")
        self._began = self._latest = _Usage()

    def started(self, exchange: Exchange) -> None:
        """A request is about to be sent."""
        self._running.add(exchange)
        self._max_in_flight = max(self._max_in_flight, len(self._running))

    def ended(self, exchange: Exchange) -> None:
        """It has ended."""
        self._running.discard(exchange)
        self._ended_read_ct += len(exchange.reads)

    async def run(self, tell: Callable[[Pulse], None]) -> None:
        """Sample until cancelled; a late wake-up is how late everything else was handled too."""
        while True:
            told_ct = len(self._lags_ms)
            for _ in range(_SAMPLES_A_PULSE):
                due_ns = monotonic_ns() + round(_SAMPLE_S * 1e9)
                await asyncio.sleep(_SAMPLE_S)
                self._lags_ms.append((monotonic_ns() - due_ns) / 1e6 * speed())
            usage = _Usage()
            tell(
                Pulse(
                    t_ns=now_ns(),
                    in_flight=len(self._running),
                    read_ct=self._ended_read_ct + sum(len(e.reads) for e in self._running),
                    loop_lag_ms=max(self._lags_ms[told_ct:]),
                    cpu_share=usage.cpu_share_since(self._latest),
                )
            )
            self._latest = usage

    def job_end(self) -> JobEnd:
        """The account of the whole job."""
        usage = _Usage()
        ordered = sorted(self._lags_ms)
        return JobEnd(
            loop_lag_p99_ms=ordered[(len(ordered) * 99 - 1) // 100] if ordered else None,
            cpu_share=usage.cpu_share_since(self._began),
            world_s=(usage.world_ns - self._began.world_ns) / 1e9,
            max_in_flight=self._max_in_flight,
        )


class _Usage:
    """CPU seconds of this process and the world's time, read together."""

    __slots__ = ("cpu_s", "world_ns")

    def __init__(self) -> None:
        times = os.times()
        self.cpu_s = times.user + times.system
        self.world_ns = monotonic_ns()

    def cpu_share_since(self, earlier: _Usage) -> float | None:
        elapsed_ns = self.world_ns - earlier.world_ns
        return (self.cpu_s - earlier.cpu_s) / (elapsed_ns / 1e9) if elapsed_ns > 0 else None
