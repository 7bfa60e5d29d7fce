"""What one response's bytes and their arrival times amount to; pure.

`assemble` turns the reads of one streamed response into a `StreamRecord`: status, token-bearing
events, counts and hashes. Nothing here knows of sockets; times are those the reads came with.

Which events carry tokens is told in one of two ways for the whole stream. When every event with
output also carries the server's running count, an event bears tokens if the count grew with it (an
event may show text late, or tokens that have no text). Otherwise it does if it carries text.
"""

from __future__ import annotations

from array import array
from itertools import compress
from typing import TYPE_CHECKING, Final

import msgspec

from bench.load.sse import EventParser
from bench.load.text import (
    TextFacts,
    VisibleText,
    Volume,
    text_facts,
    tokens_before_first_event,
    utf8_bytes,
)
from bench.model import RequestStatus
from bench.sglang.wire import DONE, Chunk, SpecCounters, WireError, decode_chunk, error_in_body

if TYPE_CHECKING:
    from collections.abc import Iterable

MOST_MESSAGE_CHARS: Final = 4000
"""An error may be a whole page; it is redacted and cut further where samples are made."""
_KEPT_BODY_BYTES: Final = 65536


class StreamEnd(msgspec.Struct, frozen=True):
    """How the transport saw a response end.

    Attributes:
        status: None when the body ended as HTTP says; else what went wrong.
        message: What the socket or the time-out said.
    """

    status: RequestStatus | None = None
    message: str | None = None


class StreamRecord(msgspec.Struct, array_like=True, gc=False):
    """What is told by one stream; each field as in `bench.model.RequestSample`.

    `text` and `reasoning_text` are there only where they were asked for, or where the server gave
    no count and they are needed to count tokens.
    """

    status: RequestStatus
    error_message: str | None = None
    finish_reason: str | None = None
    prompt_tok: int | None = None
    cached_tok: int | None = None
    output_tok: int | None = None
    reasoning_tok: int | None = None
    event_ns: tuple[int, ...] = ()
    event_tok: tuple[int, ...] | None = None
    first_visible_ns: int | None = None
    tokens_before_first_event: bool | None = None
    read_ct: int = 0
    text: str | None = None
    reasoning_text: str | None = None
    facts: TextFacts | None = None
    spec: SpecCounters | None = None
    num_retractions: int | None = None
    queue_ns: int | None = None
    dp_rank: int | None = None


def assemble(
    reads: Iterable[tuple[int, bytes]], end: StreamEnd, *, keep_text: bool = False
) -> StreamRecord:
    """Read one whole response with HTTP status 200.

    Args:
        reads: (arrival in clock nanoseconds, bytes) of each transport read, in order.
        end: How the transport saw it end.
        keep_text: Whether the record holds the text itself.
    """
    stream = StreamAssembly()
    read_ct = 0
    for arrival_ns, piece in reads:
        read_ct += 1
        stream.feed(arrival_ns, piece)
    return stream.finish(end, read_ct=read_ct, keep_text=keep_text)


