"""What any rule could reach on SpecBundle that knows the baseline, 3-1-4 and 7-1-8 alone.

The chains are foreseen without loss; what is lost is lost where a tree is best, and these three
launches do not tell where. Two bounds show it:

- *linear rules*: of the four figures that the launches give (both accept lengths, both cycles in
  baseline steps). What each tree gains over the best chain is fitted by least squares to the
  table's own answers, which no tuner has, and again with each target left out;
- *twins*: cells whose four figures agree within some per cent. A rule that takes them for alike
  hands over the same triple for both, and loses at least what the best common triple loses.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations

import numpy as np

Triple = tuple[int, int, int]
Cell = Mapping[Triple | None, tuple[float, float]]  # tok/s, accept length; None: the baseline

CHAINS: tuple[Triple, ...] = ((3, 1, 4), (5, 1, 6), (7, 1, 8))
TREES: tuple[Triple, ...] = ((5, 3, 6), (7, 4, 8))
KNOWN: tuple[Triple, ...] = (CHAINS[0], CHAINS[2])
WITHIN = (0.10, 0.15, 0.20)


def figures(cell: Cell) -> np.ndarray:
    """What three launches tell: logs of two accept lengths and two cycles, shape (4,)."""
    step_ms = 1 / cell[None][0]
    lengths = np.array([cell[triple][1] for triple in KNOWN])
    cycles = lengths / np.array([cell[triple][0] for triple in KNOWN])
    logs: np.ndarray = np.log(np.concatenate([lengths, cycles / step_ms]))
    return logs


def losses(cells: Sequence[Cell]) -> np.ndarray:
    """What each triple loses against its cell's best, %, shape (cells, 5): chains, then trees."""
    speeds = np.array([[cell[triple][0] for triple in (*CHAINS, *TREES)] for cell in cells])
    lost: np.ndarray = 100 * (1 - speeds / speeds.max(axis=1, keepdims=True))
    return lost


def linear_rule(cells: Sequence[Cell], groups: Sequence[str] | None) -> np.ndarray:
    """What a linear rule loses that knows which chain is best, %, shape (cells,).

    Args:
        cells: The table.
        groups: A rule is fitted to the cells of the other groups; None: to all the answers.
    """
    lost = losses(cells)
    speeds = np.array([[cell[triple][0] for triple in (*CHAINS, *TREES)] for cell in cells])
    gains = np.log(speeds[:, 3:] / speeds[:, :3].max(axis=1, keepdims=True))
    known = np.column_stack([np.ones(len(cells)), [figures(cell) for cell in cells]])
    told = np.zeros_like(gains)
    of = np.array(groups if groups is not None else [""] * len(cells))
    for group in np.unique(of):
        left_out = of == group
        fitted = ~left_out if groups is not None else left_out
        rule, *_ = np.linalg.lstsq(known[fitted], gains[fitted], rcond=None)
        told[left_out] = known[left_out] @ rule
    tree = lost[np.arange(len(cells)), 3 + told.argmax(axis=1)]
    return np.where(told.max(axis=1) > 0, tree, lost[:, :3].min(axis=1))


def twins_lose(cells: Sequence[Cell], within: float) -> tuple[float, float]:
    """At least this is lost, mean and worst, %, by rules that take twins for alike.

    Pairs are disjoint, those that lose most first, so that the mean is a bound; any pair bounds
    the worst.
    """
    known, lost = np.array([figures(cell) for cell in cells]), losses(cells)
    pairs = [
        (float((lost[i] + lost[j]).min()), i, j)
        for i, j in combinations(range(len(cells)), 2)
        if np.abs(known[i] - known[j]).max() <= within
    ]
    worst = max((float(np.maximum(lost[i], lost[j]).min()) for _, i, j in pairs), default=0.0)
    taken: set[int] = set()
    total = 0.0
    for both, i, j in sorted(pairs, reverse=True):
        if not taken & {i, j}:
            taken |= {i, j}
            total += both
    return total / len(cells), worst


def print_bounds(cells: Sequence[Cell], targets: Sequence[str]) -> None:
    """Print what rules could reach that know no more than the three launches."""
    for name, lost in (
        ("the best chain, were it known", losses(cells)[:, :3].min(axis=1)),
        ("a linear rule fitted to the answers", linear_rule(cells, None)),
        ("the same, each target left out", linear_rule(cells, targets)),
    ):
        print(f"  {name:46}{lost.mean():6.2f} / {lost.max():.2f}")
    for within in WITHIN:
        mean, worst = twins_lose(cells, within)
        name = f"at least, cells within {within:.0%} taken for alike"
        print(f"  {name:46}{mean:6.2f} / {worst:.2f}")
