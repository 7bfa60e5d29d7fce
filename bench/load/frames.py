"""What bench and a load worker tell each other: msgpack with a length, over the worker's pipes."""

from __future__ import annotations

import asyncio
from typing import Final

import msgspec

from bench.load.stream import StreamRecord  # noqa: TC001  # msgspec reads the annotations

_LENGTH_BYTES: Final = 4


class Request(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One request to send: `index` names it, `offset_ns` is when it is due (open loads only)."""

    index: int
    body: bytes
    offset_ns: int | None = None


class Job(msgspec.Struct, frozen=True, tag=True):
    """Requests to send, in this order.

    Attributes:
        path: Relative to `base_url`.
        slots: Closed load: the numbers of the slots, each of which takes the next request as soon
            as its last one has ended. Empty: an open load, each request has its `offset_ns`.
        request_s: Time-out of a request, in seconds of the clock; so are the other two.
        drain_s: Open load: how long the last responses may take after the last request was due.
        keep_text: Whether records hold the text.
        connections: How many connections to open ahead.
        abort_own: Whether requests that are given up are aborted on the server by their ids.
    """

    base_url: str
    api_key: str | None
    path: str
    requests: list[Request]
    slots: list[int]
    request_s: float
    connect_s: float
    drain_s: float
    keep_text: bool
    connections: int
    abort_own: bool = False


class Stop(msgspec.Struct, frozen=True, tag=True):
    """End the job: what is outstanding or unsent ends as CANCELLED."""


class Ready(msgspec.Struct, frozen=True, tag=True):
    """The worker has started."""


class Outcome(msgspec.Struct, frozen=True, tag=True, gc=False):
    """What became of one request; times as in `bench.model.RequestSample`."""

    index: int
    slot: int | None
    due_ns: int
    sent_ns: int | None
    first_byte_ns: int | None
    ended_ns: int
    http_status: int | None
    stream: StreamRecord


class Pulse(msgspec.Struct, frozen=True, tag=True):
    """How the worker is doing, twice a second of the world.

    Attributes:
        t_ns: Clock time.
        in_flight: Requests sent and not ended.
        read_ct: Transport reads since the job began.
        loop_lag_ms: Highest lag of the event loop since the last pulse, in milliseconds of the
            clock.
        cpu_share: CPU seconds over wall seconds since the last pulse.
    """

    t_ns: int
    in_flight: int
    read_ct: int
    loop_lag_ms: float | None
    cpu_share: float | None


class JobEnd(msgspec.Struct, frozen=True, tag=True):
    """All outcomes of the job have been told; how the worker itself did (`ClientStats`)."""

    loop_lag_p99_ms: float | None
    cpu_share: float | None
    world_s: float
    max_in_flight: int


class JobFailed(msgspec.Struct, frozen=True, tag=True):
    """The worker itself failed; it can take another job."""

    message: str


ToWorker = Job | Stop
FromWorker = Ready | Outcome | Pulse | JobEnd | JobFailed

encode: Final = msgspec.msgpack.Encoder().encode
to_worker: Final = msgspec.msgpack.Decoder(ToWorker).decode
from_worker: Final = msgspec.msgpack.Decoder(FromWorker).decode


def framed(message: ToWorker | FromWorker) -> bytes:
    """A message as it goes through the pipe."""
    payload = encode(message)
    return len(payload).to_bytes(_LENGTH_BYTES, "little") + payload


async def read_frame(reader: asyncio.StreamReader) -> bytes | None:
    """The next message's payload, or None when the other side is gone."""
    try:
        length = int.from_bytes(await reader.readexactly(_LENGTH_BYTES), "little")
        return await reader.readexactly(length)
    except (asyncio.IncompleteReadError, ConnectionError):
        return None
