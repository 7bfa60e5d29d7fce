"""What a request's tokens look like on the wire: what all APIs share, and `/generate`.

Key order, nulls and types follow recordings of SGLang 0.5.23 (tests/simulator).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from bench import clock

if TYPE_CHECKING:
    from bench.simulator.http11 import Exchange
    from bench.simulator.request import Request
    from bench.simulator.settings import Settings

encode = msgspec.json.Encoder().encode

Json = dict[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """What a client asked of the form of its answer.

    Attributes:
        stream: Events instead of one body.
        usage_at_end: OpenAI APIs: an event with the usage at the end of a stream.
        usage_on_chunks: The same on every token-bearing event.
        spec_details: The counters of speculation.
        cached_details: Where cached prompt tokens came from.
        stream_interval: Tokens an event waits for; 1 for one event a step.
    """

    stream: bool
    usage_at_end: bool = False
    usage_on_chunks: bool = False
    spec_details: bool = False
    cached_details: bool = False
    stream_interval: int = 1


class Reply:
    """What the three have in common: when to send, and what was sent."""

    def __init__(self, exchange: Exchange, settings: Settings, form: Format) -> None:
        self.exchange = exchange
        self.settings = settings
        self.form = form
        self._sent_tok = 0
        self._began = False
        self._first_sent_ns: int | None = None

    def progress(self, request: Request) -> None:
        """New tokens, or the end."""
        if not self.form.stream:
            if request.finish is not None:
                self.exchange.respond(200, encode(self.body(request)))
            return
        if not self._began:
            self._began = True
            self.exchange.begin_stream()
            self.begin(request)
        unsent = request.output_tok - self._sent_tok
        waiting = self._sent_tok > 0 and unsent < self.form.stream_interval
        if request.finish is None and waiting:
            return
        self.tokens(request, self._sent_tok, request.output_tok)
        self._sent_tok = request.output_tok
        if request.finish is not None:
            self.end(request)
            self.exchange.end_stream()

    def begin(self, request: Request) -> None:
        """Before the first tokens."""

    def tokens(self, request: Request, start: int, end: int) -> None:
        """Tokens `start` to `end` of the answer have been made."""
        raise NotImplementedError

    def end(self, request: Request) -> None:
        """After the last tokens."""

    def body(self, request: Request) -> Json:
        """The whole response when it is not streamed."""
        raise NotImplementedError

    def matched(self, request: Request) -> int | None:
        """The token that ended the answer of itself."""
        return self.settings.target.eos_token_id if request.finish == "stop" else None


def spec_counters(request: Request, settings: Settings) -> Json:
    """SGLang's acceptance fields of one ended request; empty when it took no verify step."""
    if settings.speculation is None or request.verify_ct == 0:
        return {}
    proposed = request.verify_ct * (settings.speculation.num_draft_tokens - 1)
    return {
        "spec_accept_rate": request.correct_ct / proposed,
        "spec_accept_length": request.output_tok / request.verify_ct,
        "spec_num_correct_drafts": request.correct_ct,
        "spec_num_proposed_drafts": proposed,
        "spec_verify_ct": request.verify_ct,
        "spec_correct_drafts_histogram": list(request.histogram),
    }


def weight_versions(request: Request) -> list[Json]:
    """Which weights made which tokens: one and the same here."""
    return [{"version": "default", "start": 0, "end": request.output_tok}]


def _cached_details(request: Request) -> Json | None:
    return {"device": request.cached_tok, "host": 0} if request.cached_tok else None


def _wall_s(at_ns: int | None) -> float | None:
    """A clock time as seconds since 1970, of the world."""
    if at_ns is None:
        return None
    return clock.wall_anchor().wall_time(at_ns).timestamp()


