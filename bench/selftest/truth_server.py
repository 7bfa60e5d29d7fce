"""The ground-truth server in Python, where no C compiler is: the same options and the same logs.

It is later than the one in C (truth_server.c, which says what the options mean), so that errors
measured against it are upper limits.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import ctypes
import itertools
import json
import signal
from struct import Struct
from typing import TYPE_CHECKING, Any, BinaryIO, Final, cast

from bench.clock import monotonic_ns

if TYPE_CHECKING:
    from collections.abc import Sequence

_HEAD: Final = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\n"
    b"transfer-encoding: chunked\r\n\r\n"
)
_EVENT: Final = Struct("<qq")
_PROMPT_TOK: Final = 16
_PR_SET_PDEATHSIG: Final = 1
_GENERATE: Final = "/generate"
_OBJECTS: Final = {
    "/v1/chat/completions": "chat.completion.chunk",
    "/v1/completions": "text_completion",
}


class _Logs:
    def __init__(self, answers: str | None, events: str | None) -> None:
        self._answers: BinaryIO | None = open(answers, "wb") if answers else None  # noqa: PTH123, SIM115  # open as long as the process
        self._events: BinaryIO | None = open(events, "wb") if events else None  # noqa: PTH123, SIM115  # likewise
        if self._answers is not None:
            self._answers.write(b"id,rid,recv_ns,first_write_ns,last_write_ns,events,tokens\n")

    def event(self, number: int, written_ns: int) -> None:
        if self._events is not None:
            self._events.write(_EVENT.pack(number, written_ns))

    def answer(self, *values: object) -> None:
        if self._answers is not None:
            self._answers.write((",".join(map(str, values)) + "\n").encode())

    def close(self) -> None:
        for file in (self._answers, self._events):
            if file is not None:
                file.close()


class _Connection(asyncio.Protocol):
    def __init__(
        self, options: argparse.Namespace, logs: _Logs, numbers: itertools.count[int]
    ) -> None:
        self._options, self._logs, self._numbers = options, logs, numbers
        self._received = b""
        self._answering: asyncio.Task[None] | None = None
        self._flows = asyncio.Event()
        self._flows.set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002  # asyncio's name
        if self._answering is not None:
            self._answering.cancel()

    def pause_writing(self) -> None:
        self._flows.clear()

    def resume_writing(self) -> None:
        self._flows.set()

    def data_received(self, data: bytes) -> None:
        self._received += data
        self._take()

    def _take(self) -> None:
        head, end, rest = self._received.partition(b"\r\n\r\n")
        if not end or self._answering is not None:
            return
        length = 0
        for line in head.split(b"\r\n")[1:]:
            name, _, value = line.partition(b":")
            if name.lower() == b"content-length":
                length = int(value)
        if len(rest) < length:
            return
        received_ns = monotonic_ns()
        body, self._received = rest[:length], rest[length:]
        path = head.split(b" ")[1].decode("latin-1")
        if path != _GENERATE and path not in _OBJECTS:
            self._transport.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}")
            return
        answer = self._answer(path, json.loads(body), received_ns)
        self._answering = asyncio.ensure_future(answer)

    async def _answer(self, path: str, asked: dict[str, Any], received_ns: int) -> None:
        options, number = self._options, next(self._numbers)
        rid = str(asked.get("rid", number))
        total = _cap(asked) or options.tokens
        stream_options = asked.get("stream_options") or {}
        with_usage = options.usage == "asked" and stream_options.get("continuous_usage_stats")
        due_ns = received_ns + options.ttft_us * 1000
        written_ns: list[int] = []
        data = _HEAD
        for sent in range(options.per_event, total + options.per_event, options.per_event):
            done = min(sent, total)
            event = _event(path, rid, done, done - (sent - options.per_event), total, with_usage)
            data += _chunk(event)
            if done == total:
                if path != _GENERATE and stream_options.get("include_usage"):
                    usage = {"id": rid, "object": _OBJECTS[path], "choices": []}
                    data += _chunk(usage | {"usage": _usage(total)})
                data += b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n"
            await self._until(due_ns)
            written_ns.append(monotonic_ns())
            self._transport.write(data)
            self._logs.event(number, written_ns[-1])
            due_ns += options.interval_us * 1000
            data = b""
        ends = (written_ns[0], written_ns[-1])
        self._logs.answer(number, rid, received_ns, *ends, len(written_ns), total)
        self._answering = None
        self._take()

    async def _until(self, due_ns: int) -> None:
        await self._flows.wait()
        await asyncio.sleep(max(due_ns - monotonic_ns(), 0) / 1e9)


def _cap(asked: dict[str, Any]) -> int | None:
    for place in (asked, asked.get("sampling_params") or {}):
        for name in ("max_completion_tokens", "max_tokens", "max_new_tokens"):
            if place.get(name):
                return int(place[name])
    return None


def _usage(completion: int) -> dict[str, int]:
    return {"prompt_tokens": _PROMPT_TOK, "completion_tokens": completion}


def _event(
    path: str,
    rid: str,
    done: int,
    new: int,
    total: int,
    with_usage: object,
) -> dict[str, Any]:
    finish = "length" if done == total else None
    if path == _GENERATE:
        reason = {"type": "length", "length": total} if finish else None
        meta = {"id": rid, "finish_reason": reason, "prompt_tokens": _PROMPT_TOK}
        return {"text": " tok" * done, "meta_info": meta | {"completion_tokens": done}}
    choice: dict[str, Any] = {"index": 0, "finish_reason": finish}
    text = " tok" * new
    choice |= {"text": text} if path == "/v1/completions" else {"delta": {"content": text}}
    usage = _usage(done) if with_usage else None
    return {"id": rid, "object": _OBJECTS[path], "choices": [choice], "usage": usage}


def _chunk(event: dict[str, Any]) -> bytes:
    data = b"data: %s\n\n" % json.dumps(event, separators=(",", ":")).encode()
    return b"%x\r\n%s\r\n" % (len(data), data)


async def _serve(options: argparse.Namespace) -> None:
    logs, numbers = _Logs(options.log, options.elog), itertools.count(1)
    over = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, over.set)
    server = await loop.create_server(
        lambda: _Connection(options, logs, numbers), "127.0.0.1", options.port, backlog=4096
    )
    print(f"listening {server.sockets[0].getsockname()[1]}", flush=True)  # noqa: T201  # said to who started it
    await over.wait()
    server.close()
    logs.close()


def main(words: Sequence[str] | None = None) -> None:
    """Serve until TERM."""
    options = argparse.ArgumentParser()
    for name, default in (("port", 0), ("tokens", 256), ("per-event", 1)):
        options.add_argument(f"--{name}", type=int, default=default)
    for name in ("ttft-us", "interval-us"):
        options.add_argument(f"--{name}", type=int, default=0)
    options.add_argument("--usage", choices=("asked", "end"), default="asked")
    options.add_argument("--log")
    options.add_argument("--elog")
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    import uvloop  # noqa: PLC0415  # keeps the import of this module for its constants light

    uvloop.run(_serve(options.parse_args(words)))


if __name__ == "__main__":
    main()
