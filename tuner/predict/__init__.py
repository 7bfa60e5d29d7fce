"""Cost and acceptance of configurations that were not measured, from those that were."""

from __future__ import annotations

from tuner.predict.cost import Points
from tuner.predict.experience import Experience, Record
from tuner.predict.physics_prior import points_of, step_times
from tuner.predict.predictor import Knowledge, Predictor, Reading

__all__ = [
    "Experience",
    "Knowledge",
    "Points",
    "Predictor",
    "Reading",
    "Record",
    "points_of",
    "step_times",
]