class GenerateReply(Reply):
    """`/generate`: text, ids and meta_info; all so far in each event, or what is new."""

    def __init__(self, exchange: Exchange, settings: Settings, form: Format) -> None:
        super().__init__(exchange, settings, form)
        self._incremental = settings.flag("incremental_streaming_output")
        self._timed = settings.flag("enable_metrics")
        self._text = ""
        self._ids: list[int] = []
        self._meta: Json | None = None

    def tokens(self, request: Request, start: int, end: int) -> None:
        """See `Reply`."""
        text, ids = request.answer.text(start, end), request.answer.token_ids(start, end)
        if not self._incremental:
            self._text += text
            self._ids += ids
            text, ids = self._text, self._ids
        meta = self._running_meta(request)
        meta["completion_tokens"] = request.output_tok
        if self._first_sent_ns is None:
            self._first_sent_ns = clock.now_ns()
            sent = {"response_sent_to_client_ts": _wall_s(self._first_sent_ns)}
            event = {"text": text, "output_ids": ids, "meta_info": meta | sent}
        else:
            event = {"text": text, "output_ids": ids, "meta_info": meta}
        if request.finish is not None:
            event["meta_info"] = self._final_meta(request)
        self.exchange.send_event(encode(event))

    def body(self, request: Request) -> Json:
        """See `Reply`."""
        answer, end = request.answer, request.output_tok
        meta = self._final_meta(request)
        if self._timed:
            meta["response_sent_to_client_ts"] = _wall_s(clock.now_ns())
        ids = answer.token_ids(0, end)
        return {"text": answer.text(0, end), "output_ids": ids, "meta_info": meta}

    def _running_meta(self, request: Request) -> Json:
        if self._meta is None:
            self._meta = {
                "id": request.rid,
                "finish_reason": None,
                "prompt_tokens": request.prompt_tok,
                "weight_version": "default",
                "num_retractions": 0,
                "storage_prefetch_wait": 0.0,
                "storage_staging_wait": 0.0,
            }
            if self._timed and request.forward_ns is not None:
                queue_s = (request.forward_ns - request.arrival_ns) / 1e9
                self._meta["forward_entry_time"] = _wall_s(request.forward_ns)
                self._meta["prefill_finished_time"] = _wall_s(request.first_token_ns)
                self._meta["queue_time"] = queue_s
            self._meta |= {
                "reasoning_tokens": 0,
                "completion_tokens": 0,
                "cached_tokens": request.cached_tok,
                "cached_tokens_details": _cached_details(request),
                "dp_rank": None,
            }
        return self._meta

    def _final_meta(self, request: Request) -> Json:
        meta = self._running_meta(request) | {
            "finish_reason": self._finish_reason(request),
            "completion_tokens": request.output_tok,
            "weight_versions": weight_versions(request),
        }
        finished_ns = request.finish_emitted_ns or clock.now_ns()
        meta["e2e_latency"] = (finished_ns - request.arrival_ns) / 1e9
        meta |= spec_counters(request, self.settings)
        if self._timed:
            first_ns = request.first_emitted_ns
            received = _wall_s(request.arrival_ns)
            meta["request_received_ts"] = received
            meta["api_server_dispatch_finish_ts"] = received
            meta["request_finished_ts"] = _wall_s(finished_ns)
            if first_ns is not None:
                meta["first_token_latency"] = (first_ns - request.arrival_ns) / 1e9
                if request.output_tok > 1 and finished_ns > first_ns:
                    decode_s = (finished_ns - first_ns) / 1e9
                    meta["decode_throughput"] = (request.output_tok - 1) / decode_s
        if self._first_sent_ns is not None:
            meta["response_sent_to_client_ts"] = _wall_s(self._first_sent_ns)
        return meta

    def _finish_reason(self, request: Request) -> Json:
        if request.finish == "stop":
            return {"type": "stop", "matched": self.matched(request)}
        if request.finish == "length":
            return {"type": "length", "length": request.output_tok}
        return {"type": "abort", "message": "Aborted", "status_code": None, "err_type": None}
