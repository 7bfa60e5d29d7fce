"""How a load worker itself is doing: event-loop lag, CPU share, requests in flight."""

from __future__ import annotations

import array
import resource
from typing import TYPE_CHECKING, Final

from bench.clock import monotonic_ns, now_ns, speed
from bench.load.frames import JobEnd, Pulse

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Collection

    from bench.load.exchange import Exchange
    from bench.load.frames import Outcome

_SAMPLE_S: Final = 0.02
"""Waking up costs as much as some five events."""
_SAMPLES_A_PULSE: Final = 25


class Pulsimeter:
    """Watches one job; times are of the world, but lags are told in milliseconds of the clock."""

    def __init__(self, running: Collection[Exchange]) -> None:
        """`running` are the exchanges in flight, at any time."""
        self._running = running
        self._max_in_flight = 0
        self._ended = self._read_ct = self._output_tok = 0
        self._verify_ct = self._correct_ct = 0
        self._lags_ms = array.array("d")
        self._began = self._latest = _Usage()
        self._timer: asyncio.TimerHandle | None = None
        self._due_ns = 0

    def started(self) -> None:
        """A request is about to be sent; it is among those running."""
        self._max_in_flight = max(self._max_in_flight, len(self._running))

    def told(self, outcome: Outcome) -> None:
        """An outcome has been written."""
        self._ended += 1
        stream = outcome.stream
        self._read_ct += stream.read_ct
        self._output_tok += stream.output_tok or 0
        if stream.spec is not None and stream.spec.num_correct_drafts is not None:
            self._verify_ct += stream.spec.verify_ct
            self._correct_ct += stream.spec.num_correct_drafts

    def start(self, loop: asyncio.AbstractEventLoop, tell: Callable[[Pulse], None]) -> None:
        """Sample until `stop`; a late wake-up is how late everything else was handled too."""
        self._loop, self._tell = loop, tell
        self._latest = _Usage()
        self._wait()

    def stop(self) -> None:
        """Sample no more."""
        if self._timer is not None:
            self._timer.cancel()

    def _wait(self) -> None:
        self._due_ns = monotonic_ns() + round(_SAMPLE_S * 1e9)
        self._timer = self._loop.call_later(_SAMPLE_S, self._sample)

    def _sample(self) -> None:
        self._lags_ms.append((monotonic_ns() - self._due_ns) / 1e6 * speed())
        if not len(self._lags_ms) % _SAMPLES_A_PULSE:
            usage = _Usage()
            self._tell(self._pulse(usage, max(self._lags_ms[-_SAMPLES_A_PULSE:])))
            self._latest = usage
        self._wait()

    def _pulse(self, usage: _Usage, loop_lag_ms: float) -> Pulse:
        return Pulse(
            t_ns=now_ns(),
            in_flight=len(self._running),
            ended=self._ended,
            read_ct=self._read_ct,
            output_tok=self._output_tok,
            verify_ct=self._verify_ct,
            correct_ct=self._correct_ct,
            running_read_ct=sum(exchange.read_ct for exchange in self._running),
            loop_lag_ms=loop_lag_ms,
            cpu_share=usage.cpu_share_since(self._latest),
        )

    def job_end(self) -> JobEnd:
        """The account of the whole job."""
        usage = _Usage()
        ordered = sorted(self._lags_ms)
        return JobEnd(
            loop_lag_p99_ms=ordered[(len(ordered) * 99 - 1) // 100] if ordered else None,
            cpu_s=usage.cpu_s - self._began.cpu_s,
            world_s=(usage.world_ns - self._began.world_ns) / 1e9,
            max_in_flight=self._max_in_flight,
        )


class _Usage:
    """CPU seconds of this process and the world's time, read together."""

    __slots__ = ("cpu_s", "world_ns")

    def __init__(self) -> None:
        used = resource.getrusage(resource.RUSAGE_SELF)  # os.times() is 10 ms coarse
        self.cpu_s = used.ru_utime + used.ru_stime
        self.world_ns = monotonic_ns()

    def cpu_share_since(self, earlier: _Usage) -> float | None:
        elapsed_ns = self.world_ns - earlier.world_ns
        return (self.cpu_s - earlier.cpu_s) / (elapsed_ns / 1e9) if elapsed_ns > 0 else None
