"""From a request's JSON to a request of the engine, or to the error SGLang would answer with."""

from __future__ import annotations

import math
import random
import uuid
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, Final

import msgspec

from bench import clock
from bench.physics import chain_reach, tree_reach
from bench.simulator.forced_acceptance import FIXED_TOKEN_ID
from bench.simulator.openai_replies import ChatReply, CompletionReply
from bench.simulator.prefix_cache import block_hashes
from bench.simulator.replies import Format, GenerateReply
from bench.simulator.request import Acceptance, Request
from bench.simulator.words import BYTES_PER_TOK, make_answer, prompt_seed

if TYPE_CHECKING:
    from bench.physics import AcceptanceCard
    from bench.simulator.drafting import Drafting
    from bench.simulator.http11 import Outlet
    from bench.simulator.settings import Settings

_KV_SLACK_TOK = 2  # a page, and one: what SGLang leaves of an empty cache
_POSITION_TOK = 32  # acceptance by the place in the answer is taken in steps of so many tokens

_MOST_WHOLE: Final = 2**63 - 1
_COUNTS: Final = ("max_new_tokens", "max_tokens", "max_completion_tokens", "stream_interval")

PATHS = ("/generate", "/v1/completions", "/v1/chat/completions")


class InvalidRequestError(Exception):
    """A request that is answered with an error; the message is SGLang's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    """What the three APIs ask for, under one name each."""

    prompt: bytes
    max_new_tok: int | None
    temperature: float
    seed: int | None
    ignore_eos: bool
    thinking: bool
    rid: str | None
    rank: int | None
    stream_interval: int | None = None
    form: Format


def read_request(exchange: Outlet, settings: Settings) -> Request:
    """The engine's request for what a client sent.

    Raises:
        InvalidRequestError: The body is not understood, or does not fit the context.
    """
    body = parse_body(exchange)
    path = exchange.request.path
    asked = _READERS[path](body)
    if settings.flag("stream_response_default_include_usage"):
        asked = replace(asked, form=replace(asked.form, usage_at_end=True))
    prompt_tok = max(1, -(-len(asked.prompt) // BYTES_PER_TOK))
    cap_tok = _cap(asked, prompt_tok, settings)
    _check_rank(asked.rank, settings)
    seed = prompt_seed(asked.prompt, asked.seed if asked.temperature > 0 else None)
    forced = settings.forced_acceptance
    answer = make_answer(
        seed,
        cap_tok=cap_tok,
        ignore_eos=asked.ignore_eos,
        thinking=asked.thinking,
        eos_token_id=settings.target.eos_token_id,
        fixed_id=None if forced is None or forced.keeps_text else FIXED_TOKEN_ID,
    )
    reply_class = {
        "/generate": GenerateReply,
        "/v1/completions": CompletionReply,
        "/v1/chat/completions": ChatReply,
    }[path]
    radix = not settings.flag("disable_radix_cache")
    return Request(
        rid=asked.rid or uuid.uuid4().hex,
        prompt_tok=prompt_tok,
        blocks=block_hashes(asked.prompt, prompt_tok) if radix else [],
        answer=answer,
        acceptance=_acceptance(
            settings, seed, thinking=asked.thinking, temperature=asked.temperature
        ),
        arrival_ns=clock.now_ns(),
        stream=asked.form.stream,
        reply=reply_class(exchange, settings, asked.form),
        cap_tok=cap_tok,
        ignore_eos=asked.ignore_eos,
        stream_interval=asked.stream_interval or settings.number("stream_interval", 1),
        wanted_rank=asked.rank,
    )


def parse_body(exchange: Outlet) -> dict[str, Any]:
    """The JSON object a client sent."""
    try:
        body = msgspec.json.decode(exchange.request.body)
    except (msgspec.DecodeError, RecursionError) as error:
        raise InvalidRequestError(f"Invalid JSON: {error}") from None
    if not isinstance(body, dict):
        raise InvalidRequestError("The body must be a JSON object")
    return body


def wants_stream(exchange: Outlet) -> bool:
    """Whether a client asked for events, for the form of its error."""
    try:
        return bool(parse_body(exchange).get("stream"))
    except InvalidRequestError:
        return False


def _acceptance(
    settings: Settings, seed: int, *, thinking: bool, temperature: float
) -> Acceptance | None:
    if settings.speculation is None:
        return None
    card = settings.acceptance
    deviate = 0.0
    if card.request_sd:
        deviate = random.Random(f"{seed} request").gauss(0.0, 1.0)  # noqa: S311  # a simulation
    reach = partial(_reach, settings.drafting, card, thinking, temperature, deviate)
    if not card.position:
        constant = reach(None)
        return Acceptance(lambda _: constant, seed)
    return Acceptance(lambda output_tok: reach(output_tok // _POSITION_TOK * _POSITION_TOK), seed)


@lru_cache(maxsize=4096)
def _reach(  # all that acceptance depends on
    drafting: Drafting,
    card: AcceptanceCard,
    thinking: bool,  # noqa: FBT001  # a cached function's key
    temperature: float,
    deviate: float,
    output_tok: int | None,
) -> tuple[float, ...]:
    """P(at least k drafts accepted) of one request's verify step; adaptive: of its longest."""
    speculation = drafting.speculation
    assert speculation is not None
    chain = chain_reach(
        card, thinking=thinking, temperature=temperature, output_tok=output_tok, deviate=deviate
    )
    if drafting.algorithm == "NGRAM":  # its card is of what it proposes, not of a path of drafts
        return chain[: speculation.num_draft_tokens - 1]
    steps = drafting.most_steps
    return tree_reach(
        chain,
        num_steps=steps,
        topk=speculation.topk,
        num_draft_tokens=speculation.num_draft_tokens if drafting.tiers is None else steps + 1,
        rank_share=card.rank_share,
    )


