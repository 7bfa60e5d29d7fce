"""Why a series changed: which factor moved, and what was changed where it did. Pure.

A speed is a product, so its change is a sum: Δln tok/s = Δln accept length - Δln cycle + residual.
Each factor is the same nights' mean after the change less that before, with the factor's own
noise; the baseline of the same nights tells the machine's part from speculation's.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Final

import numpy as np

from bench.metrics.change_words import changed_facts
from bench.metrics.watched import ACCEPT_LEN, CLOCK, CYCLE, OUTPUT, SPEEDUP, beside, own_name
from bench.model import BASELINE
from bench.model.nightly import Attribution, Cause, Factor, FieldChange, SeriesKey

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from bench.model.nightly import Point
    from bench.nightly.detect import Found, Move

NONE_RECORDED: Final = "none recorded: suspect hardware or heat"
SOLE: Final = "sole change"

_MOST_NIGHTS: Final = 21  # on each side: what was longer ago says less of this change
_PRACTICAL: Final = 0.003
_Z: Final = 2.2  # of a 95 % interval with the few nights there are
_UNCERTAIN: Final = 1  # nights by which a step may be misplaced

_FITS: Final = {
    Cause.ENVIRONMENT: (
        *(
            "gpus.",
            "kernel",
            "cpu.",
            "host",
            "memory_gib",
            "packages.",
            "environment.",
            "container",
        ),
        *("nccl", "server: ", "baseline: ", "gpu_topology", "cpu_governor", "python", "target."),
        *("specdyno",),
    ),
    Cause.SPECULATION: (
        *("packages.", "environment.", "container", "nccl", "gpus.", "kernel", "gpu_topology"),
        *("server: ", "ARM: ", "draft."),
    ),
    Cause.ACCEPTANCE: ("draft.", "target.", "tokenizer.", "server: ", "ARM: ", "packages.sglang"),
    Cause.WORKLOAD: ("work: ", "tokenizer.", "specdyno"),
}
"""Beginnings of the names of facts that can do what was seen; `ARM: ` is any arm's own setting.
For the other causes all can."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """One series as columns.

    Attributes:
        nights: Ordinal of each night's date; shape (nights,).
        logs: Logarithms of the values, NaN in incidents; shape (nights,).
        noise: Standard deviation of a night, ln; None with too few.
        changed_at: Indices of the nights whose environment is not that of the night before.
    """

    nights: NDArray[np.int64]
    logs: NDArray[np.float64]
    noise: float | None
    changed_at: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ground:
    """What attribution looks at beside the series itself.

    Attributes:
        points: Every series of the history.
        found: What was found in each.
        columns: The same as columns.
        facts: Environments by fingerprint.
    """

    points: Mapping[SeriesKey, Sequence[Point]]
    found: Mapping[SeriesKey, Found]
    columns: Mapping[SeriesKey, Columns]
    facts: Mapping[str, Mapping[str, str]]


def ground_of(
    points: Mapping[SeriesKey, Sequence[Point]],
    found: Mapping[SeriesKey, Found],
    facts: Mapping[str, Mapping[str, str]],
) -> Ground:
    """All series of a history, made ready.

    Args:
        points: Every series, oldest first.
        found: What was found in each.
        facts: Environments by fingerprint.
    """
    columns = {key: _columns(of, found[key]) for key, of in points.items()}
    return Ground(points=points, found=found, columns=columns, facts=facts)


def _columns(points: Sequence[Point], found: Found) -> Columns:
    logs = np.log([p.value for p in points])
    for odd in found.odd:
        logs[odd.start : odd.stop] = np.nan
    names = [p.fingerprint for p in points]
    return Columns(
        nights=np.array([p.night.toordinal() for p in points], dtype=np.int64),
        logs=logs,
        noise=found.noise,
        changed_at=tuple(place for place, (a, b) in enumerate(pairwise(names), start=1) if a != b),
    )


def attribute(key: SeriesKey, moves: Sequence[Move], place: int, ground: Ground) -> Attribution:
    """Why one change of a series came about.

    Args:
        key: The series.
        moves: All its changes.
        place: Which of them.
        ground: The history.
    """
    move = moves[place]
    points = ground.points[key]
    before, after = _nights_around(ground.columns[key], moves, place)

    def factor(arm: str, metric: str) -> Factor | None:
        other = SeriesKey(
            scenario=key.scenario,
            workload=key.workload,
            load=key.load,
            arm=arm,
            metric=beside(key.metric, metric),
            hardware=key.hardware,
        )
        return _factor(ground.columns.get(other), before, after)

    output = factor(key.arm, OUTPUT)
    accept_len, cycle = factor(key.arm, ACCEPT_LEN), factor(key.arm, CYCLE)
    baseline = None if key.arm == BASELINE else factor(BASELINE, OUTPUT)
    speedup = None if key.arm == BASELINE else factor(key.arm, SPEEDUP)
    clock = factor(key.arm, CLOCK)
    residual = _residual(output, accept_len, cycle)
    near = _changed_facts(points, move.index, ground.facts, is_slide=move.slides)
    work = any(
        name.startswith("work: ") and off == 0
        for name, _, _, off in near
        if name.endswith(f" {key.workload}, load {key.load}")
    )
    cause = _cause(
        key,
        work=work,
        accept_len=accept_len,
        cycle=cycle,
        residual=residual,
        baseline=baseline,
        speedup=speedup,
    )
    fields = _ranked(key, cause, near, ground)
    return Attribution(
        cause=cause,
        accept_len=accept_len,
        cycle=cycle,
        residual=residual,
        baseline=baseline,
        speedup=speedup,
        clock=clock,
        fields=tuple(fields),
        confidence=_confidence(fields),
    )


def _nights_around(
    columns: Columns, moves: Sequence[Move], place: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The nights of the level before a change and of the one after, the nearest of them."""
    move = moves[place]
    begin = 0
    if place:
        earlier = moves[place - 1]
        begin = earlier.stop or earlier.index
    end = moves[place + 1].index if place + 1 < len(moves) else len(columns.nights)
    first = move.index
    if move.slides:
        # The slide's own end is where it led to; its beginning is where it came from.
        third = max(((move.stop or len(columns.nights)) - move.index) // 3, 1)
        begin = min(begin, move.index)
        first = (move.stop or len(columns.nights)) - third
        stop_before = max(move.index, min(begin + third, move.index + third))
    else:
        stop_before = move.index
    nights = columns.nights
    before = nights[max(begin, stop_before - _MOST_NIGHTS) : stop_before]
    return before, nights[first : min(end, first + _MOST_NIGHTS)]


def _factor(
    columns: Columns | None, before: NDArray[np.int64], after: NDArray[np.int64]
) -> Factor | None:
    if columns is None or columns.noise is None:
        return None
    means = []
    inverse = 0.0
    for nights in (before, after):
        kept = columns.logs[np.isin(columns.nights, nights)]
        kept = kept[np.isfinite(kept)]
        if not len(kept):
            return None
        means.append(float(kept.mean()))
        inverse += 1 / len(kept)
    change = means[1] - means[0]
    half = _Z * columns.noise * math.sqrt(inverse)
    return Factor(ln_change=change, half_width=half, moved=abs(change) > max(half, _PRACTICAL))


def _residual(
    output: Factor | None, accept_len: Factor | None, cycle: Factor | None
) -> Factor | None:
    """What the factors leave of the speed's change.

    Its interval is the speed's: factors are measured in the same nights, so that most of their
    noise is the speed's too, and adding all three would count it twice.
    """
    if output is None or cycle is None:
        return None
    explained = (accept_len.ln_change if accept_len else 0.0) - cycle.ln_change
    change = output.ln_change - explained
    return Factor(
        ln_change=change,
        half_width=output.half_width,
        moved=abs(change) > max(output.half_width, _PRACTICAL),
    )


def _cause(  # one keyword a factor
    key: SeriesKey,
    *,
    work: bool,
    accept_len: Factor | None,
    cycle: Factor | None,
    residual: Factor | None,
    baseline: Factor | None,
    speedup: Factor | None,
) -> Cause:
    if work:
        return Cause.WORKLOAD
    if key.arm == BASELINE:
        return Cause.ENVIRONMENT if own_name(key.metric) != ACCEPT_LEN else Cause.UNCLEAR
    found = []
    if baseline is not None and baseline.moved:
        found.append(Cause.ENVIRONMENT)
    if accept_len is not None and accept_len.moved:
        found.append(Cause.ACCEPTANCE)
    if cycle is not None and cycle.moved and not _with_baseline(cycle, baseline, speedup):
        found.append(Cause.SPECULATION)
    if not found and residual is not None and residual.moved:
        found.append(Cause.OUTSIDE_DECODING)
    if not found:
        return Cause.UNCLEAR
    return found[0] if len(found) == 1 else Cause.SEVERAL


def _with_baseline(cycle: Factor, baseline: Factor | None, speedup: Factor | None) -> bool:
    """Whether the cycle moved no more than the baseline's step did.

    A step that became slower by as much makes a longer cycle; what is left of it in the speedup,
    which is paired within each night, would be speculation's own.
    """
    if baseline is None or not baseline.moved:
        return False
    if math.copysign(1, cycle.ln_change) == math.copysign(1, baseline.ln_change):
        return False  # a slower cycle with a faster baseline
    if speedup is not None and speedup.moved:
        left = cycle.ln_change + baseline.ln_change
        return abs(left) <= max(cycle.half_width, abs(baseline.ln_change) / 3)
    return True


# --------------------------------------------------------------------------------- recorded facts


def _changed_facts(
    points: Sequence[Point],
    index: int,
    facts: Mapping[str, Mapping[str, str]],
    *,
    is_slide: bool,
) -> list[tuple[str, str, str, int]]:
    """(name, before, after, nights off) of facts that changed where the level did or near."""
    reach = 2 * _UNCERTAIN if is_slide else _UNCERTAIN
    found: dict[str, tuple[str, str, str, int]] = {}
    for off in sorted(range(-reach, reach + 1), key=lambda o: (abs(o), o)):
        night = index + off
        if not 0 < night < len(points):
            continue
        a, b = points[night - 1].fingerprint, points[night].fingerprint
        if a == b:
            continue
        for name, x, y in changed_facts(facts.get(a, {}), facts.get(b, {})):
            found.setdefault(name, (name, x, y, off))
    return list(found.values())


def _ranked(
    key: SeriesKey,
    cause: Cause,
    near: Sequence[tuple[str, str, str, int]],
    ground: Ground,
) -> list[FieldChange]:
    """Those that can do it first, then those right at the change, then rare changes."""
    often = _change_counts(key, {name for name, *_ in near}, ground)
    changes = [
        FieldChange(name=name, before=x, after=y, nights_off=off, fits=fits(cause, key.arm, name))
        for name, x, y, off in near
    ]
    exact = [c for c in changes if c.nights_off == 0 and c.fits]
    # A fact of the night before or after counts only where the night itself has none.
    kept = [c for c in changes if c.nights_off == 0 or not exact]
    return sorted(kept, key=lambda c: (not c.fits, abs(c.nights_off), often[c.name], c.name))


def fits(cause: Cause, arm: str, name: str) -> bool:
    """Whether a fact of this kind can have this effect.

    Args:
        cause: The factor that moved.
        arm: The arm of the series.
        name: The fact.
    """
    beginnings = _FITS.get(cause)
    if name.startswith("work: "):
        return cause in {Cause.WORKLOAD, Cause.SEVERAL, Cause.UNCLEAR}
    own = f"{arm}: "
    if beginnings is None:
        return True
    return name.startswith(tuple(own if b == "ARM: " else b for b in beginnings))


def _change_counts(key: SeriesKey, names: set[str], ground: Ground) -> dict[str, int]:
    """How often each fact changed from one night to the next."""
    counts = dict.fromkeys(names, 0)
    points = ground.points[key]
    for place in ground.columns[key].changed_at if names else ():
        x = ground.facts.get(points[place - 1].fingerprint, {})
        y = ground.facts.get(points[place].fingerprint, {})
        for name in names:
            counts[name] += x.get(name) != y.get(name)
    return counts


def _confidence(fields: Sequence[FieldChange]) -> str:
    likely = [field for field in fields if field.fits]
    if not likely:
        return NONE_RECORDED
    return SOLE if len(likely) == 1 else f"one of {len(likely)}"
