"""A small HTTP/1.1 server over asyncio.

aiohttp's takes 0.2 s to import, most of the simulator's time to start, and several times as long
for each chunk of a stream. What is here is what SGLang's clients use: requests with a
Content-Length, keep-alive, plain and chunked responses.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, cast

from bench import clock

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_REASONS = {
    200: "OK",
    400: "Bad Request",
    401: "Unauthorized",
    404: "Not Found",
    405: "Method Not Allowed",
    411: "Length Required",
    413: "Content Too Large",
    500: "Internal Server Error",
    503: "Service Unavailable",
}
_MAX_HEAD_BYTES = 65_536
_MAX_BODY_BYTES = 64 * 1024 * 1024
_MAX_LENGTH_DIGITS = 20
_COMMON_HEADERS = "server: specdyno-simulator\r\nx-specdyno-simulated: 1\r\n"
DISCONNECT_ABORT_S = 2.0  # SGLang's own delay before it aborts an abandoned stream


class BadRequestError(Exception):
    """The bytes are no request that is served here; the connection is closed."""

    def __init__(self, status: int) -> None:
        super().__init__(f"{status} {_REASONS[status]}")
        self.status = status


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpRequest:
    """One request; header names are in lower case."""

    method: str
    path: str
    query: str
    headers: Mapping[str, str]
    body: bytes
    peer: str

    def parameter(self, name: str) -> str | None:
        """A query parameter, not percent-decoded: numbers and words only are asked for here."""
        for part in self.query.split("&"):
            key, _, value = part.partition("=")
            if key == name:
                return value
        return None


class Outlet(Protocol):
    """Where a response goes."""

    @property
    def request(self) -> HttpRequest:
        """What it answers."""

    def respond(self, status: int, body: bytes, content_type: str = "application/json") -> None:
        """The whole response."""

    def flows(self, then: Callable[[], None]) -> bool:
        """Whether the client takes what is sent; if not, `then` is called once it does."""

    def begin_stream(self) -> None:
        """The head of an event stream."""

    def send_event(self, data: bytes) -> None:
        """One event."""

    def end_stream(self) -> None:
        """The end of an event stream."""


class Exchange:
    """One request and the response to it."""

    def __init__(self, request: HttpRequest, connection: Connection) -> None:
        self.request = request
        self.gone = False
        self.on_gone: Callable[[], None] | None = None
        self._connection = connection

    def reset_after(self, byte_ct: int) -> None:
        """Break the connection once so many bytes of the response have been sent."""
        self._connection.reset_after(byte_ct)

    def respond(self, status: int, body: bytes, content_type: str = "application/json") -> None:
        """The whole response; a client that has gone gets nothing."""
        head = (
            f"HTTP/1.1 {status} {_REASONS[status]}\r\n{_COMMON_HEADERS}"
            f"content-length: {len(body)}\r\n"
        )
        if content_type:
            head += f"content-type: {content_type}\r\n"
        if not self.gone:
            self._connection.write(head.encode() + b"\r\n" + body)
            self._connection.finished(self, status)

    def flows(self, then: Callable[[], None]) -> bool:
        """Whether the client takes what is sent; if not, `then` is called once it does."""
        return self._connection.flows(then)

    def begin_stream(self) -> None:
        """Send the head of an event stream."""
        if not self.gone:
            head = (
                f"HTTP/1.1 200 OK\r\n{_COMMON_HEADERS}"
                "content-type: text/event-stream; charset=utf-8\r\n"
                "transfer-encoding: chunked\r\n\r\n"
            )
            self._connection.write(head.encode())
            self._connection.began_response(self.request, 200)

    def send_event(self, data: bytes) -> None:
        """One server-sent event, a chunk of its own."""
        if not self.gone:
            self._connection.write(b"%x\r\ndata: %b\n\n\r\n" % (len(data) + 8, data))

    def end_stream(self) -> None:
        """Send `[DONE]` and the end of the response."""
        if not self.gone:
            self._connection.write(b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n")
            self._connection.finished(self, 200, logged=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Hooks:
    """What the connections call.

    Attributes:
        handle: A request has come in whole.
        responding: The head of its response goes out, with this status.
        ended: Its response is complete, or its client gone.
    """

    handle: Callable[[Exchange], None]
    responding: Callable[[HttpRequest, int], None]
    ended: Callable[[HttpRequest, int], None]


class Connection(asyncio.Protocol):
    """One client connection: a request at a time."""

    def __init__(self, hooks: Hooks, connections: set[Connection]) -> None:
        self._hooks = hooks
        self._connections = connections
        self._transport: asyncio.Transport | None = None
        self._peer = ""
        self._buffer = bytearray()
        self._head: tuple[HttpRequest, int] | None = None
        self._exchange: Exchange | None = None
        self._close_after = False
        self._is_stopped = False  # the client does not read
        self._when_flowing: Callable[[], None] | None = None
        self._reset_after: int | None = None

    # ---------------------------------------------------------------------- asyncio's callbacks

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The client has connected."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is no subclass of it
        peer = transport.get_extra_info("peername")
        self._peer = f"{peer[0]}:{peer[1]}" if peer else ""
        self._connections.add(self)

    def data_received(self, data: bytes) -> None:
        """Bytes of a request, or of the next while one is being answered."""
        self._buffer += data
        self._parse()

    def pause_writing(self) -> None:
        """What was written piles up: the client does not read."""
        self._is_stopped = True

    def resume_writing(self) -> None:
        """The client reads again."""
        self._is_stopped = False
        then, self._when_flowing = self._when_flowing, None
        if then is not None:
            then()

    def flows(self, then: Callable[[], None]) -> bool:
        """See `Exchange.flows`."""
        if self._is_stopped:
            self._when_flowing = then
        return not self._is_stopped

    def eof_received(self) -> bool:
        """The client will send no more: taken as gone, as uvicorn does."""
        return False

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002  # asyncio's signature
        """The client has gone; what it asked for is aborted a little later."""
        self._connections.discard(self)
        self._transport = None
        exchange, self._exchange = self._exchange, None
        if exchange is not None:
            exchange.gone = True
            self._hooks.ended(exchange.request, 200)
            if exchange.on_gone is not None:
                loop = asyncio.get_running_loop()
                loop.call_later(clock.world_s(DISCONNECT_ABORT_S), exchange.on_gone)

    def close_when_idle(self) -> None:
        """No further request is taken."""
        self._close_after = True
        if self._exchange is None and self._transport is not None:
            self._transport.close()

    # ------------------------------------------------------------------------------- responses

    def write(self, data: bytes) -> None:
        """Bytes of a response."""
        if self._transport is None or self._transport.is_closing():
            return
        if self._reset_after is not None:
            data = data[: self._reset_after]
            self._reset_after -= len(data)
        self._transport.write(data)
        if self._reset_after == 0:
            self._reset()

    def reset_after(self, byte_ct: int) -> None:
        """See `Exchange.reset_after`."""
        self._reset_after = byte_ct
        if byte_ct == 0:
            self._reset()

    def _reset(self) -> None:
        if self._transport is not None:
            sock = self._transport.get_extra_info("socket")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self._transport.abort()

    def began_response(self, request: HttpRequest, status: int) -> None:
        """The head of a stream has gone out."""
        self._hooks.responding(request, status)

    def finished(self, exchange: Exchange, status: int, *, logged: bool = False) -> None:
        """The response to `exchange` has gone out; the next request may be read."""
        if not logged:
            self._hooks.responding(exchange.request, status)
        self._hooks.ended(exchange.request, status)
        self._exchange = None
        if self._close_after and self._transport is not None:
            self._transport.close()
        elif self._buffer:
            asyncio.get_running_loop().call_soon(self._parse)

    # -------------------------------------------------------------------------------- requests

    def _parse(self) -> None:
        if self._exchange is not None or self._transport is None:
            return
        try:
            request = self._next_request()
        except BadRequestError as error:
            reason = _REASONS[error.status]
            self.write(
                f"HTTP/1.1 {error.status} {reason}\r\n{_COMMON_HEADERS}"
                "content-length: 0\r\nconnection: close\r\n\r\n".encode()
            )
            self._transport.close()
            return
        if request is not None:
            if request.headers.get("connection", "").lower() == "close":
                self._close_after = True
            self._exchange = Exchange(request, self)
            self._hooks.handle(self._exchange)

    def _next_request(self) -> HttpRequest | None:
        if self._head is None:
            end = self._buffer.find(b"\r\n\r\n")
            if end < 0:
                if len(self._buffer) > _MAX_HEAD_BYTES:
                    raise BadRequestError(413)
                return None
            self._head = _parse_head(bytes(self._buffer[:end]), self._peer)
            del self._buffer[: end + 4]
            if self._head[0].headers.get("expect", "").lower() == "100-continue":
                self.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        request, length = self._head
        if len(self._buffer) < length:
            return None
        body = bytes(self._buffer[:length])
        del self._buffer[:length]
        self._head = None
        return HttpRequest(
            method=request.method,
            path=request.path,
            query=request.query,
            headers=request.headers,
            body=body,
            peer=self._peer,
        )


def _parse_head(head: bytes, peer: str) -> tuple[HttpRequest, int]:
    """The request without its body, and the body's length."""
    first, *lines = head.decode("latin-1").split("\r\n")
    words = first.split(" ")
    if len(words) != 3 or not words[2].startswith("HTTP/1."):
        raise BadRequestError(400)
    headers = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon:
            raise BadRequestError(400)
        headers[name.strip().lower()] = value.strip()
    if words[2] == "HTTP/1.0":
        headers.setdefault("connection", "close")
    if "transfer-encoding" in headers:
        raise BadRequestError(411)
    length = headers.get("content-length", "0")
    if not length.isdecimal():
        raise BadRequestError(400)
    if len(length) > _MAX_LENGTH_DIGITS or int(length) > _MAX_BODY_BYTES:
        raise BadRequestError(413)
    path, _, query = words[1].partition("?")
    request = HttpRequest(
        method=words[0], path=path, query=query, headers=headers, body=b"", peer=peer
    )
    return request, int(length)
