"""KV slots of one scheduler: who holds them, whom it admits, whom it throws out.

As in SGLang 0.5.23 (`managers/schedule_policy.py`, `mem_cache/prefill_budget.py`,
`managers/schedule_batch.py`): the scheduler does not know how long answers will be. It admits a
request when its prompt and its cap fit beside a share of what the running ones may still make, the
new-token ratio, which falls with every step that went well. When the slots run out all the same,
requests are retracted: they lose their KV and wait again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from bench.simulator.prefix_cache import BLOCK_TOK, PrefixCache

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from bench.simulator.request import Request

MOST_ESTIMATED_TOK: Final = 4096
"""No request is expected to make more than this (SGLANG_CLIP_MAX_NEW_TOKENS_ESTIMATION)."""
_INITIAL_RATIO: Final = 0.7
_LEAST_OF_INITIAL: Final = 0.14
_DECAY_STEPS: Final = 600
_RETRACT_AHEAD_TOK: Final = 20
_PAGE_TOK: Final = 1


class NewTokenRatio:
    """The share of its remaining cap that a running request is expected to make.

    Attributes:
        current: Between 0 and 1.
    """

    def __init__(self, conservativeness: float) -> None:
        self._initial = min(_INITIAL_RATIO * conservativeness, 1.0)
        self._least = self._initial * _LEAST_OF_INITIAL
        self.current = self._initial

    def reset(self) -> None:
        """The scheduler has nothing to do."""
        self.current = self._initial

    def step(self) -> None:
        """A decoding step fitted."""
        decay = (self._initial - self._least) / _DECAY_STEPS
        self.current = max(self.current - decay, self._least)

    def retracted(self, kept: Sequence[Request]) -> None:
        """Requests were thrown out: expect of these what they have made, and some steps."""
        made = sum(request.output_tok for request in kept)
        most = sum(request.cap_tok for request in kept)
        self.current = min(1.0, (made + _RETRACT_AHEAD_TOK * len(kept)) / (most + 1))


class KvPool:
    """The slots of one scheduler; the prefix cache lies in them.

    Attributes:
        capacity_tok: All of them.
        cache: The prefix cache.
    """

    def __init__(self, capacity_tok: int) -> None:
        self.capacity_tok = capacity_tok
        self.cache = PrefixCache()
        self._own_tok = 0

    @property
    def used_tok(self) -> int:
        """Slots in use, each shared block once; what could be evicted is not."""
        return self._own_tok + self.cache.locked_tok

    @property
    def free_tok(self) -> int:
        """Slots that are empty or could be."""
        return self.capacity_tok - self.used_tok

    @property
    def empty_tok(self) -> int:
        """Slots that are empty."""
        return self.free_tok - self.cache.evictable_tok

    def take(self, request: Request, tok: int) -> None:
        """Give a request slots, evicting what is in the way."""
        request.own_tok += tok
        self._own_tok += tok
        self.cache.shrink_to(self.free_tok)

    def find(self, request: Request) -> int:
        """Lock what the cache has of a request's prompt; how many tokens that is."""
        found = request.blocks[: self.cache.match(request.blocks)]
        self.cache.lock(found)
        request.locked_blocks = found
        return len(found) * BLOCK_TOK

    def keep_prompt(self, request: Request) -> None:
        """Enter a computed prompt into the cache, in use by its request."""
        computed = request.blocks[len(request.locked_blocks) :]
        self.cache.lock(computed)
        request.locked_blocks = request.blocks
        request.own_tok -= len(computed) * BLOCK_TOK
        self._own_tok -= len(computed) * BLOCK_TOK

    def give_back(self, request: Request) -> None:
        """A request's own slots become empty, its cached ones evictable."""
        self.cache.unlock(request.locked_blocks)
        request.locked_blocks = []
        self._own_tok -= request.own_tok
        request.own_tok = 0


def missing_tok(request: Request, reserve_tok: int) -> int:
    """Slots that a request lacks for its next decoding step.

    Args:
        request: A running one.
        reserve_tok: What each step wants beyond the tokens in the KV cache; the newest token is
            not there yet.
    """
    held = request.own_tok + len(request.locked_blocks) * BLOCK_TOK
    return max(0, request.context_tok - 1 + reserve_tok - held)


@dataclass(slots=True)
class PrefillBudget:
    """What one prefill batch may still take.

    Attributes:
        total_tok: Slots, what running requests are expected to need left alone.
        chunk_tok: Tokens to compute, of `--chunked-prefill-size`.
        input_tok: Tokens to compute, of `--max-prefill-tokens`.
    """

    total_tok: float
    chunk_tok: int
    input_tok: int

    @property
    def is_spent(self) -> bool:
        """Whether nothing more may be computed."""
        return self.chunk_tok <= 0 or self.input_tok <= 0

    def charge(self, new_tok: int, later_tok: int) -> None:
        """A request is in the batch: what it computes now, and may make later."""
        self.total_tok -= new_tok + _PAGE_TOK + later_tok
        self.chunk_tok -= new_tok
        self.input_tok -= new_tok

    def fits(self, new_tok: int, later_tok: int) -> bool:
        """Whether there are slots for a request."""
        return new_tok + later_tok + _PAGE_TOK < self.total_tok


def expected_tok(running: Iterable[Request], ratio: float) -> float:
    """Slots that running requests are expected to take yet."""
    return sum(
        min(request.cap_tok - request.output_tok, MOST_ESTIMATED_TOK)
        * (1.0 if request.ignore_eos else ratio)
        for request in running
    )


def fits_to_the_end(candidate: Request, others: Iterable[Request], free_tok: int) -> bool:
    """Whether a request of known length fits, as the others end one after another.

    SGLang looks so closely where the candidate ignores end tokens and there is no prefix cache.

    Args:
        candidate: The request.
        others: Those that run or begin with it.
        free_tok: Slots left once its prompt is in.
    """
    states = sorted(
        (
            request.cap_tok - request.output_tok,
            request.context_tok,
        )
        for request in (candidate, *others)
    )
    freed_tok = 0
    for at, (left_tok, held_tok) in enumerate(states):
        together = len(states) - at
        if free_tok + freed_tok - left_tok * together <= together:
            return False
        freed_tok += held_tok
    return True


def retraction_order(running: Sequence[Request]) -> list[Request]:
    """Running requests, the one to be thrown out first last: of short answer and long prompt."""
    return sorted(running, key=lambda r: (r.output_tok, -r.prompt_tok), reverse=True)
