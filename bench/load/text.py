"""The text of one response: joining it, and the few facts that are kept in its place; pure."""

from __future__ import annotations

import hashlib
import itertools
from typing import TYPE_CHECKING, Final

import msgspec

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench.sglang.wire import Chunk

BLOCK_CHARS: Final = 64
MOST_TOK_IN_A_STEP: Final = 64
"""More tokens than any scheduler step yields: a first event that counts more came late."""
TEXTLESS_TOK: Final = 8
"""How many more tokens than bytes of text a response may have: end of text, other special ones."""


class TextFacts(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What is kept of a text; each field as in `bench.model.RequestSample`."""

    sha256: str
    block_hashes: tuple[int, ...]
    chars: int
    bigram_ct: int
    distinct_bigram_ct: int


def text_facts(visible: str, reasoning: str) -> TextFacts:
    """Hash the visible text, and count word pairs in all of the output."""
    words = f"{reasoning} {visible}".split()
    pairs = set(itertools.pairwise(words))
    return TextFacts(
        sha256=hashlib.sha256(_encode(visible)).hexdigest(),
        block_hashes=block_hashes(visible),
        chars=len(visible),
        bigram_ct=max(len(words) - 1, 0),
        distinct_bigram_ct=len(pairs),
    )


def block_hashes(text: str) -> tuple[int, ...]:
    """Hashes of the text's prefixes at every 64 characters.

    The first place where two such lists differ tells where two outputs part, to 64 characters.
    They are the top 63 bits of SHA-256, so that a signed 64-bit column holds them.
    """
    prefix = hashlib.sha256()
    hashes = []
    for end in range(BLOCK_CHARS, len(text) + 1, BLOCK_CHARS):
        prefix.update(_encode(text[end - BLOCK_CHARS : end]))
        hashes.append(int.from_bytes(prefix.copy().digest()[:8], "big") >> 1)
    return tuple(hashes)


def utf8_bytes(text: str) -> int:
    """Length of a text in UTF-8."""
    return len(text) if text.isascii() else len(_encode(text))


def _encode(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")  # JSON may carry half a surrogate pair


class VisibleText:
    """Joins visible text that comes in increments, or (/generate) as the whole of it each time.

    SGLang's /generate sends all text so far in each event, unless it was started with
    --incremental-streaming-output. Its count of tokens is a total in both cases, its list of token
    ids is as the text is. A server that lists no ids is told by whether texts extend one another.
    """

    def __init__(self) -> None:
        self.has_tool_text = False
        self._parts: list[str] = []
        self._latest = ""
        self._is_total: bool | None = None  # of /generate; None: cannot be told yet

    def take(self, chunk: Chunk) -> int:
        """Take a chunk's text; returns how many bytes of text, tool calls included, are new."""
        if chunk.is_generate:
            return self._take_generate(chunk)
        text = chunk.text
        if chunk.has_tool_text:
            self.has_tool_text = True
        if not text:
            return int(chunk.has_tool_text)
        self._parts.append(text)
        return len(text) if text.isascii() else len(_encode(text))

    def whole(self) -> str:
        """All visible text."""
        if self._is_total or (self._is_total is None and self._latest):
            return self._latest
        return "".join(self._parts)

    def _take_generate(self, chunk: Chunk) -> int:
        if self._is_total is None:
            self._is_total = self._tell(chunk)
        previous, self._latest = self._latest, chunk.text
        if self._is_total:
            self._parts.clear()
        else:
            self._parts.append(chunk.text)
        if self._is_total is False:
            return utf8_bytes(chunk.text)
        return max(utf8_bytes(chunk.text) - utf8_bytes(previous), 0)

    def _tell(self, chunk: Chunk) -> bool | None:
        if chunk.output_id_ct is not None and chunk.output_tok is not None:
            if chunk.output_id_ct < chunk.output_tok:
                return False
            return True if self._parts else None
        # A total may get shorter at its end, where a stop string is cut off.
        extends = chunk.text.startswith(self._latest) or self._latest.startswith(chunk.text)
        return None if extends else False


class Volume(msgspec.Struct, gc=False):
    """How much a response carried, for telling tokens that were generated unseen."""

    output_tok: int | None
    reasoning_tok: int | None
    visible_bytes: int
    reasoning_bytes: int
    has_tool_text: bool
    first_event_bytes: int


def tokens_before_first_event(
    event_ns: Sequence[int], event_tok: Sequence[int] | None, volume: Volume
) -> bool | None:
    """Whether tokens were generated before the first event that it cannot have carried.

    Servers may keep reasoning to themselves and stream only the answer: then the time between the
    first event and the last says nothing about the count. A token of text has at least one byte.
    """
    if not event_ns or volume.output_tok is None:
        return None
    counted_tok = event_tok[0] if event_tok else None
    first_tok = volume.output_tok if len(event_ns) == 1 else counted_tok
    if first_tok is not None and first_tok > MOST_TOK_IN_A_STEP:
        return True
    if counted_tok is not None:
        return counted_tok > volume.first_event_bytes + TEXTLESS_TOK
    reasoning_tok = volume.reasoning_tok or 0
    if reasoning_tok and reasoning_tok > volume.reasoning_bytes + TEXTLESS_TOK:
        return True
    if reasoning_tok and not volume.reasoning_bytes:
        return True
    text_bytes = volume.visible_bytes + volume.reasoning_bytes
    if not volume.has_tool_text and volume.output_tok > text_bytes + TEXTLESS_TOK:
        return True
    return None if volume.reasoning_tok is None else False
