"""From measured times to a winner per load; pure.

A round is one start of every setting, with the default before and after the others. The start is
the unit of replication: memory and channels are laid out anew at each. A setting's ratio in a
round is the default's time (the geometric mean of its two starts) over its own; over the rounds it
is a geometric mean with a Student interval on the logarithms. Of several settings the best is
flattered by luck, so the intervals of a load hold together: each at 1 - 0.05 / settings
(Bonferroni). What does not clear the default so is within noise, and the default is kept.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from bench.metrics.speedup import judge
from bench.model import Verdict

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Mapping, Sequence

FAMILY_ERROR: Final = 0.05

Name = TypeVar("Name", bound="Hashable")


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """One round's times, µs of one all-reduce by message bytes.

    Attributes:
        default: Of each start of the default in it.
        settings: Of the other settings, by name; one that failed is missing.
    """

    default: tuple[Mapping[int, float], ...]
    settings: Mapping[str, Mapping[int, float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """A setting against the default at one load.

    Attributes:
        setting: Its name.
        rounds: Rounds that both were measured in.
        speedup: Geometric mean of default time / its time; above 1 it is faster.
        low: Lower end of its interval; None with fewer than two rounds.
        high: Upper end.
        verdict: None with fewer than two rounds: a comparison without repeats has none.
    """

    setting: str
    rounds: int
    speedup: float
    low: float | None = None
    high: float | None = None
    verdict: Verdict | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Best(Generic[Name]):
    """The best of several at one load.

    Attributes:
        name: Which; None: there was nothing to choose from.
        over_next: Its value over the best of the others; None: there is no other.
        over_default: Its value over the default's; None: there is no default here.
    """

    name: Name | None
    over_next: float | None = None
    over_default: float | None = None


def best_of(
    values: Mapping[Name, float], *, default: Name | None = None, margin: float = 0.0
) -> Best[Name]:
    """The largest value; the default is kept where none is more than `margin` better.

    Of equal ones the first counts.

    Args:
        values: More is better; those that are not positive numbers are left out.
        default: What is in use.
        margin: The share by which the default must be beaten.
    """
    known = {name: value for name, value in values.items() if 0 < value < math.inf}
    if not known:
        return Best(name=None)
    name = max(known, key=lambda one: known[one])
    kept = None if default is None else known.get(default)
    if default is not None and kept is not None and known[name] <= kept * (1 + margin):
        name = default
    others = [value for one, value in known.items() if one != name]
    return Best(
        name=name,
        over_next=known[name] / max(others) if others else None,
        over_default=None if kept is None else known[name] / kept,
    )


def single_best(bests: Iterable[Best[Name]]) -> Name | None:
    """The one that is best at every load; None where it depends on the load."""
    names = {best.name for best in bests if best.name is not None}
    return names.pop() if len(names) == 1 else None


def compare_rounds(
    ratios: Mapping[str, Sequence[float]], *, margin: float
) -> tuple[Compared, ...]:
    """Settings against the default, the fastest first.

    Args:
        ratios: Default time / setting time of every round, by setting; shape (rounds,) each.
        margin: Speedups within ± this share of 1 are of no practical use.
    """
    measured = {name: list(values) for name, values in ratios.items() if values}
    repeated = sum(len(values) > 1 for values in measured.values())
    found = [_compared(name, values, repeated, margin) for name, values in measured.items()]
    return tuple(sorted(found, key=lambda one: -one.speedup))


def choose(compared: Sequence[Compared], *, default: str) -> Best[str]:
    """The setting to use: the fastest of those that are surely faster, else the default."""
    sure = {one.setting: one.speedup for one in compared if one.verdict is Verdict.FASTER}
    return best_of({default: 1.0, **sure}, default=default)


def ratios_of(
    rounds: Sequence[Round], weights: Mapping[int, float]
) -> dict[str, tuple[float, ...]]:
    """Default time / setting time by setting, of rounds in which both are known.

    Args:
        rounds: As measured.
        weights: How many all-reduces of each size count.
    """
    found: dict[str, list[float]] = {}
    for one in rounds:
        costs = [cost for times in one.default if (cost := cost_us(times, weights)) is not None]
        if not costs:
            continue
        base = math.exp(math.fsum(map(math.log, costs)) / len(costs))
        for name, times in one.settings.items():
            cost = cost_us(times, weights)
            if cost is not None:
                found.setdefault(name, []).append(base / cost)
    return {name: tuple(ratios) for name, ratios in found.items()}


def pooled_ratios(
    rounds: Sequence[Round], weights: Sequence[Mapping[int, float]]
) -> dict[str, tuple[float, ...]]:
    """As `ratios_of`, the geometric mean over several steps of a load in each round."""
    found: dict[str, list[float]] = {}
    for one in rounds:
        by_step = [ratios_of([one], step) for step in weights]
        for name in by_step[0] if by_step else ():
            logs = [math.log(step[name][0]) for step in by_step if name in step]
            if len(logs) == len(by_step):
                found.setdefault(name, []).append(math.exp(math.fsum(logs) / len(logs)))
    return {name: tuple(ratios) for name, ratios in found.items()}


def control_ratios(rounds: Sequence[Round], weights: Mapping[int, float]) -> tuple[float, ...]:
    """The default against itself in every round, last start over first: noise and drift."""
    found = []
    for one in rounds:
        costs = [cost_us(times, weights) for times in one.default]
        if len(costs) > 1 and costs[0] is not None and costs[-1] is not None:
            found.append(costs[-1] / costs[0])
    return tuple(found)


def cost_us(times: Mapping[int, float], weights: Mapping[int, float]) -> float | None:
    """All-reduces of a step by one setting's times; None where a size is missing."""
    if not weights or any(size not in times for size in weights):
        return None
    return math.fsum(count * times[size] for size, count in weights.items())


