"""What a server's GPUs did not tell, and what is unknown for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from bench.gpu import READING_NAMES
from bench.metrics.energy import ENERGY_COUNTER, POWER
from bench.metrics.window import Window
from bench.model import FindingKind, Severity

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.metrics.facts import CellFacts
    from bench.model import Finding

COVERED_SHARE: Final = 0.95
"""Joules of less GPU time than this are told as too few."""

_UNKNOWN_WITHOUT: Final[tuple[tuple[str, tuple[tuple[str, ...], ...]], ...]] = (
    ("energy", ((ENERGY_COUNTER,), (POWER,))),
    ("throttling", (("throttle_reasons",),)),
    ("spinning collectives", (("utilisation_pct", POWER, "power_limit_w"),)),
)
"""What is unknown of a GPU that tells none of these sets of readings."""


def gpus_watched(facts: CellFacts) -> Iterator[Finding]:
    """What of the server's GPUs could not be watched, and so not be checked."""
    if facts.gpus < 1 or facts.simulated:
        return
    why = f" ({facts.gpus_unread})" if facts.gpus_unread else ""
    watched = {gpu for name in READING_NAMES for gpu in facts.series.ranks(name)}
    if not watched:
        yield _missing(
            facts, f"the GPUs could not be watched{why}: throttling and energy are unknown."
        )
        return
    if why:
        yield _missing(
            facts, f"the GPUs were watched in part{why}: throttling after that is unknown."
        )
    unknown = [
        f"{figure}{'' if lacking == facts.gpus else f' of {lacking} of {facts.gpus} GPUs'} "
        f"({' or '.join(' and '.join(names) for names in ways)})"
        for figure, ways in _UNKNOWN_WITHOUT
        if (lacking := facts.gpus - _telling(facts, ways)) > 0
    ]
    if unknown:
        yield _missing(facts, f"unknown, since GPUs do not tell it: {', '.join(unknown)}.")
    coverage = facts.measurement.energy_coverage
    if coverage is not None and coverage < COVERED_SHARE and isinstance(facts.window, Window):
        yield _missing(
            facts,
            f"readings cover {coverage:.0%} of the GPUs' time in the window: the joules of the "
            "rest are not in energy_j_per_output_tok.",
        )


def _telling(facts: CellFacts, ways: tuple[tuple[str, ...], ...]) -> int:
    """How many GPUs tell all readings of one of several sets."""
    told = [set.intersection(*(set(facts.series.ranks(name)) for name in way)) for way in ways]
    return len(set.union(*told))


def _missing(facts: CellFacts, message: str) -> Finding:
    return facts.finding(FindingKind.TELEMETRY_MISSING, Severity.NOTE, message)
