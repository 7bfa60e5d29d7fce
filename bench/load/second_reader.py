"""aiohttp's own reader, for the responses that the plain one does not know.

A body that a proxy has compressed, or a transfer coding other than chunked, is rare beside SGLang
and not worth a second implementation. Pieces come with the stamp of the read that they came with.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from bench.load.http1 import FramingError

if TYPE_CHECKING:
    from aiohttp import StreamReader
    from aiohttp.client_proto import ResponseHandler

    from bench.load.http1 import Body

_BUFFER_BYTES: Final = 2**20


class SecondReader:
    """Reads one response through aiohttp.

    Attributes:
        why: What the plain reader could not read.
        body: As of `bench.load.http1.ResponseReader`; so is `body_read_ct`.
    """

    def __init__(self, handler: ResponseHandler, why: str) -> None:
        """`handler` is the one that aiohttp made for the connection; it is not attached to it."""
        handler.set_response_params(read_until_eof=True, read_bufsize=_BUFFER_BYTES)
        self._handler = handler
        self._payload: StreamReader | None = None
        self.why = why
        self.body: list[Body] = []
        self.body_read_ct = 0

    @property
    def is_complete(self) -> bool:
        """Whether the whole response has come."""
        return self._payload is not None and self._payload.at_eof()

    def feed(self, stamp: int, data: bytes) -> None:
        """Take one read.

        Raises:
            FramingError: It is no HTTP response, or its coding is broken.
        """
        self._handler.data_received(data)
        self._take(stamp)

    def end(self, stamp: int, error: Exception | None) -> bool:
        """The connection has ended; returns whether the response was complete.

        Raises:
            FramingError: As `feed`.
        """
        self._handler.connection_lost(error)
        if self._payload is None or isinstance(self._payload.exception(), Exception):
            return False
        self._take(stamp)
        return self.is_complete

    def _take(self, stamp: int) -> None:
        if self._payload is None:
            failure = self._handler.exception()
            if failure is not None:
                raise FramingError(f"{type(failure).__name__}: {failure}")
            if not len(self._handler):
                return
            self._payload = _taken(self._handler)
        failure = self._payload.exception()
        if failure is not None:
            raise FramingError(f"{type(failure).__name__}: {failure}")
        before = len(self.body)
        while piece := self._payload.read_nowait():
            self.body.append((stamp, piece))
        self.body_read_ct += len(self.body) > before


def _taken(handler: ResponseHandler) -> StreamReader:
    """The body of the message that has come; it is there, so that nothing is waited for."""
    reading = handler.read()
    try:
        reading.send(None)
    except StopIteration as stop:
        _, payload = stop.value
        return payload  # type: ignore[no-any-return]  # aiohttp types the pair, StopIteration not
    raise AssertionError("a message that was there is not")
