"""The OpenAI APIs' responses: completions and chat, plain and streamed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bench import clock
from bench.simulator.replies import Json, Reply, encode, spec_counters, weight_versions

if TYPE_CHECKING:
    from bench.simulator.http11 import Outlet
    from bench.simulator.replies import Format
    from bench.simulator.request import Request
    from bench.simulator.settings import Settings


class OpenAiReply(Reply):
    """What completions and chat share: usage, counters, ends."""

    object_name = ""

    def __init__(self, exchange: Outlet, settings: Settings, form: Format) -> None:
        super().__init__(exchange, settings, form)
        self._created = int(clock.utc_now().timestamp())

    def _usage(self, request: Request, output_tok: int) -> Json:
        cached = None
        if self.settings.flag("enable_cache_report") and request.cached_tok:
            cached = {"cached_tokens": request.cached_tok}
        is_counted = request.abort is None or not request.abort.is_queued
        prompt_tok = request.prompt_tok if is_counted else 0
        return {
            "prompt_tokens": prompt_tok,
            "total_tokens": prompt_tok + output_tok,
            "completion_tokens": output_tok,
            "prompt_tokens_details": cached,
            "reasoning_tokens": min(output_tok, self._reasoning_tok(request)),
            "completion_tokens_details": None,
        }

    def _reasoning_tok(self, request: Request) -> int:  # noqa: ARG002  # chat overrides it
        return 0

    def _chunk(self, request: Request, choices: list[Json], **extra: object) -> bytes:
        return encode(
            {
                "id": request.rid,
                "object": self.object_name,
                "created": self._created,
                "model": self.settings.model_name,
                "choices": choices,
                **extra,
            }
        )

    def _chunk_usage(self, request: Request, output_tok: int) -> Json:
        """What a token-bearing event carries beside its choice."""
        if not self.form.usage_on_chunks:
            return {}
        return {"usage": self._usage(request, output_tok)}

    def _sglext(self, request: Request) -> Json:
        extension: Json = {}
        if self.form.cached_details:
            extension["cached_tokens_details"] = {"device": request.cached_tok, "host": 0}
        if self.form.spec_details and self.settings.speculation is not None:
            # Absent counters are zeros here, unlike in meta_info.
            zeros: Json = {
                "spec_accept_rate": 0.0,
                "spec_accept_length": 0.0,
                "spec_cap_length": 0.0,
                "spec_block_accept_length": 0.0,
                "spec_num_correct_drafts": 0,
                "spec_num_proposed_drafts": 0,
                "spec_verify_ct": 0,
                "spec_correct_drafts_histogram": [],
                "spec_cap_lens_histogram": [],
            }
            extension["spec_tokens_details"] = zeros | spec_counters(request, self.settings)
        return extension

    def _end_of_stream(self, request: Request, usage: Json) -> None:
        extension = self._sglext(request)
        if extension:
            self.exchange.send_event(self._chunk(request, [], usage=None, sglext=extension))
        if self.form.usage_at_end:
            self.exchange.send_event(self._chunk(request, [], usage=usage))

    def _whole(self, request: Request, choice: Json) -> Json:
        body: Json = {
            "id": request.rid,
            "object": self.object_name,
            "created": self._created,
            "model": self.settings.model_name,
            "choices": [choice],
            "usage": self._usage(request, request.output_tok),
            "metadata": {
                "weight_version": "default",
                "weight_versions": weight_versions(request),
            },
        }
        extension = self._sglext(request)
        return body | {"sglext": extension} if extension else body


class CompletionReply(OpenAiReply):
    """`/v1/completions`."""

    object_name = "text_completion"

    def tokens(self, request: Request, start: int, end: int) -> None:
        """See `Reply`."""
        choice: Json = {
            "index": 0,
            "text": request.answer.text(start, end),
            "logprobs": None,
            "finish_reason": request.finish,
            "matched_stop": self.matched(request),
        }
        usage = self._chunk_usage(request, end) or {"usage": None}
        self.exchange.send_event(self._chunk(request, [choice], **usage))

    def end(self, request: Request) -> None:
        """See `Reply`."""
        usage = self._usage(request, request.output_tok)
        short = ("prompt_tokens", "total_tokens", "completion_tokens", "reasoning_tokens")
        if usage["prompt_tokens_details"] is None:
            usage = {name: usage[name] for name in short}
        self._end_of_stream(request, usage)

    def body(self, request: Request) -> Json:
        """See `Reply`."""
        return self._whole(
            request,
            {
                "index": 0,
                "text": request.answer.text(0, request.output_tok),
                "logprobs": None,
                "finish_reason": request.finish,
                "matched_stop": self.matched(request),
            },
        )


class ChatReply(OpenAiReply):
    """`/v1/chat/completions`: a role event first, thinking apart when a reasoning parser is on."""

    object_name = "chat.completion.chunk"

    def __init__(self, exchange: Outlet, settings: Settings, form: Format) -> None:
        super().__init__(exchange, settings, form)
        self._parses_reasoning = settings.text("reasoning_parser") is not None
        if not form.stream:
            self.object_name = "chat.completion"

    def begin(self, request: Request) -> None:
        """See `Reply`."""
        self._send(request, {"reasoning_content": None, "role": "assistant", "content": ""})

    def tokens(self, request: Request, start: int, end: int) -> None:
        """See `Reply`."""
        boundary = min(end, self._reasoning_tok(request))
        usage = self._chunk_usage(request, end)
        if start < boundary and (text := request.answer.text(start, boundary)):
            self._send(request, {"reasoning_content": text}, **usage)
        if text := request.answer.text(max(start, boundary), end):
            self._send(request, {"reasoning_content": None, "content": text}, **usage)

    def end(self, request: Request) -> None:
        """See `Reply`."""
        choice = self._choice({"reasoning_content": None})
        choice["finish_reason"] = request.finish
        choice["matched_stop"] = self.matched(request)
        self.exchange.send_event(self._chunk(request, [choice]))
        self._end_of_stream(request, self._usage(request, request.output_tok))

    def body(self, request: Request) -> Json:
        """See `Reply`."""
        end = request.output_tok
        boundary = min(end, self._reasoning_tok(request))
        message = {
            "role": "assistant",
            "content": request.answer.text(boundary, end),
            "reasoning_content": request.answer.text(0, boundary) if boundary else None,
        }
        return self._whole(
            request,
            {
                "index": 0,
                "message": message,
                "logprobs": None,
                "finish_reason": request.finish,
                "matched_stop": self.matched(request),
            },
        )

    def _reasoning_tok(self, request: Request) -> int:
        return request.answer.thinking_tok if self._parses_reasoning else 0

    def _send(self, request: Request, delta: Json, **extra: object) -> None:
        self.exchange.send_event(self._chunk(request, [self._choice(delta)], **extra))

    def _choice(self, delta: Json) -> Json:
        return {
            "index": 0,
            "delta": delta,
            "logprobs": None,
            "finish_reason": None,
            "matched_stop": None,
        }
