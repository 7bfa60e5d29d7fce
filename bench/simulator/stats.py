"""What the front end counts for /metrics: requests, when they end, and HTTP."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bench.simulator.request import Request

_LATENCY_S = (0.1, 0.2, 0.4, 0.6, 0.8, 1, 2, 4, 6, 8, 10, 20, 40, 60, 80, 100, 200, 400)
TTFT_BUCKETS_S = _LATENCY_S
E2E_BUCKETS_S = (*_LATENCY_S, 600, 1200, 1800, 2400)
_TPOT_MS = (2, 4, 6, 8, 10, 15, 20, 25, 30, 35, 40, 60, 80, 100, 200, 400, 600, 800)
TPOT_BUCKETS_S = (*(ms / 1000 for ms in _TPOT_MS), 1, 2, 4, 6, 8)
QUEUE_BUCKETS_S = (
    *(0, 0.001, 0.005, 0.01, 0.05, 0.1, 0.2, 0.5, 1, 2, 3, 4, 5, 10, 15, 20, 30, 40, 50, 60, 70),
    *(80, 90, 100, 200, 300, 400, 500, 600, 700, 800, 900, 1000, 1200, 1400, 1600, 1800, 2000),
    *(2500, 3000),
)


class Histogram:
    """A Prometheus histogram: counts at or below each bound, and the sum."""

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def observe(self, value: float) -> None:
        """Count one value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value


@dataclass(slots=True)
class RequestTotals:
    """Of ended requests, streaming ones and others apart."""

    prompt_tok: int = 0
    generation_tok: int = 0
    requests: int = 0
    ttft: Histogram = field(default_factory=lambda: Histogram(TTFT_BUCKETS_S))
    e2e: Histogram = field(default_factory=lambda: Histogram(E2E_BUCKETS_S))
    tpot: Histogram = field(default_factory=lambda: Histogram(TPOT_BUCKETS_S))


class Stats:
    """What the front end counts; the engine and the HTTP server feed it."""

    def __init__(self) -> None:
        self.ended = {"true": RequestTotals(), "false": RequestTotals()}  # by is_streaming
        self.cached_tok = 0
        self.verify_ct = 0
        self.aborted_ct = 0
        self.http_requests: dict[tuple[str, str], int] = {}
        self.http_responses: dict[tuple[str, str, int], int] = {}
        self.http_active: dict[tuple[str, str], int] = {}

    def abort_asked(self) -> None:
        """Requests are aborted by name, or all: SGLang counts the call."""
        self.aborted_ct += 1

    def request_ended(self, request: Request) -> None:
        """Count a request, as SGLang does when it ends; those aborted in a queue are not."""
        if request.abort is not None and request.abort.is_queued:
            return
        totals = self.ended["true" if request.stream else "false"]
        totals.requests += 1
        totals.prompt_tok += request.prompt_tok
        totals.generation_tok += request.output_tok
        self.cached_tok += request.cached_tok
        self.verify_ct += request.verify_ct
        if request.first_emitted_ns is None or request.finish_emitted_ns is None:
            return
        totals.ttft.observe((request.first_emitted_ns - request.arrival_ns) / 1e9)
        totals.e2e.observe((request.finish_emitted_ns - request.arrival_ns) / 1e9)
        if request.output_tok > 1:
            decode_ns = request.finish_emitted_ns - request.first_emitted_ns
            totals.tpot.observe(decode_ns / 1e9 / (request.output_tok - 1))

    def http_began(self, method: str, path: str) -> None:
        """A request came in."""
        key = (path, method)
        self.http_requests[key] = self.http_requests.get(key, 0) + 1
        self.http_active[key] = self.http_active.get(key, 0) + 1

    def http_ended(self, method: str, path: str, status: int) -> None:
        """Its response is complete."""
        self.http_active[path, method] -= 1
        key = (path, method, status)
        self.http_responses[key] = self.http_responses.get(key, 0) + 1