# ------------------------------------------------------------------------------------- crossovers


@dataclass(frozen=True, slots=True, kw_only=True)
class Crossover(Generic[Name]):
    """Between two neighbouring sizes another becomes the fastest."""

    below_bytes: int
    above_bytes: int
    before: Name
    after: Name


def fastest_by_size(times: Mapping[int, Mapping[Name, float]]) -> dict[int, Name]:
    """Who is fastest at each size, sizes rising; a tie stays with who was fastest before.

    Args:
        times: Of each size, in any order, the time of each; sizes with fewer than two are left
            out.
    """
    found: dict[int, Name] = {}
    before: Name | None = None
    for size in sorted(times):
        row = {name: us for name, us in times[size].items() if 0 < us < math.inf}
        if len(row) < 2:
            continue
        least = min(row.values())
        tied = [name for name, us in row.items() if us == least]
        before = before if before in tied else tied[0]
        found[size] = before
    return found


def crossovers(times: Mapping[int, Mapping[Name, float]]) -> tuple[Crossover[Name], ...]:
    """Where the fastest changes, sizes rising; empty: one is fastest throughout."""
    fastest = list(fastest_by_size(times).items())
    return tuple(
        Crossover(below_bytes=below, above_bytes=above, before=before, after=after)
        for (below, before), (above, after) in itertools.pairwise(fastest)
        if before != after
    )


def _compared(name: str, ratios: Sequence[float], settings: int, margin: float) -> Compared:
    logs = sorted(math.log(ratio) for ratio in ratios)
    n = len(logs)
    mean = math.fsum(logs) / n
    if n == 1:
        return Compared(setting=name, rounds=1, speedup=math.exp(mean))
    sd = math.sqrt(math.fsum((x - mean) ** 2 for x in logs) / (n - 1))
    half = _quantile(n - 1, settings) * sd / math.sqrt(n)
    low, high = math.exp(mean - half), math.exp(mean + half)
    return Compared(
        setting=name,
        rounds=n,
        speedup=math.exp(mean),
        low=low,
        high=high,
        verdict=judge(low, high, margin),
    )


def _quantile(degrees_of_freedom: int, settings: int) -> float:
    """Student's two-sided quantile that holds for all settings of a load together."""
    from scipy.special import stdtrit  # noqa: PLC0415  # only here: importing scipy costs time

    return float(stdtrit(degrees_of_freedom, 1 - FAMILY_ERROR / (2 * max(settings, 1))))
