"""What the workers tell while a cell runs: for the console, and as the client's telemetry."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from msgspec.structs import replace

from bench.model import TelemetryPoint

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from bench.load.frames import Pulse


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How a cell is going, about twice a second.

    Attributes:
        done: Requests that have ended, priming left out.
        total: Requests of the cell, priming left out.
        in_flight: Requests sent and not ended.
        output_tok_per_s: Rough rate since the last one, from reads; None at first.
        accept_len_tok: Pooled over the requests that have ended; None without speculation.
        phase: `priming`, `warm-up` or `measuring`.
    """

    done: int
    total: int
    in_flight: int
    output_tok_per_s: float | None
    accept_len_tok: float | None
    phase: str


class Tally:
    """The pulses of all workers in one cell.

    Attributes:
        telemetry: The client's readings so far.
        is_priming: Whether the job in hand only fills the prefix cache.
    """

    def __init__(
        self, *, total: int, warmup: int, on_progress: Callable[[Progress], None] | None
    ) -> None:
        """`total` and `warmup` requests of the cell, priming left out."""
        self.telemetry: list[TelemetryPoint] = []
        self.is_priming = False
        self._total, self._warmup = total, warmup
        self._on_progress = on_progress
        self._latest: dict[int, Pulse] = {}
        self._heard: set[int] = set()
        self._before: _Round | None = None

    def take(self, worker: int, pulse: Pulse) -> None:
        """A worker's pulse; when each has told its own, they are put together."""
        if worker in self._heard:
            self._end_round()
        self._latest[worker] = pulse
        self._heard.add(worker)

    def end_of(self, worker: int) -> None:
        """A worker is done, or gone: nothing of its is in flight any more."""
        last = self._latest.get(worker)
        if last is not None:
            self._latest[worker] = replace(
                last, in_flight=0, running_read_ct=0, loop_lag_ms=None, cpu_share=None
            )

    def end_job(self) -> None:
        """There are no more pulses of this job."""
        if self._heard:
            self._end_round()
        self._latest.clear()
        self._before = None

    def _end_round(self) -> None:
        self._heard.clear()
        now = _Round.of(self._latest.values())
        lags_ms = [p.loop_lag_ms for p in self._latest.values() if p.loop_lag_ms is not None]
        shares = [p.cpu_share for p in self._latest.values() if p.cpu_share is not None]
        self.telemetry += [
            TelemetryPoint(t_ns=now.t_ns, source="client", name=name, value=value)
            for name, value in (
                ("loop_lag_ms", max(lags_ms, default=None)),
                ("cpu_share", sum(shares) if shares else None),
                ("requests_in_flight", float(now.in_flight)),
            )
        ]
        if self._on_progress is not None:
            self._on_progress(self._progress(now))
        self._before = now

    def _progress(self, now: _Round) -> Progress:
        done = 0 if self.is_priming else now.ended
        phase = "measuring" if done >= self._warmup else "warm-up"
        return Progress(
            done=done,
            total=self._total,
            in_flight=now.in_flight,
            output_tok_per_s=None if self._before is None else now.output_tok_per_s(self._before),
            accept_len_tok=1 + now.correct_ct / now.verify_ct if now.verify_ct else None,
            phase="priming" if self.is_priming else phase,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Round:
    """The pulses of all workers put together."""

    t_ns: int
    in_flight: int
    ended: int
    read_ct: int
    output_tok: int
    verify_ct: int
    correct_ct: int
    running_read_ct: int

    @staticmethod
    def of(pulses: Collection[Pulse]) -> _Round:
        return _Round(
            t_ns=max(p.t_ns for p in pulses),
            in_flight=sum(p.in_flight for p in pulses),
            ended=sum(p.ended for p in pulses),
            read_ct=sum(p.read_ct for p in pulses),
            output_tok=sum(p.output_tok for p in pulses),
            verify_ct=sum(p.verify_ct for p in pulses),
            correct_ct=sum(p.correct_ct for p in pulses),
            running_read_ct=sum(p.running_read_ct for p in pulses),
        )

    def output_tok_per_s(self, before: _Round) -> float | None:
        # Streams are not parsed while they run; a read carries about as many tokens as those of
        # the requests that have ended did.
        reads = self.read_ct + self.running_read_ct - before.read_ct - before.running_read_ct
        if self.t_ns <= before.t_ns or reads < 0:
            return None
        tok_a_read = self.output_tok / self.read_ct if self.read_ct else 1.0
        return reads * tok_a_read / (self.t_ns - before.t_ns) * 1e9
