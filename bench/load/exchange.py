"""One request and its response over a session: what was sent when, what came back when.

Nothing is parsed while bytes arrive: reads are stored with their time and read later, so that one
response's parsing never makes another's time stamps late.
"""

from __future__ import annotations

import asyncio
import uuid
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final

import aiohttp

from bench.clock import now_ns, world_s
from bench.load.stream import StreamEnd
from bench.model import RequestStatus
from bench.sglang.wire import error_in_body, with_rid

if TYPE_CHECKING:
    from aiohttp.abc import AbstractStreamWriter

    from bench.load.frames import Request

_HEADERS: Final = {"Content-Type": "application/json", "Accept": "text/event-stream"}
_ERROR_BODY_BYTES: Final = 65536
_OK: Final = 200


class Exchange:
    """The raw record of one request, filled while it runs.

    `rid` is the id that it has on the server: a whole UUID, since SGLang aborts every request
    whose id begins with the one it is told.
    """

    __slots__ = (
        "due_ns",
        "end",
        "ended_ns",
        "first_byte_ns",
        "http_status",
        "reads",
        "request",
        "rid",
        "sent_ns",
        "slot",
    )

    def __init__(self, request: Request, *, due_ns: int, slot: int | None) -> None:
        self.request = request
        self.rid = uuid.uuid4().hex
        self.due_ns = due_ns
        self.slot = slot
        self.sent_ns: int | None = None
        self.first_byte_ns: int | None = None
        self.ended_ns = due_ns
        self.http_status: int | None = None
        self.reads: list[tuple[int, bytes]] = []
        self.end = StreamEnd(status=RequestStatus.CANCELLED, message="stopped before it was sent")


_sending: ContextVar[Exchange] = ContextVar("exchange being sent")


class StampedRequest(aiohttp.ClientRequest):
    """Stamps the moment at which the request's bytes are handed to the socket.

    That is after a connection was found, and some 0.1 ms after `session.post` was called.
    """

    async def write_bytes(
        self,
        writer: AbstractStreamWriter,
        conn: Any,  # noqa: ANN401  # aiohttp does not export the type
        content_length: int | None = None,
    ) -> None:
        """Write the body, and the headers held back to go with it."""
        exchange = _sending.get(None)
        if exchange is not None:
            exchange.sent_ns = now_ns()
        await super().write_bytes(writer, conn, content_length)


async def perform(
    session: aiohttp.ClientSession, path: str, exchange: Exchange, *, request_s: float
) -> None:
    """Send one request and take its response to the end; every way of failing is recorded.

    Args:
        session: From `bench.http.open_session`, with `StampedRequest`.
        path: Of the API, relative to the session's base URL.
        exchange: Filled here.
        request_s: Time-out in seconds of the clock.

    Raises:
        asyncio.CancelledError: When cancelled; the exchange then has ended as CANCELLED.
    """
    _sending.set(exchange)
    try:
        async with asyncio.timeout(world_s(request_s)):
            exchange.end = await _exchange(session, path, exchange)
    except asyncio.CancelledError:
        exchange.end = StreamEnd(status=RequestStatus.CANCELLED, message="stopped by bench")
        exchange.ended_ns = now_ns()
        raise
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        exchange.end = _failure(error, exchange, request_s=request_s)
        exchange.ended_ns = now_ns()
    else:
        exchange.ended_ns = exchange.reads[-1][0] if exchange.reads else now_ns()


async def _exchange(session: aiohttp.ClientSession, path: str, exchange: Exchange) -> StreamEnd:
    reads = exchange.reads
    body = with_rid(exchange.request.body, exchange.rid)
    async with session.post(path, data=body, headers=_HEADERS) as response:
        exchange.first_byte_ns = now_ns()
        exchange.http_status = response.status
        content = response.content
        if response.status != _OK:
            return StreamEnd(
                status=RequestStatus.HTTP_ERROR, message=await _error_message(response)
            )
        while piece := await content.readany():
            reads.append((now_ns(), piece))
    return StreamEnd()


async def _error_message(response: aiohttp.ClientResponse) -> str:
    body = b""
    try:
        while len(body) < _ERROR_BODY_BYTES and (piece := await response.content.readany()):
            body += piece
    except aiohttp.ClientError:
        pass  # the status says enough
    said = error_in_body(body) or body.decode("utf-8", "replace").strip()
    return f"HTTP {response.status} {response.reason or ''}: {said}"


def _failure(error: Exception, exchange: Exchange, *, request_s: float) -> StreamEnd:
    message = f"{type(error).__name__}: {error}"
    match error:
        case aiohttp.ClientConnectorError() | aiohttp.ConnectionTimeoutError():
            return StreamEnd(status=RequestStatus.REFUSED, message=message)
        case TimeoutError():
            message = f"no end of the response within {request_s:g} s"
            return StreamEnd(status=RequestStatus.TIMEOUT, message=message)
        case aiohttp.ClientResponseError():
            status = RequestStatus.HTTP_ERROR if error.status >= 300 else None
            exchange.http_status = error.status or exchange.http_status
            return StreamEnd(status=status or RequestStatus.MALFORMED_STREAM, message=message)
        case aiohttp.InvalidURL():
            return StreamEnd(status=RequestStatus.REFUSED, message=message)
        case _:
            return StreamEnd(status=RequestStatus.DISCONNECTED, message=message)
