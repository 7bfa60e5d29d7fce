"""Servers that write what no library would, and proxies, for the tests of the load room."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from scripted import chat_events

TLS = Path(__file__).with_name("tls")
"""A certificate for localhost, 127.0.0.1, ::1 and server.test that signs itself; trusted by a
worker that is started with SSL_CERT_FILE."""
CERTIFICATE = TLS / "cert.pem"

Answer = Callable[[asyncio.StreamWriter, dict], Awaitable[None]]


def tls_context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(CERTIFICATE, TLS / "key.pem")
    return context


def chunks(*payloads: bytes) -> bytes:
    return b"".join(b"%x\r\n%s\r\n" % (len(payload), payload) for payload in payloads)


OK_HEAD = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
)
END = b"0\r\n\r\n"


def stream_of(tok: int) -> bytes:
    """A whole response of `tok` one-token chat events."""
    return OK_HEAD + chunks(*chat_events(tok)) + END


class Raw:
    """A raw server: its address, how many connections it has had, the heads of its requests."""

    def __init__(self) -> None:
        self.host, self.port = "", 0
        self.connections = 0
        self.heads: list[str] = []

    @property
    def base_url(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}"


@asynccontextmanager
async def serve_raw(
    answer: Answer, *, host: str = "127.0.0.1", tls: bool = False
) -> AsyncIterator[Raw]:
    """Call `answer` for each request with the connection and the request's JSON."""
    raw = Raw()

    talks: set[asyncio.Task] = set()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        raw.connections += 1
        talks.add(asyncio.current_task())
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                raw.heads.append(head)
                length = head.lower().partition("content-length:")[2].split()[0]
                await answer(writer, json.loads(await reader.readexactly(int(length))))
                await writer.drain()
        except (asyncio.IncompleteReadError, asyncio.CancelledError, ConnectionError):
            pass
        finally:
            writer.transport.abort()
            talks.discard(asyncio.current_task())

    context = tls_context() if tls else None
    server = await asyncio.start_server(talk, host, 0, ssl=context)
    raw.host, raw.port = server.sockets[0].getsockname()[:2]
    try:
        yield raw
    finally:
        server.close()
        for task in talks:
            task.cancel()
        await asyncio.sleep(0)
        await asyncio.gather(*talks)


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(ConnectionError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    writer.close()


@asynccontextmanager
async def serve_proxy(target: Raw) -> AsyncIterator[Raw]:
    """A forward proxy, tunnels included, that leads every address to `target`."""
    proxy = Raw()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        proxy.connections += 1
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.IncompleteReadError:  # opened ahead and not used
            writer.close()
            return
        proxy.heads.append(head.decode())
        to_reader, to_writer = await asyncio.open_connection(target.host, target.port)
        if head.startswith(b"CONNECT "):
            writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        else:
            to_writer.write(head)
        await asyncio.gather(_pump(reader, to_writer), _pump(to_reader, writer))

    server = await asyncio.start_server(talk, "127.0.0.1", 0)
    proxy.host, proxy.port = server.sockets[0].getsockname()[:2]
    try:
        yield proxy
    finally:
        server.close()
