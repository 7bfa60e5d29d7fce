"""What one scheduler counts: for /metrics, /server_info, /v1/loads and its log lines.

As in SGLang all of it moves at a log tick (each `decode_log_interval` decoding steps and each
prefill batch) and when the scheduler gets idle.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from bench import clock
from bench.simulator.log import log, rank_mark
from bench.simulator.stats import QUEUE_BUCKETS_S, Histogram

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench.simulator.request import Request
    from bench.simulator.scheduler import Scheduler
    from bench.simulator.settings import Settings
    from bench.simulator.step import Chunk, Step


BEHIND_S: Final = 0.02
"""So late, of the world's time, the process is overloaded, and not just woken late."""


@dataclass(slots=True)
class Tick:
    """What happened since the last log tick."""

    began_ns: int = 0
    steps: int = 0
    forward_ct: int = 0  # requests times decoding steps
    made_tok: int = 0
    correct: int = 0


class RankStats:
    """The counts of one scheduler, which feeds them."""

    def __init__(self, rank: int, settings: Settings) -> None:
        self._settings = settings
        self._interval = settings.number("decode_log_interval", 40)
        self.log = partial(log, ranks=rank_mark(settings, rank))
        self._tick = Tick()
        self._last_prefill_ns = 0
        self._last_prefill_tok = 0
        self._retracted_ct = 0  # since the last tick
        self.queue_time = Histogram(QUEUE_BUCKETS_S)
        self.prefill_compute_tok = 0
        self.prefill_cache_tok = 0
        self.decode_tok = 0
        self.graph_passes = {"decode_cuda_graph": 0, "decode_none": 0, "prefill_none": 0}
        self.running_ct = 0
        self.queue_ct = 0
        self.used_tok = 0
        self.evictable_tok = 0
        self.sum_seq_len_tok = 0
        self.gen_throughput = 0.0
        self.last_gen_throughput = 0.0
        self.new_token_ratio = 0.0
        self.accept_length = 0.0
        self.accept_rate = 0.0
        self.num_steps = 0
        self.num_draft_tokens = 0
        self.total_accept_tok = 0  # since start or flush, as of the last tick
        self.total_forward_ct = 0
        self.is_cuda_graph = False
        self.retracted_ct = 0  # of the last tick
        self.all_retracted_ct = 0
        self.retracted_input_tok = 0
        self.retracted_output_tok = 0
        self.behind_max_ns = 0
        self.late_step_ns = 0  # never set back, as a counter

    # ------------------------------------------------------------------------ what has happened

    def began(self, request: Request) -> None:
        """A request leaves the queue for the first time."""
        if request.forward_ns is not None:
            self.queue_time.observe((request.forward_ns - request.arrival_ns) / 1e9)

    def prefill_batch(
        self, at_ns: int, chunks: Sequence[Chunk], scheduler: Scheduler, prefilling: Request | None
    ) -> None:
        """A prefill batch begins; `prefilling` has more prompt than goes into it."""
        new_tok = sum(chunk.new_tok for chunk in chunks)
        found_tok = sum(chunk.found_tok for chunk in chunks)
        self.prefill_compute_tok += new_tok
        self.prefill_cache_tok += found_tok
        self.graph_passes["prefill_none"] += 1
        self._look(scheduler)
        self.new_token_ratio = scheduler.ratio.current
        gap_s = (at_ns - self._last_prefill_ns) / 1e9
        throughput = self._last_prefill_tok / gap_s if gap_s > 0 else 0.0
        self._last_prefill_ns, self._last_prefill_tok = at_ns, new_tok
        pending_tok = sum(request.context_tok for request in scheduler.waiting)
        for chunk in chunks:
            if chunk.request is prefilling:
                pending_tok += prefilling.context_tok - chunk.before_tok - chunk.new_tok
        self.log(
            f"Prefill batch, #new-seq: {len(chunks)}, #new-token: {new_tok}, "
            f"#cached-token: {found_tok}, token usage: {self.token_usage:.2f}, "
            f"#running-req: {self.running_ct}, #queue-req: {self.queue_ct}, "
            f"#pending-token: {pending_tok}, cuda graph: False, "
            f"input throughput (token/s): {throughput:.2f}"
        )

    def decode_batch(
        self, step: Step, *, batch: int, made_tok: int, correct: int, engine: Scheduler
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
        self._fold(step.end_ns, engine)
        self._look(engine)
        speculative = ""
        if self._settings.speculation is not None:
            speculative = (
                f"accept len: {self.accept_length:.2f}, accept rate: {self.accept_rate:.2f}, "
            )
        self.log(
            f"Decode batch, #running-req: {batch}, #token: {self.used_tok}, "
            f"token usage: {self.token_usage:.2f}, {speculative}cuda graph: {step.graph}, "
            f"gen throughput (token/s): {self.gen_throughput:.2f}, #queue-req: {self.queue_ct}"
        )

    def retraction(
        self, retracted: Sequence[Request], gained_tok: int, before: float, after: float
    ) -> None:
        """Requests were thrown out of the batch; the new-token ratio was and is."""
        self._retracted_ct = len(retracted)
        self.all_retracted_ct += len(retracted)
        self.retracted_input_tok += sum(request.prompt_tok for request in retracted)
        self.retracted_output_tok += sum(request.output_tok for request in retracted)
        self.log(
            f"KV cache pool is full. Retract requests. #retracted_reqs: {len(retracted)}, "
            f"#new_tokens_gained: {gained_tok}, #new_token_ratio: {before:.4f} -> {after:.4f}"
        )

    def idle(self) -> None:
        """Nothing is left to do: gauges of the batch fall to 0; counters catch up."""
        self.decode_tok += self._tick.made_tok
        self._tick.made_tok = 0
        self.running_ct = self.queue_ct = self.used_tok = self.sum_seq_len_tok = 0
        self.gen_throughput = 0.0

    def flushed(self) -> None:
        """A flush of the cache resets the acceptance, as in SGLang, and the lateness."""
        self.total_accept_tok = self.total_forward_ct = self.behind_max_ns = 0
        self.evictable_tok = 0

    def behind(self, late_ns: int, step_ns: int) -> None:
        """The process got to the end of a step of `step_ns` by `late_ns` after it."""
        self.behind_max_ns = max(self.behind_max_ns, late_ns)
        if clock.world_s(late_ns / 1e9) >= BEHIND_S:
            self.late_step_ns += step_ns

    def _fold(self, now_ns: int, scheduler: Scheduler) -> None:
        tick = self._tick
        if tick.forward_ct:
            gap_s = max(now_ns - tick.began_ns, 1) / 1e9
            self.gen_throughput = self.last_gen_throughput = tick.made_tok / gap_s
            self.decode_tok += tick.made_tok
            active = scheduler.active
            if active is not None:
                # Adaptive: by the draft tokens of now, whatever the steps had.
                drafts = active.num_draft_tokens - 1
                self.accept_length = 1 + tick.correct / tick.forward_ct
                self.accept_rate = tick.correct / (tick.forward_ct * drafts) if drafts else 0.0
                self.num_steps = active.num_steps
                self.num_draft_tokens = active.num_draft_tokens
                self.total_accept_tok += tick.correct + tick.forward_ct
                self.total_forward_ct += tick.forward_ct
        self._tick = Tick(began_ns=now_ns)

    def _look(self, scheduler: Scheduler) -> None:
        self.running_ct = len(scheduler.running)
        self.queue_ct = len(scheduler.waiting)
        self.sum_seq_len_tok = sum(request.context_tok for request in scheduler.running)
        self.used_tok = scheduler.pool.used_tok
        self.evictable_tok = scheduler.pool.cache.evictable_tok
        self.retracted_ct, self._retracted_ct = self._retracted_ct, 0

    # -------------------------------------------------------------------------- what follows

    @property
    def token_usage(self) -> float:
        """Share of the KV cache in use at the last tick."""
        return self.used_tok / self._settings.kv_capacity_tok

    @property
    def cache_hit_rate(self) -> float:
        """Share of all prompt tokens so far that the prefix cache had."""
        total = self.prefill_cache_tok + self.prefill_compute_tok
        return self.prefill_cache_tok / total if total else 0.0
