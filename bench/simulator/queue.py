"""The queue of one scheduler, and which of its requests the next prefill batch takes.

First come, first served, as SGLang does it by default: a request that does not fit keeps those
behind it waiting, and where one was turned away none is looked at until another has left.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from bench.simulator.kv_pool import (
    MOST_ESTIMATED_TOK,
    PrefillBudget,
    expected_tok,
    fits_to_the_end,
)
from bench.simulator.step import Chunk

if TYPE_CHECKING:
    from bench.simulator.kv_pool import KvPool, NewTokenRatio
    from bench.simulator.request import Request
    from bench.simulator.settings import Settings

MAX_PREFILL_TOK = 16384  # SGLang's --max-prefill-tokens


class Queue:
    """Requests that wait for a place in the batch.

    Attributes:
        waiting: In the order they came; retracted ones again at the end.
        unfinished: The request whose prompt is computed in several batches, between two of them.
        is_full: Whether nobody is let in until a request has left the batch.
    """

    def __init__(self, settings: Settings, pool: KvPool, ratio: NewTokenRatio) -> None:
        self._settings = settings
        self._pool = pool
        self._ratio = ratio
        self.waiting: deque[Request] = deque()
        self.unfinished: Request | None = None
        self.is_full = False

    def gave_up(self, request: Request) -> None:
        """A request was aborted in its prefill."""
        if request is self.unfinished:
            self.unfinished = None

    def next_batch(self, at_ns: int, running: list[Request]) -> list[Chunk]:
        """The prompt begun before, then waiting ones in order; their slots are taken.

        Args:
            at_ns: When the batch begins; who comes later is not in it.
            running: Requests that decode, which keep their slots.
        """
        if not running:
            self.is_full = False
        budget = PrefillBudget(
            total_tok=self._pool.free_tok - expected_tok(running, self._ratio.current),
            chunk_tok=self._settings.chunked_prefill_tok,
            input_tok=MAX_PREFILL_TOK,
        )
        chunks: list[Chunk] = []
        if self.unfinished is not None:
            chunks.append(self._chunk(self.unfinished, budget, found_tok=0))
        while self.waiting and not budget.is_spent and self.unfinished is None:
            request = self.waiting[0]
            if len(running) + len(chunks) >= self._settings.max_running_requests:
                self.is_full = True
            if self.is_full or request.arrival_ns > at_ns:
                break
            found_tok = self._pool.find(request)
            budget.total_tok -= found_tok
            others = [*running, *(chunk.request for chunk in chunks)]
            if not self._fits(request, found_tok, budget, others):
                self._pool.give_back(request)
                self.is_full = bool(others)
                break
            self.waiting.popleft()
            request.prefilled_tok = found_tok
            if not request.retraction_ct:
                request.cached_tok = found_tok
            chunks.append(self._chunk(request, budget, found_tok=found_tok))
        return chunks

    def _fits(
        self, request: Request, found_tok: int, budget: PrefillBudget, others: list[Request]
    ) -> bool:
        if not others:
            return True  # what intake let through fits into an empty cache
        new_tok = request.context_tok - found_tok
        if request.ignore_eos and self._settings.flag("disable_radix_cache"):
            free_tok = self._pool.free_tok - new_tok - 1
            return free_tok >= 0 and fits_to_the_end(request, others, free_tok)
        later_tok = min(request.cap_tok - request.output_tok, MOST_ESTIMATED_TOK)
        return budget.fits(new_tok, later_tok)

    def _chunk(self, request: Request, budget: PrefillBudget, *, found_tok: int) -> Chunk:
        """As much of a prompt as the budget allows."""
        left_tok = request.context_tok - request.prefilled_tok
        new_tok = min(left_tok, budget.chunk_tok)
        if new_tok < left_tok:
            self.unfinished = request
            budget.charge(new_tok, 0)
        else:
            self.unfinished = None
            budget.charge(new_tok, min(request.cap_tok, MOST_ESTIMATED_TOK))
        self._pool.take(request, new_tok)
        return Chunk(
            request=request,
            new_tok=new_tok,
            before_tok=request.prefilled_tok,
            found_tok=found_tok,
        )
