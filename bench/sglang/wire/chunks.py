"""What one event of a stream says, whichever API it came from."""

from __future__ import annotations

from typing import Final

import msgspec

from bench.sglang.wire.payload import (
    NO_PAYLOAD,
    Choice,
    Delta,
    MetaInfo,
    Payload,
    SglExt,
    SpecFields,
    Usage,
    WireError,
    decoded,
    error_message,
)

DONE: Final = b"[DONE]"
_NO_DELTA: Final = Delta()
_NO_USAGE: Final = Usage()
_NO_SGL_EXT: Final = SglExt()


class SpecCounters(msgspec.Struct, frozen=True, gc=False):
    """One request's own counts of speculation (meanings: `RequestSample`)."""

    verify_ct: int
    num_correct_drafts: int | None
    num_proposed_drafts: int | None
    correct_drafts_histogram: tuple[int, ...] | None


class Chunk(msgspec.Struct, frozen=True, gc=False):
    """What one event of a stream says, whichever API it came from.

    Attributes:
        has_output_place: Whether the event has a place for generated output (an entry in
            `choices`, or any event of /generate); events with bare usage or counters have none.
        text: Visible text: what is new in it (chat, completions) or all so far (/generate,
            unless the server streams increments).
        reasoning: New reasoning text.
        has_tool_text: Whether it carries a piece of a tool call.
        output_tok: Tokens generated so far, as the server counts; None when it does not say.
        output_id_ct: /generate only: how many token ids it lists; tells increments from totals.
        error: The error the event reports; None when it reports none.
    """

    is_generate: bool = False
    has_output_place: bool = False
    text: str = ""
    reasoning: str = ""
    has_tool_text: bool = False
    finish_reason: str | None = None
    prompt_tok: int | None = None
    cached_tok: int | None = None
    output_tok: int | None = None
    reasoning_tok: int | None = None
    output_id_ct: int | None = None
    error: str | None = None
    spec: SpecCounters | None = None
    num_retractions: int | None = None
    queue_ns: int | None = None
    dp_rank: int | None = None


def decode_chunk(data: bytes) -> Chunk:
    """Read the data of one event.

    Raises:
        WireError: It is no JSON object, or one that none of the APIs sends.
    """
    try:
        payload = decoded(data)
    except NO_PAYLOAD as error:
        excerpt = data[:80].decode("utf-8", "replace")
        raise WireError(f"{error}: {excerpt}") from error
    message = error_message(payload)
    if message is not None:
        return Chunk(error=message)
    if payload.meta_info is not None or payload.text is not None:
        return _generate_chunk(payload, payload.meta_info or MetaInfo())
    if payload.choices is None and payload.usage is None and payload.sglext is None:
        excerpt = data[:80].decode("utf-8", "replace")
        raise WireError(f"neither choices, usage nor meta_info in {excerpt}")
    return _openai_chunk(payload, payload.choices or [])


def _generate_chunk(payload: Payload, meta: MetaInfo) -> Chunk:
    reason, abort_message = _finish(meta.finish_reason)
    return Chunk(
        is_generate=True,
        has_output_place=True,
        text=payload.text or "",
        finish_reason=reason,
        prompt_tok=meta.prompt_tokens,
        cached_tok=meta.cached_tokens,
        output_tok=meta.completion_tokens,
        reasoning_tok=meta.reasoning_tokens,
        output_id_ct=_length_of(payload.output_ids),
        error=abort_message,
        spec=_spec_counters(meta),
        num_retractions=meta.num_retractions,
        queue_ns=None if meta.queue_time is None else round(meta.queue_time * 1e9),
        dp_rank=meta.dp_rank,
    )


def _openai_chunk(payload: Payload, choices: list[Choice]) -> Chunk:
    text = reasoning = ""
    has_tool_text = False
    reason = message = None
    for choice in choices:
        delta = choice.delta or _NO_DELTA
        text += delta.content or choice.text or delta.refusal or ""
        reasoning += delta.reasoning_content or delta.reasoning or ""
        if delta.tool_calls:
            has_tool_text = has_tool_text or _has_tool_text(delta)
        if choice.finish_reason:
            reason, message = _finish(choice.finish_reason)
    usage = payload.usage or _NO_USAGE
    details = payload.sglext or _NO_SGL_EXT
    return Chunk(
        has_output_place=bool(choices),
        text=text,
        reasoning=reasoning,
        has_tool_text=has_tool_text,
        finish_reason=reason,
        error=message,
        prompt_tok=usage.prompt_tokens,
        cached_tok=_cached_tok(usage, details),
        output_tok=usage.completion_tokens,
        reasoning_tok=_reasoning_tok(usage),
        spec=_first_spec(details.spec_tokens_details),
    )


def _has_tool_text(delta: Delta) -> bool:
    return any(
        call.function is not None and bool(call.function.name or call.function.arguments)
        for call in delta.tool_calls or ()
    )


def _finish(reason: object) -> tuple[str | None, str | None]:
    """The finish reason's name, and the message that an abort of /generate carries within it."""
    if isinstance(reason, dict):
        name = str(reason.get("type"))
        message = reason.get("message")
        return name, str(message) if name == "abort" and message else None
    return (str(reason), None) if reason else (None, None)


def _cached_tok(usage: Usage, details: SglExt) -> int | None:
    if usage.prompt_tokens_details is not None:
        cached = usage.prompt_tokens_details.cached_tokens
        if cached is not None:
            return cached
    if details.cached_tokens_details is not None:
        parts = details.cached_tokens_details
        return (parts.device or 0) + (parts.host or 0) + (parts.storage or 0)
    return None


def _reasoning_tok(usage: Usage) -> int | None:
    if usage.completion_tokens_details is not None:
        reasoning = usage.completion_tokens_details.reasoning_tokens
        if reasoning is not None:
            return reasoning
    return usage.reasoning_tokens


def _first_spec(details: SpecFields | list[SpecFields] | None) -> SpecCounters | None:
    if isinstance(details, list):  # one for each of several choices; we ask for one choice
        details = details[0] if details else None
    return None if details is None else _spec_counters(details)


def _spec_counters(fields: SpecFields) -> SpecCounters | None:
    # `sglext` fills what it does not know with zeros, so that zero verify steps mean "not told".
    if not fields.spec_verify_ct:
        return None
    correct = _first(
        fields.spec_num_correct_drafts, fields.spec_accepted_drafts, fields.spec_accept_token_num
    )
    proposed = _first(
        fields.spec_num_proposed_drafts, fields.spec_proposed_drafts, fields.spec_draft_token_num
    )
    histogram = fields.spec_correct_drafts_histogram or fields.spec_accept_histogram or None
    if not proposed and histogram is None:
        correct = correct or None
    return SpecCounters(fields.spec_verify_ct, correct, proposed or None, histogram)


def _first(*values: int | None) -> int | None:
    return next((value for value in values if value is not None), None)


def _length_of(ids: msgspec.Raw) -> int | None:
    """How many numbers a JSON array holds, without reading them; None when it is no array."""
    array = bytes(ids).strip()
    if not array.startswith(b"["):
        return None
    return array.count(b",") + 1 if array[1:-1].strip() else 0
