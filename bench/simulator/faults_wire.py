"""Faults of single responses, between the engine and the socket.

`FaultyExchange` stands in an exchange's place: events that are held back, cut, wrong or too long
leave it in SGLang's own forms (recorded in tests/lab).
"""

from __future__ import annotations

import asyncio
import json
import re
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

from bench import clock
from bench.simulator.log import log

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from bench.simulator.faults import Faults, Hit
    from bench.simulator.http11 import Exchange, HttpRequest

DRAWN_RESET_BYTES: Final = 4096
"""Where a reset happens when its place is drawn: within so many bytes of the response."""
EVENTS_BEFORE: Final = 4
"""A stall or an error comes after fewer events than this."""

_NO_NUMBERS: Final = (float("nan"), float("-inf"), float("inf"))
_MESSAGES: Final = {
    400: ("BadRequestError", "The request was refused on request."),
    500: ("500", "The model failed on request."),
    503: ("503", "The request queue is full."),
}
_TOTALS: Final = re.compile(
    r"^(sglang:(?:generation_tokens|spec_verify_calls)_total\{[^}]*\}) (\S+)$", re.MULTILINE
)
_GAUGE: Final = re.compile(
    r"^(sglang:(?:gen_throughput|token_usage)\{[^}]*\}) (\S+)$", re.MULTILINE
)


class FaultyExchange:
    """An exchange whose response has the faults of its request."""

    def __init__(self, exchange: Exchange, hits: Sequence[Hit], faults: Faults) -> None:
        self._exchange = exchange
        self._faults = faults
        self._hits = {hit.fault.name: hit for hit in hits}
        self._events = 0
        self._held: list[Callable[[], None]] | None = None
        self._over = False
        self._stall_after = self._drawn("stall")
        self._error_after = self._drawn("error")
        if hit := self._hits.get("reset"):
            place = hit.fault.amount
            drawn = hit.rng.randrange(DRAWN_RESET_BYTES)
            exchange.reset_after(drawn if place is None else int(place))
        if "long-lines" in self._hits:
            log(f"Receive: obj=GenerateReqInput(text='{self._long()}')")

    def _drawn(self, name: str) -> int | None:
        """After how many events a fault comes; None: it does not."""
        hit = self._hits.get(name)
        return None if hit is None else hit.rng.randrange(EVENTS_BEFORE)

    @property
    def request(self) -> HttpRequest:
        """As `Exchange`."""
        return self._exchange.request

    @property
    def gone(self) -> bool:
        """As `Exchange`."""
        return self._exchange.gone

    def refused(self) -> bool:
        """Answer a request that is refused from the beginning; whether it is."""
        for name, status in (("status-503", 503), ("status-400", 400)):
            if name in self._hits:
                self._exchange.respond(status, _error_body(status))
                return True
        return False

    def respond(self, status: int, body: bytes, content_type: str = "application/json") -> None:
        """As `Exchange`."""
        if "error" in self._hits and status == 200:
            self._exchange.respond(200, b'{"error": ' + _error_body(500) + b"}")
            return
        if status == 200 and content_type == "application/json":
            body = self._altered(body)
        self._unless_held(lambda: self._exchange.respond(status, body, content_type))

    def flows(self, then: Callable[[], None]) -> bool:
        """As `Exchange`."""
        return self._exchange.flows(then)

    def begin_stream(self) -> None:
        """As `Exchange`."""
        self._exchange.begin_stream()
        self._come_to_event()

    def send_event(self, data: bytes) -> None:
        """As `Exchange`."""
        if self._over:
            return
        altered = self._altered(data)
        self._unless_held(lambda: self._exchange.send_event(altered))
        self._events += 1
        self._come_to_event()

    def end_stream(self) -> None:
        """As `Exchange`."""
        if not self._over:
            self._over = True
            self._unless_held(self._exchange.end_stream)

    # ------------------------------------------------------------------------------- the faults

    def _come_to_event(self) -> None:
        """So many events have been sent: now a stall or an error may be due."""
        if self._events == self._stall_after:
            self._held = []
            wait_s = self._hits["stall"].fault.amount
            if wait_s is not None:
                asyncio.get_running_loop().call_later(clock.world_s(wait_s), self._release)
        if self._events == self._error_after and not self._over:
            self._over = True
            self._unless_held(self._send_error)
            if self._exchange.on_gone is not None:
                asyncio.get_running_loop().call_soon(self._exchange.on_gone)

    def _send_error(self) -> None:
        error = json.loads(_error_body(500))
        if self.request.path == "/generate":
            aborted = {"type": "abort", "status_code": 500, "message": error["message"]}
            meta = {"id": "", "finish_reason": aborted, "completion_tokens": 0}
            event = {"text": "", "output_ids": [], "meta_info": meta}
        else:
            event = {"error": {**error, "type": HTTPStatus(500).name}}
        self._exchange.send_event(json.dumps(event).encode())
        self._exchange.end_stream()

    def _unless_held(self, send: Callable[[], None]) -> None:
        if self._held is None:
            send()
        else:
            self._held.append(send)

    def _release(self) -> None:
        held, self._held, self._stall_after = self._held or [], None, None
        for send in held:
            send()

    def _altered(self, data: bytes) -> bytes:
        by = self._faults.counters_by()
        if by == 1 and not self._hits.keys() & {"nan", "long-lines"}:
            return data
        event = json.loads(data)
        if by != 1:
            _miscount(event, by)
        if "nan" in self._hits:
            _add_logprobs(event, [(value, "a") for value in _NO_NUMBERS])
        if "long-lines" in self._hits:
            _add_logprobs(event, [(-1.25, self._long())])
        return json.dumps(event).encode()

    def _long(self) -> str:
        return "a" * int((self._hits["long-lines"].fault.amount or 0) * 1024)


def metrics_page(text: str, faults: Faults) -> str:
    """`/metrics` with the counters, and the NaN, that were asked for."""
    by = faults.counters_by()
    if by != 1:
        text = _TOTALS.sub(lambda found: f"{found[1]} {float(found[2]) * by}", text)
    return _GAUGE.sub(r"\1 NaN", text) if faults.has("nan") else text


def json_page(body: bytes, faults: Faults) -> bytes:
    """`/server_info` or `/v1/loads` with the NaN that was asked for."""
    if not faults.has("nan"):
        return body
    page = json.loads(body)
    for state in page.get("internal_states") or page.get("loads") or []:
        state |= {"last_gen_throughput": float("nan"), "utilization": float("inf")}
    return json.dumps(page).encode()


def _error_body(status: int) -> bytes:
    kind, message = _MESSAGES[status]
    error = {"object": "error", "message": message, "type": kind, "param": None, "code": status}
    return json.dumps(error).encode()


def _miscount(event: dict[str, Any], by: float) -> None:
    """Counters of speculation that do not hold together: more drafts than the steps accepted."""
    ext = event.get("sglext") or {}
    for counters in (event.get("meta_info") or {}, ext.get("spec_tokens_details") or {}):
        if "spec_num_correct_drafts" in counters:
            correct = counters["spec_num_correct_drafts"]
            counters["spec_num_correct_drafts"] = round(correct * by)


def _add_logprobs(event: dict[str, Any], tokens: Sequence[tuple[float, str]]) -> None:
    """Log probabilities, which nobody asked for, where the API has them."""
    if "meta_info" in event:
        event["meta_info"]["output_token_logprobs"] = [[value, 1, word] for value, word in tokens]
    for choice in event.get("choices") or []:
        content = [{"token": word, "logprob": value} for value, word in tokens]
        choice["logprobs"] = {"content": content}
