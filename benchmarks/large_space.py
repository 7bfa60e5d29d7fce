"""How well a space is searched that is too large to be held, where the truth is planted.

    python -m benchmarks.large_space [--seeds N] [--json FILE]

Each space has the drafts of a landscape whose laws the predictor does not contain, at each of
10,368 settings (eight axes): more than a million configurations. Most values of an axis do next to
nothing, some cost, two add 3 to 6 %, a third adds as much only beside one of these, and two do not
start. Beside the tuner run Optuna's TPE and random choice over all axes, drafts included; what is
known to be illegal costs them nothing.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_variable, "1")  # small matrices: threads only get in each other's way

import numpy as np  # noqa: E402  # after the variables it reads

from bench.physics import load_hardware, load_target  # noqa: E402
from benchmarks.landscapes import DRAFT_TOKENS, OFF, STEPS, TOPK, Landscape, Machine  # noqa: E402
from benchmarks.landscapes_other import OTHER  # noqa: E402
from benchmarks.tuner import place_in, space_of  # noqa: E402
from tuner.predict import Predictor, Reading, points_of  # noqa: E402
from tuner.space import Configuration, Setting  # noqa: E402
from tuner.space.large import MOST_POINTS, Choice, SettingAxis, choice_of  # noqa: E402
from tuner.sweep import Rules, Search  # noqa: E402
from tuner.sweep.admitting import Unexplored  # noqa: E402

SIZES = (3, 3, 4, 4, 2, 3, 4, 3)
BUDGETS = (20, 40, 80)
LAWS = (0, 4, 5)  # of landscapes_other: a table, constants off, a quirk for each configuration
AXES = tuple(
    SettingAxis(
        name=f"S{at}",
        values=(
            Setting(),
            *(Setting(environment=((f"S{at}", str(value)),)) for value in range(1, size)),
        ),
    )
    for at, size in enumerate(SIZES)
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Planted:
    """A large space with its truth.

    Attributes:
        drafts: The truth about the drafts at the user's own setting.
        effects: Of each axis what its values add, a log ratio; None: it does not start.
        pair: Two (axis, value) that add more together.
        together: What.
    """

    drafts: Landscape
    effects: tuple[tuple[float | None, ...], ...]
    pair: tuple[tuple[int, int], tuple[int, int]]
    together: float

    def adds(self, choice: Choice) -> float | None:
        """What a setting adds; None: it does not start."""
        parts = [of[value] for of, value in zip(self.effects, choice, strict=True)]
        known = [part for part in parts if part is not None]
        if len(known) < len(parts):
            return None
        both = all(choice[axis] == value for axis, value in self.pair)
        return sum(known) + (self.together if both else 0.0)

    @property
    def best(self) -> float:
        """The objective of the best configuration."""
        settings = itertools.product(*(range(len(of)) for of in self.effects))
        added = max(a for choice in settings if (a := self.adds(choice)) is not None)
        return float(self.drafts.objective.max()) + added

    def regret(self, place: int, choice: Choice) -> float:
        """What is lost against the best configuration, in per cent."""
        added = self.adds(choice)
        assert added is not None
        return 100 * (self.best - float(self.drafts.objective[place]) - added)


def planted(seed: int) -> Planted:
    """A large space."""
    rng = np.random.default_rng([seed, 77])
    effects: list[list[float | None]] = []
    for size in SIZES:
        costs = np.where(rng.random(size) < 0.4, -np.abs(rng.normal(0, 0.03, size)), 0.0)
        effects.append([0.0, *(float(x) for x in (costs + rng.normal(0, 0.003, size))[1:])])
    axes = [int(axis) for axis in rng.permutation(len(SIZES))]
    chosen = [(axis, int(rng.integers(1, SIZES[axis]))) for axis in axes]
    for axis, value in chosen[:2]:
        effects[axis][value] = float(rng.uniform(0.03, 0.06))
    effects[chosen[2][0]][chosen[2][1]] = 0.0
    for axis, value in chosen[3:5]:
        effects[axis][value] = None
    return Planted(
        drafts=OTHER[LAWS[seed % len(LAWS)]](seed),
        effects=tuple(tuple(of) for of in effects),
        pair=(chosen[0], chosen[2]),
        together=float(rng.uniform(0.03, 0.06)),
    )


class Launches:
    """Launches of a planted space, with noise."""

    def __init__(self, space: Planted, seed: int) -> None:
        self.space = space
        self.count = 0
        self._machine = Machine(space.drafts, seed=seed)

    def measure(
        self, place: int, choice: Choice
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray] | None:
        """(log rate, log accept length, shares) of one launch; None: it does not start."""
        self.count += 1
        added = self.space.adds(choice)
        if added is None:
            return None
        reading = self._machine.measure(place)
        return np.log(reading.tok_per_s) + added, np.log(reading.accept_len), reading.reach


# ------------------------------------------------------------------------------------------ ours


def at_setting(choice: Choice) -> tuple[Configuration, ...]:
    """All drafts at a setting."""
    parts = (axis.values[at].environment for axis, at in zip(AXES, choice, strict=True))
    variables = tuple(sorted(pair for part in parts for pair in part))
    return tuple(
        Configuration(
            algorithm=c.algorithm,
            num_steps=c.num_steps,
            eagle_topk=c.eagle_topk,
            num_draft_tokens=c.num_draft_tokens,
            environment=variables,
        )
        for c in space_of(1).configurations
    )


def unexplored_of(space: Planted, seed: int) -> Unexplored:
    """What a planted space has beyond the drafts at the user's own setting."""
    land = space.drafts
    weights = np.array([load.weight for load in land.loads], dtype=float)

    def predictor(configurations: Sequence[Configuration]) -> Predictor:
        return Predictor(
            points_of(
                configurations,
                cells=[(load.batch, float(load.context_tok)) for load in land.loads],
                weights=weights / weights.sum(),
                cards=(load_hardware(land.card[0]), load_target(land.card[1])),
            )
        )

    return Unexplored(
        axes=AXES,
        at=at_setting,
        runnable=lambda configurations: configurations,
        predictor=predictor,
        most=MOST_POINTS // len(land.loads),
        seed=seed,
    )


