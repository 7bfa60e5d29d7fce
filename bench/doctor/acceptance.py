"""Acceptance of a group of requests, with its spread, and what training accuracy lets expect."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod, sqrt
from typing import TYPE_CHECKING

from bench.metrics.acceptance import (
    accept_at_position,
    accept_len_tok,
    conditional_at_position,
    pool_histograms,
)

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What one greedy request says of itself.

    Attributes:
        group: Which prompts it is one of.
        prompt_tok: Tokens of its prompt, by the server; None: not told.
        output_tok: Tokens it generated.
        verify_ct: Verify steps it took part in.
        num_correct_drafts: Drafts accepted in them.
        histogram: Element k: steps that accepted exactly k drafts.
    """

    group: str
    prompt_tok: int | None
    output_tok: int | None
    verify_ct: int
    num_correct_drafts: int
    histogram: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """A group's acceptance: ratios of sums over its requests.

    Attributes:
        group: Its name.
        requests: How many of them counted.
        prompt_tok_mean: Mean length of their prompts; None: not told.
        verify_ct: Their verify steps.
        histogram: Element k: steps that accepted exactly k drafts.
        accept_len_tok: 1 + accepted drafts a step.
        standard_error_tok: Of that, with requests as the units; None for fewer than 2.
        at_position: P(at least k drafts accepted), k = 1, 2, ….
        conditional: P(at least k) / P(at least k - 1).
    """

    group: str
    requests: int
    prompt_tok_mean: float | None
    verify_ct: int
    histogram: tuple[int, ...]
    accept_len_tok: float
    standard_error_tok: float | None
    at_position: tuple[float, ...]
    conditional: tuple[float, ...]


def measured(
    group: str, replies: Sequence[Reply], *, num_steps: int | None = None
) -> Measured | None:
    """Pool the replies of a group; None without a single verify step.

    Args:
        group: The group's name.
        replies: Its replies.
        num_steps: Depth of the draft: positions up to it that were never accepted are given as 0.
    """
    verify_ct = sum(reply.verify_ct for reply in replies)
    correct = sum(reply.num_correct_drafts for reply in replies)
    length = accept_len_tok(correct, verify_ct)
    histogram = pool_histograms([reply.histogram for reply in replies])
    at_position = accept_at_position(histogram, num_steps)
    if length is None or histogram is None or at_position is None:
        return None
    prompts = [reply.prompt_tok for reply in replies if reply.prompt_tok is not None]
    return Measured(
        group=group,
        requests=len(replies),
        prompt_tok_mean=sum(prompts) / len(prompts) if prompts else None,
        verify_ct=verify_ct,
        histogram=histogram,
        accept_len_tok=length,
        standard_error_tok=_standard_error(replies, correct / verify_ct, verify_ct),
        at_position=at_position,
        conditional=conditional_at_position(at_position) or (),
    )


def _standard_error(replies: Sequence[Reply], ratio: float, verify_ct: int) -> float | None:
    """Of a ratio of sums over requests, by linearisation (Cochran, Sampling Techniques, 6.4)."""
    count = len(replies)
    if count < 2:
        return None
    squares = sum((r.num_correct_drafts - ratio * r.verify_ct) ** 2 for r in replies)
    return sqrt(count / (count - 1) * squares) / verify_ct


def expected_accept_len_tok(train_accuracy: Sequence[float], num_steps: int) -> float:
    """The accept length that accuracies of training promise, for a chain of drafts.

    Accuracy at step i is over positions whose earlier drafts were right, as training that feeds
    the draft its own states counts it (training-time test): a step is reached when all before it
    were accepted, so the length is 1 + a1 + a1·a2 + ….

    Args:
        train_accuracy: Share of right tokens at step 1, 2, ….
        num_steps: Steps that the server drafts; those beyond the last accuracy count nothing.
    """
    steps = min(num_steps, len(train_accuracy))
    return 1 + sum(prod(train_accuracy[: step + 1]) for step in range(steps))
