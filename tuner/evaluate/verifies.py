"""Which requests took part in each verify batch of a cell, from what their streams told.

With a chunk a step, a request's first event is its prefill's token and every later one is a verify
step. All running requests take part in each batch, so a request's steps are batches in a row, and
two that run together are placed by one common batch. What cannot be placed so is refused.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from bench.model import RequestStatus
from tuner.evaluate.phase_records import NotTold

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench.model import RequestSample

_MOST_VOTES: Final = 64
_LEAST_AGREEING: Final = 0.5
"""This share of common events must tell the same batch, and no other batch half as many: jitter
moves single events only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verifies:
    """One request's verify steps; tuples have an element a step.

    Attributes:
        sent_ns: When it was sent.
        first_token_ns: When its prefill's token came.
        correct: Accepted drafts, before the output was cut.
        end_ns: When the step's tokens came.
        position_tok: Output tokens before the step.
    """

    sent_ns: int
    first_token_ns: int
    correct: tuple[int, ...]
    end_ns: tuple[int, ...]
    position_tok: tuple[int, ...]


def verify_steps_of(sample: RequestSample) -> int | None:
    """How many steps verified a request's tokens; the first token, a prefill's, needs none."""
    if sample.spec_verify_ct is None and sample.output_tok == 1:
        return 0
    return sample.spec_verify_ct


def verifies_of(sample: RequestSample) -> Verifies:
    """A request's verify steps, each by its event.

    The last step is cut at the end of the output; what it accepted is what the server's total has
    left. Totals and histogram must be the events' own.

    Raises:
        NotTold: The request failed, or its events are not its steps one by one.
    """
    name = f"request {sample.index}"
    if sample.status is not RequestStatus.OK or sample.sent_ns is None:
        raise NotTold(f"{name} failed ({sample.status.value}): its verify steps are not known")
    steps, total = verify_steps_of(sample), sample.spec_num_correct_drafts
    total = 0 if total is None and steps == 0 else total
    if steps is None or total is None:
        raise NotTold(f"the server does not tell the verify steps of {name}")
    if sample.num_retractions:
        raise NotTold(f"{name} was retracted: its steps are no batches in a row")
    running = sample.event_tok
    if running is None or len(running) != len(sample.event_ns) or not running:
        raise NotTold(f"the events of {name} carry no token counts")
    if running[0] != 1 or len(running) != steps + 1:
        raise NotTold(
            f"{name} has {steps} verify steps and {len(running) - 1} events behind its first "
            f"({running[0]} tokens): several steps came in one event, or a step in none"
        )
    made = [after - before for before, after in pairwise(running)]
    correct = [tokens - 1 for tokens in made]
    if correct:
        correct[-1] = total - sum(correct[:-1])
    if not _fits(sample, correct, made):
        raise NotTold(f"the events of {name} and the server's counts of its steps differ")
    return Verifies(
        sent_ns=sample.sent_ns,
        first_token_ns=sample.event_ns[0],
        correct=tuple(correct),
        end_ns=tuple(sample.event_ns[1:]),
        position_tok=tuple(running[:-1]),
    )