def ours(space: Planted, seed: int, launches: int) -> float:
    """The regret of what the tuner hands over."""
    land = space.drafts
    own = at_setting((0,) * len(SIZES))
    unexplored = unexplored_of(space, seed)
    rules = Rules(budget=launches, seed=seed)
    search = Search(unexplored.predictor(own), own, rules, unexplored)
    machine = Launches(space, seed)

    def where(place: int) -> tuple[int, Choice]:
        c = search.configurations[place]
        bare = Configuration(
            algorithm=c.algorithm,
            num_steps=c.num_steps,
            eagle_topk=c.eagle_topk,
            num_draft_tokens=c.num_draft_tokens,
        )
        found = place_in(land, bare)
        assert found is not None
        return found, choice_of(AXES, c)

    while (proposal := search.ask()) is not None:
        told = machine.measure(*where(proposal.configuration))
        if told is None:
            search.fail(proposal, why="it does not start")
            continue
        log_value, log_accept_len, reach = told
        search.tell(
            Reading(
                configuration=proposal.configuration,
                at=float(machine.count),
                log_value=log_value,
                log_accept_len=log_accept_len,
                reach=reach,
            ),
            proposal,
        )
    answer = search.conclude()
    assert answer is not None
    assert machine.count <= launches
    return space.regret(*where(answer.configuration))


# ---------------------------------------------------------------------------------------- rivals


