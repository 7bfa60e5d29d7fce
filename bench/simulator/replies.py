"""What a request's tokens look like on the wire: what all APIs share, and `/generate`.

Key order, nulls and types follow recordings of SGLang 0.5.23 (tests/simulator).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING

import msgspec

from bench import clock
from bench.simulator.log import wall_offset_s

if TYPE_CHECKING:
    from bench.simulator.http11 import Outlet
    from bench.simulator.request import Abort, Request
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
    """

    stream: bool
    usage_at_end: bool = False
    usage_on_chunks: bool = False
    spec_details: bool = False
    cached_details: bool = False


class Reply:
    """What the three have in common: when to send, and what was sent."""

    def __init__(self, exchange: Outlet, settings: Settings, form: Format) -> None:
        self.exchange = exchange
        self.settings = settings
        self.form = form
        self._sent_tok = 0
        self._began = False
        self._first_sent_ns: int | None = None

    def accepted(self) -> None:
        """The request is understood and goes to a scheduler."""

    def progress(self, request: Request) -> None:
        """Tokens to send, or the end.

        While the client does not read, tokens pile up and go out as one event, as behind uvicorn.
        """
        if request.abort is not None and request.abort.status is not None:
            self._refuse(request, request.abort)
            return
        if not self.form.stream:
            if request.finish is not None:
                self.exchange.respond(200, encode(self.body(request)))
            return
        if request.finish is None and not self.exchange.flows(lambda: self.progress(request)):
            return
        if self._sent_tok == request.released_tok and request.finish is None:
            return
        if not self._began:
            self._open()
            self.begin(request)
        self.tokens(request, self._sent_tok, request.released_tok)
        self._sent_tok = request.released_tok
        if request.finish is not None:
            self.end(request)
            self.exchange.end_stream()

    def _open(self) -> None:
        """Send the head of the stream."""
        self._began = True
        self.exchange.begin_stream()

    def _refuse(self, request: Request, why: Abort) -> None:
        """Answer a request that the scheduler would not have with an error."""
        status = why.status or 500
        error = {"object": "error", "message": why.message}
        if not self.form.stream:
            body = {**error, "type": str(status), "param": None, "code": status}
            self.exchange.respond(status, encode(body))
            return
        if not self._began:
            self._open()
        self.refused(request, {**error, "type": HTTPStatus(status).name, "param": None}, status)
        self.exchange.end_stream()

    def refused(self, request: Request, error: Json, status: int) -> None:  # noqa: ARG002  # /generate tells more
        """The one event of a stream that is answered with an error."""
        # SGLang writes this one with Python's own encoder, spaces included.
        self.exchange.send_event(json.dumps({"error": {**error, "code": status}}).encode())

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
    if not proposed:
        return {}
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
    return clock.wall_anchor().wall_time(at_ns).timestamp() + wall_offset_s()


class GenerateReply(Reply):
    """`/generate`: text, ids and meta_info; all so far in each event, or what is new."""

    def __init__(self, exchange: Outlet, settings: Settings, form: Format) -> None:
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
        meta["completion_tokens"] = end
        meta["num_retractions"] = request.retraction_ct
        if self._first_sent_ns is None:
            self._first_sent_ns = clock.now_ns()
            sent = {"response_sent_to_client_ts": _wall_s(self._first_sent_ns)}
            event = {"text": text, "output_ids": ids, "meta_info": meta | sent}
        else:
            event = {"text": text, "output_ids": ids, "meta_info": meta}
        if request.finish is not None:
            event["meta_info"] = self._final_meta(request)
            if request.abort is not None and request.abort.is_queued and self._incremental:
                event["output_ids"] = ids[-1:]
        self.exchange.send_event(encode(event))

    def accepted(self) -> None:
        """See `Reply`: the head of a stream goes out before its first token."""
        if self.form.stream:
            self._open()

    def refused(self, request: Request, error: Json, status: int) -> None:  # noqa: ARG002  # see `Reply`
        """See `Reply`: an event like others, which says why it is the last."""
        self.tokens(request, self._sent_tok, request.released_tok)

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
                "dp_rank": request.dp_rank if self.settings.dp > 1 else None,
            }
        return self._meta

    def _queued_meta(self, request: Request, why: Abort) -> Json:
        """Of a request that a scheduler gave up while it had it in its queue: not much."""
        ended_ns = request.finish_emitted_ns or clock.now_ns()
        reason: Json = {"type": "abort", "message": why.message}
        if why.status is not None:
            reason = {"type": "abort", "status_code": why.status, "message": why.message}
        return {
            "id": request.rid,
            "finish_reason": reason,
            "weight_version": "default",
            "e2e_latency": (ended_ns - request.arrival_ns) / 1e9,
            "weight_versions": weight_versions(request),
            "completion_tokens": request.output_tok,
            "response_sent_to_client_ts": _wall_s(self._first_sent_ns or clock.now_ns()),
        }

    def _final_meta(self, request: Request) -> Json:
        if request.abort is not None and request.abort.is_queued:
            return self._queued_meta(request, request.abort)
        meta: Json = {}
        for name, value in self._running_meta(request).items():
            if name == "cached_tokens_details":
                meta["weight_versions"] = weight_versions(request)
            meta[name] = value
        meta |= {
            "finish_reason": self._finish_reason(request),
            "completion_tokens": request.output_tok,
            "num_retractions": request.retraction_ct,
        }
        finished_ns = request.finish_emitted_ns or clock.now_ns()
        meta["e2e_latency"] = (finished_ns - request.arrival_ns) / 1e9
        meta |= spec_counters(request, self.settings)
        if self._timed:
            meta |= self._times(request, finished_ns)
        elif self._first_sent_ns is not None:
            meta["response_sent_to_client_ts"] = _wall_s(self._first_sent_ns)
        return meta

    def _times(self, request: Request, finished_ns: int) -> Json:
        """What `--enable-metrics` adds."""
        first_ns = request.first_emitted_ns
        received = _wall_s(request.arrival_ns)
        times: Json = {"request_received_ts": received}
        if first_ns is not None:
            times["first_token_latency"] = (first_ns - request.arrival_ns) / 1e9
        times["api_server_dispatch_finish_ts"] = received
        if self._first_sent_ns is not None:
            times["response_sent_to_client_ts"] = _wall_s(self._first_sent_ns)
        times["request_finished_ts"] = _wall_s(finished_ns)
        if first_ns is not None and request.output_tok > 1 and finished_ns > first_ns:
            decode_s = (finished_ns - first_ns) / 1e9
            times["decode_throughput"] = (request.output_tok - 1) / decode_s
        return times

    def _finish_reason(self, request: Request) -> Json:
        if request.finish == "stop":
            return {"type": "stop", "matched": self.matched(request)}
        if request.finish == "length":
            return {"type": "length", "length": request.output_tok}
        return {"type": "abort", "message": "Aborted", "status_code": None, "err_type": None}
