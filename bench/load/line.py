"""A connection to the server, which carries one exchange after another.

aiohttp opens the socket, so that TLS, proxies and keys are as everywhere in bench; then it is this
protocol that writes and reads. A request goes out by one call of `write`; a read is stored with
its time and not looked at, unless it may be the response's last.
"""

from __future__ import annotations

import asyncio
import os
import select
from array import array
from typing import TYPE_CHECKING, Final

from bench.clock import monotonic_ns, now_ns, speed
from bench.load.exchange import framing_failed
from bench.load.http1 import FramingError, State
from bench.load.second_reader import SecondReader
from bench.load.stream import StreamEnd
from bench.model import RequestStatus

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.http import Dialed
    from bench.load.exchange import Exchange

LARGE_READ_BYTES: Final = 16384
_MANY_READS: Final = 24
"""After so many and a few more, other ones for each exchange, they are looked at: else all streams
of a burst would be parsed at their end, while the next ones begin."""
_MANY_READS_SPREAD: Final = 17
_FRESH_NS: Final = 2_000_000_000
"""uvicorn, SGLang's own server, closes what was idle for 5 s; a request must not meet that."""
_UNUSED_FRESH_NS: Final = 20_000_000_000
"""Before the first request servers wait longer."""
_HUNG_UP_NS: Final = 250_000_000
"""A request that met a connection being closed hears of it within a round trip or two. What ends
later may have been at work on it."""
_ANY_END: Final = b""
_CHUNKED_END: Final = b"\r\n\r\n"
_NO_END: Final = b"\0specdyno"


