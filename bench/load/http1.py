"""HTTP/1.1 responses as they come off a socket: heads and framing, checked; pure.

Written after RFC 9112. `ResponseReader` takes the reads of one response, cut anywhere, and yields
its body in pieces, each with the arrival of the read that brought its last byte. What it does not
know (compressed bodies, transfer codings other than chunked) it calls odd, and leaves to others.
"""

from __future__ import annotations

import re
from enum import Enum
from itertools import accumulate
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

MOST_HEAD_BYTES: Final = 65536
_STATUS_LINE: Final = re.compile(rb"HTTP/1\.([01]) (\d{3})(?: ([^\r\n]*))?")
_FIELD_NAME: Final = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_CHUNK_SIZE: Final = re.compile(rb"([0-9A-Fa-f]{1,15})[ \t]*(?:;.*)?", re.DOTALL)
_SWITCHING: Final = 101
_FIRST_FINAL: Final = 200
_NO_BODY: Final = frozenset({204, 304})
_CRLF: Final = b"\r\n"
_MOST_SIZES: Final = 4096
_MOST_DIGITS: Final = 18

Body = tuple[int, bytes]
"""(arrival in clock nanoseconds of the read that brought the last byte, bytes)."""


class FramingError(ValueError):
    """The bytes are no HTTP/1.1 response."""


class State(Enum):
    """Where in a response the next byte belongs."""

    HEAD = "head"
    CHUNKED = "chunked"
    LENGTH = "length"
    UNTIL_EOF = "until eof"
    DONE = "done"
    ODD = "odd"


