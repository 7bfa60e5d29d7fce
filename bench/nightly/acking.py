"""Changes that somebody expected: they stay in sight and sound no alarm."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bench.clock import utc_now
from bench.errors import InputError
from bench.metrics.watched import METRICS
from bench.model.nightly import Ack, ChangePoint
from bench.nightly.history import add, read_history
from bench.nightly.judge import Watch, judge

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import date
    from pathlib import Path

    from bench.model.nightly import NightlyVerdict

_SHOWN: int = 8


def acknowledge(
    history: Path, night: date, *, series: str, reason: str, by: str
) -> tuple[ChangePoint, ...]:
    """Mark the changes of one night as expected.

    A further change for the worse sounds an alarm again.

    Args:
        history: Its folder.
        night: First night of the new levels, as the page shows it.
        series: Only series whose name has this in it; empty: all.
        reason: Why they are expected.
        by: Who says so.

    Returns:
        The changes.

    Raises:
        InputError: No reason, or nothing changed in that night.
        StoreError: The history was written to by a newer specdyno.
        DiskError: It cannot be written.
    """
    if not reason.strip():
        raise InputError("an ack without a reason.", hint="Say why with --reason.")
    everything = judge(
        read_history(history),
        Watch(suite="ack", metrics=tuple(METRICS)),
        judged_at=utc_now(),
    )
    changes = changes_at(everything, night, series)
    acks = [
        Ack(key=change.key, night=change.night, reason=reason.strip(), by=by, at=utc_now())
        for change in changes
    ]
    add(history, kind="ack", night=night, acks=acks)
    return changes


def changes_at(verdict: NightlyVerdict, night: date, series: str) -> tuple[ChangePoint, ...]:
    """The changes that began in one night, give or take one: series part with their noise.

    Raises:
        InputError: There are none; those there are, are named.
    """
    every = [c for judged in verdict.series for c in judged.changes]
    wanted = [c for c in every if series in c.key.label]
    found = tuple(c for c in wanted if abs((c.night - night).days) <= 1)
    if not found:
        raise InputError(
            f"nothing changed in the night of {night}"
            + (f" in a series with {series!r} in its name." if series else "."),
            hint=_others(wanted or every),
        )
    return found


def _others(changes: Sequence[ChangePoint]) -> str:
    nights = sorted({change.night for change in changes}, reverse=True)
    if not nights:
        return "No series has changed so far."
    return f"Nights with changes: {', '.join(map(str, nights[:_SHOWN]))}."
