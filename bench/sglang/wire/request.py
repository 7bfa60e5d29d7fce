"""What is sent: one streaming request to each of the three APIs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from bench.model import Api

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench.model import Workload

PATHS: Final = {
    Api.CHAT: "v1/chat/completions",
    Api.COMPLETIONS: "v1/completions",
    Api.GENERATE: "generate",
}


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