class ResponseReader:
    """Reads one response.

    Attributes:
        state: Where it is; ODD once the head says what this reader does not know.
        status: None until the head is there; so are `reason` and `fields`.
        fields: Header fields by lower-case name; repeated ones joined by commas.
        body: What has come of the body; the caller takes from it as it likes.
        body_read_ct: How many reads carried some of it.
        may_be_reused: Whether the connection may carry another request afterwards.
        odd: Why it is ODD.
    """

    __slots__ = (
        "_left",
        "_rest",
        "_sizes",
        "body",
        "body_read_ct",
        "fields",
        "may_be_reused",
        "odd",
        "reason",
        "state",
        "status",
    )

    def __init__(self, sizes: dict[bytes, int]) -> None:
        """`sizes` remembers chunk sizes by their lines; share it, most lines recur."""
        self.state = State.HEAD
        self.status: int | None = None
        self.reason = ""
        self.fields: dict[str, str] = {}
        self.body: list[Body] = []
        self.body_read_ct = 0
        self.may_be_reused = False
        self.odd: str | None = None
        self._sizes = sizes
        self._rest = b""  # of a head or of a line between chunks, whose end has not come
        self._left = 0  # bytes that the chunk or the body in hand still lacks

    def feed(self, stamps: Sequence[int], pieces: Sequence[bytes]) -> bytes:
        """Take reads in their order.

        Args:
            stamps: Arrival of each read, in clock nanoseconds.
            pieces: The bytes of each.

        Returns:
            Once it is ODD: all bytes of these reads from the response's head on; else nothing.

        Raises:
            FramingError: They are no HTTP/1.1 response.
        """
        place = 0
        while self.state is State.HEAD and place < len(pieces):
            rest = self._take_head(self._rest + pieces[place])
            place += 1
            if self.odd is not None:
                return b"".join((self._rest, *pieces[place:]))
            if rest:
                self._take_body(stamps[place - 1 : place], [rest])
        if place < len(pieces):
            self._take_body(stamps[place:], pieces[place:])
        return b""

    def end(self) -> bool:
        """The connection has ended; returns whether the response was complete."""
        if self.state is State.UNTIL_EOF:
            self.state = State.DONE
        return self.state is State.DONE

    # -- the head

    def _take_head(self, raw: bytes) -> bytes:
        """Take the head from the beginning of `raw`; returns what follows it."""
        whole = raw
        while True:
            # Empty lines before a response come from servers that count lengths wrong.
            raw = raw.lstrip(_CRLF) if raw[:1] in {b"\r", b"\n"} else raw
            if not _may_be_status_line(raw):
                raise FramingError(f"no HTTP/1 response: {raw[:80]!r}")
            end = raw.find(b"\r\n\r\n")
            if end < 0:
                if len(raw) > MOST_HEAD_BYTES:
                    raise FramingError(f"a response head of over {MOST_HEAD_BYTES} bytes")
                self._rest = raw
                return b""
            lines, raw = raw[:end].split(_CRLF), raw[end + 4 :]
            minor, status, self.reason = _status_line(lines[0])
            self.fields = _fields(lines[1:])
            if status == _SWITCHING:
                raise FramingError("the server switched protocols")
            if status >= _FIRST_FINAL:
                break
        self.status = status
        options = {one.strip() for one in self.fields.get("connection", "").lower().split(",")}
        self.may_be_reused = "close" not in options and (minor == 1 or "keep-alive" in options)
        self._choose_framing(status)
        self._rest = whole if self.state is State.ODD else b""
        return raw

    def _choose_framing(self, status: int) -> None:
        coding = self.fields.get("content-encoding", "").strip().lower()
        transfer = self.fields.get("transfer-encoding", "").strip().lower()
        length = self.fields.get("content-length", "").strip()
        if status in _NO_BODY:
            self.state = State.DONE
        elif coding not in {"", "identity"}:
            self.state, self.odd = State.ODD, f"content-encoding {coding}"
        elif transfer not in {"", "chunked"}:
            self.state, self.odd = State.ODD, f"transfer-encoding {transfer}"
        elif transfer:
            self.state = State.CHUNKED
        elif length:
            lengths = {one.strip() for one in length.split(",")}
            self._left = _number(lengths.pop()) if len(lengths) == 1 else -1
            if self._left < 0:
                raise FramingError(f"content-length {length[:80]!r}")
            self.state = State.LENGTH if self._left else State.DONE
        else:
            self.state, self.may_be_reused = State.UNTIL_EOF, False

    # -- the body

    def _take_body(self, stamps: Sequence[int], pieces: Sequence[bytes]) -> None:
        if self.state is State.DONE:
            self.may_be_reused = False  # bytes behind the end: nobody knows whose
            return
        self.body_read_ct += len(pieces)
        if self.state is State.CHUNKED:
            self._take_chunks(stamps, pieces)
            return
        for stamp, piece in zip(stamps, pieces, strict=True):
            if self.state is State.LENGTH:
                self._take_counted(stamp, piece)
            elif self.state is State.UNTIL_EOF:
                self.body.append((stamp, piece))
            elif piece:
                self.may_be_reused = False

    def _take_counted(self, stamp: int, piece: bytes) -> None:
        self.body.append((stamp, piece[: self._left]))
        self._left -= len(piece)
        if self._left <= 0:
            self.state = State.DONE
            self.may_be_reused = self.may_be_reused and not self._left

    def _take_chunks(self, stamps: Sequence[int], pieces: Sequence[bytes]) -> None:
        """Walk over the chunks of the joined reads; `_left` counts a chunk's end of line too."""
        raw = b"".join((self._rest, *pieces))
        size = len(raw)
        ends = list(accumulate(map(len, pieces), initial=len(self._rest)))
        self._rest = b""
        read = 1  # ends[read] is the end of the read that stamps[read - 1] belongs to
        body, find, sizes = self.body, raw.find, self._sizes
        at = self._take_left(raw, 0, ends, stamps) if self._left else 0
        while at < size:
            line_end = find(_CRLF, at)
            if line_end < 0:
                break
            line = raw[at:line_end]
            length = sizes.get(line)
            if length is None:
                length = _remembered_size(line, sizes)
            start = line_end + 2
            if not length:
                at = self._take_trailer(raw, at, start)
                break
            stop = start + length
            if stop + 2 > size:
                self._left = length + 2
                at = self._take_left(raw, start, ends, stamps)
                break
            if raw[stop : stop + 2] != _CRLF:
                raise FramingError("a chunk without its end of line")
            while ends[read] < stop:
                read += 1
            body.append((stamps[read - 1], raw[start:stop]))
            at = stop + 2
        if self.state is State.DONE:
            self.may_be_reused = self.may_be_reused and at == size
            return
        self._rest = raw[at:]
        _require_short(self._rest)

    def _take_left(self, raw: bytes, at: int, ends: Sequence[int], stamps: Sequence[int]) -> int:
        """Take what there is of the chunk in hand from `at` on, read by read; where it ends."""
        for stamp, end in zip(stamps, ends[1:], strict=True):
            if end <= at:
                continue
            data_end = min(end, at + max(self._left - 2, 0))
            if data_end > at:
                self.body.append((stamp, raw[at:data_end]))
                self._left -= data_end - at
                at = data_end
            line_end = raw[at : min(end, at + self._left)]
            if line_end != _CRLF[2 - self._left :][: len(line_end)]:
                raise FramingError("a chunk without its end of line")
            self._left -= len(line_end)
            at += len(line_end)
            if not self._left:
                break
        return at

    def _take_trailer(self, raw: bytes, at: int, start: int) -> int:
        """The end of a chunked body from its last chunk's line at `at` on; where it ends."""
        if raw.startswith(_CRLF, start):
            self.state = State.DONE
            return start + 2
        end = raw.find(b"\r\n\r\n", start)
        if end < 0:
            return at  # it is looked at again with what comes next
        self.state = State.DONE
        return end + 4


def _require_short(rest: bytes) -> None:
    if len(rest) > MOST_HEAD_BYTES:
        raise FramingError("a line between chunks without end")


def _may_be_status_line(raw: bytes) -> bool:
    start = b"HTTP/1."
    return raw[: len(start)] == start[: len(raw)]


def _status_line(line: bytes) -> tuple[int, int, str]:
    match = _STATUS_LINE.fullmatch(line)
    if match is None:
        raise FramingError(f"no HTTP/1 response: {line[:80]!r}")
    return int(match[1]), int(match[2]), (match[3] or b"").decode("latin-1").strip()


def _fields(lines: Sequence[bytes]) -> dict[str, str]:
    fields: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(b":")
        if not colon or _FIELD_NAME.fullmatch(name) is None:
            raise FramingError(f"no header field: {line[:80]!r}")
        key, text = name.decode("ascii").lower(), value.decode("latin-1").strip()
        fields[key] = f"{fields[key]},{text}" if key in fields else text
    return fields


def _remembered_size(line: bytes, sizes: dict[bytes, int]) -> int:
    match = _CHUNK_SIZE.fullmatch(line)
    if match is None:
        raise FramingError(f"no chunk size: {line[:80]!r}")
    size = int(match[1], 16)
    if len(sizes) < _MOST_SIZES:  # extensions may make each line another
        sizes[line] = size
    return size


def _number(text: str) -> int:
    is_number = text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS
    return int(text) if is_number else -1
