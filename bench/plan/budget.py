"""`--budget 3h`: which launches and cells are worth the time there is; pure.

Of what does not fit, that is dropped whose loss costs the answer least:

1. Pairs are kept whole, the first before the second: a pair is what one speedup is made of.
2. The first pair that does not fit keeps all its arms and loses loads: first those in the middle.
   The lightest and the heaviest load of each workload stay longest, for speculation gains most at
   one and loses most at the other; what lies between is filled in by halving.
3. Where even one load does not fit the first pair loses arms, the last first; the baseline and
   one more stay, for one arm answers nothing.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from dataclasses import dataclass, replace
from itertools import groupby, pairwise, zip_longest
from typing import TYPE_CHECKING, Final

from bench.errors import InputError
from bench.model import BASELINE

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from bench.model import Cell, Launch

FEWEST_ARMS: Final = 2
_UNITS_S: Final = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_DURATION = re.compile(r"([0-9]+(?:\.[0-9]+)?)([smhd])")
_MOST_S: Final = 366 * 86400.0
_SHOWN_CHARS: Final = 40

Point = tuple[str, str]
"""A workload's name and a load's label."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """What of some launches fits into a time.

    Attributes:
        kept: The launches to make, in order, some with fewer cells than planned.
        dropped: The cells that are not measured.
        needed_s: What `kept` is expected to take.
    """

    kept: tuple[Launch, ...]
    dropped: tuple[Cell, ...]
    needed_s: float


def parse_budget(text: str) -> float:
    """`90s`, `45m`, `3h`, `2.5h` or `1h30m` as seconds.

    Raises:
        InputError: It is none of these.
    """
    parts = _DURATION.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text.strip():
        raise InputError(
            f"--budget {text[:_SHOWN_CHARS]}: is no duration.", hint="Write 90s, 45m, 3h or 1h30m."
        )
    seconds = sum(float(number) * _UNITS_S[unit] for number, unit in parts)
    if not math.isfinite(seconds) or seconds > _MOST_S:
        raise InputError(
            f"--budget {text[:_SHOWN_CHARS]}: is longer than {_MOST_S / _UNITS_S['d']:g} days.",
            hint="Leave it out to measure all there is.",
        )
    if seconds <= 0:
        raise InputError(f"--budget {text}: leaves no time.", hint="Write 90s, 45m, 3h or 1h30m.")
    return float(seconds)


def fit_budget(launches: Sequence[Launch], left_s: float, *, slower: float = 1.0) -> Fit:
    """The part of some launches that is worth most in a time.

    Args:
        launches: Those that are still to be made, in order.
        left_s: The time, in seconds of the world.
        slower: By how much launches took longer than expected so far.
    """
    kept: list[Launch] = []
    spent_s, is_full = 0.0, False
    for place, (_, members) in enumerate(groupby(launches, key=lambda launch: launch.pair)):
        pair = list(members)
        if is_full:
            continue
        fitting = _whole_or_part(pair, left_s - spent_s, slower, may_lose_arms=place == 0)
        is_full = fitting != pair
        kept += fitting
        spent_s += slower * sum(launch.estimated_s for launch in fitting)
    kept_ids = {cell.cell_id for launch in kept for cell in launch.cells}
    dropped = tuple(
        cell for launch in launches for cell in launch.cells if cell.cell_id not in kept_ids
    )
    return Fit(kept=tuple(kept), dropped=dropped, needed_s=spent_s)


def told(cells: Iterable[Cell]) -> str:
    """Dropped cells in a few words: `pair 2: chat load 1, chat load 8 (baseline, eagle3)`."""
    arms: dict[int, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for cell in cells:
        arms[cell.pair][f"{cell.workload.name} load {cell.load.label}"].append(cell.arm)
    pairs: dict[str, list[str]] = defaultdict(list)
    for pair, points in sorted(arms.items()):
        alike: dict[str, list[str]] = defaultdict(list)
        for point, names in points.items():
            alike[", ".join(sorted(names))].append(point)
        said = ", ".join(f"{', '.join(some)} ({names})" for names, some in alike.items())
        pairs[said].append(str(pair))
    return "; ".join(
        f"{'pairs' if len(numbers) > 1 else 'pair'} {', '.join(numbers)}: {said}"
        for said, numbers in pairs.items()
    )


def _whole_or_part(
    pair: list[Launch], left_s: float, slower: float, *, may_lose_arms: bool
) -> list[Launch]:
    arms = list(dict.fromkeys(launch.arm for launch in pair))
    leaving = [arm for arm in reversed(arms) if arm != BASELINE]
    while True:
        points = _most_wanted_first(pair)
        for count in range(len(points), 0, -1):
            part = _with_points(pair, set(points[:count]))
            if slower * sum(launch.estimated_s for launch in part) <= left_s:
                return part
        if not may_lose_arms or len({launch.arm for launch in pair}) <= FEWEST_ARMS:
            return []
        gone = leaving.pop(0)
        pair = [launch for launch in pair if launch.arm != gone]


def _most_wanted_first(pair: Sequence[Launch]) -> list[Point]:
    """The points of a pair: the ends of each workload's loads, then what lies between, halved."""
    by_workload: dict[str, list[Point]] = {}
    for launch in pair:
        for cell in launch.cells:
            points = by_workload.setdefault(cell.workload.name, [])
            point = (cell.workload.name, cell.load.label)
            if point not in points:
                points.append(point)
    ranked = [[points[at] for at in halving(len(points))] for points in by_workload.values()]
    return [point for rank in zip_longest(*ranked) for point in rank if point is not None]


def halving(count: int) -> list[int]:
    """0, the last, the middle, the middles of the halves, …: each place once."""
    order = [place for place in dict.fromkeys((0, count - 1)) if 0 <= place < count]
    while len(order) < count:
        taken = sorted(order)
        gaps = [(b - a, -a) for a, b in pairwise(taken)]
        width, start = max(gaps)
        order.append(-start + width // 2)
    return order


def _with_points(pair: Sequence[Launch], points: set[Point]) -> list[Launch]:
    return [part for launch in pair if (part := _part(launch, points)) is not None]


def _part(launch: Launch, points: set[Point]) -> Launch | None:
    """A launch with only some of its cells; None when none is left."""
    chosen = [
        at
        for at, cell in enumerate(launch.cells)
        if (cell.workload.name, cell.load.label) in points
    ]
    if len(chosen) == len(launch.cells):
        return launch
    if not chosen:
        return None
    return with_cells(launch, [launch.cells[at] for at in chosen])


def with_cells(launch: Launch, cells: Sequence[Cell]) -> Launch:
    """A launch with some of its cells, its estimate that much less."""
    if not launch.cells_s:
        return replace(launch, cells=tuple(cells))
    kept = {cell.cell_id for cell in cells}
    pairs = list(zip(launch.cells, launch.cells_s, strict=True))
    start_s = launch.estimated_s - sum(launch.cells_s)
    cells_s = tuple(seconds for cell, seconds in pairs if cell.cell_id in kept)
    return replace(launch, cells=tuple(cells), cells_s=cells_s, estimated_s=start_s + sum(cells_s))
