"""What a pattern of acceptance points to. The thresholds are rules of thumb, not SGLang's.

A pattern is a hypothesis: what to look at next. Only a served run after a change proves one.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from math import hypot
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from bench.doctor.acceptance import Measured

FEWEST_STEPS: Final = 200
"""Verify steps below which a share of accepted drafts says too little (±7 points at a half)."""
LOWEST_FIRST: Final = 0.3
"""P(at least 1 draft accepted) of a head that reads what it was trained on is higher."""
LEAST_HOLD: Final = 0.5
"""Acceptance at a position, given the one before, is at least this share of that one's."""
LEAST_KEPT: Final = 0.75
"""Of the drafts accepted in a step, the share that longer or other prompts leave at least."""
LEAST_OF_TRAINING: Final = 0.7
"""Of the drafts a step that training promises, the share that a server accepts at least."""
CERTAIN: Final = 3.0
"""Standard errors between two groups beyond which the difference is none of chance."""


class Pattern(StrEnum):
    """What acceptance looks like."""

    WIRING = "wiring"
    RECURRENCE = "recurrence"
    CONTEXT = "context"
    SHIFT = "shift"
    BELOW_TRAINING = "below-training"
    HEALTHY = "healthy"
    UNDECIDED = "undecided"
    FAILING = "failing"


@dataclass(frozen=True, slots=True, kw_only=True)
class Named:
    """A pattern that was seen.

    Attributes:
        pattern: Which.
        evidence: The figures it was seen by.
        meaning: What it points to.
        next_step: What to try.
    """

    pattern: Pattern
    evidence: str
    meaning: str
    next_step: str

    @property
    def is_suspect(self) -> bool:
        """Whether something is to be mended."""
        return self.pattern not in {Pattern.HEALTHY, Pattern.UNDECIDED}


def name_patterns(
    overall: Measured,
    by_context: Sequence[Measured],
    *,
    training: Measured | None = None,
    serving: Measured | None = None,
    expected_tok: float | None = None,
    expected_first: float | None = None,
) -> tuple[Named, ...]:
    """Every pattern that the figures show; HEALTHY when none of the others does.

    Args:
        overall: The shortest generated prompts, or the training's where they are given.
        by_context: Groups of growing context.
        training: Prompts like those of the draft's training.
        serving: Prompts as they are served.
        expected_tok: The accept length that training promises.
        expected_first: The share of first drafts that it promises.
    """
    lowest = LOWEST_FIRST
    if expected_first is not None:  # a weak draft is served no better than it was trained
        lowest = min(lowest, LEAST_OF_TRAINING * expected_first)
    if overall.verify_ct < FEWEST_STEPS:
        return (_undecided(overall),)
    found = [
        *_wiring(overall, lowest),
        *_recurrence(overall, lowest),
        *_context(by_context),
        *_shift(training, serving),
    ]
    if not found and expected_tok is not None:
        found = [*_below_training(overall, expected_tok)]
    return tuple(found) or (_healthy(overall, expected_tok),)


def failing(failures: Sequence[str]) -> Named:
    """No request was answered, though the server was up: the draft may have stopped it."""
    return Named(
        pattern=Pattern.FAILING,
        evidence=f"all of {len(failures)} requests failed; the first: {failures[0][:200]}",
        meaning="The server was up and answered none. A map that leads outside the vocabulary "
        "(M8), or widths that do not fit (M7, M10), stop it at its first draft.",
        next_step="Mend what the draft's files show, and look at the end of the server's log.",
    )


def _undecided(overall: Measured) -> Named:
    return Named(
        pattern=Pattern.UNDECIDED,
        evidence=f"{overall.verify_ct} verify steps; wanted at least {FEWEST_STEPS}",
        meaning="Too few steps to tell a pattern: the answers ended early.",
        next_step="Give prompts with longer answers (--training FILE).",
    )


def _wiring(overall: Measured, lowest: float) -> Iterator[Named]:
    first = overall.at_position[0]
    if first >= lowest:
        return
    yield Named(
        pattern=Pattern.WIRING,
        evidence=f"the first draft is accepted in {first:.1%} of {overall.verify_ct} steps, below "
        f"{lowest:.0%}",
        meaning="The draft's first step does not read what it was trained on: other layers, their "
        "order, fc, norms, the map of the vocabulary, missing weights, or the algorithm (M1 to "
        "M12, M16 to M18, M23).",
        next_step="bench doctor draft on its files; then bench doctor wiring on captured states.",
    )


