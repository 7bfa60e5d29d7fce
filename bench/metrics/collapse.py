"""Acceptance that collapsed for a while: the mean of a cell hides it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from bench.metrics.cache import cell_span_ns
from bench.model import FindingKind, Severity
from bench.sglang.decode_log import COLLAPSED_TOK, collapsed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.metrics.facts import CellFacts
    from bench.model import Finding

LEAST_S: Final = 5.0
"""A collapse of less is no more than a few log intervals, which chance may bring about."""


def accept_collapse(facts: CellFacts) -> Iterator[Finding]:
    """Times at which hardly a draft was accepted, between times at which drafts were.

    The gauge shows the last log interval, read once a second. A draft that is bad from end to end
    is no collapse: its accept length says so.
    """
    span = cell_span_ns(facts.samples)
    if span is None or not facts.cell.arm_is_speculative:
        return
    of_ranks: list[list[float]] = []
    for readings in facts.series.ranks("sglang:spec_accept_length").values():
        inside = (readings.t_ns >= span[0]) & (readings.t_ns <= span[1])
        t_ns, lengths = readings.t_ns[inside], readings.value[inside]
        if not (lengths > COLLAPSED_TOK).any():
            continue
        episodes = collapsed(lengths.tolist())
        lasted = [float(t_ns[e.indices[-1]] - t_ns[e.indices[0]]) / 1e9 for e in episodes]
        of_ranks.append([seconds for seconds in lasted if seconds >= LEAST_S])
    worst = max(of_ranks, key=sum, default=[])
    if worst:
        yield facts.finding(
            FindingKind.ACCEPT_COLLAPSED,
            Severity.SUSPECT,
            f"acceptance fell to {COLLAPSED_TOK:g} tokens a step or less {len(worst)} times, for "
            f"{sum(worst):.0f} s in all.",
        )
