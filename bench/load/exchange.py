"""One request and its response: what was sent when, what came back when.

Nothing is parsed while bytes arrive: reads are stored with their time and read later, so that one
response's parsing never makes another's time stamps late.
"""

from __future__ import annotations

import errno
from array import array
from typing import TYPE_CHECKING, Final

import aiohttp

from bench.clock import now_ns
from bench.load.http1 import FramingError, ResponseReader, State
from bench.load.stream import StreamAssembly, StreamEnd, StreamRecord
from bench.model import RequestStatus
from bench.sglang.wire import error_in_body

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.load.http1 import Body
    from bench.load.second_reader import SecondReader
    from bench.load.shared_requests import Request

_SLICE_BYTES: Final = 16384
"""Parsing pauses after this much, a tenth of a millisecond, so that arrivals are stamped."""
_ERROR_BODY_BYTES: Final = 65536
_OK: Final = 200
_REDIRECTS: Final = range(300, 400)
_chunk_sizes: dict[bytes, int] = {}


class Exchange:
    """The raw record of one request, filled while it runs.

    Attributes:
        rid: The id that it has on the server, 32 hexadecimal digits as of a UUID: SGLang aborts
            every request whose id begins with the one it is told, so all are equally long.
        stamps: Arrival of each read that was not looked at yet, in clock nanoseconds.
        pieces: The bytes of each of these reads.
        reader: Reads head and framing.
        second: aiohttp's reader, once it has taken over.
        deadline_ns: When it is given up.
        end: How it ended; None while it runs.
        is_told: Whether its outcome was told.
        is_unheard: Whether it failed because the server had hung up on a connection that had
            carried others before it: it has not been read there.
        is_resent: Whether it was sent a second time for that reason.
        request: What is sent, as long as it may have to be sent again.
    """

    __slots__ = (
        "_assembly",
        "deadline_ns",
        "due_ns",
        "end",
        "ended_ns",
        "first_byte_ns",
        "index",
        "is_resent",
        "is_told",
        "is_unheard",
        "last_read_ns",
        "pieces",
        "reader",
        "request",
        "rid",
        "second",
        "sent_ns",
        "slot",
        "stamps",
    )

    def __init__(self, request: Request, rid: str, *, due_ns: int, slot: int | None) -> None:
        self.index = request.number
        self.rid = rid
        self.due_ns = due_ns
        self.slot = slot
        self.deadline_ns = 0
        self.sent_ns: int | None = None
        self.first_byte_ns: int | None = None
        self.last_read_ns = due_ns
        self.ended_ns = due_ns
        self.stamps = array("q")
        self.pieces: list[bytes] = []
        self.reader = ResponseReader(_chunk_sizes)
        self.second: SecondReader | None = None
        self.end: StreamEnd | None = None
        self.is_told = self.is_unheard = self.is_resent = False
        self.request: Request | None = request
        self._assembly = StreamAssembly()

    @property
    def body(self) -> list[Body]:
        """What has come of the body and was not digested yet."""
        return self.reader.body if self.second is None else self.second.body

    @property
    def http_status(self) -> int | None:
        """Of the response; None while there is none."""
        return self.reader.status

    @property
    def read_ct(self) -> int:
        """How many reads have brought something of the body, or just came."""
        reader = self.reader if self.second is None else self.second
        return reader.body_read_ct + len(self.pieces)

    @property
    def is_complete(self) -> bool:
        """Whether the whole response has come, as far as reads were taken."""
        if self.second is not None:
            return self.second.is_complete
        return self.reader.state is State.DONE

    def take_reads(self) -> bytes:
        """Look at the reads that have come; what a second reader is to read, if anything.

        Raises:
            FramingError: They are no HTTP response.
        """
        stamps, pieces = self.stamps, self.pieces
        if not pieces:
            return b""
        if self.first_byte_ns is None:
            self.first_byte_ns = stamps[0]
            self.request = None
        self.last_read_ns = stamps[-1]
        try:
            if self.second is None:
                return self.reader.feed(stamps, pieces)
            return b"".join(pieces)
        finally:
            # In place: whoever stores reads holds on to these two.
            del stamps[:]
            pieces.clear()

    def digest(self) -> Iterator[None]:
        """Parse what has come of the body; pauses now and then, so that others get their turn."""
        body = self.body
        if self.reader.status != _OK:
            return
        assembly = self._assembly
        done = since_pause = 0
        for stamp, piece in body:
            assembly.feed(stamp, piece)
            done += 1
            since_pause += len(piece)
            if since_pause >= _SLICE_BYTES:
                since_pause = 0
                yield
        del body[:done]

    def record(self, *, keep_text: bool) -> StreamRecord:
        """What the response amounts to, once it has ended and all of it is digested."""
        end = self.end or StreamEnd(status=RequestStatus.CANCELLED, message="stopped by bench")
        if end.status is None and self.reader.status != _OK:
            end = StreamEnd(status=RequestStatus.HTTP_ERROR, message=self._refusal())
        return self._assembly.finish(end, read_ct=self.read_ct, keep_text=keep_text)

    def _refusal(self) -> str:
        reader = self.reader
        said = f"HTTP {reader.status} {reader.reason}".rstrip()
        if reader.status in _REDIRECTS:
            return f"{said}: redirect to {reader.fields.get('location', '')} not followed"
        body = b"".join(piece for _, piece in self.body)[:_ERROR_BODY_BYTES]
        return f"{said}: {error_in_body(body) or body.decode('utf-8', 'replace').strip()}"

    def send_again(self, rid: str) -> None:
        """Begin anew, with another id: nothing has come of it."""
        self.rid = rid
        self.is_resent, self.is_unheard = True, False
        self.sent_ns = self.end = self.request = None

    def fail(self, status: RequestStatus, message: str) -> None:
        """It ended otherwise than HTTP says."""
        self.end = StreamEnd(status=status, message=message)
        self.ended_ns = now_ns()


def connecting_failed(error: Exception, exchange: Exchange, *, connect_s: float) -> None:
    """No connection could be made for it."""
    message = f"{type(error).__name__}: {error}"
    match error:
        case TimeoutError():
            exchange.fail(RequestStatus.REFUSED, f"no connection within {connect_s:g} s")
        case aiohttp.ClientResponseError():  # a proxy's
            exchange.reader.status = error.status or None
            exchange.fail(RequestStatus.HTTP_ERROR, message)
        case OSError(errno=errno.EMFILE | errno.ENFILE):
            why = "this machine lets bench open no more files: raise `ulimit -Hn`"
            exchange.fail(RequestStatus.REFUSED, f"{why} ({message})")
        case _:
            exchange.fail(RequestStatus.REFUSED, message)


def framing_failed(error: FramingError, exchange: Exchange) -> None:
    """What came is no HTTP."""
    exchange.fail(RequestStatus.MALFORMED_STREAM, str(error))