def _check_rank(rank: int | None, settings: Settings) -> None:
    if rank is not None and not 0 <= rank < settings.dp:
        raise InvalidRequestError(f"routed_dp_rank={rank} out of range [0, {settings.dp})")


def _cap(asked: _Asked, prompt_tok: int, settings: Settings) -> int:
    """The most tokens of the answer; raises when prompt or sum do not fit the context."""
    context = settings.context_len
    reserved = prompt_tok + settings.drafting.reserved_tok
    if reserved >= context:
        raise InvalidRequestError(
            f"The input ({reserved} tokens) is longer than the model's context length "
            f"({context} tokens)."
        )
    room = context - reserved
    wanted = asked.max_new_tok
    if wanted is not None and wanted > room:
        raise InvalidRequestError(
            f"Requested token count exceeds the model's maximum context length of {context} "
            f"tokens. You requested a total of {reserved + wanted} tokens: {reserved} tokens from "
            f"the input messages and {wanted} tokens for the completion. Please reduce the number "
            "of tokens in the input messages or the completion to fit within the limit."
        )
    memory = settings.kv_capacity_tok - prompt_tok - _KV_SLACK_TOK
    if memory < 1:
        raise InvalidRequestError(
            f"Request prompt exceeds the KV memory budget: input_len={prompt_tok}."
        )
    return max(1, min(room if wanted is None else wanted, memory))


def _read_generate(body: dict[str, Any]) -> _Asked:
    text, ids = body.get("text"), body.get("input_ids")
    if isinstance(text, str):
        prompt = text.encode()
    elif isinstance(ids, list) and ids and all(isinstance(item, int) for item in ids):
        prompt = _bytes_of_ids(ids)
    else:
        raise InvalidRequestError(
            "Either text (a string) or input_ids (a list of numbers) must be given; the simulator "
            "takes no batches"
        )
    sampling = _mapping(body, "sampling_params")
    return _Asked(
        prompt=prompt,
        max_new_tok=_whole(sampling, "max_new_tokens", 128),
        temperature=_temperature(sampling.get("temperature", 1.0)),
        seed=_whole(sampling, "sampling_seed", None),
        ignore_eos=bool(sampling.get("ignore_eos")),
        thinking=False,
        rid=_word(body, "rid"),
        rank=_whole(body, "routed_dp_rank", None),
        stream_interval=_whole(sampling, "stream_interval", None),
        form=Format(stream=bool(body.get("stream"))),
    )


