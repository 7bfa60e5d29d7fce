"""Levels: where a series of nights became another, for many series at once.

1. Odd nights: at most three in a row, far from the nights on both sides, which agree. They are
   incidents and take no part in what follows.
2. Old changes: the piecewise constant fit that explains most for a price a change (optimal
   partitioning, Jackson et al. 2005), with at least four nights a level.
3. The newest nights: two to seven nights at the end that part from the level before. Few nights
   are asked for strong evidence, but not for as much as an old change: the nights to come tell.
   An odd night counts no more than four standard deviations (bounded loss, Fearnhead and Rigaill
   2019), so that it alone makes no level.

Every night all of it is done anew: a change that later nights do not bear out is gone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

LONGEST_INCIDENT: Final = 3
SHORTEST_LEVEL: Final = 4
SHORTEST_FIRST: Final = 6
"""Nights before the first change: with fewer there is no level to part from."""
NEWEST: Final = tuple(range(2, 8))
"""Lengths of a level that is still young."""

OLD_P: Final = 4e-5
NEW_P: Final = {2: 5e-4, 3: 4e-3, 4: 1.5e-3, 5: 6e-4, 6: 3e-4, 7: 2e-4}
"""Chances (two-sided) of one place of a series without changes to look like one. Over all places
they come to about one false change in a hundred series at each judgement (benchmarks/nightly.py
measures it)."""

ODD_SD: Final = 4.5
_AROUND: Final = 5  # nights on each side that tell what is normal there
_CAP_SD: Final = 4.5
_BLOCK: Final = 64  # series at a time: their arrays stay in the processor's cache


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """The nights of one series, split.

    Attributes:
        odd: (first, past the last) of each incident.
        starts: Index of the first night of each level but the first.
    """

    odd: tuple[tuple[int, int], ...]
    starts: tuple[int, ...]


def split(y: Floats, lengths: NDArray[np.intp], noise: Floats) -> list[Split]:
    """Split every series into levels.

    Args:
        y: Logarithms, NaN behind a series' end; shape (series, nights).
        lengths: Nights of each; shape (series,).
        noise: Standard deviation of a night; shape (series,).
    """
    centre = np.nanmedian(y, axis=1) if y.size else np.zeros(len(y))
    x = (y - centre[:, None]) / noise[:, None]
    odd = odd_nights(x, lengths)
    kept = [
        np.setdiff1d(np.arange(n), [i for a, b in runs for i in range(a, b)])
        for n, runs in zip(lengths, odd, strict=True)
    ]
    clean_ct = np.array([len(k) for k in kept], dtype=np.intp)
    clean = np.zeros((len(x), int(clean_ct.max(initial=0))))
    for row, places in enumerate(kept):
        clean[row, : len(places)] = x[row, places]
    return [
        Split(odd=runs, starts=tuple(int(places[at]) for at in starts))
        for runs, places, starts in zip(odd, kept, _starts(clean, clean_ct), strict=True)
    ]


def odd_nights(
    x: Floats, lengths: NDArray[np.intp], limit: float = ODD_SD
) -> list[tuple[tuple[int, int], ...]]:
    """Runs of up to three nights that part, to one side, from what is on both sides of them.

    Args:
        x: In standard deviations of a night, NaN behind a series' end; shape (series, nights).
        lengths: Nights of each.
        limit: How far they must be off.

    Returns:
        For each series (first, past the last) of each run, in order.
    """
    nights = x.shape[1]
    found: list[list[tuple[int, int]]] = [[] for _ in range(len(x))]
    if nights < SHORTEST_FIRST:
        return [() for _ in found]
    before, after = _medians_around(x)
    for run in range(1, LONGEST_INCIDENT + 1):
        for sign in (1.0, -1.0):
            s = sign * x
            b, a = sign * before, sign * after
            at = np.arange(nights - run)
            next_ = a[:, at + run]
            # The first two nights have nothing before them that tells what is normal.
            high = np.where(at < 2, next_, np.maximum(b[:, at], next_))
            low_in_run = np.min([s[:, at + i] for i in range(run)], axis=0)
            neighbours = np.maximum(np.where(at > 0, s[:, at - 1], -np.inf), s[:, at + run])
            is_odd = (low_in_run > high + limit) & (neighbours < high + limit)
            for row, place in zip(*np.nonzero(is_odd), strict=True):
                first = int(at[place])
                if first + run < lengths[row]:
                    found[row].append((first, first + run))
    return [tuple(sorted(run for run in runs if not _within_another(run, runs))) for runs in found]


def _within_another(run: tuple[int, int], runs: list[tuple[int, int]]) -> bool:
    """Whether a run is a part of a longer one."""
    return any(a <= run[0] and run[1] <= b and (a, b) != run for a, b in runs)


def last_is_odd(x: Floats, lengths: NDArray[np.intp]) -> NDArray[np.bool_]:
    """Whether each series' last night is far from the five before it: the next night tells.

    Args:
        x: In standard deviations of a night, incidents left out; shape (series, nights).
        lengths: Nights of each.
    """
    if x.shape[1] <= _AROUND:
        return np.zeros(len(x), dtype=bool)
    last = np.maximum(lengths - 1, _AROUND)
    rows = np.arange(len(x))
    before = np.median([x[rows, last - back] for back in range(1, _AROUND + 1)], axis=0)
    off: NDArray[np.bool_] = np.abs(x[rows, last] - before) > ODD_SD
    return off & (lengths > _AROUND)


def _medians_around(x: Floats) -> tuple[Floats, Floats]:
    """The median of up to five nights before each night, and of those from it on."""
    rows, nights = x.shape
    pad = np.full((rows, _AROUND), np.nan)
    padded = np.concatenate([pad, x, pad], axis=1)
    windows = np.lib.stride_tricks.sliding_window_view(padded, _AROUND, axis=1)
    sorted_ = np.sort(windows, axis=2)
    count = np.isfinite(sorted_).sum(axis=2)
    last = np.maximum(count - 1, 0)
    low = np.take_along_axis(sorted_, (last // 2)[:, :, None], axis=2)[:, :, 0]
    high = np.take_along_axis(sorted_, ((last + 1) // 2)[:, :, None], axis=2)[:, :, 0]
    medians = (low + high) / 2
    return medians[:, :nights], medians[:, _AROUND : _AROUND + nights]


def threshold(p: float, nights: NDArray[np.intp] | int) -> Floats:
    """How many standard deviations a difference of levels must have.

    Student's t, for the noise is itself estimated, from about five free values in six nights.
    """
    from scipy.special import stdtrit  # noqa: PLC0415  # importing scipy costs time

    freedom = np.maximum(0.84 * np.asarray(nights) - 1, 2.0)
    return np.asarray(stdtrit(freedom, 1 - p / 2), dtype=np.float64)


def _starts(x: Floats, lengths: NDArray[np.intp]) -> list[list[int]]:
    out: list[list[int]] = []
    settled = lengths - last_is_odd(x, lengths)
    for first in range(0, len(x), _BLOCK):
        rows = slice(first, first + _BLOCK)
        price = threshold(OLD_P, lengths[rows]) ** 2
        old = _old_starts(x[rows], settled[rows], price)
        out += [
            _with_newest(x[first + i, : lengths[first + i]], starts)
            for i, starts in enumerate(old)
        ]
    return out


def _old_starts(x: Floats, lengths: NDArray[np.intp], price: Floats) -> list[list[int]]:
    """Optimal partitioning: gain of a level is sum² / nights, each change costs `price`."""
    rows, nights = x.shape
    sums = np.zeros((rows, nights + 1))
    np.cumsum(x, axis=1, out=sums[:, 1:])
    best = np.full((rows, nights + 1), -np.inf)
    best[:, 0] = 0.0
    came_from = np.zeros((rows, nights + 1), dtype=np.intp)
    all_rows = np.arange(rows)
    inverse = 1.0 / np.arange(1, nights + 1)
    for stop in range(1, nights + 1):
        whole = sums[:, stop] ** 2 / stop
        last = stop - SHORTEST_LEVEL
        if last < SHORTEST_FIRST:
            best[:, stop] = whole
            continue
        lo = SHORTEST_FIRST
        gain = sums[:, stop, None] - sums[:, lo : last + 1]
        np.square(gain, out=gain)
        gain *= inverse[stop - lo - 1 : SHORTEST_LEVEL - 2 : -1]
        gain += best[:, lo : last + 1]
        place = gain.argmax(axis=1)
        split_gain = gain[all_rows, place] - price
        better = split_gain > whole
        best[:, stop] = np.where(better, split_gain, whole)
        came_from[:, stop] = np.where(better, place + lo, 0)
    out = []
    for row in range(rows):
        starts: list[int] = []
        at = int(lengths[row])
        while (at := int(came_from[row, at])) > 0:
            starts.append(at)
        out.append(starts[::-1])
    return out


def _with_newest(x: Floats, starts: list[int]) -> list[int]:
    """Add the level that began in the last nights, if one did, or find again where it did."""
    is_young = bool(starts) and len(x) - starts[-1] <= max(NEWEST)
    settled = starts[:-1] if is_young else starts
    since = settled[-1] if settled else 0
    shortest = SHORTEST_LEVEL if settled else SHORTEST_FIRST
    best_place, best_gain, is_found = 0, 0.0, is_young
    for young in NEWEST:
        place = len(x) - young
        old = place - since
        if old < shortest:
            break
        gain = _bounded_gain(x[since:place], x[place:])
        is_enough = gain > float(threshold(NEW_P[young], len(x))) ** 2
        if gain > best_gain and (is_enough or is_young):
            best_place, best_gain, is_found = place, gain, True
    return [*settled, best_place] if is_found and best_place else starts


def _bounded_gain(before: Floats, after: Floats) -> float:
    """What a level of their own explains of the newest nights, odd ones counting no more.

    Without odd nights it is the square of the difference in standard deviations of itself.
    """
    cap = _CAP_SD**2
    near = np.abs(after - np.median(after)) <= _CAP_SD
    level = after[near].mean() if near.any() else after.mean()
    gain = np.minimum((after - before.mean()) ** 2, cap).sum()
    gain -= np.minimum((after - level) ** 2, cap).sum()
    return float(gain) * len(before) / (len(before) + len(after))
