"""What a run says in a sentence or two, and numbers as people read them. Pure text, no markup."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import TYPE_CHECKING

from bench.model import BASELINE, CellStatus, Verdict
from reports.view import (
    arms_of,
    comparisons_at,
    load_phrase,
    load_value,
    places_of,
    pooled,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench.model import Comparison
    from bench.store import StoredRun

ABSENT = "–"
MOST_LOADS = 5  # in one sentence
MOST_ANSWERS = 8  # sentences, one an arm and workload
_METRICS = {
    "output_tok_per_s": "output tok/s",
    "inverse_mean_tpot": "1 / mean TPOT",
    "capacity_rate_per_s": "requests a second within the limits",
}


def number(value: float | None, digits: int) -> str:
    """A number with its decimals and groups of three; `–` for one that is absent."""
    return ABSENT if value is None else f"{value:,.{digits}f}"


def percent(ratio: float | None, digits: int = 0) -> str:
    """A share as per cent."""
    return ABSENT if ratio is None else f"{100 * ratio:.{digits}f} %"


def interval(low: float | None, high: float | None, digits: int = 2) -> str:
    """` [1.28, 1.34]` with the space in front, or nothing."""
    return "" if low is None or high is None else f" [{low:.{digits}f}, {high:.{digits}f}]"


def metric_words(metric: str) -> str:
    """A compared metric as words."""
    return _METRICS.get(metric, metric)


def answer_sentences(stored: StoredRun) -> list[str]:
    """The answer: for each arm and workload what it gains or loses at each load, with intervals.

    Returns:
        At least one sentence; where nothing can be said, why.
    """
    if not stored.measurements:
        return ["Nothing was measured: no cell of this run finished."]
    arms = arms_of(stored)
    if BASELINE not in arms or len(arms) < 2:
        return _of_one_arm(stored)
    workloads = list(dict.fromkeys(place.workload for place in places_of(stored)))
    answers = [
        comparisons
        for arm in (a for a in arms if a != BASELINE)
        for workload in workloads
        if (comparisons := comparisons_at(stored, arm, workload))
    ]
    if not answers:
        return ["No arm could be compared with the baseline; the findings say why."]
    shown = answers
    if len(answers) > MOST_ANSWERS:
        shown = sorted(answers, key=_gain, reverse=True)[:MOST_ANSWERS]
    sentences = [_sentence(comparisons, name_it=len(workloads) > 1) for comparisons in shown]
    left = len(answers) - len(shown)
    if left:
        sentences.append(
            f"These are the {len(shown)} fastest of {len(answers)}, and the fastest of many is "
            f"flattered by luck; the other {left} are in the table."
        )
    return sentences


def _of_one_arm(stored: StoredRun) -> list[str]:
    """What the arms did, where there is no baseline beside another arm."""
    arms = arms_of(stored)
    if len(arms) > 1:
        return ["This run compares nothing: it has no baseline."]
    workloads = list(dict.fromkeys(place.workload for place in places_of(stored)))
    told = [
        f"{number(p.output_tok_per_s, 1)} tok/s"
        + (f" in {p.place.workload}" if len(workloads) > 1 else "")
        + f" {load_phrase(p.place.load)}"
        + ("" if p.status is CellStatus.VALID else f" ({p.status})")
        for p in pooled(stored)
        if p.output_tok_per_s is not None
    ]
    compares = "This run compares nothing: it has one arm alone"
    if not told:
        return [f"{compares}."]
    more = f" and at {len(told) - MOST_LOADS} more in the table" if len(told) > MOST_LOADS else ""
    return [f"{compares}. {arms[0]} gave {_listed(told[:MOST_LOADS])}{more}."]


def _gain(comparisons: Sequence[Comparison]) -> float:
    """Mean log of the speedups; those without any come last."""
    logs = [math.log(c.speedup) for c in comparisons if c.speedup]
    return math.fsum(logs) / len(logs) if logs else -math.inf


def _sentence(of: Sequence[Comparison], *, name_it: bool) -> str:
    arm = of[0].arm
    where = f" in {of[0].workload}" if name_it else ""
    comparisons = _most_telling(of)
    left = len(of) - len(comparisons)
    rest = f" ({left} more load{'s' if left > 1 else ''} in the table)" if left else ""
    if all(c.verdict is None and c.speedup is not None for c in comparisons):
        told = _listed([_ratio(c, " as fast" if c is comparisons[0] else "") for c in comparisons])
        return f"{arm}{where} was {told}; there is no verdict{rest}."
    parts = [_part(c) for c in comparisons]
    crossing = crossover(of)
    if crossing is not None:
        low_loses = (comparisons[0].speedup or 1) < 1
        way = "pays from about" if low_loses else "breaks even near"
        rates = comparisons[0].load.startswith("rate=")
        unit = "requests a second" if rates else "requests at once"
        parts.append(f"{way} {crossing:.{0 if crossing >= 10 else 1}f} {unit}")
    return f"{arm}{where} {_listed(parts)}{rest}."


def _most_telling(comparisons: Sequence[Comparison]) -> list[Comparison]:
    """All of a few loads; of many the first, the last and the extremes between them."""
    told = [c for c in comparisons if c.speedup is not None]
    if len(comparisons) <= MOST_LOADS or not told:
        return list(comparisons)
    ends = [comparisons[0], comparisons[-1], *(f(told, key=_speedup) for f in (min, max))]
    return [c for c in comparisons if any(c is end for end in ends)]


def _speedup(c: Comparison) -> float:
    return c.speedup or 0.0


def _ratio(c: Comparison, words: str) -> str:
    spread = interval(c.ci95_low, c.ci95_high)
    return f"{c.speedup:.2f}×{words}{spread} {load_phrase(c.load)}{_mark(c)}"


def _mark(c: Comparison) -> str:
    marks = [] if c.status is CellStatus.VALID else [str(c.status)]
    marks += [f"same server as {', '.join(c.same_server_as)}"] if c.same_server_as else []
    return f" ({', '.join(marks)})" if marks else ""


def _part(c: Comparison) -> str:
    mark = _mark(c)
    at = load_phrase(c.load)
    if c.speedup is None:
        return f"has no answer {at}{mark}"
    ratio = f"{c.speedup:.2f}×{interval(c.ci95_low, c.ci95_high)}"
    match c.verdict:
        case Verdict.FASTER:
            return f"is {c.speedup:.2f}× as fast{interval(c.ci95_low, c.ci95_high)} {at}{mark}"
        case Verdict.SLOWER:
            lost = 100 * (1 - c.speedup)
            low = None if c.ci95_high is None else 100 * (1 - c.ci95_high)
            high = None if c.ci95_low is None else 100 * (1 - c.ci95_low)
            return f"loses {lost:.0f} %{interval(low, high, 0)} {at}{mark}"
        case Verdict.SAME:
            return f"makes no difference {at} ({ratio}){mark}"
        case Verdict.UNDECIDED:
            return f"is undecided {at} ({ratio}){mark}"
        case None:
            return f"was {ratio} {at} without a verdict{mark}"


def crossover(comparisons: Sequence[Comparison]) -> float | None:
    """The load at which the speedup passes 1, between two loads whose verdicts are decided.

    Interpolated in the logarithms of load and speedup. None when it passes nowhere, or passes more
    than once: then the table says more than a number.

    Args:
        comparisons: One arm's in one workload, from low load to high.
    """
    decided = [
        (load, math.log(c.speedup))
        for c in comparisons
        if c.speedup and c.verdict in {Verdict.FASTER, Verdict.SLOWER}
        if (load := load_value(c.load))
    ]
    crossings = [
        math.exp(
            math.log(load)
            + (math.log(after) - math.log(load)) * speedup / (speedup - speedup_after)
        )
        for (load, speedup), (after, speedup_after) in pairwise(decided)
        if (speedup > 0) != (speedup_after > 0)
    ]
    return crossings[0] if len(crossings) == 1 else None


def _listed(parts: Sequence[str]) -> str:
    if len(parts) == 1:
        return parts[0]
    return ", ".join(parts[:-1]) + " and " + parts[-1]


def duration(seconds: float) -> str:
    """`2 h 05 min`, `3 min 20 s`, `12 s`."""
    whole = round(seconds)
    hours, rest = divmod(whole, 3600)
    minutes, secs = divmod(rest, 60)
    if hours:
        return f"{hours} h {minutes:02d} min"
    return f"{minutes} min {secs:02d} s" if minutes else f"{secs} s"
