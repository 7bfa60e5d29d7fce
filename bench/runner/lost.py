"""What tells that a cell was lost: its server, its listener or the load worker is gone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from bench import clock
from bench.errors import LoadError, ServerError
from bench.model import RequestStatus
from bench.server.starting import exit_text, told_failure

if TYPE_CHECKING:
    from pathlib import Path

    from bench.load.generator import CellLoad
    from bench.model import Cell
    from bench.server import RunningServer


SILENT_S: Final = 600.0
"""How long a load worker may say nothing, in seconds of the world: it tells how it does twice a
second, but for when it prepares a cell's prompts."""

STOPPED_S: Final = 30.0
"""How long it may take to stop, likewise."""


class Patience:
    """How long a load worker has said nothing, or not stopped."""

    def __init__(self) -> None:
        self._heard_ns = clock.monotonic_ns()
        self._asked_ns: int | None = None

    def heard(self) -> None:
        """It has said something."""
        self._heard_ns = clock.monotonic_ns()

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
