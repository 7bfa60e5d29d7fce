"""The JSON of one event, under every name its parts have had, and the errors it may report."""

from __future__ import annotations

import json
from typing import Annotated, Any, Final

import msgspec


class WireError(ValueError):
    """An event's data is not what any of the APIs promises."""


Count = Annotated[int, msgspec.Meta(ge=-(2**53), le=2**53)]
"""What a server counts; beyond this it is no count, and 64 bits would not hold sums of it."""
Seconds = Annotated[float, msgspec.Meta(ge=-1e9, le=1e9)]


class ToolFunction(msgspec.Struct, gc=False):
    """What a piece of a tool call says of its function."""

    name: str | None = None
    arguments: Any = None


class ToolCall(msgspec.Struct, gc=False):
    """A piece of a tool call."""

    function: ToolFunction | None = None


class Delta(msgspec.Struct, gc=False):
    """What is new in one choice of chat."""

    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None  # the name that newer vLLM uses
    refusal: str | None = None
    tool_calls: list[ToolCall] | None = None


class Choice(msgspec.Struct, gc=False):
    """One entry of `choices`."""

    index: int = 0
    delta: Delta | None = None
    text: str | None = None
    finish_reason: Any = None


class TokenDetails(msgspec.Struct, gc=False):
    """Parts of a token count."""

    cached_tokens: Count | None = None
    reasoning_tokens: Count | None = None


class Usage(msgspec.Struct, gc=False):
    """Token counts of chat and completions."""

    prompt_tokens: Count | None = None
    completion_tokens: Count | None = None
    reasoning_tokens: Count | None = None
    prompt_tokens_details: TokenDetails | None = None
    completion_tokens_details: TokenDetails | None = None


class SpecFields(msgspec.Struct, gc=False):
    """The counters under every name they have had: first 0.5.23's, then two older generations."""

    spec_verify_ct: Count | None = None
    spec_num_correct_drafts: Count | None = None
    spec_accepted_drafts: Count | None = None
    spec_accept_token_num: Count | None = None
    spec_num_proposed_drafts: Count | None = None
    spec_proposed_drafts: Count | None = None
    spec_draft_token_num: Count | None = None
    spec_correct_drafts_histogram: tuple[Count, ...] | None = None
    spec_accept_histogram: tuple[Count, ...] | None = None


class CachedDetails(msgspec.Struct, gc=False):
    """Where tokens of the prompt were cached."""

    device: Count | None = None
    host: Count | None = None
    storage: Count | None = None


class SglExt(msgspec.Struct, gc=False):
    """SGLang's own extension of a response."""

    spec_tokens_details: SpecFields | list[SpecFields] | None = None
    cached_tokens_details: CachedDetails | None = None


class MetaInfo(SpecFields, gc=False):
    """What /generate says beside its text."""

    finish_reason: Any = None
    prompt_tokens: Count | None = None
    completion_tokens: Count | None = None
    cached_tokens: Count | None = None
    reasoning_tokens: Count | None = None
    num_retractions: Count | None = None
    queue_time: Seconds | None = None
    dp_rank: Count | None = None


class Payload(msgspec.Struct, gc=False):
    """One event of any of the three APIs, or an error."""

    choices: list[Choice] | None = None
    usage: Usage | None = None
    sglext: SglExt | None = None
    text: str | None = None
    output_ids: msgspec.Raw = msgspec.Raw()
    meta_info: MetaInfo | None = None
    error: Any = None
    object: Any = None
    message: Any = None
    detail: Any = None


_decoder = msgspec.json.Decoder(Payload)
NO_PAYLOAD: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What `decoded` raises for what is none."""
_MOST_NESTED: Final = 8


def decoded(data: bytes) -> Payload:
    """The payload; NaN and Infinity, which Python writes and JSON has not, are no value."""
    try:
        return _decoder.decode(data)
    except msgspec.DecodeError:
        if b"NaN" not in data and b"Infinity" not in data:
            raise
        try:
            tolerant = json.loads(data, parse_constant=lambda _name: None)
        except (ValueError, RecursionError):
            tolerant = None
        if tolerant is None:
            raise
        return msgspec.convert(tolerant, Payload)


def error_in_body(body: bytes) -> str | None:
    """The message of a JSON error body (of an HTTP error, or in place of a stream), or None."""
    try:
        return error_message(decoded(body))
    except NO_PAYLOAD:
        return None


def error_message(payload: Payload) -> str | None:
    """The message of the error that a payload reports; None: it reports none."""
    if payload.error:
        return _message_of(payload.error)
    if payload.object == "error":
        return _message_of(payload.message)
    if payload.detail and payload.choices is None:
        return _message_of(payload.detail)
    return None


def _message_of(error: object) -> str:
    for _ in range(_MOST_NESTED):
        if not isinstance(error, dict):
            break
        inner = error.get("message") or error.get("error") or error.get("type")
        if inner is None:
            break
        error = inner
    return error if isinstance(error, str) else msgspec.json.encode(error).decode()
