"""What one response's bytes and their arrival times amount to; pure.

`assemble` turns the reads of one streamed response into a `StreamRecord`: status, token-bearing
events, counts and hashes. Nothing here knows of sockets; times are those the reads came with.

Which events carry tokens is told in one of two ways for the whole stream. When every event with
output also carries the server's running count, an event bears tokens if the count grew with it (an
event may show text late, or tokens that have no text). Otherwise it does if it carries text.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from bench.load.sse import EventParser
from bench.load.text import TextFacts, VisibleText, text_facts, utf8_bytes
from bench.model import RequestStatus
from bench.sglang.wire import DONE, Chunk, SpecCounters, WireError, decode_chunk, error_in_body

if TYPE_CHECKING:
    from collections.abc import Iterable

    from bench.load.sse import Event

MOST_MESSAGE_CHARS: Final = 4000
"""An error may be a whole page; it is redacted and cut further where samples are made."""
MOST_TOK_IN_A_STEP: Final = 64
"""More tokens than any scheduler step yields: a first event that counts more came late."""
TEXTLESS_TOK: Final = 8
"""How many more tokens than bytes of text a response may have: end of text, other special ones."""
_KEPT_BODY_BYTES: Final = 65536
_COUNTS: Final = (
    "prompt_tok",
    "cached_tok",
    "output_tok",
    "reasoning_tok",
    "num_retractions",
    "queue_ns",
    "dp_rank",
)


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


class _Mark(msgspec.Struct, gc=False):
    """One event that has a place for output."""

    arrival_ns: int
    text_bytes: int
    is_visible: bool
    output_tok: int | None
    is_finish: bool


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
    for arrival_ns, piece in reads:
        stream.feed(arrival_ns, piece)
    return stream.finish(end, keep_text=keep_text)


class StreamAssembly:
    """The same in steps, so that a caller can do other work between reads."""

    def __init__(self) -> None:
        self._parser = EventParser()
        self._marks: list[_Mark] = []
        self._visible = VisibleText()
        self._reasoning: list[str] = []
        self._visible_bytes = self._reasoning_bytes = 0
        self._chunk_ct = 0
        self._read_ct = 0
        self._start_of_body: list[bytes] = []
        self._kept_bytes = 0
        self._last_ns = 0
        self._done = False
        self._finish_reason: str | None = None
        self._error: str | None = None
        self._malformed: str | None = None
        self._latest: dict[str, int] = {}
        self._spec: SpecCounters | None = None

    def feed(self, arrival_ns: int, piece: bytes) -> None:
        """Take one read."""
        self._read_ct += 1
        self._last_ns = arrival_ns
        if not self._chunk_ct and self._kept_bytes < _KEPT_BODY_BYTES:
            self._start_of_body.append(piece)  # it may be one JSON object in place of a stream
            self._kept_bytes += len(piece)
        for event in self._parser.feed(piece):
            self._take_event(arrival_ns, event)

    def finish(self, end: StreamEnd, *, keep_text: bool = False) -> StreamRecord:
        """The record, once there is no more to come."""
        self._take_unended_event()
        events = self._token_events()
        text, reasoning = self._visible.whole(), "".join(self._reasoning)
        output_tok = self._output_tok(text=text, reasoning=reasoning)
        status, message = self._status(end, has_output=bool(events or text or reasoning))
        is_uncounted = output_tok is None and status is RequestStatus.OK
        return StreamRecord(
            status=status,
            error_message=None if message is None else message[:MOST_MESSAGE_CHARS],
            finish_reason=self._finish_reason,
            prompt_tok=self._latest.get("prompt_tok"),
            cached_tok=self._latest.get("cached_tok"),
            output_tok=output_tok,
            reasoning_tok=self._latest.get("reasoning_tok"),
            event_ns=tuple(arrival_ns for arrival_ns, _ in events),
            event_tok=_running_counts(events),
            first_visible_ns=next((m.arrival_ns for m in self._marks if m.is_visible), None),
            tokens_before_first_event=_tokens_before_first_event(events, self._volume(output_tok)),
            read_ct=self._read_ct,
            text=text if keep_text or is_uncounted else None,
            reasoning_text=reasoning if keep_text or is_uncounted else None,
            facts=text_facts(text, reasoning) if status is RequestStatus.OK else None,
            spec=self._spec,
            num_retractions=self._latest.get("num_retractions"),
            queue_ns=self._latest.get("queue_ns"),
            dp_rank=self._latest.get("dp_rank"),
        )

    def _take_event(self, arrival_ns: int, event: Event) -> None:
        if self._done or not event.data.strip():
            return
        if event.data.strip() == DONE:
            self._done = True
            return
        try:
            chunk = decode_chunk(event.data)
        except WireError as error:
            self._take_unreadable(event, str(error))
            return
        if event.name == "error" and chunk.error is None:
            self._error = self._error or event.data.decode("utf-8", "replace")
            return
        self._take_chunk(arrival_ns, chunk)

    def _take_unreadable(self, event: Event, reason: str) -> None:
        if event.name == "error":
            message = error_in_body(event.data) or event.data.decode("utf-8", "replace")
            self._error = self._error or message
        elif self._malformed is None:
            self._malformed = reason

    def _take_unended_event(self) -> None:
        """A last event that lacks only its blank line counts; one cut inside its data does not."""
        event = self._parser.close()
        if event is not None:
            malformed = self._malformed
            self._take_event(self._last_ns, event)
            self._malformed = malformed

    def _take_chunk(self, arrival_ns: int, chunk: Chunk) -> None:
        self._chunk_ct += 1
        self._start_of_body.clear()
        self._error = self._error or chunk.error
        self._finish_reason = chunk.finish_reason or self._finish_reason
        self._spec = chunk.spec or self._spec
        for name in _COUNTS:
            value = getattr(chunk, name)
            if value is not None:
                self._latest[name] = value
        if not chunk.has_output_place:
            return
        visible_bytes = self._visible.take(chunk)
        reasoning_bytes = 0
        if chunk.reasoning:
            self._reasoning.append(chunk.reasoning)
            reasoning_bytes = utf8_bytes(chunk.reasoning)
        self._reasoning_bytes += reasoning_bytes
        self._visible_bytes += visible_bytes
        self._marks.append(
            _Mark(
                arrival_ns=arrival_ns,
                text_bytes=visible_bytes + reasoning_bytes,
                is_visible=visible_bytes > 0,
                output_tok=chunk.output_tok,
                is_finish=chunk.finish_reason is not None,
            )
        )

    def _token_events(self) -> list[tuple[int, int | None]]:
        """(arrival, running count) of each token-bearing event; the count is None by text."""
        with_text = [mark for mark in self._marks if mark.text_bytes]
        counted = [mark for mark in self._marks if mark.output_tok is not None]
        if not counted or any(mark.output_tok is None for mark in with_text):
            return [(mark.arrival_ns, None) for mark in with_text]
        events: list[tuple[int, int | None]] = []
        count = 0
        for mark in counted:
            if mark.output_tok is not None and mark.output_tok > count:
                count = mark.output_tok
                events.append((mark.arrival_ns, count))
        # SGLang's chat sends no event for a last step that yields only the end-of-text token; that
        # step's arrival is the event with the finish reason, its count comes with the final usage.
        finish = next((mark for mark in self._marks if mark.is_finish), None)
        total = self._latest.get("output_tok", 0)
        if finish is not None and finish.output_tok is None and events and total > count:
            events.append((finish.arrival_ns, total))
        return events

    def _volume(self, output_tok: int | None) -> _Volume:
        return _Volume(
            output_tok=output_tok,
            reasoning_tok=self._latest.get("reasoning_tok"),
            visible_bytes=self._visible_bytes,
            reasoning_bytes=self._reasoning_bytes,
            has_tool_text=self._visible.has_tool_text,
            first_event_bytes=next((m.text_bytes for m in self._marks if m.text_bytes), 0),
        )

    def _output_tok(self, *, text: str, reasoning: str) -> int | None:
        count = self._latest.get("output_tok")
        if count == 0 and (text or reasoning):
            return None  # a count that is plainly not kept
        return count

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


def _running_counts(events: list[tuple[int, int | None]]) -> tuple[int, ...] | None:
    counts = tuple(count for _, count in events if count is not None)
    return counts if counts and len(counts) == len(events) else None


class _Volume(msgspec.Struct, gc=False):
    """How much a response carried, for telling tokens that were generated unseen."""

    output_tok: int | None
    reasoning_tok: int | None
    visible_bytes: int
    reasoning_bytes: int
    has_tool_text: bool
    first_event_bytes: int


def _tokens_before_first_event(
    events: list[tuple[int, int | None]], volume: _Volume
) -> bool | None:
    """Whether tokens were generated before the first event that it cannot have carried.

    Servers may keep reasoning to themselves and stream only the answer: then the time between the
    first event and the last says nothing about the count. A token of text has at least one byte.
    """
    if not events or volume.output_tok is None:
        return None
    first_tok = volume.output_tok if len(events) == 1 else events[0][1]
    if first_tok is not None and first_tok > MOST_TOK_IN_A_STEP:
        return True
    if events[0][1] is not None:
        return events[0][1] > volume.first_event_bytes + TEXTLESS_TOK
    reasoning_tok = volume.reasoning_tok or 0
    if reasoning_tok and reasoning_tok > volume.reasoning_bytes + TEXTLESS_TOK:
        return True
    if reasoning_tok and not volume.reasoning_bytes:
        return True
    text_bytes = volume.visible_bytes + volume.reasoning_bytes
    if not volume.has_tool_text and volume.output_tok > text_bytes + TEXTLESS_TOK:
        return True
    return None if volume.reasoning_tok is None else False
