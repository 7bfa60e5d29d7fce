"""Drifts: levels that are better told as one slow slide than as steps.

A slide is a level, a straight line and, once it has ended, another level. It takes the place of
the steps that stand for it where it fits better, the number of its free values counted. A line of
fewer than eight nights is a step that noise has blurred.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

SHORTEST: Final = 8
_PRICE: Final = 5.0  # of a free value, in squared standard deviations
_FAVOUR_STEP: Final = 3.0  # one step is the simpler tale
_SLOPED: Final = 2.0  # t of a slope inside a level, below which nothing slides there
_COARSE: Final = 16  # places tried for a line's ends before the best is looked at closely
_MOST_STEPS: Final = 6  # in one slide


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """Nights of one level, or of a slide.

    Attributes:
        start: Index of its first night.
        stop: One past its last.
        first: Its value before its first night; equal to `last` for a level.
        last: Its value at its last night.
    """

    start: int
    stop: int
    first: float
    last: float

    @property
    def slides(self) -> bool:
        """Whether it is a slide."""
        return self.first != self.last


def pieces_of(x: Floats, starts: Sequence[int]) -> list[Piece]:
    """Levels and slides of one series.

    Args:
        x: In standard deviations of a night, incidents left out; shape (nights,).
        starts: Index of the first night of each level but the first.
    """
    edges = [0, *starts, len(x)]
    first, stop = 0, 1  # of the edges between which steps are looked at
    pieces: list[Piece] = []
    while first < len(edges) - 1:
        slide = None
        for stop in range(min(len(edges) - 1, first + 1 + _MOST_STEPS), first + 1, -1):
            slide = _slide(x, edges[first : stop + 1], is_last=stop == len(edges) - 1)
            if slide is not None:
                break
        if slide is None:
            stop = first + 1
            pieces.append(_level(x, edges[first], edges[stop]))
            first = stop
            continue
        pieces += slide
        # The level that a slide led to may be where the next change begins.
        first = stop
    return pieces


def _level(x: Floats, start: int, stop: int) -> Piece:
    mean = float(x[start:stop].mean())
    return Piece(start=start, stop=stop, first=mean, last=mean)


def _slide(x: Floats, edges: Sequence[int], *, is_last: bool) -> list[Piece] | None:
    """A slide in place of the levels between `edges`; None: the levels fit better."""
    parts = [x[a:b] for a, b in pairwise(edges)]
    means = [float(part.mean()) for part in parts]
    jumps = np.diff(means)
    block = x[edges[0] : edges[-1]]
    if len(block) < SHORTEST + 2 or not (np.all(jumps > 0) or np.all(jumps < 0)):
        return None
    if len(jumps) == 1 and max(abs(_slope_t(part)) for part in parts) < _SLOPED:
        return None
    cost = sum(float(((part - mean) ** 2).sum()) for part, mean in zip(parts, means, strict=True))
    start, stop, low, size, slide_cost = _best_line(block)
    goes_on = stop == len(block)
    saved = 2 * len(jumps) - (2 if goes_on else 3)
    gained = cost - slide_cost + _PRICE * saved - (_FAVOUR_STEP if len(jumps) == 1 else 0.0)
    into_a_step = goes_on and not is_last  # then it is no slide of its own
    if gained <= 0 or into_a_step or np.sign(size) != np.sign(jumps[0]):
        return None
    at = edges[0]
    pieces = [Piece(start=at, stop=at + start, first=low, last=low)] if start else []
    pieces.append(Piece(start=at + start, stop=at + stop, first=low, last=low + size))
    if not goes_on:
        end = low + size
        pieces.append(Piece(start=at + stop, stop=edges[-1], first=end, last=end))
    return pieces


def _slope_t(part: Floats) -> float:
    """The slope inside a level over its standard error, by the series' noise."""
    if len(part) < SHORTEST // 2:
        return 0.0
    t = np.arange(len(part)) - (len(part) - 1) / 2
    return float(t @ part / np.sqrt(t @ t))


def _best_line(block: Floats) -> tuple[int, int, float, float, float]:
    """(first night, past the last, level before, size, cost) of the best line."""
    n = len(block)
    step = max(1, n // _COARSE)
    places = sorted({*range(0, n + 1, step), n})
    best = _best_of(block, places, places)
    while step > 1:
        finer = max(1, step // 4)
        near = [
            sorted({place for place in range(at - step, at + step + 1, finer) if 0 <= place <= n})
            for at in best[:2]
        ]
        best = min(best, _best_of(block, *near), key=lambda line: line[-1])
        step = finer
    return best


def _best_of(
    block: Floats, starts: Sequence[int], stops: Sequence[int]
) -> tuple[int, int, float, float, float]:
    """The best of these lines by least squares: level + size × (share of the line passed)."""
    n = len(block)
    pairs = [(a, b) for a in starts for b in stops if b - a >= SHORTEST and (b == n or n - b >= 3)]
    if not pairs:
        pairs = [(0, n)]
    ends = np.array(pairs, dtype=np.float64)
    nights = np.arange(n)
    share = np.clip((nights - ends[:, :1] + 1) / (ends[:, 1:] - ends[:, :1]), 0, 1)
    mean_share = share.mean(axis=1)
    mean = block.mean()
    across = share - mean_share[:, None]
    size = across @ (block - mean) / (across**2).sum(axis=1)
    low = mean - size * mean_share
    cost = ((block - low[:, None] - size[:, None] * share) ** 2).sum(axis=1)
    best = int(cost.argmin())
    return (*pairs[best], float(low[best]), float(size[best]), float(cost[best]))
