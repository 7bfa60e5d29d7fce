"""How good a study's predictions were: what was expected before each launch beside what came."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bench.model.study import TrialState, of_their_configuration
from reports.study_wording import Z95

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench.model.study import Study


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """One figure of one launch.

    Attributes:
        trial: The launch's number.
        why: Why it was launched.
        first: Whether its configuration had never been measured before.
        predicted: Log ratio to the baseline, or tokens.
        sd: Standard deviation of that, the launch's own noise included; None: not told.
        measured: Likewise.
        error: By how much more was measured than predicted: a share of the predicted speed for a
            gain (0.05 is 5 %), tokens for an accept length.
    """

    trial: int
    why: str
    first: bool
    predicted: float
    sd: float | None
    measured: float
    error: float

    @property
    def covered(self) -> bool | None:
        """Whether the 95 % interval holds what was measured; None without one."""
        if self.sd is None:
            return None
        return abs(self.measured - self.predicted) <= Z95 * self.sd


@dataclass(frozen=True, slots=True, kw_only=True)
class Accuracy:
    """Over several predictions.

    Attributes:
        count: How many.
        error: Mean of the errors.
        absolute_error: Mean of its absolute value.
        covered: How many 95 % intervals held what was measured; None without intervals.
    """

    count: int
    error: float
    absolute_error: float
    covered: int | None


def gain_predictions(study: Study) -> tuple[Prediction, ...]:
    """Of the gain of every launch but the baseline's controls, which are 0 by definition."""
    measured = _measured_before(study)
    return tuple(
        Prediction(
            trial=t.number,
            why=t.why,
            first=not measured[t.number],
            predicted=t.predicted_gain,
            sd=t.predicted_gain_sd,
            measured=t.gain,
            error=math.expm1(t.gain - t.predicted_gain),
        )
        for t in of_their_configuration(study.trials)
        if t.state is TrialState.MEASURED and t.configuration != 0
        if t.predicted_gain is not None and t.gain is not None
    )


def accept_len_predictions(study: Study) -> tuple[Prediction, ...]:
    """Of the accept length of every cell of every launch, in tokens."""
    measured = _measured_before(study)
    return tuple(
        Prediction(
            trial=t.number,
            why=t.why,
            first=not measured[t.number],
            predicted=predicted,
            sd=None,
            measured=found,
            error=found - predicted,
        )
        for t in of_their_configuration(study.trials)
        if t.state is TrialState.MEASURED and t.predicted_accept_len_tok is not None
        for predicted, found in zip(t.predicted_accept_len_tok, t.accept_len_tok, strict=True)
        if predicted is not None and found is not None
    )


def accuracy_of(predictions: Sequence[Prediction]) -> Accuracy | None:
    """How good they were; None without any."""
    if not predictions:
        return None
    errors = [p.error for p in predictions]
    told = [p.covered for p in predictions if p.covered is not None]
    return Accuracy(
        count=len(errors),
        error=math.fsum(errors) / len(errors),
        absolute_error=math.fsum(map(abs, errors)) / len(errors),
        covered=sum(told) if len(told) == len(errors) else None,
    )


def _measured_before(study: Study) -> dict[int, bool]:
    """By launch: whether its configuration had been measured before."""
    seen: set[int] = set()
    before = {}
    for t in of_their_configuration(study.trials):
        before[t.number] = t.configuration in seen
        if t.state is TrialState.MEASURED:
            seen.add(t.configuration)
    return before
