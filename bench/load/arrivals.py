"""When requests of an open load are due; pure."""

from __future__ import annotations

import itertools
import random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bench.model import Load


def arrival_offsets_ns(load: Load, *, seed: int, count: int) -> list[int]:
    """When each of `count` requests is due, in clock nanoseconds after the schedule's start.

    Gaps are drawn once from the seed, so that every arm sees the same schedule; a longer schedule
    begins with the shorter one. The first request is due after one gap.

    Args:
        load: An open load, or one rate of a capacity search.
        seed: Of the gaps.
        count: How many requests.

    Raises:
        ValueError: The load has no positive rate.
    """
    if load.rate_per_s is None or load.rate_per_s <= 0:
        raise ValueError(f"a schedule needs a positive rate, got {load.rate_per_s}")
    mean_ns = 1e9 / load.rate_per_s
    draws = random.Random(f"arrivals {seed}")  # noqa: S311  # a schedule, not a secret
    if load.gaps == "constant":
        gaps = [mean_ns] * count
    elif load.gaps == "poisson":
        gaps = [draws.expovariate(1.0) * mean_ns for _ in range(count)]
    else:
        # A gamma variable with shape k and scale 1/k has mean 1 and coefficient of variation 1/√k.
        shape = 1.0 / load.gap_cv**2
        gaps = [draws.gammavariate(shape, 1.0 / shape) * mean_ns for _ in range(count)]
    return [round(offset) for offset in itertools.accumulate(gaps)]
