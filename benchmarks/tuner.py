"""How good the tuner is where the truth is known.

    python -m benchmarks.tuner [--quick] [--json FILE]

22 landscapes × 20 seeds (--quick: 3 seeds, less than 5 minutes), 2 % noise a launch. Ten
landscapes follow the physics that the predictor is given; twelve follow laws that it does not
contain (`landscapes_other`), and the goals are for these. Every launch counts, the final's
included.

Beside the tuner run Optuna's default TPE, random choice and a shuffled grid, on the raw axes. What
is known to be illegal costs them nothing, and they are given their configuration's mean over all
its launches, so that an alias counts as a repeat.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_variable, "1")  # small matrices: threads only get in each other's way

import numpy as np  # noqa: E402  # after the variables it reads

from bench.physics import load_hardware, load_target  # noqa: E402
from benchmarks.landscapes import (  # noqa: E402
    DRAFT_TOKENS,
    OFF,
    STEPS,
    TOPK,
    Draft,
    Landscape,
    Machine,
)
from benchmarks.landscapes_other import OTHER  # noqa: E402
from benchmarks.landscapes_physics import KNOWN  # noqa: E402
from benchmarks.specbundle import specbundle_losses  # noqa: E402
from tuner.predict import Predictor, Reading, points_of  # noqa: E402
from tuner.space import Axes, Configuration, Server, Setting, Space, survey  # noqa: E402
from tuner.sweep import Rules, Search  # noqa: E402

BUDGETS = (10, 20, 40)
RIVAL_LAUNCHES = 120
RIVALS = ("tpe", "random", "grid")
VARIABLE = "NCCL_ALGO"  # carries a landscape's settings; which variable it is plays no part

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


# ------------------------------------------------------------------------------------------ ours


@cache
def space_of(setting_count: int) -> Space:
    """The axes of the landscapes through the tuner's own rules."""
    return survey(
        Axes(
            algorithms=("EAGLE3",),
            num_steps=STEPS,
            eagle_topk=TOPK,
            num_draft_tokens=DRAFT_TOKENS,
            settings=tuple(
                Setting(environment=((VARIABLE, str(i)),) if i else ())
                for i in range(setting_count)
            ),
        ),
        Server(draft_arguments=("--speculative-draft-model-path", "draft")),
    )


def place_in(landscape: Landscape, configuration: Configuration) -> int | None:
    """Where a configuration is in the landscape; None: it would not start, or not as asked."""
    setting = int(dict(configuration.environment).get(VARIABLE, "0"))
    draft = OFF
    if configuration.algorithm is not None:
        draft = Draft(
            steps=configuration.num_steps or 0,
            topk=configuration.eagle_topk or 0,
            tokens=configuration.num_draft_tokens or 0,
        )
    keys = zip(landscape.drafts, landscape.settings, strict=True)
    return next((i for i, key in enumerate(keys) if key == (draft, setting)), None)


def ours(landscape: Landscape, seed: int, launches: int, *, prior: bool) -> dict[str, Any]:
    """The tuner's search, its final and what it says."""
    configurations = space_of(len(landscape.setting_names)).configurations
    places = [place_in(landscape, c) for c in configurations]
    cards = None
    if prior:
        cards = (load_hardware(landscape.card[0]), load_target(landscape.card[1]))
    weights = np.array([load.weight for load in landscape.loads], dtype=float)
    points = points_of(
        configurations,
        cells=[(load.batch, float(load.context_tok)) for load in landscape.loads],
        weights=weights / weights.sum(),
        cards=cards,
    )
    search = Search(Predictor(points), configurations, Rules(budget=launches, seed=seed))
    machine = Machine(landscape, seed=seed)
    met: dict[int, Configuration] = {}
    aliases = illegal = 0
    while (proposal := search.ask()) is not None:
        place = places[proposal.configuration]
        if place is None:
            illegal += 1
            machine.launches += 1
            search.fail(proposal, why="it does not start")
            continue
        configuration = configurations[proposal.configuration]
        aliases += met.setdefault(place, configuration) != configuration
        reading = machine.measure(place)
        search.tell(
            Reading(
                configuration=proposal.configuration,
                at=float(machine.launches),
                log_value=np.log(reading.tok_per_s),
                log_accept_len=np.log(reading.accept_len),
                reach=reading.reach,
            )
        )
    if machine.launches > launches:
        raise AssertionError(f"{machine.launches} launches of {launches}")
    answer = search.conclude()
    handed, best = places[answer.configuration], places[answer.best]
    assert handed is not None
    assert best is not None
    assert search.final is not None
    baselines = [place for b in search.final.baselines if (place := places[b]) is not None]
    # Over the best of the baselines that the gain may be said over.
    true = landscape.objective[best] - max(landscape.objective[baselines])
    return {
        "regret": 100 * landscape.regret(handed),
        "said": 100 * answer.gain,
        "true": 100 * float(true),
        "low": 100 * answer.low,
        "high": 100 * answer.high,
        "verdict": str(answer.verdict),
        "handed_is_best": handed == best,
        "optimism": 100 * answer.optimism,
        "aliases": aliases,
        "illegal": illegal,
    }


