"""The sweep: what to launch, in which order, and when to stop."""

from __future__ import annotations

from tuner.sweep.policy import Proposal, Rules, Search

__all__ = ["Proposal", "Rules", "Search"]
