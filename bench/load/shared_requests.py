"""The requests of a job, in files that bench writes once and all its workers share.

Whichever worker has a slot free takes the next request, so that two workers send what one would,
in the same order. The files have no name and no content that outlives their last reader: whatever
ends a process, nothing is left.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import tempfile
from struct import Struct
from typing import TYPE_CHECKING, BinaryIO, Final, NamedTuple

from bench.errors import DiskError

if TYPE_CHECKING:
    from collections.abc import Iterable

_RECORD: Final = Struct("<qqqq")  # number, offset in ns or -1, place and length of the body
_NO_OFFSET: Final = -1


class Request(NamedTuple):
    """One request to send.

    Attributes:
        number: Its name, for bench.
        body: What is sent, but for its id.
        offset_ns: Open loads: when it is due, in clock nanoseconds after the schedule's start.
    """

    number: int
    body: bytes
    offset_ns: int | None = None


class RequestWriter:
    """Bench's side: one for the workers of a client."""

    def __init__(self) -> None:
        self._records: BinaryIO = tempfile.TemporaryFile()  # noqa: SIM115  # as long as the workers
        self._bodies: BinaryIO = tempfile.TemporaryFile()  # noqa: SIM115  # likewise
        self._workers = 0

    def share(self) -> RequestWriter:
        """One worker more has it."""
        self._workers += 1
        return self

    def release(self) -> None:
        """One worker less; with the last the files go."""
        self._workers -= 1
        if not self._workers:
            for file in (self._records, self._bodies):
                with contextlib.suppress(OSError):  # what could not be written is not wanted now
                    file.close()

    def descriptors(self) -> tuple[int, int]:
        """What a worker inherits, in `RequestReader`'s order."""
        return self._records.fileno(), self._bodies.fileno()

    def write(self, requests: Iterable[Request]) -> None:
        """Put these in place of those of the last job; no worker may be taking any.

        Raises:
            DiskError: There is no room for temporary files.
        """
        try:
            self._write(requests)
        except OSError as error:
            raise no_room("write the requests of a cell", error.strerror or str(error)) from error

    def _write(self, requests: Iterable[Request]) -> None:
        for file in (self._records, self._bodies):
            file.seek(0)
            file.truncate()
        place = 0
        for request in requests:
            offset = _NO_OFFSET if request.offset_ns is None else request.offset_ns
            self._records.write(_RECORD.pack(request.number, offset, place, len(request.body)))
            self._bodies.write(request.body)
            place += len(request.body)
        self._records.flush()
        self._bodies.flush()
        self._records.seek(0)  # the place is shared: this is where the first worker takes


def no_room(what: str, why: str) -> DiskError:
    """The error of a temporary file that cannot take what a cell needs."""
    return DiskError(
        f"cannot {what} in {tempfile.gettempdir()}: {why}",
        hint="make room there (or name another place in TMPDIR), then `bench resume` the run: its "
        "finished cells are kept",
    )


class RequestReader:
    """A worker's side of one job."""

    def __init__(self, records: int, bodies: int) -> None:
        """Both descriptors are inherited, so that all workers read on from one place."""
        self._records = records
        length = os.fstat(bodies).st_size
        self._bodies = mmap.mmap(bodies, length, prot=mmap.PROT_READ) if length else None

    def take(self) -> Request | None:
        """The next request, which then no other worker gets; None when all are taken.

        Linux moves the place of a shared file description and reads from it in one step.
        """
        record = os.read(self._records, _RECORD.size)
        if not record:
            return None
        number, offset_ns, place, length = _RECORD.unpack(record)
        body = b"" if self._bodies is None else self._bodies[place : place + length]
        return Request(number, body, None if offset_ns == _NO_OFFSET else offset_ns)

    def close(self) -> None:
        """Let go of the bodies."""
        if self._bodies is not None:
            self._bodies.close()


class OutcomeFile:
    """What a worker tells of its requests, as frames one behind the other.

    What has been written stands, even if the worker is killed.
    """

    def __init__(self) -> None:
        self._file: BinaryIO = tempfile.TemporaryFile()  # noqa: SIM115  # as long as the worker

    @property
    def descriptor(self) -> int:
        """What the worker inherits."""
        return self._file.fileno()

    def clear(self) -> None:
        """Begin a new job; the worker must be idle."""
        os.ftruncate(self.descriptor, 0)
        os.lseek(self.descriptor, 0, os.SEEK_SET)

    def frames(self) -> Iterable[bytes]:
        """The payload of each whole frame."""
        at = 0
        while len(length := os.pread(self.descriptor, 4, at)) == 4:
            size = int.from_bytes(length, "little")
            payload = os.pread(self.descriptor, size, at + 4)
            if len(payload) < size:
                return  # the worker was killed while it wrote
            yield payload
            at += 4 + size

    def close(self) -> None:
        """Let go of the file."""
        self._file.close()
