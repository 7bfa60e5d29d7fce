"""One supervised server process, as the bench sees it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bench.clock import world_s
from bench.errors import DiskError, ServerError
from bench.http import SECRET_PATTERNS, spellings
from bench.server.supervisor import KILL_S

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

_PATIENCE_S = 5.0
"""How much longer than it needs the supervisor is given before it counts as lost."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessOrder:
    """What to run.

    Attributes:
        argv: The command line.
        environment: The whole environment, not an addition.
        working_dir: Where; None: here.
        log_path: Where its output is appended, redacted.
        term_s: How long it may take to end after TERM, in seconds of the clock.
        secrets: Texts that must not reach the log.
        is_keeper: Whether it only stands for the server, which it ends when it is sent TERM.
    """

    argv: Sequence[str]
    environment: Mapping[str, str]
    working_dir: str | None
    log_path: Path
    term_s: float
    secrets: Sequence[str] = ()
    is_keeper: bool = False


class ServerProcess:
    """A server's main process and all its descendants, in the hands of their supervisor.

    Made by `start_process`.

    Attributes:
        pid: Of the main process, which leads a process group of its own.
        left: Processes that even KILL did not end; known after `stop`.
    """

    def __init__(
        self, supervisor: asyncio.subprocess.Process, pid: int, order: ProcessOrder
    ) -> None:
        self.pid = pid
        self._orphan_signal = signal.SIGTERM if order.is_keeper else signal.SIGKILL
        self.left: tuple[int, ...] = ()
        self._supervisor = supervisor
        self._term_s = order.term_s
        self._exit_code: int | None = None
        self._exited = asyncio.Event()
        self._listener = asyncio.create_task(self._listen())

    def exited(self) -> int | None:
        """The main process's exit code once it has ended; negative: the signal that ended it."""
        return self._exit_code

    async def wait_exited(self) -> int:
        """Wait for the main process to end."""
        await self._exited.wait()
        assert self._exit_code is not None
        return self._exit_code

    async def stop(self) -> int:
        """TERM, wait, KILL, until no process of the server is left (or `left` says which are).

        Returns:
            The main process's exit code.
        """
        stdin = self._supervisor.stdin
        assert stdin is not None
        if not stdin.is_closing():  # the supervisor ends by itself once its server has ended
            with contextlib.suppress(OSError):
                stdin.write(b"stop\n")
                await stdin.drain()
        try:
            async with asyncio.timeout(world_s(self._term_s) + KILL_S + _PATIENCE_S):
                await asyncio.shield(self._listener)
        except TimeoutError:
            self._supervisor.kill()
            await self._listener
        await _let_go(self._supervisor)
        return await self.wait_exited()

    async def _listen(self) -> None:
        stdout = self._supervisor.stdout
        assert stdout is not None
        gone = False
        async for line in stdout:
            message = json.loads(line)
            if message["event"] == "exited":
                self._end(message["code"])
            elif message["event"] == "gone":
                gone = True
                self.left = tuple(message["left"])
        if not gone:  # the supervisor was killed; the kernel has killed the main process with it
            with contextlib.suppress(OSError):
                os.killpg(self.pid, self._orphan_signal)
        if self._exit_code is None:
            self._end(-signal.SIGKILL)

    def _end(self, code: int) -> None:
        self._exit_code = code
        self._exited.set()


async def start_process(order: ProcessOrder) -> ServerProcess:
    """Start a server under a supervisor of its own.

    Raises:
        ServerError: The command cannot be run.
        DiskError: The log cannot be written.
    """
    try:
        log = order.log_path.open("ab")
    except OSError as error:
        raise DiskError(
            f"the server's log cannot be written: {error.strerror}: {order.log_path}"
        ) from error
    with log:
        supervisor = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "bench.server.supervisor",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=log,
            start_new_session=True,  # a terminal's Ctrl-C must reach the bench alone
        )
    try:
        answer = await _give_order(supervisor, order)
    except BaseException:  # given up while starting: the end of its stdin makes it stop the server
        await _let_go(supervisor)
        raise
    if isinstance(answer, int):
        return ServerProcess(supervisor, answer, order)
    await _let_go(supervisor)
    raise ServerError(
        f"the server's command cannot be run: {answer}",
        hint=f"asked to run {order.argv[0]!r}; correct the launcher's command or working_dir.",
    )


async def _give_order(supervisor: asyncio.subprocess.Process, order: ProcessOrder) -> int | str:
    """The main process's pid, or why there is none."""
    assert supervisor.stdin is not None
    assert supervisor.stdout is not None
    with contextlib.suppress(OSError):  # a supervisor that is dead already tells by its silence
        supervisor.stdin.write(_order_line(order))
        await supervisor.stdin.drain()
    answer = await supervisor.stdout.readline()
    if not answer:
        return "its supervisor ended at once"
    message = json.loads(answer)
    return int(message["pid"]) if message["event"] == "started" else str(message["reason"])


async def _let_go(supervisor: asyncio.subprocess.Process) -> None:
    assert supervisor.stdin is not None
    with contextlib.suppress(OSError):
        supervisor.stdin.close()
        await supervisor.stdin.wait_closed()
    await supervisor.wait()


def _order_line(order: ProcessOrder) -> bytes:
    text = json.dumps(
        {
            "argv": list(order.argv),
            "env": dict(order.environment),
            "cwd": order.working_dir,
            "log": str(order.log_path),
            "term_s": world_s(order.term_s),
            "redactions": [[pattern.pattern, new] for pattern, new in SECRET_PATTERNS],
            "secrets": spellings(order.secrets),
        }
    )
    return text.encode() + b"\n"
