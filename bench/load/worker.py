"""A load worker: the process in which requests are sent and every stream is read.

Started as `python -m bench.load.worker`; takes jobs on its standard input and tells outcomes on
its standard output (`bench.load.frames`). It ends when its input is closed, busy or not: then
bench is gone, and nobody is left to want the load.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import gc
import os
import sys
import traceback
from typing import TYPE_CHECKING, Final

import aiohttp

from bench.clock import now_ns, sleep_until_ns, speed, world_s
from bench.http import open_session
from bench.load.exchange import Exchange, StampedRequest, perform
from bench.load.frames import (
    Job,
    JobFailed,
    Outcome,
    Ready,
    framed,
    read_frame,
    to_worker,
)
from bench.load.pulse import Pulsimeter
from bench.load.stream import StreamAssembly
from bench.model import RequestStatus

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from bench.load.frames import FromWorker
    from bench.load.stream import StreamRecord

_ABORT_S: Final = 2.0
"""How long aborting may take, in seconds of the world."""
_SLICE_BYTES: Final = 16384
"""Parsing pauses after this much, a few tenths of a millisecond, so that arrivals are stamped."""
_LEAVE_FIRST_S: Final = 0.001
"""A slot's next request leaves before its last response is parsed."""
_STARTS_A_TURN: Final = 4
"""A burst of requests in one turn of the loop delays them all: each costs some 0.15 ms."""
_LEAD_NS: Final = 200_000_000
"""From the end of preparing to the start of an open load's schedule."""
_SPIN_NS: Final = 1_500_000
"""The loop's timers are 1 ms coarse: the last stretch before a due time is waited for in turns."""


class _JobRun:
    """One job while it runs."""

    def __init__(self, job: Job, tell: Callable[[FromWorker], None]) -> None:
        self._job = job
        self._tell = tell
        self._unsent = collections.deque(job.requests)
        self._ended: collections.deque[Exchange] = collections.deque()
        self._changed = asyncio.Event()
        self._all_ended = False
        self._pulse = Pulsimeter()
        self._cancelled: list[str] = []
        self._aborting: list[asyncio.Task[None]] = []

    async def send_all(self) -> None:
        """Send every request and wait for its end; outcomes are told as they come.

        When cancelled, what is outstanding or unsent ends as CANCELLED, and is told too.
        """
        digesting = asyncio.create_task(self._digest())
        pulsing = asyncio.create_task(self._pulse.run(self._tell))
        try:
            with contextlib.suppress(asyncio.CancelledError):
                await self._send()
        finally:
            pulsing.cancel()
            stopped_ns = now_ns()
            while self._unsent:
                self._over(Exchange(self._unsent.popleft(), due_ns=stopped_ns, slot=None))
            self._all_ended = True
            self._changed.set()
            await digesting
            await asyncio.gather(_abort(self._job, self._cancelled), *self._aborting)
        self._tell(self._pulse.job_end())

    async def _send(self) -> None:
        async with open_session(
            self._job.base_url,
            api_key=self._job.api_key,
            connect_s=self._job.connect_s,
            request_class=StampedRequest,
        ) as session:
            await _open_connections(session, self._job)
            if self._job.slots:
                await self._run_slots(session)
            else:
                await self._run_schedule(session)

    async def _run_slots(self, session: aiohttp.ClientSession) -> None:
        async with asyncio.TaskGroup() as slots:
            for ordinal, slot in enumerate(self._job.slots):
                slots.create_task(self._run_slot(session, slot))
                if ordinal % _STARTS_A_TURN == _STARTS_A_TURN - 1:
                    await asyncio.sleep(0)

    async def _run_slot(self, session: aiohttp.ClientSession, slot: int) -> None:
        while self._unsent:
            request = self._unsent.popleft()
            await self._perform(session, Exchange(request, due_ns=now_ns(), slot=slot))

    async def _run_schedule(self, session: aiohttp.ClientSession) -> None:
        tasks: set[asyncio.Task[None]] = set()
        start_ns = now_ns() + _LEAD_NS
        try:
            while self._unsent:
                due_ns = start_ns + (self._unsent[0].offset_ns or 0)
                await _until(due_ns)
                exchange = Exchange(self._unsent.popleft(), due_ns=due_ns, slot=None)
                task = asyncio.create_task(self._perform(session, exchange))
                tasks.add(task)
                task.add_done_callback(tasks.discard)
            if tasks:
                await asyncio.wait(tasks, timeout=world_s(self._job.drain_s))
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _perform(self, session: aiohttp.ClientSession, exchange: Exchange) -> None:
        self._pulse.started(exchange)
        try:
            await perform(session, self._job.path, exchange, request_s=self._job.request_s)
        finally:
            self._pulse.ended(exchange)
            self._over(exchange)
            self._give_up(exchange)

    def _give_up(self, exchange: Exchange) -> None:
        """See to it that the server drops a request that is not waited for any more."""
        status = exchange.end.status
        if not self._job.abort_own or exchange.sent_ns is None:
            return
        if status is RequestStatus.CANCELLED:  # all at once, at the job's end
            self._cancelled.append(exchange.rid)
        elif status in (RequestStatus.TIMEOUT, RequestStatus.DISCONNECTED):
            self._aborting.append(asyncio.create_task(_abort(self._job, [exchange.rid])))

    def _over(self, exchange: Exchange) -> None:
        self._ended.append(exchange)
        self._changed.set()

    async def _digest(self) -> None:
        """Parse what has ended, a slice at a time, and tell its outcome."""
        while True:
            while self._ended:
                exchange = self._ended.popleft()
                record = await _read_slices(exchange, keep_text=self._job.keep_text)
                self._tell(_outcome(exchange, record))
            if self._all_ended:
                return
            self._changed.clear()
            await self._changed.wait()
            if not self._all_ended:
                await asyncio.sleep(_LEAVE_FIRST_S)


