"""Parsing what has arrived, between arrivals: a slice at a time, so that none is stamped late."""

from __future__ import annotations

import asyncio
import collections
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from bench.load.exchange import Exchange

_BYTES_A_SLICE: Final = 8 * 2**20
"""For every so many bytes that wait, a turn of the loop parses one slice more: what is read is
parsed as fast, or read more slowly, so that what is held in memory stays bounded."""
_MOST_LARGE_READS: Final = 32
"""With so many (of up to 256 KiB) unparsed, parsing waits no longer: then the sockets do."""


class Digestion:
    """The queue of exchanges to parse."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, on_digested: Callable[[Exchange], None]
    ) -> None:
        """`on_digested` is called when all that an exchange had got so far is parsed."""
        self._loop = loop
        self._on_digested = on_digested
        self._queue: collections.deque[tuple[Exchange, int]] = collections.deque()
        self._waiting_bytes = 0
        self._parsing: Iterator[None] | None = None
        self._parsed: Exchange | None = None
        self._large_reads = 0
        self._is_idle = asyncio.Event()
        self._is_idle.set()

    def add(self, exchange: Exchange) -> None:
        """Parse what it has got, soon."""
        size = sum(len(piece) for _, piece in exchange.body)
        self._waiting_bytes += size
        self._queue.append((exchange, size))
        if self._is_idle.is_set():
            self._is_idle.clear()
            self._loop.call_soon(self._turn)

    def add_large(self, exchange: Exchange, reads: int) -> None:
        """The same after reads so large that a few of them fill memory."""
        self.add(exchange)
        self._large_reads += reads
        if self._large_reads > _MOST_LARGE_READS:
            while self._slice():
                pass

    async def finish(self) -> None:
        """Wait until all is parsed."""
        await self._is_idle.wait()

    def _turn(self) -> None:
        try:
            for _ in range(1 + self._waiting_bytes // _BYTES_A_SLICE):
                if not self._slice():
                    self._is_idle.set()
                    return
        except BaseException:
            self._is_idle.set()  # nobody is to wait for what will not be parsed
            raise
        self._loop.call_soon(self._turn)

    def _slice(self) -> bool:
        """Parse one slice; whether there may be more."""
        if self._parsing is None:
            if not self._queue:
                self._large_reads = 0
                return False
            self._parsed, size = self._queue.popleft()
            self._waiting_bytes -= size
            self._parsing = self._parsed.digest()
        for _ in self._parsing:
            return True
        exchange, self._parsing, self._parsed = self._parsed, None, None
        assert exchange is not None
        self._on_digested(exchange)
        return True
