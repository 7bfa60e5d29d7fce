"""The paired re-test and what is concluded from it."""

from __future__ import annotations

from tuner.confirm.final import Conclusion, FinalPlan, conclude, plan_final, ranked, whole_blocks

__all__ = ["Conclusion", "FinalPlan", "conclude", "plan_final", "ranked", "whole_blocks"]
