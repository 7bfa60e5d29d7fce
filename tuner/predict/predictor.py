"""From launches to what is known of every configuration's gain."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tuner.predict.acceptance import Drafts, predict_acceptance
from tuner.predict.cost import CostModel, Measured, Points
from tuner.predict.experience import Experience, foresee

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from tuner.predict.acceptance import AcceptancePosterior
    from tuner.predict.cost import CostPosterior
    from tuner.predict.experience import Foreseen

    Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What one launch measured; NaN where a cell has no valid figure.

    Attributes:
        configuration: Its place in the space.
        at: When it was made, in launches.
        log_value: (cells,) log of the objective's metric, more is better.
        log_accept_len: (cells,); 0 without speculation, NaN where the server does not count.
        reach: (cells, positions) P(at least k drafts accepted); NaN where not known.
        gain_sd: (cells,); None for an ordinary launch. Of two step counts that took turns in one
            launch: the standard deviation of the log ratio of their values, and the level of both
            means nothing. Readings of one launch have the same `at`.
    """

    configuration: int
    at: float
    log_value: Array
    log_accept_len: Array
    reach: Array
    gain_sd: Array | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Knowledge:
    """What is known of every configuration; the objective is a weighted sum of log values.

    Attributes:
        mean: (configurations,) of the objective, up to one constant.
        cov: (configurations, configurations).
        cell_mean: (configurations, cells) log value, up to one constant a cell.
        log_accept_len: (configurations, cells).
        launch_sd: Noise of one more launch's objective.
        quirk_sd: Of configurations beyond all laws.
    """

    mean: Array
    cov: Array
    cell_mean: Array
    log_accept_len: Array
    launch_sd: float
    quirk_sd: float

    def difference(self, one: int, other: int) -> tuple[float, float]:
        """Mean and standard deviation of one's objective minus another's."""
        variance = self.cov[one, one] + self.cov[other, other] - 2 * self.cov[one, other]
        return float(self.mean[one] - self.mean[other]), float(np.sqrt(max(0.0, variance)))


class Predictor:
    """Predicts a space's configurations from its launches.

    Args:
        points: The space.
        accept_card: P(at least k drafts accepted) expected of the draft model; None: not known.
        experience: What earlier studies tell of trees; None, or one without records: nothing.
    """

    def __init__(
        self,
        points: Points,
        accept_card: Array | None = None,
        experience: Experience | None = None,
    ) -> None:
        self.points = points
        self._cost = CostModel(points)
        self._card = accept_card
        columns = [points.family, points.eagle, points.steps, points.topk, points.tokens]
        unique, self._draft_of = np.unique(
            np.stack(columns, axis=1).astype(np.int64), axis=0, return_inverse=True
        )
        self._drafts = Drafts(
            family=unique[:, 0],
            eagle=unique[:, 1].astype(bool),
            steps=unique[:, 2],
            topk=unique[:, 3],
            tokens=unique[:, 4],
        )
        self._foreseen: Foreseen | None = None
        if experience is not None and experience.records:
            shapes = np.where(unique[:, 1:2] > 0, unique[:, 2:], 0)  # others have no ranks
            self._foreseen = foresee(experience, [tuple(row) for row in shapes.tolist()])

    def learn(self, readings: Sequence[Reading]) -> Knowledge:
        """What the launches so far tell."""
        cost = self._cost.posterior(
            Measured(
                configuration=np.array([r.configuration for r in readings], dtype=np.int64),
                at=np.array([r.at for r in readings]),
                log_cost=np.array(
                    [np.nan_to_num(r.log_accept_len) - r.log_value for r in readings]
                ),
                gain_sd=np.array(
                    [
                        np.full_like(r.log_value, np.nan) if r.gain_sd is None else r.gain_sd
                        for r in readings
                    ]
                ),
            )
        )
        seen = [
            (int(self._draft_of[r.configuration]), r.log_accept_len, r.reach)
            for r in readings
            if self.points.family[r.configuration] > 0
        ]
        acceptance = predict_acceptance(
            self._drafts, self.points.weights, seen, self._card, self._foreseen
        )
        return self._join(cost, acceptance)

    def _join(self, cost: CostPosterior, acceptance: AcceptancePosterior) -> Knowledge:
        weights, of = self.points.weights, self._draft_of
        length = acceptance.mean[of]
        return Knowledge(
            mean=length @ weights - cost.objective_mean,
            cov=acceptance.objective_cov[np.ix_(of, of)] + cost.objective_cov,
            cell_mean=length - cost.mean,
            log_accept_len=length,
            launch_sd=cost.launch_sd,
            quirk_sd=cost.quirk_sd,
        )
