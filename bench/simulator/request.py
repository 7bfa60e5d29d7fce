"""One request on the simulated server, from its arrival to its last token."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, Protocol

if TYPE_CHECKING:
    from bench.simulator.words import Answer

_STRATA = 32


class Acceptance:
    """How many drafts each verify step of one request accepts.

    P(at least k) is exactly the card's. Steps are drawn in shuffled strata, 32 at a time, so that
    a request of some hundred steps comes near its expectation: real prompts scatter more, and a
    measurement of the cell would then tell more of the prompts than of the server.
    """

    def __init__(self, reach: tuple[float, ...], seed: int) -> None:
        self._reach = reach
        self._rng = random.Random(seed)  # noqa: S311  # a simulation
        self._draws: list[int] = []

    def draw(self) -> int:
        """Correct drafts of the next step."""
        if not self._draws:
            self._draws = self._rng.sample(range(_STRATA), _STRATA)
        u = (self._draws.pop() + self._rng.random()) / _STRATA
        correct = 0
        for chance in self._reach:
            if u >= chance:
                break
            correct += 1
        return correct


class Receiver(Protocol):
    """What a request's tokens are handed to."""

    def progress(self, request: Request) -> None:
        """New tokens, or the end (`request.finish` is set)."""


@dataclass(slots=True, kw_only=True, eq=False)
class Request:
    """The state of one request; times are clock nanoseconds, None: not yet.

    Attributes:
        rid: Its name.
        prompt_tok: Tokens of the prompt.
        blocks: The prompt's block hashes.
        answer: What it will say.
        acceptance: How its drafts fare; None without speculation.
        arrival_ns: When it was read from the socket.
        stream: Whether it is answered token by token.
        reply: Where its tokens go.
        cached_tok: Prompt tokens found in the prefix cache.
        prefilled_tok: Prompt tokens in the KV cache, the found ones included.
        locked_blocks: The cache blocks it uses.
        reserved_tok: KV slots that are its own.
        output_tok: Tokens generated.
        verify_ct: Verify steps taken part in.
        correct_ct: Drafts accepted, counted before the answer's end cuts them.
        histogram: Element k: verify steps that accepted exactly k.
        forward_ns: When its prefill began.
        first_token_ns: When its first token was due.
        first_emitted_ns: When that token was really handed to the socket.
        finish_ns: When its last token was due.
        finish_emitted_ns: When that token was really handed to the socket.
        finish: How it ended; None: it has not.
    """

    rid: str
    prompt_tok: int
    blocks: list[int]
    answer: Answer
    acceptance: Acceptance | None
    arrival_ns: int
    stream: bool
    reply: Receiver
    cached_tok: int = 0
    prefilled_tok: int = 0
    locked_blocks: list[int] = field(default_factory=list)
    reserved_tok: int = 0
    output_tok: int = 0
    verify_ct: int = 0
    correct_ct: int = 0
    histogram: list[int] = field(default_factory=list)
    forward_ns: int | None = None
    first_token_ns: int | None = None
    first_emitted_ns: int | None = None
    finish_ns: int | None = None
    finish_emitted_ns: int | None = None
    finish: Literal["stop", "length", "abort"] | None = None

    @property
    def context_tok(self) -> int:
        """Tokens of prompt and answer so far."""
        return self.prompt_tok + self.output_tok

    def advance(self) -> int:
        """One decoding step; the tokens it made, those past the answer's end included."""
        made = 1
        if self.acceptance is not None:
            correct = self.acceptance.draw()
            made += correct
            self.verify_ct += 1
            self.correct_ct += correct
            while len(self.histogram) <= correct:
                self.histogram.append(0)
            self.histogram[correct] += 1
        self.output_tok = min(self.output_tok + made, self.answer.length_tok)
        return made
