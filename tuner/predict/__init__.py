"""Cost and acceptance of configurations that were not measured, from those that were."""

from __future__ import annotations

from tuner.predict.cost import Points
from tuner.predict.physics_prior import points_of, step_times
from tuner.predict.predictor import Knowledge, Predictor, Reading

__all__ = ["Knowledge", "Points", "Predictor", "Reading", "points_of", "step_times"]
