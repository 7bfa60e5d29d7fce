"""Continuous batching on a virtual schedule.

Steps follow one another without a gap: a step begins at the *scheduled* end of the one before,
never at the moment the process woke up for it, so late wake-ups do not add up. As in SGLang, a
prefill batch goes before decoding whenever requests wait and fit; a prompt longer than
`chunked_prefill_size` is computed in several batches.
"""

from __future__ import annotations

import math
import random
import signal
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from bench import clock
from bench.physics import decode_step, prefill_time
from bench.simulator.prefix_cache import BLOCK_TOK, PrefixCache

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from bench.simulator.request import Request
    from bench.simulator.settings import Settings
    from bench.simulator.stats import Stats
    from bench.simulator.truth import Truth

_LAUNCH_NOISE_LIMIT_SD = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """What the GPUs are doing: one forward, or one draft-and-verify cycle.

    Attributes:
        kind: `prefill` or `decode`.
        start_ns: When it began.
        end_ns: When it ends.
        chunks: Of a prefill: the requests, and how many of their prompt tokens are computed.
        graph: Whether it runs as a CUDA graph.
    """

    kind: Literal["prefill", "decode"]
    start_ns: int
    end_ns: int
    chunks: tuple[tuple[Request, int], ...]
    graph: bool


class Engine:
    """The scheduler and its requests; everything happens in the event loop's thread."""

    def __init__(self, settings: Settings, stats: Stats, truth: Truth) -> None:
        self._settings = settings
        self._stats = stats
        self._truth = truth
        self.cache = PrefixCache()
        self.waiting: deque[Request] = deque()
        self.running: list[Request] = []
        self._prefilling: Request | None = None
        self._step: Step | None = None
        self._free_ns = 0
        self._idle_callbacks: list[Callable[[], None]] = []
        self._rng = random.Random(f"{_launch_text(settings)} steps")  # noqa: S311  # a simulation
        self.launch_factor = _launch_factor(settings)

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Take the interval timer: the event loop's own timers are a millisecond coarse."""
        loop.add_signal_handler(signal.SIGALRM, self._on_timer)

    # ---------------------------------------------------------------------------- from outside

    @property
    def busy_ct(self) -> int:
        """How many requests wait, are in prefill or run."""
        return len(self.requests())

    @property
    def reserved_tok(self) -> int:
        """KV slots of the requests in the batch, locked cache blocks included."""
        return sum(request.reserved_tok for request in self._admitted()) + self.cache.locked_tok

    def submit(self, request: Request) -> None:
        """Queue a request; an idle server takes it up at once."""
        self.waiting.append(request)
        if self._step is None:
            self._begin_step(max(request.arrival_ns, self._free_ns))
            self._arm()

    def abort(self, request: Request) -> None:
        """End a request: at once while it waits, else with the step it is in."""
        if request.finish is not None:
            return
        request.finish = "abort"
        if request in self.waiting:
            self.waiting.remove(request)
            self._end(request, clock.now_ns())
            self._truth.flush()
            self._notify_if_idle()

    def requests(self) -> list[Request]:
        """Every request that has not ended."""
        return [*self.waiting, *self._admitted()]

    def when_idle(self, callback: Callable[[], None]) -> None:
        """Call back once nothing waits or runs: now, if so."""
        self._idle_callbacks.append(callback)
        self._notify_if_idle()

    def flush(self) -> bool:
        """Empty the prefix cache; False, and nothing done, while requests wait or run."""
        if self.busy_ct:
            return False
        self.cache.clear()
        self._stats.flushed()
        return True

    # ------------------------------------------------------------------------------- the steps

    def _admitted(self) -> list[Request]:
        in_step = () if self._step is None else self._step.chunks
        return [*(request for request, _ in in_step), *self.running]

    def _arm(self) -> None:
        if self._step is not None:
            wait_s = clock.world_s((self._step.end_ns - clock.now_ns()) / 1e9)
            signal.setitimer(signal.ITIMER_REAL, max(wait_s, 1e-6))

    def _on_timer(self) -> None:
        while self._step is not None and self._step.end_ns <= clock.now_ns():
            step = self._step
            self._step = None
            self._finish_step(step)
            self._free_ns = step.end_ns
            self._begin_step(step.end_ns)
        self._arm()
        self._notify_if_idle()

    def _notify_if_idle(self) -> None:
        if self._idle_callbacks and not self.busy_ct:
            callbacks, self._idle_callbacks = self._idle_callbacks, []
            for callback in callbacks:
                callback()

    def _begin_step(self, at_ns: int) -> None:
        chunks = self._prefill_chunks(at_ns)
        if not chunks and not self.running and self.waiting:
            # The process is behind: the next request arrived after the step that just ended.
            at_ns = max(at_ns, self.waiting[0].arrival_ns)
            chunks = self._prefill_chunks(at_ns)
        if chunks:
            self._step = self._prefill_step(at_ns, chunks)
        elif self.running:
            self._step = self._decode_step(at_ns)
        else:
            self._stats.idle()

    def _prefill_step(self, at_ns: int, chunks: list[tuple[Request, int]]) -> Step:
        settings = self._settings
        time = prefill_time(
            settings.hardware,
            settings.target,
            chunks=[(new, request.prefilled_tok) for request, new in chunks],
            tp=settings.tp,
        )
        for request, _ in chunks:
            if request.forward_ns is None:
                request.forward_ns = at_ns
        self._stats.prefill_batch(at_ns, chunks, self)
        end_ns = at_ns + self._noisy_ns(time.total_ms)
        return Step(
            kind="prefill", start_ns=at_ns, end_ns=end_ns, chunks=tuple(chunks), graph=False
        )

    def _decode_step(self, at_ns: int) -> Step:
        settings = self._settings
        batch = len(self.running)
        graph = bool(settings.graph_batch_sizes) and batch <= settings.graph_batch_sizes[-1]
        time = decode_step(
            settings.hardware,
            settings.target,
            batch=batch,
            context_tok_mean=sum(request.context_tok for request in self.running) / batch,
            speculation=settings.speculation,
            cuda_graph=graph,
            tp=settings.tp,
        )
        end_ns = at_ns + self._noisy_ns(time.total_ms)
        return Step(kind="decode", start_ns=at_ns, end_ns=end_ns, chunks=(), graph=graph)

    def _noisy_ns(self, time_ms: float) -> int:
        noise = math.exp(self._rng.gauss(0.0, self._settings.hardware.step_sd))
        return round(time_ms * 1e6 * self.launch_factor * noise)

    def _prefill_chunks(self, at_ns: int) -> list[tuple[Request, int]]:
        """The next prefill batch: the prompt begun before, then waiting ones in order."""
        budget_tok = self._settings.chunked_prefill_tok
        chunks = []
        if self._prefilling is not None:
            request = self._prefilling
            new = min(request.prompt_tok - request.prefilled_tok, budget_tok)
            chunks.append((request, new))
            budget_tok -= new
            if request.prefilled_tok + new == request.prompt_tok:
                self._prefilling = None
        while self.waiting and budget_tok > 0 and self._prefilling is None:
            request = self.waiting[0]
            full = len(self.running) + len(chunks) >= self._settings.max_running_requests
            if full or request.arrival_ns > at_ns or not self._admit(request, chunks):
                break
            self.waiting.popleft()
            new = min(request.prompt_tok - request.prefilled_tok, budget_tok)
            chunks.append((request, new))
            budget_tok -= new
            if request.prefilled_tok + new < request.prompt_tok:
                self._prefilling = request
        return chunks

    def _admit(self, request: Request, chunks: list[tuple[Request, int]]) -> bool:
        """Reserve the KV of a request's whole life, or leave it waiting.

        The simulator knows how long the answer will be, so nothing is ever retracted; SGLang
        guesses, and retracts when it guessed too low.
        """
        settings = self._settings
        found = request.blocks[: self.cache.match(request.blocks)]
        self.cache.lock(found)
        cached_tok = len(found) * BLOCK_TOK
        reserved = request.prompt_tok - cached_tok
        reserved += request.answer.length_tok + settings.reserved_tok
        in_use = self.cache.locked_tok + sum(r.reserved_tok for r in self.running)
        in_use += sum(r.reserved_tok for r, _ in chunks)
        if in_use + reserved > settings.kv_capacity_tok and (self.running or chunks):
            self.cache.unlock(found)
            return False
        self.cache.shrink_to(settings.kv_capacity_tok - in_use - reserved)
        request.locked_blocks = found
        request.cached_tok = request.prefilled_tok = cached_tok
        request.reserved_tok = reserved
        return True

    # ------------------------------------------------------------------------- what they yield

    def _finish_step(self, step: Step) -> None:
        handled_ns = clock.now_ns()
        self._stats.behind(handled_ns - step.end_ns)
        if step.kind == "prefill":
            batch = len(step.chunks)
            tokens = self._finish_prefill(step)
        else:
            batch = len(self.running)
            tokens = self._finish_decode(step)
        self._truth.step(step, batch=batch, output_tok=tokens, handled_ns=handled_ns)

    def _finish_prefill(self, step: Step) -> int:
        tokens = 0
        for request, new in step.chunks:
            request.prefilled_tok += new
            if request.finish == "abort":
                if request is self._prefilling:
                    self._prefilling = None
                self._end(request, step.end_ns)
            elif request.prefilled_tok == request.prompt_tok:
                self._keep_prompt(request)
                tokens += 1
                request.output_tok = 1
                request.first_token_ns = step.end_ns
                self._deliver(request, step.end_ns)
                if request.finish is None:
                    self.running.append(request)
        return tokens

    def _keep_prompt(self, request: Request) -> None:
        """Enter the computed prompt into the prefix cache, in use by its request."""
        if self._settings.flag("disable_radix_cache"):
            return
        computed = request.blocks[len(request.locked_blocks) :]
        self.cache.lock(computed)
        request.locked_blocks = request.blocks
        request.reserved_tok -= len(computed) * BLOCK_TOK

    def _finish_decode(self, step: Step) -> int:
        batch = len(self.running)
        made = 0
        counted = 0
        correct = 0
        going = []
        for request in self.running:
            if request.finish == "abort":
                self._end(request, step.end_ns)
                continue
            before = request.output_tok
            new = request.advance()
            made += new
            correct += new - 1
            counted += request.output_tok - before
            self._deliver(request, step.end_ns)
            if request.finish is None:
                going.append(request)
        self.running = going
        self._stats.decode_batch(step, batch=batch, made_tok=made, correct=correct, engine=self)
        return counted

    def _deliver(self, request: Request, due_ns: int) -> None:
        if request.output_tok == request.answer.length_tok:
            request.finish = "stop" if request.answer.natural else "length"
            self._end(request, due_ns)
        else:
            if request.first_emitted_ns is None:
                request.first_emitted_ns = clock.now_ns()
            request.reply.progress(request)

    def _end(self, request: Request, due_ns: int) -> None:
        request.finish_ns = due_ns
        request.finish_emitted_ns = clock.now_ns()
        if request.first_token_ns is not None and request.first_emitted_ns is None:
            request.first_emitted_ns = request.finish_emitted_ns
        self.cache.unlock(request.locked_blocks)
        request.locked_blocks = []
        request.reserved_tok = 0
        request.reply.progress(request)
        self._stats.request_ended(request)
        self._truth.request(request)


def _launch_factor(settings: Settings) -> float:
    """How much slower or faster this start is than the card, cut at two standard deviations."""
    rng = random.Random(_launch_text(settings))  # noqa: S311  # a simulation
    deviation = rng.gauss(0.0, 1.0)
    deviation = max(-_LAUNCH_NOISE_LIMIT_SD, min(_LAUNCH_NOISE_LIMIT_SD, deviation))
    return math.exp(deviation * settings.hardware.launch_sd)


def _launch_text(settings: Settings) -> str:
    """What makes a launch another launch: its seed and arguments, but not where it listens."""
    asked = sorted(item for item in settings.asked.items() if item[0] not in {"host", "port"})
    return f"{settings.seed} {asked}"