# ---------------------------------------------------------------------------------------- rivals


class Rival:
    """A naive sweep: a baseline launch, then one configuration after the other, best mean wins."""

    def __init__(self, landscape: Landscape, seed: int) -> None:
        self.landscape = landscape
        self.machine = Machine(landscape, seed=seed)
        self.values: dict[int, list[float]] = {}
        self.aliases = 0
        self._asked: dict[int, tuple[int, ...]] = {}
        keys = zip(landscape.drafts, landscape.settings, strict=True)
        self._places = {key: place for place, key in enumerate(keys)}
        self.launch(0, ())

    def launch(self, place: int, raw: tuple[int, ...]) -> float:
        """The objective of one launch."""
        loads = self.landscape.loads
        weights = np.array([load.weight for load in loads], dtype=float)
        value = float(np.log(self.machine.measure(place).tok_per_s) @ (weights / weights.sum()))
        self.values.setdefault(place, []).append(value)
        self.aliases += self._asked.setdefault(place, raw) != raw
        return value

    def place(self, steps: int, topk: int, tokens: int, setting: int) -> int | None:
        """What raw numbers become; None: SGLang would not start with them."""
        if topk == 1:
            tokens = steps + 1
        return self._places.get((Draft(steps=steps, topk=topk, tokens=tokens), setting))

    def regret(self) -> float:
        """Of the best mean so far."""
        best = max(
            self.values, key=lambda place: sum(self.values[place]) / len(self.values[place])
        )
        return 100 * self.landscape.regret(best)


def tpe(landscape: Landscape, seed: int) -> Iterator[Rival]:
    """Optuna's default sampler on the raw axes."""
    import optuna  # noqa: PLC0415  # only where TPE runs: its import takes a second

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    warnings.simplefilter("ignore")
    study = optuna.create_study(
        direction="maximize", sampler=optuna.samplers.TPESampler(seed=seed)
    )
    rival = Rival(landscape, seed)
    yield rival
    while True:
        trial = study.ask()
        raw = (
            trial.suggest_int("num_steps", min(STEPS), max(STEPS)),
            trial.suggest_categorical("eagle_topk", TOPK),
            trial.suggest_categorical("num_draft_tokens", DRAFT_TOKENS),
            trial.suggest_categorical("setting", tuple(range(len(landscape.setting_names)))),
        )
        place = rival.place(*raw)
        trial.set_constraint("legal", 1.0 if place is None else -1.0)
        if place is None:
            study.tell(trial, -10.0)
            continue
        study.tell(trial, rival.launch(place, raw) - rival.values[0][0])
        yield rival


def at_random(landscape: Landscape, seed: int) -> Iterator[Rival]:
    """Raw legal points at random."""
    rng = np.random.default_rng(seed)
    rival = Rival(landscape, seed)
    points = _raw_legal(rival)
    yield rival
    while True:
        raw = points[int(rng.integers(len(points)))]
        place = rival.place(*raw)
        assert place is not None
        rival.launch(place, raw)
        yield rival


