"""What happened in series of nightly values: levels, steps, slides, odd nights. Pure.

    [found] = detect([[1002.1, 998.4, …, 951.0, 949.2]])
    found.moves[0].index        # the first night of the new level
    found.moves[0].ln_change    # -0.05 is 5 % less

Values are positive and in the order of the nights; a missing night is left out. Everything is in
natural logarithms, so that changes are relative and a series' unit does not matter.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from bench.nightly.drift import Piece, pieces_of
from bench.nightly.levels import (
    NEW_P,
    ODD_SD,
    SHORTEST_FIRST,
    Split,
    split,
    threshold,
)
from bench.nightly.noise import noise_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

FEWEST_NIGHTS = SHORTEST_FIRST + 2
"""With fewer nothing can have changed: a first level, and two nights of another."""

_FEWEST_NORMAL = 2  # nights of a level that tell what is normal in it


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """A level that became another.

    Attributes:
        index: First night of the new level, or of the slide to it.
        stop: Of a slide that has ended, the first night after it; None: it goes on, or is a step.
        slides: Whether it is a slide.
        before: Level before, ln.
        after: Level after, or reached so far, ln.
        half_width: Half of the 95 % interval of `ln_change`.
    """

    index: int
    stop: int | None
    slides: bool
    before: float
    after: float
    half_width: float

    @property
    def ln_change(self) -> float:
        """ln(after / before)."""
        return self.after - self.before


@dataclass(frozen=True, slots=True, kw_only=True)
class Odd:
    """One to three nights far from what is around them.

    Attributes:
        start: Index of the first.
        stop: One past the last.
        ln_change: Of the farthest, against the level there.
        ended: Whether the old level is back; the last night alone cannot tell.
    """

    start: int
    stop: int
    ln_change: float
    ended: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """One series.

    Attributes:
        nights: How many values it has.
        noise: Standard deviation of a night, ln; None with too few.
        pieces: Levels and slides, values in ln; empty with too few.
        moves: Between them.
        odd: Nights left out of them.
    """

    nights: int
    noise: float | None
    pieces: tuple[Piece, ...]
    moves: tuple[Move, ...]
    odd: tuple[Odd, ...]

    def smallest_seen(self, nights: int) -> float | None:
        """The smallest change, ln, that would be found as often as not.

        Args:
            nights: Of the new level; from 2 to 7.
        """
        if self.noise is None:
            return None
        last = self.pieces[-1]
        old = max(last.stop - last.start, SHORTEST_FIRST)
        wanted = float(threshold(NEW_P[nights], self.nights))
        return wanted * self.noise * float(np.sqrt(1 / nights + 1 / old))


def detect(series: Sequence[Sequence[float]]) -> list[Found]:
    """Judge many series at once.

    Args:
        series: Each its values in the order of nights; they need not be equally long.

    Raises:
        ValueError: A value is not a positive number.
    """
    logs = [_logs(values) for values in series]
    long_enough = [place for place, y in enumerate(logs) if len(y) >= FEWEST_NIGHTS]
    out = [Found(nights=len(y), noise=None, pieces=(), moves=(), odd=()) for y in logs]
    if not long_enough:
        return out
    lengths = np.array([len(logs[place]) for place in long_enough], dtype=np.intp)
    y = np.full((len(long_enough), int(lengths.max())), np.nan)
    for row, place in enumerate(long_enough):
        y[row, : lengths[row]] = logs[place]
    noise = noise_of(y)
    for row, (place, found) in enumerate(zip(long_enough, split(y, lengths, noise), strict=True)):
        out[place] = _found(logs[place], float(noise[row]), found)
    return out


def _logs(values: Sequence[float]) -> Floats:
    y = np.asarray(values, dtype=np.float64)
    if not np.all(np.isfinite(y) & (y > 0)):
        raise ValueError("values of a series are positive numbers")
    return np.log(y)


def _found(y: Floats, noise: float, found: Split) -> Found:
    left_out = [night for a, b in found.odd for night in range(a, b)]
    kept = np.setdiff1d(np.arange(len(y)), left_out)
    starts = [int(place) for place in np.searchsorted(kept, found.starts)]
    x = _without_odd_end(y[kept] / noise, starts[-1] if starts else 0)
    pieces = tuple(
        Piece(
            start=int(kept[piece.start]) if piece.start else 0,
            stop=int(kept[piece.stop]) if piece.stop < len(kept) else len(y),
            first=piece.first * noise,
            last=piece.last * noise,
        )
        for piece in pieces_of(x, starts)
    )
    is_kept = np.ones(len(y), dtype=bool)
    is_kept[left_out] = False
    moves = tuple(_moves(pieces, is_kept, noise))
    return Found(
        nights=len(y),
        noise=noise,
        pieces=pieces,
        moves=moves,
        odd=tuple(_odd(y, pieces, found, noise)),
    )


def _without_odd_end(x: Floats, since: int) -> Floats:
    """The last night put back to the level it is in, if it is far off: it alone moves nothing.

    Args:
        x: In standard deviations of a night; shape (nights,).
        since: First night of the last level.
    """
    if len(x) - since < _FEWEST_NORMAL + 1:
        return x  # nothing beside it tells what is normal there
    normal = float(np.median(x[since:-1]))
    if abs(x[-1] - normal) <= ODD_SD:
        return x
    return np.append(x[:-1], normal)


def _moves(pieces: Sequence[Piece], is_kept: NDArray[np.bool_], noise: float) -> list[Move]:
    moves = []
    counts = [int(is_kept[piece.start : piece.stop].sum()) for piece in pieces]
    for place, piece in enumerate(pieces):
        if piece.slides:
            is_last = place == len(pieces) - 1
            before = counts[place - 1] if place and _joined(pieces[place - 1], piece) else 0
            after = 0 if is_last or not _joined(piece, pieces[place + 1]) else counts[place + 1]
            moves.append(
                Move(
                    index=piece.start,
                    stop=None if is_last else piece.stop,
                    slides=True,
                    before=piece.first,
                    after=piece.last,
                    half_width=_slide_half_width(before, counts[place], after, noise),
                )
            )
    for (old, new), (n_old, n_new) in zip(pairwise(pieces), pairwise(counts), strict=True):
        if not _joined(old, new):
            freedom_p = 0.05
            width = float(threshold(freedom_p, len(is_kept))) * noise
            moves.append(
                Move(
                    index=new.start,
                    stop=None,
                    slides=False,
                    before=old.last,
                    after=new.first,
                    half_width=width * float(np.sqrt(1 / n_old + 1 / n_new)),
                )
            )
    return sorted(moves, key=lambda move: move.index)


def _joined(old: Piece, new: Piece) -> bool:
    """Whether two pieces belong to one slide: no step lies between them."""
    return old.last == new.first and (old.slides or new.slides)


def _slide_half_width(before: int, nights: int, after: int, noise: float) -> float:
    """Of a slide's size by least squares, its ends taken as known."""
    share = np.concatenate([np.zeros(before), np.arange(1, nights + 1) / nights, np.ones(after)])
    spread = float(np.sqrt(((share - share.mean()) ** 2).sum()))
    return float(threshold(0.05, len(share))) * noise / spread


def _odd(y: Floats, pieces: Sequence[Piece], found: Split, noise: float) -> list[Odd]:
    odd = []
    for start, stop in found.odd:
        off = y[start:stop] - [_level_at(pieces, night) for night in range(start, stop)]
        odd.append(
            Odd(start=start, stop=stop, ln_change=float(off[np.abs(off).argmax()]), ended=True)
        )
    last = len(y) - 1
    off_last = float(y[last] - _level_at(pieces, last))
    if abs(off_last) > ODD_SD * noise:
        odd.append(Odd(start=last, stop=last + 1, ln_change=off_last, ended=False))
    return odd


def _level_at(pieces: Sequence[Piece], night: int) -> float:
    piece = next(piece for piece in pieces if night < piece.stop)
    share = min(max((night - piece.start + 1) / (piece.stop - piece.start), 0.0), 1.0)
    return piece.first + share * (piece.last - piece.first)
