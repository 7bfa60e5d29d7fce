"""What a launch is worth, what the first one is, and what a gain is over."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from tuner.predict import Knowledge
    from tuner.space import Configuration

    Array = NDArray[np.float64]

FIRST_STEPS: Final = 5  # of the first chain: deep enough to tell of all shallower ones
_NODES: Final = np.polynomial.hermite_e.hermegauss(15)


def worth_of_launching(knowledge: Knowledge, allowed: NDArray[np.bool_]) -> Array:
    """Knowledge gradient: how much better the best is expected to be after one launch of each.

    Frazier, Powell, Dayanik (2009): a launch of c moves the mean of every configuration by
    cov[:, c] / sd · z. Beliefs are correlated, so a launch is worth what it tells of others too;
    one that was launched before may be worth another.

    Returns:
        (configurations,), never negative; minus infinity where not allowed.
    """
    variance = np.diag(knowledge.cov) + knowledge.launch_sd**2
    moves = np.where(allowed[:, None], knowledge.cov / np.sqrt(variance), 0.0)
    mean = np.where(allowed, knowledge.mean, -np.inf)
    nodes, weights = _NODES
    gained = np.zeros(len(mean))
    for node, weight in zip(nodes, weights / weights.sum(), strict=True):
        gained += weight * (mean[:, None] + moves * node).max(axis=0)
    return np.where(allowed, np.maximum(gained - mean.max(), 0.0), -np.inf)


def off_of(configurations: Sequence[Configuration]) -> tuple[int, ...]:
    """For each configuration the one without speculation at the same setting.

    Where the space has none, the first: then the two baselines are one.
    """
    off = {c.setting: at for at, c in enumerate(configurations) if c.algorithm is None}
    return tuple(off.get(c.setting, 0) for c in configurations)


def first_chain(configurations: Sequence[Configuration]) -> list[int]:
    """The chain at the user's setting with about `FIRST_STEPS` steps, for each algorithm."""
    own = configurations[0].setting
    first: dict[str, int] = {}
    for at, c in enumerate(configurations):
        if c.algorithm is None or c.is_tree or c.setting != own:
            continue
        before = first.get(c.algorithm)
        if before is None or _from_first(c) < _from_first(configurations[before]):
            first[c.algorithm] = at
    return list(first.values())


def _from_first(configuration: Configuration) -> int:
    return abs((configuration.num_steps or 0) - FIRST_STEPS)