def grid(landscape: Landscape, seed: int) -> Iterator[Rival]:
    """Every raw legal point once, in a random order, and again."""
    rng = np.random.default_rng(seed)
    rival = Rival(landscape, seed)
    points = _raw_legal(rival)
    yield rival
    while True:
        for at in rng.permutation(len(points)):
            place = rival.place(*points[at])
            assert place is not None
            rival.launch(place, points[at])
            yield rival


def _raw_legal(rival: Rival) -> list[tuple[int, int, int, int]]:
    settings = range(len(rival.landscape.setting_names))
    every = [(s, k, n, e) for s in STEPS for k in TOPK for n in DRAFT_TOKENS for e in settings]
    return [raw for raw in every if rival.place(*raw) is not None]


SEARCHES: dict[str, Callable[[Landscape, int], Iterator[Rival]]] = {
    "tpe": tpe,
    "random": at_random,
    "grid": grid,
}


# ------------------------------------------------------------------------------------- the table

Task = tuple[str, int, int, str]
HALVES = {"known": KNOWN, "other": OTHER}


def run_task(task: Task) -> list[Outcome]:
    """All budgets of one method on one landscape and seed."""
    half, index, seed, method = task
    landscape = HALVES[half][index](seed)
    made = Outcome(
        half=half, landscape=landscape.name, seed=seed, method=method, launches=0, regret=0.0
    )
    if method in SEARCHES:
        found = []
        for rival in SEARCHES[method](landscape, seed):
            launches = rival.machine.launches
            found.append(
                replace(made, launches=launches, regret=rival.regret(), aliases=rival.aliases)
            )
            if launches == RIVAL_LAUNCHES:
                return found
    return [
        replace(
            made,
            launches=launches,
            **ours(landscape, seed, launches, prior=method == "ours"),
        )
        for launches in BUDGETS
    ]


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
    print("launches that TPE needs for the same regret (median; mean; p90):")
    for n in BUDGETS:
        values = regrets(outcomes, half, "ours", n)
        told = []
        for name, statistic in (
            ("median", np.median),
            ("mean", np.mean),
            ("p90", lambda v: np.quantile(v, 0.9)),
        ):
            needs = launches_for(outcomes, half, "tpe", float(statistic(values)), statistic)
            told.append(f"> {RIVAL_LAUNCHES}" if needs is None else str(needs))
            if half == "other" and needs is not None and needs < 3 * n:
                missed.append(f"TPE needs only {needs} launches for the {name} regret of {n}")
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


def main() -> int:
    """Run all, print the tables; 1 when a goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="3 seeds")
    parser.add_argument("--seeds", type=int, default=None, help="how many seeds")
    parser.add_argument("--json", type=Path, default=None, help="write every outcome")
    asked = parser.parse_args()
    seeds = asked.seeds or (3 if asked.quick else 20)
    methods = ("ours", "prior-off", *RIVALS)
    tasks = [
        (half, index, seed, method)
        for method in methods
        for half, landscapes in HALVES.items()
        for index in range(len(landscapes))
        for seed in range(seeds)
    ]
    with ProcessPoolExecutor(max_workers=2, initializer=os.nice, initargs=(5,)) as pool:
        outcomes = [o for found in pool.map(run_task, tasks, chunksize=4) for o in found]
    if asked.json is not None:
        asked.json.write_text(json.dumps([_plain(o) for o in outcomes]))
    missed = []
    for half in HALVES:
        missed += print_regret(outcomes, half)
        missed += print_claims(outcomes, half)
        print_landscapes(outcomes, half)
    mine = [o for o in outcomes if o.method in {"ours", "prior-off"}]
    wasted = sum(o.aliases + o.illegal for o in mine)
    rivals = {m: max(o.aliases for o in outcomes if o.method == m) for m in RIVALS}
    print(
        f"\nlaunches spent on aliases or illegal points: ours {wasted}; most of a rival: {rivals}"
    )
    if wasted:
        missed.append(f"{wasted} launches on aliases or illegal points")
    missed += specbundle_losses()
    print("\n" + ("goals missed: " + "; ".join(missed) if missed else "every goal is met"))
    return 1 if missed else 0


def _plain(outcome: Outcome) -> dict[str, Any]:
    return {name: getattr(outcome, name) for name in outcome.__slots__}


if __name__ == "__main__":
    sys.exit(main())
