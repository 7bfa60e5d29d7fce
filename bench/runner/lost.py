"""What tells that a cell was lost: its server hangs, or it, its listener or the worker is gone."""

from __future__ import annotations

from itertools import takewhile
from typing import TYPE_CHECKING, Final

from bench import clock
from bench.errors import LoadError, ServerError
from bench.metrics.hang import gpu_spans, is_spin_hang
from bench.metrics.series import group_series
from bench.model import RequestStatus
from bench.server.starting import exit_text, told_failure

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from bench.load.generator import CellLoad
    from bench.load.tally import Progress
    from bench.model import Cell, TelemetryPoint
    from bench.server import RunningServer


SILENT_S: Final = 600.0
"""How long a load worker may say nothing, in seconds of the world: it tells how it does twice a
second, but for when it prepares a cell's prompts."""

STOPPED_S: Final = 30.0
"""How long it may take to stop, likewise."""


SPUN_S: Final = 120.0
"""How long a server's GPUs spin without a token before its cell is ended, in seconds of the clock:
every request of it would only wait for its time-out."""

_LOOK_NS: Final = 10_000_000_000


class Patience:
    """How long a load worker has said nothing, or not stopped, and a server spins."""

    def __init__(self, points: Sequence[TelemetryPoint] = ()) -> None:
        """`points`: what is read of the server and its GPUs meanwhile, growing."""
        self._points = points
        self._heard_ns = clock.monotonic_ns()
        self._asked_ns: int | None = None
        self._token_ns = self._looked_ns = clock.now_ns()
        self._has_spun = False

    def heard(self, progress: Progress) -> None:
        """It has said how it does."""
        self._heard_ns = clock.monotonic_ns()
        if progress.output_tok_per_s != 0 or not progress.in_flight:
            self._token_ns = clock.now_ns()

    def spun(self) -> bool:
        """Whether requests have had no token for SPUN_S, and the GPUs have spun all the while."""
        now_ns = clock.now_ns()
        silent_s = (now_ns - self._token_ns) / 1e9
        if silent_s >= SPUN_S and now_ns - self._looked_ns >= _LOOK_NS:
            self._looked_ns = now_ns
            since = takewhile(lambda p: p.t_ns >= self._token_ns, reversed(self._points))
            series = group_series(point for point in since if point.source == "gpu")
            spans = gpu_spans(series, self._token_ns, now_ns)
            self._has_spun = self._has_spun or is_spin_hang(spans, silent_s=silent_s)
        return self._has_spun

    def stop_asked(self) -> None:
        """It is to stop; what counts is the first time."""
        self._asked_ns = self._asked_ns or clock.monotonic_ns()

    def lost(self) -> str | None:
        """Why it is not waited for any longer; None: it is."""
        now_ns = clock.monotonic_ns()
        if self._asked_ns is not None and now_ns - self._asked_ns > STOPPED_S * 1e9:
            return f"the load worker did not stop within {STOPPED_S:g} s"
        if now_ns - self._heard_ns > SILENT_S * 1e9:
            return f"the load worker has said nothing for {SILENT_S:g} s"
        return None


def require_alive(cell: Cell, server: RunningServer, launch_id: str, log: Path) -> None:
    """Raise if the server's process has ended.

    Raises:
        ServerError: It has.
    """
    exit_code = server.exited()
    if exit_code is None:
        return
    failure = told_failure(log)
    why = f": {failure.failure_class}: {failure.line[:200]}" if failure else "."
    advice = f"{failure.advice}. Its log" if failure else "Its log"
    raise ServerError(
        f"the server of {launch_id} ended ({exit_text(exit_code)}) at load {cell.load.label} "
        f"of {cell.workload.name}{why}",
        hint=f"{advice[0].upper()}{advice[1:]}: {log}",
    )


def require_answers(load: CellLoad, server: RunningServer) -> None:
    """Raise if nobody took a request: an attached server that was stopped tells nobody of it.

    Raises:
        ServerError: Every request was refused.
    """
    if load.samples and all(s.status is RequestStatus.REFUSED for s in load.samples):
        raise ServerError(
            f"nothing answers at {server.base_url} any more: all {len(load.samples)} requests "
            "were refused.",
            hint="Was the server stopped?",
        )


def require_worker(load: CellLoad) -> None:
    """Raise if the load worker has ended.

    Raises:
        LoadError: It has, and requests with it.
    """
    lost = [s for s in load.samples if s.status is RequestStatus.WORKER_LOST]
    if lost:
        raise LoadError(
            f"{lost[0].error_message or 'the load worker ended'}, and {len(lost)} of "
            f"{len(load.samples)} requests with it",
            hint="Was it killed for want of memory (dmesg says so)?",
        )
