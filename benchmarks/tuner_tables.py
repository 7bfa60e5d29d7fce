"""The tables of the tuner's benchmark, and which of its goals are missed."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

BUDGETS = (10, 20, 40)
RIVAL_LAUNCHES = 120
RIVALS = ("tpe", "random", "grid")

GOAL_MEDIAN = {10: 2.0, 20: 0.8, 40: 0.4}
GOAL_P90 = {10: 5.0, 20: 2.0, 40: 1.0}


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """One search of one landscape; regret and gains in per cent (log points × 100)."""

    half: str
    landscape: str
    seed: int
    method: str
    launches: int
    regret: float
    said: float | None = None
    true: float | None = None
    low: float | None = None
    high: float | None = None
    verdict: str | None = None
    handed_is_best: bool | None = None
    optimism: float | None = None
    aliases: int = 0
    illegal: int = 0


def regrets(outcomes: list[Outcome], half: str, method: str, launches: int) -> list[float]:
    """Of all landscapes and seeds."""
    return [
        o.regret for o in outcomes if (o.half, o.method, o.launches) == (half, method, launches)
    ]


def launches_for(
    outcomes: list[Outcome], half: str, method: str, goal: float, statistic: Callable[..., Any]
) -> int | None:
    """Launches after which a rival's regret stays at most `goal`; None: not by the end."""
    by_launches: dict[int, list[float]] = {}
    for o in outcomes:
        if (o.half, o.method) == (half, method):
            by_launches.setdefault(o.launches, []).append(o.regret)
    above = [n for n, values in by_launches.items() if statistic(values) > goal]
    last = max(above, default=0)
    return None if last >= RIVAL_LAUNCHES else last + 1


def own_launches(
    outcomes: list[Outcome], half: str, goal: float, statistic: Callable[..., Any]
) -> int:
    """Fewest launches of ours, among the budgets, from which on its regret is at most `goal`."""
    enough = BUDGETS[-1]
    for n in reversed(BUDGETS):
        if statistic(regrets(outcomes, half, "ours", n)) > goal:
            break
        enough = n
    return enough


def print_regret(outcomes: list[Outcome], half: str) -> list[str]:
    """Regret tables of one half; what misses a goal."""
    missed = []
    print(f"\nRegret, % of the best, median / p90 / mean, {half} laws")
    print(f"{'launches':>10}", *(f"{m:>20}" for m in ("ours", "ours, prior off", *RIVALS)))
    for n in BUDGETS:
        row = []
        for method in ("ours", "prior-off", *RIVALS):
            values = regrets(outcomes, half, method, n)
            median, p90 = np.median(values), np.quantile(values, 0.9)
            row.append(f"{median:.2f} / {p90:.2f} / {np.mean(values):.2f}")
            if half == "other" and method == "ours":
                if median > GOAL_MEDIAN[n]:
                    missed.append(f"median regret at {n} launches {median:.2f}")
                if p90 > GOAL_P90[n]:
                    missed.append(f"p90 regret at {n} launches {p90:.2f}")
        print(f"{n:>10}", *(f"{cell:>20}" for cell in row))
    print("launches for the regret of each budget: ours, TPE (median; mean; p90):")
    for n in BUDGETS:
        values = regrets(outcomes, half, "ours", n)
        told = []
        for name, statistic in (
            ("median", np.median),
            ("mean", np.mean),
            ("p90", lambda v: np.quantile(v, 0.9)),
        ):
            goal = float(statistic(values))
            own = own_launches(outcomes, half, goal, statistic)
            needs = launches_for(outcomes, half, "tpe", goal, statistic)
            told.append(f"{own}, " + (f"> {RIVAL_LAUNCHES}" if needs is None else str(needs)))
            if half == "other" and needs is not None and needs < 3 * own:
                missed.append(f"TPE needs only {needs} launches for the {name} regret of {own}")
        print(f"{n:>10}  {'; '.join(told)}")
    return missed


def print_claims(outcomes: list[Outcome], half: str) -> list[str]:
    """Bias, coverage and false verdicts; what misses a goal."""
    missed = []
    print(f"\nGain said against the true one, {half} laws")
    print(
        f"{'':18}{'launches':>9}{'bias':>8}{'rmse':>8}{'coverage':>10}{'width':>8}"
        f"{'false FASTER':>14}{'verdicts':>10}"
    )
    for method in ("ours", "prior-off"):
        for n in (*BUDGETS, None):
            rows = [
                o
                for o in outcomes
                if (o.half, o.method) == (half, method) and n in (o.launches, None)
            ]
            said = np.array([o.said for o in rows])
            true = np.array([o.true for o in rows])
            low, high = np.array([o.low for o in rows]), np.array([o.high for o in rows])
            covered = float(np.mean((low <= true) & (true <= high)))
            bias = float(np.mean(said - true))
            faster = np.array([o.verdict == "FASTER" for o in rows])
            false = float(np.sum(faster & (true <= 0)) / max(1, np.sum(true <= 0)))
            verdicts = Counter(o.verdict for o in rows)
            print(
                f"{method:18}{'all' if n is None else n:>9}{bias:>+8.2f}"
                f"{math.sqrt(np.mean((said - true) ** 2)):>8.2f}{covered:>10.1%}"
                f"{np.mean(high - low):>8.2f}{false:>14.1%}  "
                + " ".join(f"{k} {v}" for k, v in sorted(verdicts.items()))
            )
            if half == "other" and method == "ours" and n is None:
                if abs(bias) > 0.3:
                    missed.append(f"bias {bias:+.2f} points")
                if not 0.93 <= covered <= 0.97:
                    missed.append(f"coverage {covered:.1%}")
                if false > 0.025:
                    missed.append(f"false FASTER {false:.1%}")
    return missed


def print_landscapes(outcomes: list[Outcome], half: str) -> None:
    """Mean regret by landscape."""
    print(f"\nMean regret by landscape, {half} laws: ours (TPE) at {', '.join(map(str, BUDGETS))}")
    for name in dict.fromkeys(o.landscape for o in outcomes if o.half == half):
        cells = []
        for n in BUDGETS:
            mean = {
                method: np.mean(
                    [
                        o.regret
                        for o in outcomes
                        if (o.landscape, o.method, o.launches) == (name, method, n)
                    ]
                )
                for method in ("ours", "tpe")
            }
            cells.append(f"{mean['ours']:6.2f} ({mean['tpe']:5.2f})")
        print(f"  {name:22}", "  ".join(cells))
