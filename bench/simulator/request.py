"""One request on the simulated server, from its arrival to its last token."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.simulator.words import Answer

_STRATA = 32


class Acceptance:
    """How many drafts each verify step of one request accepts.

    P(at least k) is exactly the card's. Steps are drawn in shuffled strata, 32 at a time, so that
    a request of some hundred steps comes near its expectation: real prompts scatter more, and a
    measurement of the cell would then tell more of the prompts than of the server.
    """

    def __init__(self, reach_at: Callable[[int], tuple[float, ...]], seed: int) -> None:
        """`reach_at` is told how many tokens the answer has when drafts are verified."""
        self._reach_at = reach_at
        self._rng = random.Random(seed)  # noqa: S311  # a simulation
        self._draws: list[int] = []
        self._output_tok = 1

    def draw(self) -> int:
        """Correct drafts of the next step."""
        if not self._draws:
            self._draws = self._rng.sample(range(_STRATA), _STRATA)
        u = (self._draws.pop() + self._rng.random()) / _STRATA
        correct = 0
        for chance in self._reach_at(self._output_tok):
            if u >= chance:
                break
            correct += 1
        self._output_tok += correct + 1
        return correct


class Drafts(Protocol):
    """How the drafts of one request fare."""

    def draw(self) -> int:
        """Correct drafts of the next step."""


class Receiver(Protocol):
    """What a request's tokens are handed to."""

    def accepted(self) -> None:
        """The request is understood and goes to a scheduler."""

    def progress(self, request: Request) -> None:
        """Tokens up to `request.released_tok`, or the end (`request.finish` is set)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Abort:
    """Why a request was aborted, in SGLang's words.

    Attributes:
        message: For the client.
        status: The HTTP status it is answered with where nothing has been sent; None: 200.
        is_queued: Whether it ended in the queue, never begun or thrown out of the batch.
    """

    message: str
    status: int | None = None
    is_queued: bool = False


ABORTED = Abort(message="Aborted")
ABORTED_IN_QUEUE = Abort(message="Abort in waiting queue", is_queued=True)


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
        cap_tok: The most tokens of the answer: all that the scheduler knows of its length.
        ignore_eos: Whether it is known to run to its cap.
        stream_interval: Tokens that an event waits for.
        wanted_rank: The data-parallel rank it asks for; None: any.
        dp_rank: The data-parallel rank it is on; 0 without ranks.
        cached_tok: Prompt tokens found in the prefix cache.
        prefilled_tok: Tokens in the KV cache while it is being prefilled, found ones included.
        locked_blocks: The cache blocks it uses.
        own_tok: KV slots that are its own, those allocated ahead of drafts included.
        retraction_ct: How often it was thrown out of the batch.
        output_tok: Tokens generated.
        released_tok: Those of them that are to be sent.
        verify_ct: Verify steps taken part in.
        correct_ct: Drafts accepted, counted before the answer's end cuts them.
        histogram: Element k: verify steps that accepted exactly k.
        forward_ns: When its prefill began.
        first_token_ns: When its first token was due.
        first_emitted_ns: When that token was really handed to the socket.
        finish_ns: When its last token was due.
        finish_emitted_ns: When that token was really handed to the socket.
        finish: How it ended; None: it has not.
        abort: Why it was aborted.
    """

    rid: str
    prompt_tok: int
    blocks: list[int]
    answer: Answer
    acceptance: Drafts | None
    arrival_ns: int
    stream: bool
    reply: Receiver
    cap_tok: int
    ignore_eos: bool
    stream_interval: int = 1
    wanted_rank: int | None = None
    dp_rank: int = 0
    cached_tok: int = 0
    prefilled_tok: int = 0
    locked_blocks: list[int] = field(default_factory=list)
    own_tok: int = 0
    retraction_ct: int = 0
    output_tok: int = 0
    released_tok: int = 0
    verify_ct: int = 0
    correct_ct: int = 0
    histogram: list[int] = field(default_factory=list)
    forward_ns: int | None = None
    first_token_ns: int | None = None
    first_emitted_ns: int | None = None
    finish_ns: int | None = None
    finish_emitted_ns: int | None = None
    finish: Literal["stop", "length", "abort"] | None = None
    abort: Abort | None = None

    @property
    def context_tok(self) -> int:
        """Tokens of prompt and answer so far."""
        return self.prompt_tok + self.output_tok

    def advance(self, correct: int | None) -> int:
        """One decoding step; the tokens it made, those past the answer's end included.

        Args:
            correct: Drafts accepted in it; None without speculation.
        """
        made = 1
        if correct is not None:
            made += correct
            self.verify_ct += 1
            self.correct_ct += correct
            while len(self.histogram) <= correct:
                self.histogram.append(0)
            self.histogram[correct] += 1
        self.output_tok = min(self.output_tok + made, self.answer.length_tok)
        return made

    def release(self) -> bool:
        """Whether its new tokens are to be sent now: SGLang waits for `stream_interval` of them.

        The first go at once, and what is left with the end.
        """
        unsent = self.output_tok - self.released_tok
        is_due = self.finish is not None or (
            self.stream
            and unsent > 0
            and (unsent >= self.stream_interval or not self.released_tok)
        )
        if is_due:
            self.released_tok = self.output_tok
        return is_due
