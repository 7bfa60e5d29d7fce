"""What a sweep tells the console, one record a step of the study."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bench.model.study import Study, StudyTrial


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialStarting:
    """A launch of the study begins.

    Attributes:
        trial: The launch.
        label: Of its configuration.
        cut_off: How many launches before it were cut off with nothing measured: they are beside
            the budget.
    """

    trial: StudyTrial
    label: str
    cut_off: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialEnded:
    """A launch of the study is over."""

    trial: StudyTrial
    label: str
    study: Study


SweepEvent = TrialStarting | TrialEnded
