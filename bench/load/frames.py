"""What bench and a load worker tell each other: msgpack with a length before it.

Orders and pulses go through the worker's pipes; outcomes into a file of its own, so that a worker
never waits for bench and bench holds no more than it reads (`bench.load.shared_requests`).
"""

from __future__ import annotations

import asyncio
from typing import Final

import msgspec

from bench.load.stream import StreamRecord  # noqa: TC001  # msgspec reads the annotations

_LENGTH_BYTES: Final = 4


class Job(msgspec.Struct, frozen=True, tag=True):
    """Send the shared requests.

    Attributes:
        path: Relative to `base_url`.
        rid_stem: 24 hexadecimal digits; with 8 of its index behind them a request's id.
        is_open: Whether each request has its `offset_ns`, or is sent when a slot is free.
        slots: Closed load: the numbers of this worker's slots, each of which takes the next
            request as soon as its last one has ended. A worker may have none.
        request_s: Time-out of a request, in seconds of the clock; so are the other two.
        drain_s: Open load: how long the last responses may take after the last request was due.
        keep_text: Whether records hold the text.
        connections: How many connections to open ahead; an open load keeps so many free.
        starts_a_ms: How many requests may start in a millisecond of the world.
        abort_own: Whether requests that are given up are aborted on the server by their ids.
        admin_api_key: What aborting needs in place of `api_key`, if anything.
    """

    base_url: str
    api_key: str | None
    path: str
    rid_stem: str
    is_open: bool
    slots: list[int]
    request_s: float
    connect_s: float
    drain_s: float
    keep_text: bool
    connections: int
    starts_a_ms: int
    abort_own: bool = False
    admin_api_key: str | None = None


class Go(msgspec.Struct, frozen=True, tag=True):
    """Begin the job, whose connections are open: an open load's schedule starts at `start_ns`."""

    start_ns: int


class Stop(msgspec.Struct, frozen=True, tag=True):
    """End the job: what is outstanding ends as CANCELLED."""


class Ready(msgspec.Struct, frozen=True, tag=True):
    """The worker has started."""


class Prepared(msgspec.Struct, frozen=True, tag=True):
    """The job's connections are open, or cannot be: so many are."""

    connections: int


class Outcome(msgspec.Struct, frozen=True, tag=True, gc=False):
    """What became of one request; times as in `bench.model.RequestSample`.

    Attributes:
        second_reader: Why aiohttp's own reader read the response; None: it was not needed.
        is_resent: Whether it was sent twice, as the server hung up before it had come.
    """

    index: int
    slot: int | None
    due_ns: int
    sent_ns: int | None
    first_byte_ns: int | None
    ended_ns: int
    http_status: int | None
    stream: StreamRecord
    second_reader: str | None = None
    is_resent: bool = False


class Pulse(msgspec.Struct, frozen=True, tag=True):
    """How the worker is doing, twice a second of the world.

    Attributes:
        t_ns: Clock time.
        in_flight: Requests sent and not ended.
        ended: Requests whose outcomes are written.
        read_ct: Transport reads of these; `output_tok` and the two after it likewise.
        running_read_ct: Transport reads of those in flight so far.
        loop_lag_ms: Highest lag of the event loop since the last pulse, in milliseconds of the
            clock.
        cpu_share: CPU seconds over wall seconds since the last pulse.
    """

    t_ns: int
    in_flight: int
    ended: int
    read_ct: int
    output_tok: int
    verify_ct: int
    correct_ct: int
    running_read_ct: int
    loop_lag_ms: float | None
    cpu_share: float | None


class JobEnd(msgspec.Struct, frozen=True, tag=True):
    """All outcomes of the job are written; how the worker itself did (`ClientStats`)."""

    loop_lag_p99_ms: float | None
    cpu_s: float
    world_s: float
    max_in_flight: int


class JobFailed(msgspec.Struct, frozen=True, tag=True):
    """The worker itself failed; it can take another job.

    Attributes:
        message: A traceback, or of a disk what it refused.
        is_disk: Whether it was the disk that did not take its outcomes.
    """

    message: str
    is_disk: bool = False


ToWorker = Job | Go | Stop
FromWorker = Ready | Prepared | Pulse | JobEnd | JobFailed

encode: Final = msgspec.msgpack.Encoder().encode
to_worker: Final = msgspec.msgpack.Decoder(ToWorker).decode
from_worker: Final = msgspec.msgpack.Decoder(FromWorker).decode
to_outcome: Final = msgspec.msgpack.Decoder(Outcome).decode


def framed(message: ToWorker | FromWorker | Outcome) -> bytes:
    """A message as it goes through the pipe or into the file."""
    payload = encode(message)
    return len(payload).to_bytes(_LENGTH_BYTES, "little") + payload


async def read_frame(reader: asyncio.StreamReader) -> bytes | None:
    """The next message's payload, or None when the other side is gone."""
    try:
        length = int.from_bytes(await reader.readexactly(_LENGTH_BYTES), "little")
        return await reader.readexactly(length)
    except (asyncio.IncompleteReadError, ConnectionError):
        return None
