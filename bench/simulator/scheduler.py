"""Continuous batching of one scheduler on a virtual schedule.

Steps follow one another without a gap: a step begins at the *scheduled* end of the one before,
never at the moment the process woke up for it, so late wake-ups do not add up. As in SGLang, a
prefill batch goes before decoding whenever requests wait and fit; a prompt longer than
`chunked_prefill_size` is computed in several batches; a decoding batch that outgrows the KV cache
loses requests, which are computed again later.
"""

from __future__ import annotations

import math
import random
from typing import TYPE_CHECKING

from bench import clock
from bench.physics import Speculation, decode_step, graph_batch, prefill_time
from bench.simulator.adaptive import Adaptive
from bench.simulator.kv_pool import KvPool, NewTokenRatio, missing_tok, retraction_order
from bench.simulator.queue import Queue
from bench.simulator.request import ABORTED, ABORTED_IN_QUEUE, Abort
from bench.simulator.step import Step

if TYPE_CHECKING:
    from collections import deque

    from bench.simulator.faults import Faults
    from bench.simulator.rank_stats import RankStats
    from bench.simulator.request import Request
    from bench.simulator.settings import Settings
    from bench.simulator.step import Chunk
    from bench.simulator.truth import Truth

_QUEUE_FULL = Abort(message="The request queue is full.", status=503, is_queued=True)
_OUT_OF_MEMORY = Abort(
    message="Out of memory even after retracting all other requests in the decode batch. "
    "Aborting the last request.",
    status=500,
    is_queued=True,
)