class StreamAssembly:
    """The same in steps, so that a caller can do other work between pieces.

    What is kept of an event while the stream runs is three numbers: its arrival, how much text it
    brought, and the server's count with it (-1 without one).
    """

    def __init__(self) -> None:
        self._parser = EventParser()
        self._arrivals_ns = array("q")
        self._text_bytes = array("q")
        self._counts = array("q")
        self._first_visible_ns: int | None = None
        self._finish_at: int | None = None  # place of the event with the finish reason
        self._visible = VisibleText()
        self._reasoning: list[str] = []
        self._reasoning_bytes = 0
        self._chunk_ct = 0
        self._start_of_body: list[bytes] = []
        self._kept_bytes = 0
        self._last_ns = 0
        self._done = False
        self._finish_reason: str | None = None
        self._error: str | None = None
        self._malformed: str | None = None
        self._latest = _Latest()

    def feed(self, arrival_ns: int, piece: bytes) -> None:
        """Take the next piece of the body."""
        self._last_ns = arrival_ns
        if not self._chunk_ct and self._kept_bytes < _KEPT_BODY_BYTES:
            self._start_of_body.append(piece)  # it may be one JSON object in place of a stream
            self._kept_bytes += len(piece)
        data = self._parser.whole_event(piece)
        if data is not None:
            self._take_data(arrival_ns, "", data)
            return
        for event in self._parser.feed(piece):
            self._take_data(arrival_ns, event.name, event.data)

    def finish(self, end: StreamEnd, *, read_ct: int, keep_text: bool = False) -> StreamRecord:
        """The record, once there is no more to come.

        Args:
            end: How the transport saw it end.
            read_ct: How many reads brought the body.
            keep_text: Whether the record holds the text itself.
        """
        self._take_unended_event()
        event_ns, event_tok = self._token_events()
        text, reasoning = self._visible.whole(), "".join(self._reasoning)
        latest = self._latest
        output_tok = latest.output_tok
        if output_tok == 0 and (text or reasoning):
            output_tok = None  # a count that is plainly not kept
        status, message = self._status(end, has_output=bool(event_ns or text or reasoning))
        is_uncounted = output_tok is None and status is RequestStatus.OK
        return StreamRecord(
            status=status,
            error_message=None if message is None else message[:MOST_MESSAGE_CHARS],
            finish_reason=self._finish_reason,
            prompt_tok=latest.prompt_tok,
            cached_tok=latest.cached_tok,
            output_tok=output_tok,
            reasoning_tok=latest.reasoning_tok,
            event_ns=event_ns,
            event_tok=event_tok,
            first_visible_ns=self._first_visible_ns,
            tokens_before_first_event=tokens_before_first_event(
                event_ns, event_tok, self._volume(output_tok)
            ),
            read_ct=read_ct,
            text=text if keep_text or is_uncounted else None,
            reasoning_text=reasoning if keep_text or is_uncounted else None,
            facts=text_facts(text, reasoning) if status is RequestStatus.OK else None,
            spec=latest.spec,
            num_retractions=latest.num_retractions,
            queue_ns=latest.queue_ns,
            dp_rank=latest.dp_rank,
        )

    def _take_data(self, arrival_ns: int, name: str, data: bytes) -> None:
        if self._done:
            return
        if data[:1] != b"{" and (not data.strip() or data.strip() == DONE):
            self._done = bool(data.strip())
            return
        try:
            chunk = decode_chunk(data)
        except WireError as error:
            self._take_unreadable(name, data, str(error))
            return
        if name == "error" and chunk.error is None:
            self._error = self._error or data.decode("utf-8", "replace")
            return
        self._take_chunk(arrival_ns, chunk)

    def _take_unreadable(self, name: str, data: bytes, reason: str) -> None:
        if name == "error":
            message = error_in_body(data) or data.decode("utf-8", "replace")
            self._error = self._error or message
        elif self._malformed is None:
            self._malformed = reason

    def _take_unended_event(self) -> None:
        """A last event that lacks only its blank line counts; one cut inside its data does not."""
        event = self._parser.close()
        if event is not None:
            malformed = self._malformed
            self._take_data(self._last_ns, event.name, event.data)
            self._malformed = malformed

    def _take_chunk(self, arrival_ns: int, chunk: Chunk) -> None:
        if not self._chunk_ct:
            self._start_of_body.clear()
        self._chunk_ct += 1
        self._latest.take(chunk)
        if chunk.error is not None:
            self._error = self._error or chunk.error
        if chunk.finish_reason is not None:
            self._finish_reason = chunk.finish_reason
            if self._finish_at is None and chunk.has_output_place:
                self._finish_at = len(self._arrivals_ns)
        if not chunk.has_output_place:
            return
        text_bytes = self._visible.take(chunk)
        if text_bytes and self._first_visible_ns is None:
            self._first_visible_ns = arrival_ns
        if chunk.reasoning:
            self._reasoning.append(chunk.reasoning)
            reasoning_bytes = utf8_bytes(chunk.reasoning)
            self._reasoning_bytes += reasoning_bytes
            text_bytes += reasoning_bytes
        self._arrivals_ns.append(arrival_ns)
        self._text_bytes.append(text_bytes)
        self._counts.append(-1 if chunk.output_tok is None else chunk.output_tok)

    def _token_events(self) -> tuple[tuple[int, ...], tuple[int, ...] | None]:
        """Arrival and running count of each token-bearing event; no counts where text tells."""
        counts = self._counts
        is_counted = any(count >= 0 for count in counts)
        if not is_counted or any(
            text_bytes and count < 0
            for text_bytes, count in zip(self._text_bytes, counts, strict=True)
        ):
            return tuple(compress(self._arrivals_ns, self._text_bytes)), None
        places: list[int] = []
        running: list[int] = []
        latest = 0
        for place, count in enumerate(counts):
            if count > latest:
                latest = count
                places.append(place)
                running.append(count)
        # SGLang's chat sends no event for a last step that yields only the end-of-text token; that
        # step's arrival is the event with the finish reason, its count comes with the final usage.
        finish_at, total = self._finish_at, self._latest.output_tok or 0
        if finish_at is not None and counts[finish_at] < 0 and places and total > latest:
            places.append(finish_at)
            running.append(total)
        return tuple(map(self._arrivals_ns.__getitem__, places)), tuple(running) or None

    def _volume(self, output_tok: int | None) -> Volume:
        return Volume(
            output_tok=output_tok,
            reasoning_tok=self._latest.reasoning_tok,
            visible_bytes=sum(self._text_bytes) - self._reasoning_bytes,
            reasoning_bytes=self._reasoning_bytes,
            has_tool_text=self._visible.has_tool_text,
            first_event_bytes=next(filter(None, self._text_bytes), 0),
        )

    def _status(self, end: StreamEnd, *, has_output: bool) -> tuple[RequestStatus, str | None]:
        body_error = None
        if not self._chunk_ct and not self._done:
            body_error = error_in_body(b"".join(self._start_of_body))
        error = self._error or body_error
        if self._finish_reason == "abort":
            return RequestStatus.ABORTED, error or "finish reason abort"
        if error is not None or self._finish_reason == "error":
            return RequestStatus.SERVER_ERROR_IN_STREAM, error or "finish reason error"
        if self._done and self._finish_reason is not None and self._malformed is None:
            if has_output:
                return RequestStatus.OK, None
            return RequestStatus.EMPTY_OUTPUT, "the stream ended as it should, without output"
        if end.status is not None and not self._done:
            return end.status, end.message
        if self._malformed is not None:
            return RequestStatus.MALFORMED_STREAM, self._malformed
        if not self._chunk_ct and not self._done and self._start_of_body:
            return RequestStatus.MALFORMED_STREAM, "the body is no event stream of this API"
        return RequestStatus.INCOMPLETE_STREAM, self._missing()

    def _missing(self) -> str:
        missing = [
            name
            for name, is_there in (
                ("[DONE]", self._done),
                ("finish reason", self._finish_reason is not None),
            )
            if not is_there
        ]
        return f"the stream ended without {' and without '.join(missing)}"


class _Latest(msgspec.Struct, gc=False):
    """The latest value of each count that the server told."""

    prompt_tok: int | None = None
    cached_tok: int | None = None
    output_tok: int | None = None
    reasoning_tok: int | None = None
    num_retractions: int | None = None
    queue_ns: int | None = None
    dp_rank: int | None = None
    spec: SpecCounters | None = None

    def take(self, chunk: Chunk) -> None:
        if chunk.output_tok is not None:
            self.output_tok = chunk.output_tok
        if chunk.prompt_tok is not None:
            self.prompt_tok = chunk.prompt_tok
        if chunk.cached_tok is not None:
            self.cached_tok = chunk.cached_tok
        if chunk.reasoning_tok is not None:
            self.reasoning_tok = chunk.reasoning_tok
        if chunk.spec is not None:
            self.spec = chunk.spec
        if chunk.is_generate:  # only there
            self._take_meta(chunk)

    def _take_meta(self, chunk: Chunk) -> None:
        if chunk.num_retractions is not None:
            self.num_retractions = chunk.num_retractions
        if chunk.queue_ns is not None:
            self.queue_ns = chunk.queue_ns
        if chunk.dp_rank is not None:
            self.dp_rank = chunk.dp_rank
