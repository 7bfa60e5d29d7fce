"""What goes over the wire to SGLang's three generation APIs, and what comes back in one event.

Written against SGLang 0.5.23 (srt/entrypoints/openai/protocol.py, srt/managers/io_struct.py); the
reader also takes what older releases and other OpenAI-compatible servers send.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec

from bench.model import Api

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench.model import Workload

DONE: Final = b"[DONE]"
PATHS: Final = {
    Api.CHAT: "v1/chat/completions",
    Api.COMPLETIONS: "v1/completions",
    Api.GENERATE: "generate",
}

# ------------------------------------------------------------------------------- what is sent


def request_body(
    workload: Workload,
    *,
    model: str,
    messages: Sequence[tuple[str, str]],
    text: str,
    max_output_tok: int,
    seed: int,
) -> bytes:
    """The JSON body of one streaming request, with every sampling parameter stated.

    A server fills in what a request leaves out from the model's own generation_config.json, so
    that even parameters that do nothing are sent.

    Args:
        workload: Its API, sampling, `ignore_eos` and chat template arguments are used.
        model: The served model's name (unused by /generate).
        messages: The prompt as (role, content) pairs: what chat sends.
        text: The prompt as plain text: what the other two send.
        max_output_tok: Cap on generated tokens, reasoning included.
        seed: Sampling seed (`seed`, or `sampling_seed` for /generate).
    """
    explicit = {
        "temperature": workload.sampling.temperature,
        "top_p": workload.sampling.top_p,
        "top_k": workload.sampling.top_k,
        "min_p": workload.sampling.min_p,
        "repetition_penalty": 1.0,
        "presence_penalty": 0.0,
        "frequency_penalty": 0.0,
        "ignore_eos": workload.ignore_eos,
    }
    body: dict[str, object]
    if workload.api is Api.GENERATE:
        limits = {"max_new_tokens": max_output_tok, "sampling_seed": seed}
        body = {"text": text, "stream": True, "sampling_params": explicit | limits}
        return msgspec.json.encode(body)
    body = {
        "model": model,
        "stream": True,
        "stream_options": {"include_usage": True, "continuous_usage_stats": True},
        "return_spec_tokens_details": True,
        "return_cached_tokens_details": True,
        "seed": seed,
        **explicit,
    }
    if workload.api is Api.COMPLETIONS:
        body |= {"prompt": text, "max_tokens": max_output_tok}
        return msgspec.json.encode(body)
    body["messages"] = [{"role": role, "content": content} for role, content in messages]
    body["max_completion_tokens"] = max_output_tok
    if workload.chat_template_kwargs:
        body["chat_template_kwargs"] = dict(workload.chat_template_kwargs)
    return msgspec.json.encode(body)


def with_rid(body: bytes, rid: str) -> bytes:
    """A body from `request_body` with the request's id on the server, given when it is sent."""
    return body[:-1] + b',"rid":"' + rid.encode("ascii") + b'"}'


# ---------------------------------------------------------------------------- what comes back


class WireError(ValueError):
    """An event's data is not what any of the APIs promises."""


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


Count = Annotated[int, msgspec.Meta(ge=-(2**53), le=2**53)]
"""What a server counts; beyond this it is no count, and 64 bits would not hold sums of it."""
Seconds = Annotated[float, msgspec.Meta(ge=-1e9, le=1e9)]


class _ToolFunction(msgspec.Struct, gc=False):
    name: str | None = None
    arguments: Any = None


class _ToolCall(msgspec.Struct, gc=False):
    function: _ToolFunction | None = None


class _Delta(msgspec.Struct, gc=False):
    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None  # the name that newer vLLM uses
    refusal: str | None = None
    tool_calls: list[_ToolCall] | None = None


class _Choice(msgspec.Struct, gc=False):
    index: int = 0
    delta: _Delta | None = None
    text: str | None = None
    finish_reason: Any = None


class _TokenDetails(msgspec.Struct, gc=False):
    cached_tokens: Count | None = None
    reasoning_tokens: Count | None = None