class Scheduler:
    """One data-parallel rank: its queue, its batch and its KV cache.

    Attributes:
        rank: Which; 0 without data parallelism.
        queue: Requests that wait.
        running: Requests that decode.
        pool: Its KV cache.
        ratio: What it expects of running requests.
        stats: Its counts.
        step: What it is doing now; None: nothing.
        outbox: Requests with tokens to send or an end, in order; whoever drives it empties this.
    """

    def __init__(  # the parts of a server meet here
        self,
        rank: int,
        settings: Settings,
        stats: RankStats,
        truth: Truth,
        faults: Faults,
        *,
        launch_text: str,
        launch_factor: float,
    ) -> None:
        self.rank = rank
        self._settings = settings
        self.stats = stats
        self._truth = truth
        self._faults = faults
        self.running: list[Request] = []
        self.pool = KvPool(settings.kv_capacity_tok)
        self.ratio = NewTokenRatio(settings.conservativeness)
        self.queue = Queue(settings, self.pool, self.ratio)
        self.step: Step | None = None
        self.outbox: dict[Request, None] = {}
        self._free_ns = 0
        seed = f"{launch_text} steps" + (f" {rank}" if rank else "")
        self._rng = random.Random(seed)  # noqa: S311  # a simulation
        self._launch_factor = launch_factor
        self.adaptive = self._adaptive()

    def _adaptive(self) -> Adaptive | None:
        settings = self._settings
        if settings.adaptive_tiers is None or settings.speculation is None:
            return None
        return Adaptive(
            settings.adaptive_tiers,
            initial_steps=settings.speculation.num_steps,
            graph_batch_sizes=settings.graph_batch_sizes,
            log=self.stats.log,
        )

    # ---------------------------------------------------------------------------- from outside

    @property
    def waiting(self) -> deque[Request]:
        """Requests in the queue."""
        return self.queue.waiting

    @property
    def active(self) -> Speculation | None:
        """How the next batch drafts, as far as is known."""
        spec = self._settings.speculation
        if spec is None or self.adaptive is None:
            return spec
        steps = self.adaptive.steps
        return Speculation(num_steps=steps, topk=1, num_draft_tokens=steps + 1)

    def requests(self) -> list[Request]:
        """Every request of it that has not ended."""
        in_step = () if self.step is None else self.step.chunks
        return [*self.waiting, *(chunk.request for chunk in in_step), *self.running]

    def submit(self, request: Request) -> None:
        """Queue a request, or refuse it; an idle scheduler takes it up at once."""
        request.dp_rank = self.rank
        self._wait(request)
        if self.step is None:
            self._begin_step(max(request.arrival_ns, self._free_ns))

    def abort(self, request: Request) -> None:
        """End a request: at once while it waits, else with the step it is in."""
        if request.finish is not None:
            return
        if request in self.waiting:
            self.waiting.remove(request)
            self._abort(request, ABORTED_IN_QUEUE, clock.now_ns())
        else:
            request.finish = "abort"
            request.abort = ABORTED

    def advance(self) -> int:
        """End the step that is due, and begin the next; how long ago the first was due, ns."""
        step = self.step
        assert step is not None
        self.step = None
        late_ns = self._finish_step(step)
        self._free_ns = step.end_ns
        self._begin_step(step.end_ns)
        return late_ns

    # ------------------------------------------------------------------------------- the queue

    def _wait(self, request: Request) -> None:
        limit = self._settings.max_queued_requests
        if limit is not None and len(self.waiting) + 1 > limit:
            self._abort(request, _QUEUE_FULL, clock.now_ns())
        else:
            self.waiting.append(request)

    def _begin_step(self, at_ns: int) -> None:
        chunks = self.queue.next_batch(at_ns, self.running)
        if not chunks and not self.running and self.waiting:
            # The process is behind: the next request arrived after the step that just ended.
            at_ns = max(at_ns, self.waiting[0].arrival_ns)
            chunks = self.queue.next_batch(at_ns, self.running)
        if not chunks and self.running:
            self._make_room()
        if chunks:
            self.step = self._prefill_step(at_ns, chunks)
        elif self.running:
            self.step = self._decode_step(at_ns)
        elif self.waiting:
            self._begin_step(at_ns)  # the last running request was thrown out
            return
        else:
            self.ratio.reset()
            self.stats.idle()
        if self.step is not None and self._faults:
            self.step = self._faults.stretched(self.step)

    # ------------------------------------------------------------------------------- the steps

    def _prefill_step(self, at_ns: int, chunks: list[Chunk]) -> Step:
        settings = self._settings
        time = prefill_time(
            settings.hardware,
            settings.target,
            chunks=[(chunk.new_tok, chunk.before_tok) for chunk in chunks],
            tp=settings.tp,
            speculative=settings.drafting.has_draft_model,
        )
        for chunk in chunks:
            if chunk.request.forward_ns is None:
                chunk.request.forward_ns = at_ns
                self.stats.began(chunk.request)
        self.stats.prefill_batch(at_ns, chunks, self, prefilling=self.queue.unfinished)
        end_ns = at_ns + self._noisy_ns(time.total_ms)
        return Step(
            kind="prefill", start_ns=at_ns, end_ns=end_ns, chunks=tuple(chunks), graph=False
        )

    def _decode_step(self, at_ns: int) -> Step:
        settings = self._settings
        batch = len(self.running)
        if self.adaptive is not None:
            self.adaptive.steps_for(batch)
        speculation = self.active
        time = decode_step(
            settings.hardware,
            settings.target,
            batch=batch,
            context_tok_mean=sum(request.context_tok for request in self.running) / batch,
            speculation=None
            if speculation is None
            else settings.drafting.forwards_of(speculation),
            graph_batches=settings.graph_batch_sizes,
            tp=settings.tp,
        )
        return Step(
            kind="decode",
            start_ns=at_ns,
            end_ns=at_ns + self._noisy_ns(time.total_ms),
            graph=graph_batch(batch, settings.graph_batch_sizes) is not None,
            speculation=speculation,
        )

    def _noisy_ns(self, time_ms: float) -> int:
        noise = math.exp(self._rng.gauss(0.0, self._settings.hardware.step_sd))
        return round(time_ms * 1e6 * self._launch_factor * noise)

    def _make_room(self) -> None:
        """Slots for the next decoding step, of retracted requests where there are too few."""
        reserve_tok = self._settings.drafting.decode_reserve_tok
        kept = self.running
        wanted = self._wanted_tok(kept)
        if wanted > self.pool.free_tok:
            kept = self._retract()
        else:
            self.ratio.step()
        for request in kept:
            self.pool.take(request, missing_tok(request, reserve_tok))

    def _wanted_tok(self, running: list[Request]) -> int:
        reserve_tok = self._settings.drafting.decode_reserve_tok
        return sum(missing_tok(request, reserve_tok) for request in running)

    def _retract(self) -> list[Request]:
        """Throw requests out of the batch until the others fit; the last of all is aborted."""
        order = retraction_order(self.running)
        empty_tok, ratio = self.pool.empty_tok, self.ratio.current
        retracted: list[Request] = []
        while len(order) > 1 and (not retracted or self._wanted_tok(order) > self.pool.free_tok):
            request = order.pop()
            self.pool.give_back(request)
            retracted.append(request)
        aborted = None
        if len(order) == 1 and self._wanted_tok(order) > self.pool.free_tok:
            aborted = order.pop()
        self.running = [request for request in self.running if request in order]
        self.ratio.retracted(self.running)
        self.queue.is_full = False
        if aborted is not None:
            self._abort(aborted, _OUT_OF_MEMORY, clock.now_ns())
        gained_tok = self.pool.empty_tok - empty_tok
        self.stats.retraction(retracted, gained_tok, ratio, self.ratio.current)
        for request in retracted:
            request.retraction_ct += 1
            request.prefilled_tok = 0
            self._wait(request)
        return self.running

    # ------------------------------------------------------------------------- what they yield

    def _finish_step(self, step: Step) -> int:
        handled_ns = clock.now_ns()
        self.stats.behind(handled_ns - step.end_ns, step.end_ns - step.start_ns)
        if step.kind == "prefill":
            batch = len(step.chunks)
            tokens = self._finish_prefill(step)
        else:
            batch = len(self.running)
            tokens = self._finish_decode(step)
        self._truth.step(
            step, rank=self.rank, batch=batch, output_tok=tokens, handled_ns=handled_ns
        )
        return handled_ns - step.end_ns

    def _finish_prefill(self, step: Step) -> int:
        tokens = 0
        for chunk in step.chunks:
            request = chunk.request
            request.prefilled_tok += chunk.new_tok
            if request.finish == "abort":
                self.queue.gave_up(request)
                self._end(request, step.end_ns)
            elif request.prefilled_tok == request.context_tok:
                if not self._settings.flag("disable_radix_cache"):
                    self.pool.keep_prompt(request)
                tokens += 1
                request.output_tok += 1
                if request.first_token_ns is None:
                    request.first_token_ns = step.end_ns
                self._deliver(request, step.end_ns)
                if request.finish is None:
                    self.running.append(request)
        return tokens

    def _finish_decode(self, step: Step) -> int:
        batch = len(self.running)
        corrects = self._corrects(step.speculation)
        made = counted = 0
        going = []
        for request, correct in zip(self.running, corrects, strict=True):
            if request.finish == "abort":
                self._end(request, step.end_ns)
                continue
            before = request.output_tok
            made += request.advance(correct)
            counted += request.output_tok - before
            self._deliver(request, step.end_ns)
            if request.finish is None:
                going.append(request)
        self.running = going
        if self.adaptive is not None:
            self.adaptive.verified([correct for correct in corrects if correct is not None])
        correct_ct = sum(correct or 0 for correct in corrects)
        self.stats.decode_batch(step, batch=batch, made_tok=made, correct=correct_ct, engine=self)
        return counted

    def _corrects(self, speculation: Speculation | None) -> list[int | None]:
        """Accepted drafts of each running request in the step that has just ended."""
        if speculation is None:
            return [None] * len(self.running)
        forced = self._settings.forced_acceptance
        if forced is not None:
            correct = forced.correct(speculation.num_steps, self._rng)
            return [None if request.finish else correct for request in self.running]
        most = speculation.num_steps if self.adaptive is not None else None
        return [_drawn(request, most) for request in self.running]

    def _deliver(self, request: Request, due_ns: int) -> None:
        if request.output_tok == request.answer.length_tok:
            request.finish = "stop" if request.answer.natural else "length"
            self._end(request, due_ns)
            return
        if request.first_emitted_ns is None and not request.stream:
            request.first_emitted_ns = clock.now_ns()  # SGLang takes the time, though nobody sees
        if request.release():
            self.outbox[request] = None

    def _abort(self, request: Request, why: Abort, due_ns: int) -> None:
        request.finish = "abort"
        request.abort = why
        self._end(request, due_ns)

    def _end(self, request: Request, due_ns: int) -> None:
        request.finish_ns = due_ns
        request.release()
        self.pool.give_back(request)
        self.queue.is_full = False
        self.outbox[request] = None


def _drawn(request: Request, most: int | None) -> int | None:
    """Drafts accepted in a step of one request; None: it was aborted in it."""
    if request.finish is not None or request.acceptance is None:
        return None
    if most == 0:
        return 0
    drawn = request.acceptance.draw()
    return drawn if most is None else min(drawn, most)