async def _read_slices(exchange: Exchange, *, keep_text: bool) -> StreamRecord:
    stream = StreamAssembly()
    since_pause = 0
    for arrival_ns, piece in exchange.reads:
        stream.feed(arrival_ns, piece)
        since_pause += len(piece)
        if since_pause >= _SLICE_BYTES:
            since_pause = 0
            await asyncio.sleep(0)
    return stream.finish(exchange.end, keep_text=keep_text)


def _outcome(exchange: Exchange, record: StreamRecord) -> Outcome:
    return Outcome(
        index=exchange.request.index,
        slot=exchange.slot,
        due_ns=exchange.due_ns,
        sent_ns=exchange.sent_ns,
        first_byte_ns=exchange.first_byte_ns,
        ended_ns=exchange.ended_ns,
        http_status=exchange.http_status,
        stream=record,
    )


async def _open_connections(session: aiohttp.ClientSession, job: Job) -> None:
    """Open connections ahead, so that no measured request waits for one to be made.

    All are asked for in one turn of the loop, before any can be given back: each gets its own. A
    server that does not answer is left for the requests to tell.
    """

    async def touch() -> None:
        with contextlib.suppress(Exception):
            async with asyncio.timeout(world_s(job.connect_s)), session.get("model_info"):
                pass

    await asyncio.gather(*(touch() for _ in range(job.connections)))


async def _abort(job: Job, rids: Sequence[str]) -> None:
    """Abort requests of ours that were given up, each by its whole id, and no others.

    The server would notice by itself in some seconds; a refusal changes nothing.
    """
    if not rids:
        return

    async def abort(session: aiohttp.ClientSession, rid: str) -> None:
        with contextlib.suppress(aiohttp.ClientError, OSError):
            async with session.post("abort_request", json={"rid": rid}):
                pass

    with contextlib.suppress(TimeoutError):
        async with (
            asyncio.timeout(_ABORT_S),
            open_session(job.base_url, api_key=job.api_key, connect_s=job.connect_s) as session,
        ):
            await asyncio.gather(*(abort(session, rid) for rid in rids))


async def _until(due_ns: int) -> None:
    await sleep_until_ns(due_ns - _SPIN_NS * speed())
    while now_ns() < due_ns:  # noqa: ASYNC110  # a time is waited for, there is no event
        await asyncio.sleep(0)


async def _run_job(job: Job, tell: Callable[[FromWorker], None]) -> None:
    # A collection of the many small objects of a long run takes milliseconds: none during the job.
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        await _JobRun(job, tell).send_all()
    except Exception:  # noqa: BLE001  # whatever it was, bench is told and can go on
        tell(JobFailed(message=traceback.format_exc()))
    finally:
        gc.enable()
        gc.unfreeze()


async def serve() -> None:
    """Take jobs until the input is closed."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=2**24)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    output, _ = await loop.connect_write_pipe(asyncio.BaseProtocol, sys.stdout)

    def tell(message: FromWorker) -> None:
        output.write(framed(message))

    tell(Ready())
    running: asyncio.Task[None] | None = None
    while (payload := await read_frame(reader)) is not None:
        message = to_worker(payload)
        if isinstance(message, Job):
            running = asyncio.create_task(_run_job(message, tell))
            await asyncio.sleep(0)  # a task that is cancelled before its first turn never runs
        elif running is not None:
            running.cancel()
            running = None  # a second cancel would hit the telling of outcomes
    # Bench is gone, in order or killed: stop at once, whatever is in flight.
    os._exit(0)


def main() -> None:
    """Run the worker on uvloop, or on asyncio's own loop where uvloop is missing."""
    try:
        import uvloop  # noqa: PLC0415
    except ImportError:
        asyncio.run(serve())
    else:
        uvloop.run(serve())


if __name__ == "__main__":
    main()