class Line(asyncio.Protocol):
    """One connection; made from a dialed one, which it takes over."""

    __slots__ = (
        "_connection",
        "_end_looks_like",
        "_exchange",
        "_fd",
        "_handler",
        "_head",
        "_idle_since_ns",
        "_is_look_due",
        "_is_reused",
        "_is_used",
        "_loop",
        "_many_reads",
        "_on_end",
        "_on_large_reads",
        "_on_many_reads",
        "_pieces",
        "_stamps",
        "_transport",
    )

    def __init__(
        self,
        dialed: Dialed,
        *,
        on_end: Callable[[Line, Exchange], None],
        on_many_reads: Callable[[Exchange], None],
        on_large_reads: Callable[[Exchange, int], None],
    ) -> None:
        """Take over a connection.

        Args:
            dialed: Made by a `Dialer`.
            on_end: Told of every exchange that has ended, with its line.
            on_many_reads: Told of every exchange that has something to parse before its end.
            on_large_reads: The same where much has come at once, with the number of such reads.
        """
        connection = dialed.connection
        transport, handler = connection.transport, connection.protocol
        assert transport is not None
        assert handler is not None
        self._connection, self._handler = connection, handler
        self._head = dialed.head
        self._on_end = on_end
        self._on_many_reads, self._on_large_reads = on_many_reads, on_large_reads
        self._exchange: Exchange | None = None
        self._transport: asyncio.Transport | None = transport
        self._fd: int | None = None
        if dialed.is_plain:
            self._fd = transport.get_extra_info("socket").fileno()
        self._idle_since_ns = monotonic_ns()
        self._is_look_due = self._is_used = self._is_reused = False
        self._loop = asyncio.get_running_loop()
        self._wait_for_nothing()
        transport.set_protocol(self)

    # -- idle

    @property
    def is_fresh(self) -> bool:
        """Whether a request can be sent on it: open, and not so long idle that it may close."""
        if self._transport is None or self._transport.is_closing() or self._pieces:
            return False
        idle_ns = monotonic_ns() - self._idle_since_ns
        return idle_ns < (_FRESH_NS if self._is_used else _UNUSED_FRESH_NS)

    @property
    def is_hung_up(self) -> bool:
        """Whether the server has closed it, or spoken unasked, and the loop has not seen it yet.

        Some close after a response without saying so. A request sent then would be lost.
        """
        if self._fd is None or not self._is_used:
            return False
        poll = select.poll()
        poll.register(self._fd, select.POLLIN | select.POLLRDHUP)
        return bool(poll.poll(0))

    def close(self) -> None:
        """End the connection; what it carries must have ended."""
        if self._transport is not None:
            self._transport.abort()
            self._transport = None
        self._connection.close()

    def _wait_for_nothing(self) -> None:
        self._stamps = array("q")
        self._pieces: list[bytes] = []
        self._end_looks_like = _ANY_END
        self._many_reads = _MANY_READS

    # -- an exchange

    def send(self, exchange: Exchange, body: bytes) -> None:
        """Send its request.

        Bytes go straight to the socket: uvloop's own `write` would hold them until the end of the
        loop's turn. What the socket does not take at once is left to it.
        """
        transport = self._transport
        assert transport is not None
        self._exchange = exchange
        self._stamps, self._pieces = exchange.stamps, exchange.pieces
        self._end_looks_like = _ANY_END
        self._many_reads = _MANY_READS + exchange.index % _MANY_READS_SPREAD
        self._is_reused, self._is_used = self._is_used, True
        data = b"%sContent-Length: %d\r\n\r\n%s" % (self._head, len(body), body)
        exchange.sent_ns = now_ns()
        if self._fd is None:
            transport.write(data)
            return
        try:
            written = os.write(self._fd, data)
        except BlockingIOError:
            written = 0
        except OSError as error:
            exchange.is_unheard = self._is_reused
            self._fail(RequestStatus.DISCONNECTED, f"{type(error).__name__}: {error}")
            return
        if written < len(data):
            transport.write(memoryview(data)[written:])

    def data_received(self, data: bytes) -> None:
        """Store a read; the hot path.

        Looking at it waits for the end of the loop's turn, so that what has come on other
        connections at the same time is stamped first.
        """
        self._stamps.append(now_ns())
        self._pieces.append(data)
        if (
            data.endswith(self._end_looks_like)
            or not 4 <= len(data) < LARGE_READ_BYTES  # the end may be cut in two
            or len(self._pieces) >= self._many_reads
        ) and not self._is_look_due:
            self._is_look_due = True
            self._loop.call_soon(self._look_at_reads)

    def _look_at_reads(self) -> None:
        self._is_look_due = False
        exchange, pieces = self._exchange, self._pieces
        if exchange is None:
            if pieces:
                self.close()  # a server has nothing to say unasked, but why it hangs up
            return
        is_many = len(pieces) >= self._many_reads
        large_ct = sum(len(piece) >= LARGE_READ_BYTES for piece in pieces)
        self.look()
        if self._exchange is not exchange:
            return
        if large_ct:
            self._on_large_reads(exchange, large_ct)
        elif is_many:
            self._on_many_reads(exchange)

    def look(self) -> None:
        """Look at the reads that have come: whether the response is complete."""
        exchange = self._exchange
        if exchange is None:
            return
        try:
            unread = exchange.take_reads()
            if unread:
                self._read_second(exchange, unread)
        except FramingError as error:
            framing_failed(error, exchange)
            self._ended(exchange)
            return
        if exchange.is_complete:
            exchange.end = StreamEnd()
            exchange.ended_ns = exchange.last_read_ns
            self._ended(exchange)
            return
        state = exchange.reader.state
        if state is State.CHUNKED:
            self._end_looks_like = _CHUNKED_END
        elif state is State.UNTIL_EOF:
            self._end_looks_like = _NO_END

    def _read_second(self, exchange: Exchange, unread: bytes) -> None:
        if exchange.second is None:
            exchange.second = SecondReader(self._handler, exchange.reader.odd or "")
        exchange.second.feed(exchange.last_read_ns, unread)

    def give_up(self, status: RequestStatus, message: str) -> None:
        """End the exchange in hand, and the connection with it."""
        exchange = self._exchange
        if exchange is None:
            return
        self.look()  # it may have ended unnoticed
        if self._exchange is exchange:
            self._fail(status, message)

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection has ended."""
        self._transport = None
        exchange = self._exchange
        if exchange is not None:
            self.look()
        if exchange is not None and self._exchange is exchange:
            self._lost(exchange, exc)
        self._connection.close()

    def _lost(self, exchange: Exchange, error: Exception | None) -> None:
        second = exchange.second
        try:
            if second is not None:
                is_complete = second.end(exchange.last_read_ns, error)
            else:
                is_complete = error is None and exchange.reader.end()
        except FramingError as failure:
            framing_failed(failure, exchange)
            self._ended(exchange)
            return
        if is_complete:
            exchange.end = StreamEnd()
            exchange.ended_ns = exchange.last_read_ns
            self._ended(exchange)
            return
        where = "before" if exchange.first_byte_ns is None else "inside"
        exchange.is_unheard = self._is_reused and self._hung_up_before(exchange)
        why = f": {type(error).__name__}: {error}" if error is not None else ""
        self._fail(RequestStatus.DISCONNECTED, f"the connection ended {where} the response{why}")

    def _hung_up_before(self, exchange: Exchange) -> bool:
        """Whether the server hung up while the request was on its way, as far as one can tell.

        Then no byte of a response has come, and the end came at once.
        """
        if exchange.first_byte_ns is not None or exchange.sent_ns is None:
            return False
        return (now_ns() - exchange.sent_ns) // speed() < _HUNG_UP_NS

    def _fail(self, status: RequestStatus, message: str) -> None:
        exchange = self._exchange
        assert exchange is not None
        exchange.fail(status, message)
        self._ended(exchange)

    def _ended(self, exchange: Exchange) -> None:
        self._exchange = None
        self._wait_for_nothing()
        self._idle_since_ns = monotonic_ns()
        is_whole = exchange.end is not None and exchange.end.status is None
        if not is_whole or exchange.second is not None or not exchange.reader.may_be_reused:
            self.close()
        self._on_end(self, exchange)