def _read_completions(body: dict[str, Any]) -> _Asked:
    prompt = body.get("prompt")
    if isinstance(prompt, list) and len(prompt) == 1 and isinstance(prompt[0], str):
        prompt = prompt[0]
    if isinstance(prompt, str):
        data = prompt.encode()
    elif isinstance(prompt, list) and prompt and all(isinstance(item, int) for item in prompt):
        data = _bytes_of_ids(prompt)
    else:
        raise InvalidRequestError("prompt must be a string; the simulator takes no batches")
    return _openai(body, data, max_new_tok=_whole(body, "max_tokens", 16), thinking=False)


def _read_chat(body: dict[str, Any]) -> _Asked:
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        raise InvalidRequestError("messages must be a list with at least one message")
    parts = []
    for message in messages:
        if not isinstance(message, dict):
            raise InvalidRequestError(f"each message must be an object, got {message!r:.60}")
        content = message.get("content")
        if isinstance(content, list):
            if not all(isinstance(part, dict) for part in content):
                raise InvalidRequestError("each part of a message's content must be an object")
            content = "".join(str(part.get("text", "")) for part in content)
        # Kimi's template marks each message with some special tokens: about four of ours.
        parts.append(f"<|{message.get('role', 'user')}|>\n{content or ''}<|end|>\n")
    kwargs = _mapping(body, "chat_template_kwargs")
    cap = _whole(body, "max_completion_tokens", _whole(body, "max_tokens", None))
    thinking = bool(kwargs.get("thinking", True))
    return _openai(body, "".join(parts).encode(), max_new_tok=cap, thinking=thinking)


def _openai(
    body: dict[str, Any], prompt: bytes, *, max_new_tok: int | None, thinking: bool
) -> _Asked:
    options = _mapping(body, "stream_options")
    temperature = body.get("temperature")
    return _Asked(
        prompt=prompt,
        max_new_tok=max_new_tok,
        temperature=1.0 if temperature is None else _temperature(temperature),
        seed=_whole(body, "seed", None),
        ignore_eos=bool(body.get("ignore_eos")),
        thinking=thinking,
        rid=_word(body, "rid"),
        rank=_whole(body, "routed_dp_rank", None),
        form=Format(
            stream=bool(body.get("stream")),
            usage_at_end=bool(options.get("include_usage")),
            usage_on_chunks=bool(options.get("continuous_usage_stats")),
            spec_details=bool(body.get("return_spec_tokens_details")),
            cached_details=bool(body.get("return_cached_tokens_details")),
        ),
    )


_READERS = {
    "/generate": _read_generate,
    "/v1/completions": _read_completions,
    "/v1/chat/completions": _read_chat,
}


def _bytes_of_ids(ids: list[int]) -> bytes:
    """Token ids as a prompt: four bytes each, so that they count as one token each."""
    return b"".join((item % 2**32).to_bytes(BYTES_PER_TOK, "little") for item in ids)


def _whole(body: dict[str, Any], name: str, default: int | None) -> int | None:
    value = body.get(name)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidRequestError(f"{name} must be a whole number, got {value!r:.60}")
    if abs(value) > _MOST_WHOLE:
        raise InvalidRequestError(f"{name} must be a whole number of 64 bits")
    if value < 0 and name in _COUNTS:
        raise InvalidRequestError(f"{name} must be at least 0, got {value}.")
    return value


def _temperature(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise InvalidRequestError(f"temperature must be a number, got {value!r:.60}")
    if value < 0:
        raise InvalidRequestError(f"temperature must be non-negative, got {value!r:.60}.")
    if value > _MOST_WHOLE or not math.isfinite(value):
        raise InvalidRequestError("temperature is too large")
    return float(value)


def _mapping(body: dict[str, Any], name: str) -> dict[str, Any]:
    value = body.get(name)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise InvalidRequestError(f"{name} must be an object, got {value!r:.60}")
    return value


def _word(body: dict[str, Any], name: str) -> str | None:
    value = body.get(name)
    return value if isinstance(value, str) else None