def _recurrence(overall: Measured, lowest: float) -> Iterator[Named]:
    first = overall.at_position[0]
    if first < lowest:
        return
    for place, (before, after) in enumerate(pairwise(overall.conditional), start=2):
        reached = sum(overall.histogram[place - 1 :])
        if after < LEAST_HOLD * before and reached >= FEWEST_STEPS // 4:
            yield Named(
                pattern=Pattern.RECURRENCE,
                evidence=f"draft {place - 1} is accepted in {before:.1%} of the steps that reach "
                f"it, draft {place} in {after:.1%} ({reached} steps)",
                meaning="The first step is right and those that feed on the draft's own states "
                "are not: norm_output, the norm of the recurrent state, positions (M14), or a "
                "training that never fed the draft its own states.",
                next_step="Compare norm_output and the training's number of steps; bench doctor "
                "wiring tells teacher-forced from recurrent accuracy.",
            )
            return


def _context(groups: Sequence[Measured]) -> Iterator[Named]:
    usable = [group for group in groups if group.verify_ct >= FEWEST_STEPS // 2]
    if len(usable) < 2 or not _is_lower(usable[0], usable[-1]):
        return
    yield Named(
        pattern=Pattern.CONTEXT,
        evidence=f"accept length {_length(usable[0])}, {_length(usable[-1])}",
        meaning="Acceptance falls with the context's length: positions (rope base or scaling), a "
        "draft trained on shorter contexts, or an attention window (M15, M22, M24).",
        next_step="Compare the training's rope and longest context with config.json; serve with "
        "--context-length of the training.",
    )


def _shift(training: Measured | None, serving: Measured | None) -> Iterator[Named]:
    if training is None or serving is None or not _is_lower(training, serving):
        return
    yield Named(
        pattern=Pattern.SHIFT,
        evidence=f"accept length {_length(training)}, {_length(serving)}",
        meaning="The draft is accepted on prompts like its training's and not on those that are "
        "served: the chat template, the system prompt, thinking, the language, or a target of "
        "another quantisation than in training (M20).",
        next_step="Train on the served target's answers to the served prompts, in its template.",
    )


def _below_training(overall: Measured, expected_tok: float) -> Iterator[Named]:
    kept = (overall.accept_len_tok - 1) / (expected_tok - 1) if expected_tok > 1 else 1.0
    if kept >= LEAST_OF_TRAINING:
        return
    yield Named(
        pattern=Pattern.BELOW_TRAINING,
        evidence=f"accept length {overall.accept_len_tok:.2f}; training promises "
        f"{expected_tok:.2f}: {kept:.0%} of its drafts a step",
        meaning="The draft reads nearly what it was trained on, or other prompts: a layer too "
        "far, one slot of several, a norm; or the served prompts are not the training's.",
        next_step="Give --training and --serving prompts; bench doctor wiring on captured states.",
    )


def _healthy(overall: Measured, expected_tok: float | None) -> Named:
    promised = "" if expected_tok is None else f", training promises {expected_tok:.2f}"
    return Named(
        pattern=Pattern.HEALTHY,
        evidence=f"accept length {overall.accept_len_tok:.2f}{promised}; first draft accepted in "
        f"{overall.at_position[0]:.1%}",
        meaning="Acceptance shows no fault. If speculation does not pay, it is cost: a cycle "
        "takes too many plain steps' time.",
        next_step="bench run with a baseline: it pays above the break-even accept length.",
    )


def _is_lower(reference: Measured, other: Measured) -> bool:
    """Whether another group loses many of the drafts a step, and not by chance."""
    first, second = reference.accept_len_tok - 1, other.accept_len_tok - 1
    errors = (reference.standard_error_tok, other.standard_error_tok)
    if errors[0] is None or errors[1] is None:
        return False
    spread = hypot(errors[0], errors[1])
    return second < LEAST_KEPT * first and first - second > CERTAIN * spread


def _length(group: Measured) -> str:
    tokens = (
        "" if group.prompt_tok_mean is None else f", {group.prompt_tok_mean:.0f} prompt tokens"
    )
    return f"{group.accept_len_tok:.2f} on {group.group} ({group.requests} requests{tokens})"
