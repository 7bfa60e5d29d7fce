"""Changes of nightly series in words, the same on every page and in every message."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from bench.metrics.watched import OUTPUT, metric_of, own_name
from bench.model import BASELINE
from bench.model.nightly import Cause, ChangeKind

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bench.model.nightly import ChangePoint, NightlyVerdict

PROMPTS: Final = "work: prompts of "
SALTED: Final = ", salted "
"""How the fact of a cell's prompts is called; what stands between their hash and their salt."""

CAUSES = {
    Cause.ENVIRONMENT: "the baseline moved too: machine, driver or engine",
    Cause.SPECULATION: "the cycle moved and the baseline did not: speculation's kernels, "
    "communication or graphs",
    Cause.ACCEPTANCE: "the accept length moved: draft, template, tokenizer or target",
    Cause.WORKLOAD: "other work was asked",
    Cause.OUTSIDE_DECODING: "neither acceptance nor cycle moved: prefill, queue or idle slots",
    Cause.SEVERAL: "several factors moved",
    Cause.UNCLEAR: "nothing that is measured beside it moved",
}
"""What each cause means, in a line."""


def percent(ln_change: float) -> str:
    """A change as people read it: `-7.4 %`."""
    return f"{100 * math.expm1(ln_change):+.1f} %"


def change_line(change: ChangePoint) -> str:
    """A change in a line: what, how much, since when, why."""
    label = metric_of(change.key.metric).label
    where = f"{change.key.scenario} {change.key.workload} load {change.key.load} {change.key.arm}"
    how = "drifts" if change.kind is ChangeKind.DRIFT else "changed"
    low, high = change.ln_change - change.half_width, change.ln_change + change.half_width
    line = (
        f"{where}: {label} {how} by {percent(change.ln_change)} "
        f"[{percent(low)}, {percent(high)}] since {change.night}"
    )
    if change.suspect_nights:
        line += f" ({change.suspect_nights} of {change.nights} nights SUSPECT)"
    if change.attribution is None:
        return line
    names = ", ".join(
        f"{field.name} {field.before} → {field.after}"
        for field in change.attribution.fields[:2]
        if field.fits
    )
    told = f"{names} ({change.attribution.confidence})" if names else change.attribution.confidence
    return f"{line}; {CAUSES[change.attribution.cause]}. Recorded: {told}"


def grouped(changes: Sequence[ChangePoint]) -> list[tuple[ChangePoint, int]]:
    """Changes of one night told once: what moves a machine moves many of its series.

    Args:
        changes: The last first.

    Returns:
        For each night of each scenario and hardware (give or take a day) the change that tells
        most, and how many others it stands for: the speed of an arm before all else, then the
        largest against its own uncertainty.
    """
    groups: list[list[ChangePoint]] = []
    for change in changes:
        group = next((g for g in groups if _are_one(g[0], change)), None)
        if group is None:
            groups.append([change])
        else:
            group.append(change)
    return [(min(group, key=_rank), len(group) - 1) for group in groups]


def _are_one(a: ChangePoint, b: ChangePoint) -> bool:
    same = (a.key.scenario, a.key.hardware) == (b.key.scenario, b.key.hardware)
    return same and abs((a.night - b.night).days) <= 1


def _rank(change: ChangePoint) -> tuple[bool, bool, float]:
    certainty = abs(change.ln_change) / max(change.half_width, 1e-9)
    is_speed = own_name(change.key.metric) == OUTPUT
    return not is_speed, change.key.arm == BASELINE, -certainty


def group_line(change: ChangePoint, others: int) -> str:
    """A night's change in a line, with what else changed in it."""
    more = "" if not others else f" (and {others} more series in that night)"
    return f"{change_line(change)}{more}"


def headline(verdict: NightlyVerdict) -> str:
    """The verdict in a few words."""
    if verdict.newest is None:
        return "no night yet"
    count = len(grouped(verdict.regressions))
    told = "no regression" if not count else f"{count} regression{'s' if count > 1 else ''}"
    simulated = any(judged.points[-1].simulated for judged in verdict.series)
    return f"{told} as of {verdict.newest}" + (" (SIMULATED)" if simulated else "")


def warnings(verdict: NightlyVerdict) -> list[str]:
    """What is wrong with a history or its newest night, a line each."""
    lines = [f"{path} is damaged and left out: {why}" for path, why in verdict.damaged]
    newest = verdict.newest
    lines += [
        f"Not measured on {f.night}: {f.scenario or 'all'}: {f.reason.partition(chr(10))[0]}"
        for f in verdict.failures
        if newest is None or f.night >= newest
    ]
    measured = [
        point.night
        for judged in verdict.series
        for point in judged.points[-1:]
        if not point.simulated
    ]
    last = max(measured, default=None)
    if last is not None and last > verdict.judged_at.date():
        lines.append(
            f"The night of {last} is later than today, {verdict.judged_at:%Y-%m-%d}: see whether "
            f"the clock is, or was, wrong."
        )
    return lines


def changed_facts(
    before: Mapping[str, str], after: Mapping[str, str]
) -> list[tuple[str, str, str]]:
    """Facts that differ: (name, before, after); `–` where one is not recorded.

    Prompts with another salt have another hash, whatever they say: that is no change.
    """
    names = dict.fromkeys((*after, *before))
    return [
        (name, before.get(name, "–"), after.get(name, "–"))
        for name in sorted(names)
        if before.get(name) != after.get(name) and not _salted_anew(name, before, after)
    ]


def _salted_anew(name: str, before: Mapping[str, str], after: Mapping[str, str]) -> bool:
    if not name.startswith(PROMPTS) or name not in before or name not in after:
        return False
    a, b = (facts[name].partition(SALTED)[2] for facts in (before, after))
    return a != b