class _Usage(msgspec.Struct, gc=False):
    prompt_tokens: Count | None = None
    completion_tokens: Count | None = None
    reasoning_tokens: Count | None = None
    prompt_tokens_details: _TokenDetails | None = None
    completion_tokens_details: _TokenDetails | None = None


class _SpecFields(msgspec.Struct, gc=False):
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


class _CachedDetails(msgspec.Struct, gc=False):
    device: Count | None = None
    host: Count | None = None
    storage: Count | None = None


class _SglExt(msgspec.Struct, gc=False):
    spec_tokens_details: _SpecFields | list[_SpecFields] | None = None
    cached_tokens_details: _CachedDetails | None = None


class _MetaInfo(_SpecFields, gc=False):
    finish_reason: Any = None
    prompt_tokens: Count | None = None
    completion_tokens: Count | None = None
    cached_tokens: Count | None = None
    reasoning_tokens: Count | None = None
    num_retractions: Count | None = None
    queue_time: Seconds | None = None
    dp_rank: Count | None = None


class _Payload(msgspec.Struct, gc=False):
    choices: list[_Choice] | None = None
    usage: _Usage | None = None
    sglext: _SglExt | None = None
    text: str | None = None
    output_ids: msgspec.Raw = msgspec.Raw()
    meta_info: _MetaInfo | None = None
    error: Any = None
    object: Any = None
    message: Any = None
    detail: Any = None


_decoder = msgspec.json.Decoder(_Payload)
_NO_PAYLOAD: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_MOST_NESTED: Final = 8
_NO_DELTA: Final = _Delta()
_NO_USAGE: Final = _Usage()
_NO_SGL_EXT: Final = _SglExt()


def decode_chunk(data: bytes) -> Chunk:
    """Read the data of one event.

    Raises:
        WireError: It is no JSON object, or one that none of the APIs sends.
    """
    try:
        payload = _decoded(data)
    except _NO_PAYLOAD as error:
        excerpt = data[:80].decode("utf-8", "replace")
        raise WireError(f"{error}: {excerpt}") from error
    message = _error_message(payload)
    if message is not None:
        return Chunk(error=message)
    if payload.meta_info is not None or payload.text is not None:
        return _generate_chunk(payload, payload.meta_info or _MetaInfo())
    if payload.choices is None and payload.usage is None and payload.sglext is None:
        excerpt = data[:80].decode("utf-8", "replace")
        raise WireError(f"neither choices, usage nor meta_info in {excerpt}")
    return _openai_chunk(payload, payload.choices or [])


def _decoded(data: bytes) -> _Payload:
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
        return msgspec.convert(tolerant, _Payload)


def error_in_body(body: bytes) -> str | None:
    """The message of a JSON error body (of an HTTP error, or in place of a stream), or None."""
    try:
        return _error_message(_decoded(body))
    except _NO_PAYLOAD:
        return None


def _error_message(payload: _Payload) -> str | None:
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


def _generate_chunk(payload: _Payload, meta: _MetaInfo) -> Chunk:
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


def _openai_chunk(payload: _Payload, choices: list[_Choice]) -> Chunk:
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


def _has_tool_text(delta: _Delta) -> bool:
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


def _cached_tok(usage: _Usage, details: _SglExt) -> int | None:
    if usage.prompt_tokens_details is not None:
        cached = usage.prompt_tokens_details.cached_tokens
        if cached is not None:
            return cached
    if details.cached_tokens_details is not None:
        parts = details.cached_tokens_details
        return (parts.device or 0) + (parts.host or 0) + (parts.storage or 0)
    return None


def _reasoning_tok(usage: _Usage) -> int | None:
    if usage.completion_tokens_details is not None:
        reasoning = usage.completion_tokens_details.reasoning_tokens
        if reasoning is not None:
            return reasoning
    return usage.reasoning_tokens


def _first_spec(details: _SpecFields | list[_SpecFields] | None) -> SpecCounters | None:
    if isinstance(details, list):  # one for each of several choices; we ask for one choice
        details = details[0] if details else None
    return None if details is None else _spec_counters(details)


def _spec_counters(fields: _SpecFields) -> SpecCounters | None:
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