def _fits(sample: RequestSample, correct: Sequence[int], made: Sequence[int]) -> bool:
    if sum(correct) != (sample.spec_num_correct_drafts or 0) or min(correct, default=0) < 0:
        return False
    if correct and made[-1] > correct[-1] + 1:
        return False
    histogram = sample.spec_correct_drafts_histogram
    if histogram is None:
        return True
    counted = Counter(correct)
    return all(counted[k] == n for k, n in enumerate(histogram)) and (
        max(correct, default=-1) < len(histogram)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Batches:
    """A cell's verify batches; tuples have an element a batch.

    Attributes:
        running: Requests that took part.
        correct: Accepted drafts of each of these.
        end_ns: When the batch's tokens came: the middle one of its events.
        position_tok: Output tokens that these requests had before, on average.
        is_interrupted: Whether a prefill, or nothing to do, came between it and the one before.
        idle_ct: How often, before it, all running requests had ended.
        joined: Of each request, in the order of their first tokens, its first batch.
    """

    running: tuple[int, ...]
    correct: tuple[tuple[int, ...], ...]
    end_ns: tuple[int, ...]
    position_tok: tuple[float, ...]
    is_interrupted: tuple[bool, ...]
    idle_ct: tuple[int, ...]
    joined: tuple[int, ...]


def batches_of(samples: Sequence[RequestSample]) -> Batches:
    """The verify batches of a cell, in order.

    Args:
        samples: All requests of the cell, warm-up included, in any order.

    Raises:
        NotTold: They cannot be told one by one.
    """
    ranks = {sample.dp_rank for sample in samples if sample.dp_rank is not None}
    if len(ranks) > 1:
        raise NotTold(f"{len(ranks)} data-parallel ranks served it, each with its own batches")
    requests = sorted(map(verifies_of, samples), key=lambda v: v.first_token_ns)
    verifying = sorted((v for v in requests if v.correct), key=lambda v: v.end_ns[0])
    if not verifying:
        raise NotTold("no request has a verify step")
    first, idle_at = _placed(verifying)
    total = max(at + len(v.correct) for at, v in zip(first, verifying, strict=True))
    ends: list[list[int]] = [[] for _ in range(total)]
    correct: list[list[int]] = [[] for _ in range(total)]
    positions: list[int] = [0] * total
    for at, v in zip(first, verifying, strict=True):
        for k, batch in enumerate(range(at, at + len(v.correct))):
            ends[batch].append(v.end_ns[k])
            correct[batch].append(v.correct[k])
            positions[batch] += v.position_tok[k]
    if not all(ends):
        raise NotTold("some verify batch has no event")
    end_ns = [sorted(times)[len(times) // 2] for times in ends]
    if any(later < earlier for earlier, later in pairwise(end_ns)):
        raise NotTold("events of batches in a row did not come in a row")
    joined_at = {id(v): at for at, v in zip(first, verifying, strict=True)}
    joined = [joined_at.get(id(v), bisect_left(end_ns, v.first_token_ns)) for v in requests]
    return Batches(
        running=tuple(map(len, ends)),
        correct=tuple(map(tuple, correct)),
        end_ns=tuple(end_ns),
        position_tok=tuple(sum_ / len(c) for sum_, c in zip(positions, correct, strict=True)),
        is_interrupted=_interrupted(end_ns, requests, joined),
        idle_ct=tuple(sum(at <= batch for at in idle_at) for batch in range(total)),
        joined=tuple(joined),
    )


def _interrupted(
    end_ns: Sequence[int], requests: Sequence[Verifies], joined: Sequence[int]
) -> tuple[bool, ...]:
    """A prefill is somewhere between a request's sending and its first token."""
    found = [False] * len(end_ns)
    found[0] = True
    for v, at in zip(requests, joined, strict=True):
        begin, end = bisect_left(end_ns, v.sent_ns), bisect_left(end_ns, v.first_token_ns)
        for batch in (*range(begin, end + 1), at):
            if batch < len(found):
                found[batch] = True
    return tuple(found)


def _placed(verifying: Sequence[Verifies]) -> tuple[list[int], list[int]]:
    """The first batch of each request, and the batches before which all others had ended."""
    first: list[int] = []
    idle_at: list[int] = []
    live: list[int] = []
    for place, v in enumerate(verifying):
        # Whoever has its first token before another's last step is in that step as well.
        live = [q for q in live if verifying[q].end_ns[-1] > v.first_token_ns]
        votes = _votes(v, [(first[q], verifying[q]) for q in live])
        if votes:
            (at, agreeing), (_, others) = [*votes.most_common(2), (0, 0)][:2]
            if agreeing < _LEAST_AGREEING * votes.total() or others > agreeing / 2:
                raise NotTold(
                    f"events of requests that ran together do not tell their common batches: "
                    f"{agreeing} of {votes.total()} agree"
                )
        elif live:
            at = max(first[q] + len(verifying[q].correct) - 1 for q in live)
        else:
            at = max((f + len(verifying[q].correct) for q, f in enumerate(first)), default=0)
            if first:
                idle_at.append(at)
        first.append(at)
        live.append(place)
    return first, idle_at


def _votes(v: Verifies, others: Sequence[tuple[int, Verifies]]) -> Counter[int]:
    """Which first batch each common event speaks for."""
    votes: Counter[int] = Counter()
    stride = max(1, len(v.end_ns) // _MOST_VOTES)
    for k in range(0, len(v.end_ns), stride):
        time = v.end_ns[k]
        for at, other in others:
            if other.end_ns[0] <= time <= other.end_ns[-1]:
                votes[at + _nearest(other.end_ns, time) - k] += 1
    return votes


def _nearest(times: Sequence[int], time: int) -> int:
    after = bisect_left(times, time)
    if after == len(times) or (after and time - times[after - 1] <= times[after] - time):
        return after - 1
    return after
