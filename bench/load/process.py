"""One load worker process, seen from bench."""

from __future__ import annotations

import asyncio
import collections
import contextlib
import sys
from typing import TYPE_CHECKING, Final

from bench.errors import LoadError
from bench.http import redact
from bench.load.frames import (
    Go,
    Job,
    JobEnd,
    JobFailed,
    Prepared,
    Pulse,
    Stop,
    framed,
    from_worker,
    read_frame,
    to_outcome,
)
from bench.load.shared_requests import OutcomeFile, RequestWriter, no_room

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from bench.load.frames import Outcome, ToWorker

_PIPE_BYTES: Final = 2**24
_START_S: Final = 30.0
_CLOSE_S: Final = 2.0


class WorkerProcess:
    """A running worker; made by `start_worker`."""

    def __init__(
        self,
        process: asyncio.subprocess.Process,
        requests: RequestWriter,
        outcomes: OutcomeFile,
    ) -> None:
        self.requests = requests.share()
        self._process = process
        self._outcomes = outcomes
        self._said: collections.deque[str] = collections.deque(maxlen=20)
        self._listening = asyncio.create_task(self._listen())
        self._stop_sent = False
        self._given_up = False

    @property
    def is_alive(self) -> bool:
        """Whether it can take a job."""
        return self._process.returncode is None and not self._given_up

    @property
    def last_words(self) -> str:
        """What is known of its end, in one line."""
        said = redact(self._said[-1]) if self._said else "it said nothing"
        return f"exit status {self._process.returncode}, {said}"

    @property
    def pid(self) -> int:
        """Of the process."""
        return self._process.pid

    async def run(
        self,
        job: Job,
        *,
        go: Callable[[], Awaitable[Go]],
        on_pulse: Callable[[Pulse], None],
    ) -> JobEnd | None:
        """Have a job done, whose requests are written.

        Args:
            job: What to do.
            go: Called when the worker is prepared; it begins when this returns.
            on_pulse: Told how it does.

        Returns:
            The worker's account, or None when it died before its end.

        Raises:
            DiskError: There is no room for what it has to tell.
            LoadError: It failed otherwise, without dying.
        """
        self._stop_sent = False
        self._outcomes.clear()
        try:
            return await self._run(job, go, on_pulse)
        except asyncio.CancelledError:
            self._given_up = True  # what it still has to tell would be taken for the next job's
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
            raise

    async def _run(
        self, job: Job, go: Callable[[], Awaitable[Go]], on_pulse: Callable[[Pulse], None]
    ) -> JobEnd | None:
        is_there = await self._send(job)
        while is_there and (payload := await self._read()) is not None:
            match from_worker(payload):
                case Prepared():
                    is_there = await self._send(await go())
                case Pulse() as pulse:
                    on_pulse(pulse)
                case JobEnd() as end:
                    return end
                case JobFailed(message=message, is_disk=True):
                    raise no_room("keep what became of the requests", message)
                case JobFailed(message=message):
                    last = message.strip().splitlines()[-1]
                    raise LoadError(f"the load worker failed: {last}")
        await self._process.wait()
        await asyncio.wait({self._listening}, timeout=_CLOSE_S)
        return None

    def outcomes(self) -> Iterator[Outcome]:
        """What it has told of its requests in the last job, be it alive or not."""
        return map(to_outcome, self._outcomes.frames())

    def stop(self) -> None:
        """End the job in hand: `run` returns once all outcomes are told."""
        if self.is_alive and not self._stop_sent and self._process.stdin is not None:
            self._stop_sent = True
            self._process.stdin.write(framed(Stop()))

    async def close(self) -> None:
        """End the process: it goes when its input is closed, and is killed if it does not."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            await asyncio.wait_for(self._process.wait(), _CLOSE_S)
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
            await self._process.wait()
        await asyncio.wait({self._listening}, timeout=_CLOSE_S)
        self._listening.cancel()
        self._outcomes.close()
        self.requests.release()

    async def ready(self) -> None:
        """Wait until it has started.

        Raises:
            LoadError: It ended, or did not start in time.
        """
        try:
            payload = await asyncio.wait_for(self._read(), _START_S)
        except TimeoutError:
            await self.close()
            raise LoadError(f"the load worker did not start within {_START_S:g} s") from None
        if payload is None:
            await self.close()
            raise LoadError(f"the load worker did not start: {self.last_words}")

    async def _send(self, message: ToWorker) -> bool:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(framed(message))
            await self._process.stdin.drain()
        except ConnectionError:
            await self._process.wait()
            return False
        return True

    async def _read(self) -> bytes | None:
        assert self._process.stdout is not None
        return await read_frame(self._process.stdout)

    async def _listen(self) -> None:
        assert self._process.stderr is not None
        while line := await self._process.stderr.readline():
            self._said.append(line.decode("utf-8", "replace").rstrip())


async def start_worker(requests: RequestWriter | None = None) -> WorkerProcess:
    """Start a worker and wait until it can take a job, about a third of a second.

    It is in a session of its own, so that Ctrl-C reaches bench alone, which stops it in order.

    Args:
        requests: What it shares with the other workers of its client; None: it is the first.

    Raises:
        LoadError: It did not start.
    """
    requests, outcomes = requests or RequestWriter(), OutcomeFile()
    descriptors = (*requests.descriptors(), outcomes.descriptor)
    try:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "bench.load.worker",
            *map(str, descriptors),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            pass_fds=descriptors,
            start_new_session=True,
            limit=_PIPE_BYTES,
        )
    except OSError as error:
        raise LoadError(f"the load worker did not start: {error}") from error
    worker = WorkerProcess(process, requests, outcomes)
    await worker.ready()
    return worker
