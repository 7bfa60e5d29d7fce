"""Matplotlib figures of the pages; each function takes records and gives a `Figure`, or None.

None means that there is nothing to draw; whoever asks says why it is missing.
"""

from __future__ import annotations

from reports.plots.acceptance import (
    draw_acceptance,
    draw_along_output,
    draw_categories,
    draw_histogram,
)
from reports.plots.changes import draw_changes
from reports.plots.latency import draw_latencies
from reports.plots.speed import draw_break_even, draw_limit, draw_pareto, draw_speedup
from reports.plots.study import (
    Panel,
    draw_effects,
    draw_order,
    draw_predictions,
    draw_surface,
)
from reports.plots.timeline import draw_timeline

__all__ = [
    "Panel",
    "draw_acceptance",
    "draw_along_output",
    "draw_break_even",
    "draw_categories",
    "draw_changes",
    "draw_effects",
    "draw_histogram",
    "draw_latencies",
    "draw_limit",
    "draw_order",
    "draw_pareto",
    "draw_predictions",
    "draw_speedup",
    "draw_surface",
    "draw_timeline",
]
