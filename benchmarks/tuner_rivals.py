"""Naive sweeps beside the tuner: Optuna's default TPE, random choice and a shuffled grid.

They choose on the raw axes. What is known to be illegal costs them nothing, and they are given
their configuration's mean over all its launches, so that an alias counts as a repeat.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator

import numpy as np

from benchmarks.landscapes import DRAFT_TOKENS, STEPS, TOPK, Draft, Landscape, Machine


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
