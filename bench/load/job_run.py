"""One job of a load worker: its requests sent, their responses read, their outcomes told.

There is no task a request: lines call back when an exchange has ended, and a pacer starts the
next. What costs time and can wait (parsing, connections ahead) waits for its turn.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any, Final

import aiohttp

from bench.clock import now_ns, speed, world_s
from bench.errors import DiskError
from bench.http import Dialer, open_session
from bench.load.digestion import Digestion
from bench.load.exchange import Exchange, connecting_failed
from bench.load.frames import Outcome, Prepared
from bench.load.line import Line
from bench.load.pacing import Alarm, Pacer
from bench.load.pulse import Pulsimeter
from bench.model import RequestStatus
from bench.sglang.wire import with_rid

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from bench.load.frames import FromWorker, Go, Job
    from bench.load.shared_requests import Request, RequestReader

_ABORT_S: Final = 2.0
"""How long aborting may take, in seconds of the world."""
_DIALS_AT_ONCE: Final = 32
_TICK_S: Final = 0.1
_QUIET_NS: Final = 500_000_000
_HEADERS: Final = {"Content-Type": "application/json", "Accept": "text/event-stream"}
_SECOND: Final = 1 << 31
"""Tells the second id of a request from the first; no cell has so many."""
_STOPPED: Final = (RequestStatus.CANCELLED, "stopped by bench")

Due = tuple["Request | None", int, int | None]
"""A start: the request (None: the next one), when it was due, the slot."""


class JobRun:
    """One job while it runs."""

    def __init__(
        self,
        job: Job,
        requests: RequestReader,
        *,
        tell: Callable[[FromWorker], None],
        write: Callable[[Outcome], None],
    ) -> None:
        self._job, self._requests = job, requests
        self._tell, self._write = tell, write
        self._loop = loop = asyncio.get_running_loop()
        self._dialer = Dialer(
            job.base_url, job.path, api_key=job.api_key, headers=_HEADERS, connect_s=job.connect_s
        )
        self._pacer: Pacer[Due] = Pacer(loop, self._start, starts_a_ms=job.starts_a_ms)
        self._alarm = Alarm(loop, self._take_due)
        self._digestion = Digestion(loop, self._digested)
        self._running: dict[Exchange, Line | None] = {}
        self._dialing: dict[Exchange | int, asyncio.Task[None]] = {}
        self._free: list[Line] = []  # the latest used last
        self._pulse = Pulsimeter(self._running)
        self._over: asyncio.Future[None] = loop.create_future()
        self._next_due: Request | None = None
        self._start_ns = 0
        self._is_exhausted = False
        self._is_stopping = False
        self._draining: asyncio.TimerHandle | None = None
        self._failure: Exception | None = None
        self._cancelled: list[str] = []
        self._aborting: list[asyncio.Task[None]] = []

    async def run(self, go: asyncio.Future[Go]) -> None:
        """Do the job; when cancelled, what is outstanding ends as CANCELLED and is told too."""
        watching: list[asyncio.Task[None]] = []
        self._loop.set_exception_handler(self._callback_failed)
        try:
            with contextlib.suppress(asyncio.CancelledError):
                await self._open_ahead()
                self._tell(Prepared(connections=len(self._free)))
                start_ns = (await go).start_ns
                self._pulse.start(self._loop, self._tell)
                watching.append(asyncio.create_task(self._tick()))
                self._begin(start_ns)
                await self._over
        finally:
            self._stop()
            self._pulse.stop()
            await self._digestion.finish()
            for task in (*watching, *self._dialing.values()):
                task.cancel()
            for line in self._free:
                line.close()
            await self._dialer.close()
            await asyncio.gather(_abort(self._job, self._cancelled), *self._aborting)
        if self._failure is not None:
            raise self._failure
        self._tell(self._pulse.job_end())

    def _begin(self, start_ns: int) -> None:
        self._start_ns = start_ns
        now, spacing_ns = now_ns(), 1_000_000 * speed() // self._job.starts_a_ms
        for place, slot in enumerate(self._job.slots):
            # The pacer starts those of a millisecond at once.
            due_ns = now + max(place - self._job.starts_a_ms, 0) * spacing_ns
            self._pacer.push((None, due_ns, slot))
        if self._job.is_open:
            self._take_due()
        elif not self._job.slots:
            self._is_exhausted = True
            self._end_if_over()

    def _stop(self) -> None:
        """Start nothing any more; what is running ends as CANCELLED."""
        self._is_stopping = True
        self._pacer.stop()
        self._alarm.close()
        if self._draining is not None:
            self._draining.cancel()
        for exchange, line in list(self._running.items()):
            try:
                self._give_up(exchange, *_STOPPED)
            except Exception as error:  # noqa: BLE001  # a mistake of ours: it is told at the end
                self._fail(error)
                if line is not None:
                    line.close()

    # -- starting

    def _take_due(self) -> None:
        """Start what is due of an open load, and be back when the next is."""
        while not self._is_stopping:
            request = self._next_due or self._requests.take()
            if request is None:
                self._is_exhausted = True
                self._draining = self._loop.call_later(world_s(self._job.drain_s), self._end)
                self._end_if_over()
                return
            due_ns = self._start_ns + (request.offset_ns or 0)
            if now_ns() < due_ns:
                self._next_due = request
                self._alarm.set(due_ns // speed())
                return
            self._next_due = None
            self._pacer.push((request, due_ns, None))

    def _start(self, due: Due) -> None:
        request, due_ns, slot = due
        if request is None:
            request = self._requests.take()
        if request is None:
            self._is_exhausted = True
            self._end_if_over()
            return
        rid = f"{self._job.rid_stem}{request.number:08x}"
        exchange = Exchange(request, rid, due_ns=due_ns, slot=slot)
        exchange.deadline_ns = now_ns() + round(self._job.request_s * 1e9)
        line = self._fresh_line()
        self._running[exchange] = line
        self._pulse.started()
        body = with_rid(request.body, rid)
        if line is not None:
            line.send(exchange, body)
        else:
            self._send_on_new(exchange, body)

    def _send_on_new(self, exchange: Exchange, body: bytes) -> None:
        self._dialing[exchange] = asyncio.create_task(self._dial_and_send(exchange, body))

    def _sent_again(self, exchange: Exchange) -> bool:
        """Send a request again, once, that met a connection which the server was closing.

        Not one byte of a response has come. It is timed from this sending, and it is told that
        there were two. The id is another one: should the first have arrived all the same, a
        server that has it still would refuse it twice.
        """
        request = exchange.request
        if not exchange.is_unheard or request is None or self._is_stopping:
            return False
        self._abort_on_server(exchange)
        exchange.send_again(f"{self._job.rid_stem}{request.number | _SECOND:08x}")
        self._running[exchange] = None
        self._send_on_new(exchange, with_rid(request.body, exchange.rid))
        return True

    def _fresh_line(self) -> Line | None:
        while self._free:
            line = self._free.pop()
            if line.is_fresh and not line.is_hung_up:
                return line
            line.close()
        return None

    # -- connections

    async def _dial(self) -> Line:
        return Line(
            await self._dialer.dial(),
            on_end=self._ended,
            on_many_reads=self._digestion.add,
            on_large_reads=self._digestion.add_large,
        )

    async def _dial_and_send(self, exchange: Exchange, body: bytes) -> None:
        try:
            line = await self._dial()
        except (aiohttp.ClientError, OSError) as error:
            del self._dialing[exchange]
            connecting_failed(error, exchange, connect_s=self._job.connect_s)
            self._ended(None, exchange)
        except Exception as error:  # noqa: BLE001  # it would be lost with its task
            self._fail(error)
        else:
            del self._dialing[exchange]
            self._running[exchange] = line
            line.send(exchange, body)

    async def _open_ahead(self) -> None:
        """Open connections, so that no measured request waits for one to be made.

        A server that does not answer is left for the requests to tell.
        """
        while (lacking := self._job.connections - len(self._free)) > 0:
            dials = [self._dial() for _ in range(min(lacking, _DIALS_AT_ONCE))]
            lines = await asyncio.gather(*dials, return_exceptions=True)
            self._free += [line for line in lines if isinstance(line, Line)]
            if not all(isinstance(line, Line) for line in lines):
                return

    async def _dial_ahead(self, place: int) -> None:
        with contextlib.suppress(aiohttp.ClientError, OSError):
            self._free.insert(0, await self._dial())
        del self._dialing[place]

    def _keep_free(self) -> None:
        """Open load: as many free and fresh connections as at the start."""
        for line in [line for line in self._free if not line.is_fresh]:
            self._free.remove(line)
            line.close()
        places = range(self._job.connections - len(self._free))
        for place in places:
            if place not in self._dialing:
                self._dialing[place] = asyncio.create_task(self._dial_ahead(place))

    # -- watching

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(_TICK_S)
            checked_ns = now_ns()
            for exchange, line in list(self._running.items()):
                if checked_ns >= exchange.deadline_ns:
                    limit_s = self._job.request_s
                    message = f"no end of the response within {limit_s:g} s"
                    self._give_up(exchange, RequestStatus.TIMEOUT, message)
                elif line is not None and _is_worth_a_look(exchange, checked_ns):
                    line.look()
                    self._digestion.add(exchange)
            if self._job.is_open and not self._is_exhausted:
                self._keep_free()

    # -- ending

    def _give_up(self, exchange: Exchange, status: RequestStatus, message: str) -> None:
        line = self._running.get(exchange)
        if line is not None:
            line.give_up(status, message)
        elif (dialing := self._dialing.pop(exchange, None)) is not None:
            dialing.cancel()
            exchange.fail(status, message)
            self._ended(None, exchange)

    def _ended(self, line: Line | None, exchange: Exchange) -> None:
        """An exchange has ended: its slot goes on before its response is parsed."""
        if self._sent_again(exchange):
            return
        del self._running[exchange]
        if line is not None and line.is_fresh:
            self._free.append(line)
        if not self._is_stopping and exchange.slot is not None:
            self._pacer.push((None, now_ns(), exchange.slot))
        self._digestion.add(exchange)
        self._abort_on_server(exchange)
        self._end_if_over()

    def _digested(self, exchange: Exchange) -> None:
        if exchange.end is None or exchange.is_told:
            return
        exchange.is_told = True
        stream = exchange.record(keep_text=self._job.keep_text)
        if stream.status is RequestStatus.OK:  # whatever became of the connection behind its end
            exchange.ended_ns = exchange.last_read_ns
        outcome = Outcome(
            index=exchange.index,
            slot=exchange.slot,
            due_ns=exchange.due_ns,
            sent_ns=exchange.sent_ns,
            first_byte_ns=exchange.first_byte_ns,
            ended_ns=exchange.ended_ns,
            http_status=exchange.http_status,
            stream=stream,
            second_reader=None if exchange.second is None else exchange.second.why,
            is_resent=exchange.is_resent,
        )
        try:
            self._write(outcome)
        except DiskError as error:
            self._fail(error)
        self._pulse.told(outcome)

    def _end_if_over(self) -> None:
        if self._is_exhausted and not self._running:
            self._end()

    def _end(self) -> None:
        if not self._over.done():
            self._over.set_result(None)

    def _callback_failed(self, _: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """An error of ours in a callback would leave its request hanging; a socket's would not."""
        error = context.get("exception")
        if isinstance(error, Exception) and not isinstance(error, OSError):
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        self._failure = self._failure or error
        self._end()

    def _abort_on_server(self, exchange: Exchange) -> None:
        """See to it that the server drops a request that is not waited for any more."""
        assert exchange.end is not None
        status = exchange.end.status
        if not self._job.abort_own or exchange.sent_ns is None:
            return
        if status is RequestStatus.CANCELLED:  # all at once, at the job's end
            self._cancelled.append(exchange.rid)
        elif status in {RequestStatus.TIMEOUT, RequestStatus.DISCONNECTED}:
            self._aborting.append(asyncio.create_task(_abort(self._job, [exchange.rid])))


def _is_worth_a_look(exchange: Exchange, checked_ns: int) -> bool:
    """Whether nothing has come for a while after what was not looked at yet.

    So a response is seen to be complete even when more than its end came with the last read.
    """
    return bool(exchange.pieces) and exchange.stamps[-1] < checked_ns - _QUIET_NS


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

    key = job.admin_api_key or job.api_key
    with contextlib.suppress(TimeoutError):
        async with (
            asyncio.timeout(_ABORT_S),
            open_session(job.base_url, api_key=key, connect_s=job.connect_s) as session,
        ):
            await asyncio.gather(*(abort(session, rid) for rid in rids))
