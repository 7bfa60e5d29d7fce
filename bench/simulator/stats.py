"""What the simulated server counts: for /metrics, /server_info, /v1/loads and its log.

As in SGLang, counters of requests move when a request ends, and everything of the scheduler at a
log tick (each `decode_log_interval` decoding steps and each prefill batch) and when it gets idle.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from bench.simulator.log import log

if TYPE_CHECKING:
    from bench.simulator.engine import Engine, Step
    from bench.simulator.request import Request
    from bench.simulator.settings import Settings

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


@dataclass(slots=True)
class Tick:
    """What happened since the last log tick."""

    began_ns: int = 0
    steps: int = 0
    forward_ct: int = 0  # requests times decoding steps
    made_tok: int = 0
    correct: int = 0


class Stats:
    """All counts; the engine and the HTTP server feed it."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._interval = settings.number("decode_log_interval", 40)
        self._tick = Tick()
        self._last_prefill_ns = 0
        self._last_prefill_tok = 0
        self.ended = {"true": RequestTotals(), "false": RequestTotals()}  # by is_streaming
        self.queue_time = Histogram(QUEUE_BUCKETS_S)
        self.cached_tok = 0
        self.verify_ct = 0
        self.aborted_ct = 0
        self.prefill_compute_tok = 0
        self.prefill_cache_tok = 0
        self.decode_tok = 0
        self.graph_passes = {"decode_cuda_graph": 0, "decode_none": 0, "prefill_none": 0}
        self.running_ct = 0
        self.queue_ct = 0
        self.used_tok = 0
        self.sum_seq_len_tok = 0
        self.gen_throughput = 0.0
        self.last_gen_throughput = 0.0
        self.accept_length = 0.0
        self.accept_rate = 0.0
        self.total_accept_tok = 0  # since start or flush, as of the last tick
        self.total_forward_ct = 0
        self.is_cuda_graph = False
        self.behind_max_ns = 0
        self.http_requests: dict[tuple[str, str], int] = {}
        self.http_responses: dict[tuple[str, str, int], int] = {}
        self.http_active: dict[tuple[str, str], int] = {}

    # ------------------------------------------------------------------------ the scheduler's

    def prefill_batch(self, at_ns: int, chunks: list[tuple[Request, int]], engine: Engine) -> None:
        """A prefill batch begins."""
        new_tok = sum(new for _, new in chunks)
        first_time = [request for request, _ in chunks if request.forward_ns == at_ns]
        cached_tok = sum(request.cached_tok for request in first_time)
        self.prefill_compute_tok += new_tok
        self.prefill_cache_tok += cached_tok
        self.graph_passes["prefill_none"] += 1
        self._look(engine)
        gap_s = (at_ns - self._last_prefill_ns) / 1e9
        throughput = self._last_prefill_tok / gap_s if gap_s > 0 else 0.0
        self._last_prefill_ns, self._last_prefill_tok = at_ns, new_tok
        pending = sum(request.prompt_tok - request.prefilled_tok for request in engine.waiting)
        log(
            f"Prefill batch, #new-seq: {len(chunks)}, #new-token: {new_tok}, "
            f"#cached-token: {cached_tok}, token usage: {self.token_usage:.2f}, "
            f"#running-req: {self.running_ct}, #queue-req: {self.queue_ct}, "
            f"#pending-token: {pending}, cuda graph: False, "
            f"input throughput (token/s): {throughput:.2f}"
        )

    def decode_batch(
        self, step: Step, *, batch: int, made_tok: int, correct: int, engine: Engine
    ) -> None:
        """A decoding step has ended; every so many of them a log line is written."""
        tick = self._tick
        tick.began_ns = tick.began_ns or step.start_ns
        tick.steps += 1
        tick.forward_ct += batch
        tick.made_tok += made_tok
        tick.correct += correct
        self.graph_passes["decode_cuda_graph" if step.graph else "decode_none"] += 1
        self.is_cuda_graph = step.graph
        if tick.steps < self._interval:
            return
        self._fold(step.end_ns)
        self._look(engine)
        speculative = ""
        if self._settings.speculation is not None:
            speculative = (
                f"accept len: {self.accept_length:.2f}, accept rate: {self.accept_rate:.2f}, "
            )
        log(
            f"Decode batch, #running-req: {batch}, #token: {self.used_tok}, "
            f"token usage: {self.token_usage:.2f}, {speculative}cuda graph: {step.graph}, "
            f"gen throughput (token/s): {self.gen_throughput:.2f}, #queue-req: {self.queue_ct}"
        )

    def _fold(self, now_ns: int) -> None:
        tick = self._tick
        if tick.forward_ct:
            gap_s = max(now_ns - tick.began_ns, 1) / 1e9
            self.gen_throughput = self.last_gen_throughput = tick.made_tok / gap_s
            self.decode_tok += tick.made_tok
            if self._settings.speculation is not None:
                drafts = self._settings.speculation.num_draft_tokens - 1
                self.accept_length = 1 + tick.correct / tick.forward_ct
                self.accept_rate = tick.correct / (tick.forward_ct * drafts)
                self.total_accept_tok += tick.correct + tick.forward_ct
                self.total_forward_ct += tick.forward_ct
        self._tick = Tick(began_ns=now_ns)

    def idle(self) -> None:
        """Nothing is left to do: gauges of the batch fall to 0; counters catch up."""
        self.decode_tok += self._tick.made_tok
        self._tick.made_tok = 0
        self.running_ct = self.queue_ct = self.used_tok = self.sum_seq_len_tok = 0
        self.gen_throughput = 0.0

    def _look(self, engine: Engine) -> None:
        self.running_ct = len(engine.running)
        self.queue_ct = len(engine.waiting)
        self.sum_seq_len_tok = sum(request.context_tok for request in engine.running)
        self.used_tok = min(self.sum_seq_len_tok, self._settings.kv_capacity_tok)

    @property
    def token_usage(self) -> float:
        """Share of the KV cache in use at the last tick."""
        return self.used_tok / self._settings.kv_capacity_tok

    @property
    def cache_hit_rate(self) -> float:
        """Share of all prompt tokens so far that the prefix cache had."""
        total = self.prefill_cache_tok + self.prefill_compute_tok
        return self.prefill_cache_tok / total if total else 0.0

    def flushed(self) -> None:
        """A flush of the cache resets the acceptance, as in SGLang, and the lateness."""
        self.total_accept_tok = self.total_forward_ct = self.behind_max_ns = 0

    def behind(self, late_ns: int) -> None:
        """The process got to a step's end `late_ns` after it."""
        self.behind_max_ns = max(self.behind_max_ns, late_ns)

    # ----------------------------------------------------------------------- the front end's

    def request_ended(self, request: Request) -> None:
        """Count a request, as SGLang does when it ends."""
        if request.finish == "abort":
            self.aborted_ct += 1
        totals = self.ended["true" if request.stream else "false"]
        totals.requests += 1
        totals.prompt_tok += request.prompt_tok
        totals.generation_tok += request.output_tok
        self.cached_tok += request.cached_tok
        self.verify_ct += request.verify_ct
        if request.forward_ns is not None:
            self.queue_time.observe((request.forward_ns - request.arrival_ns) / 1e9)
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