class Naive:
    """Launches on the raw axes; the best mean is handed over."""

    def __init__(self, space: Planted, seed: int) -> None:
        self.space = space
        self.machine = Launches(space, seed)
        self.values: dict[tuple[int, Choice], list[float]] = {}
        weights = np.array([load.weight for load in space.drafts.loads], dtype=float)
        self._weights = weights / weights.sum()
        drafts = space.drafts.drafts
        self._places = {(d.steps, d.topk, d.tokens): at for at, d in enumerate(drafts)}
        self.base = self.launch(drafts.index(OFF), (0,) * len(SIZES)) or 0.0

    def place(self, steps: int, topk: int, tokens: int) -> int | None:
        """What raw numbers become; None: SGLang would not start with them."""
        return self._places.get((steps, topk, steps + 1 if topk == 1 else tokens))

    def launch(self, place: int, choice: Choice) -> float | None:
        """The objective of one launch; None: it does not start."""
        told = self.machine.measure(place, choice)
        if told is None:
            return None
        value = float(told[0] @ self._weights)
        self.values.setdefault((place, choice), []).append(value)
        return value

    def regret(self) -> float:
        """Of the best mean so far."""
        best = max(self.values, key=lambda key: float(np.mean(self.values[key])))
        return self.space.regret(*best)


def by_tpe(space: Planted, seed: int) -> Iterator[Naive]:
    """Optuna's default TPE over drafts and settings."""
    import optuna  # noqa: PLC0415  # only where TPE runs: its import takes a second

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    warnings.simplefilter("ignore")
    study = optuna.create_study(
        direction="maximize", sampler=optuna.samplers.TPESampler(seed=seed)
    )
    naive = Naive(space, seed)
    yield naive
    while True:
        trial = study.ask()
        place = naive.place(
            trial.suggest_int("num_steps", min(STEPS), max(STEPS)),
            int(trial.suggest_categorical("eagle_topk", TOPK)),
            int(trial.suggest_categorical("num_draft_tokens", DRAFT_TOKENS)),
        )
        choice = tuple(
            int(trial.suggest_categorical(axis.name, tuple(range(len(axis.values)))))
            for axis in AXES
        )
        value = None if place is None else naive.launch(place, choice)
        trial.set_constraint("runs", 1.0 if value is None else -1.0)
        study.tell(trial, -1.0 if value is None else value - naive.base)
        if place is not None:
            yield naive


def at_random(space: Planted, seed: int) -> Iterator[Naive]:
    """Legal points at random."""
    rng = np.random.default_rng([seed, 3])
    naive = Naive(space, seed)
    yield naive
    while True:
        raw = (int(rng.choice(STEPS)), int(rng.choice(TOPK)), int(rng.choice(DRAFT_TOKENS)))
        place = naive.place(*raw)
        if place is not None:
            naive.launch(place, tuple(int(rng.integers(size)) for size in SIZES))
            yield naive


RIVALS: dict[str, Callable[[Planted, int], Iterator[Naive]]] = {
    "TPE": by_tpe,
    "random": at_random,
}


# ------------------------------------------------------------------------------------- the table


def run_task(task: tuple[str, int]) -> dict[int, float]:
    """The regret of one method on one space, by launches."""
    method, seed = task
    space = planted(seed)
    if method == "ours":
        return {launches: ours(space, seed, launches) for launches in BUDGETS}
    found = {}
    for naive in RIVALS[method](space, seed):
        if naive.machine.count in BUDGETS:
            found[naive.machine.count] = naive.regret()
        if naive.machine.count >= max(BUDGETS):
            break
    return found


def main() -> int:
    """Run all and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=10, help="how many spaces")
    parser.add_argument("--json", type=Path, default=None, help="write every regret")
    asked = parser.parse_args()
    tasks = [(method, seed) for method in ("ours", *RIVALS) for seed in range(asked.seeds)]
    with ProcessPoolExecutor(max_workers=2, initializer=os.nice, initargs=(5,)) as pool:
        outcomes = dict(zip(tasks, pool.map(run_task, tasks), strict=True))
    if asked.json is not None:
        asked.json.write_text(json.dumps([[*task, found] for task, found in outcomes.items()]))
    print("| launches | " + " | ".join(("ours", *RIVALS)) + " |")
    print("|---" * (2 + len(RIVALS)) + "|")
    for launches in BUDGETS:
        cells = []
        for method in ("ours", *RIVALS):
            found = [outcomes[method, seed][launches] for seed in range(asked.seeds)]
            figures = (np.median(found), np.quantile(found, 0.9), np.mean(found))
            cells.append(" / ".join(f"{figure:.2f}" for figure in figures))
        print(f"| {launches} | " + " | ".join(cells) + " |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
