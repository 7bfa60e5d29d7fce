"""Landscapes for the tuner's benchmark: what a launch of a configuration would measure.

A landscape knows the true accept lengths and cycle times of all its configurations; `measure` adds
the noise of a launch. This module and `landscapes_other` know nothing of the tuner's predictor nor
of bench.physics, which a test holds them to.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

LAUNCH_SD = 0.02
CELL_SD = 0.003  # what the cells of one launch differ by beyond it
VERIFY_CT = 4000  # verify steps counted a cell

STEPS = (1, 2, 3, 4, 5, 6, 7, 8)
TOPK = (1, 2, 4, 8)
DRAFT_TOKENS = (4, 6, 8, 12, 16, 24, 32, 48)


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """Steps, topk, draft tokens; all 0 is no speculation."""

    steps: int = 0
    topk: int = 0
    tokens: int = 0

    @property
    def is_tree(self) -> bool:
        """Whether it has branches."""
        return self.topk > 1


OFF = Draft()


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadPoint:
    """One load: running requests, tokens of context each, its weight in the objective."""

    batch: int
    context_tok: int
    weight: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Landscape:
    """The truth about a space.

    Attributes:
        name: For people.
        says: What its law is, in a few words.
        drafts: Of each configuration, shape (configurations,).
        settings: Of each configuration, the other axis (environment), an index; 0 is the default.
        setting_names: Names of these indices.
        loads: What every launch measures, shape (loads,).
        reach: P(at least k drafts accepted), shape (configurations, loads, most steps).
        cycle_ms: Shape (configurations, loads).
        drift_sd: Of the machine's slow walk, a launch.
        card: (hardware card, target card) that a user of such a machine would name.
    """

    name: str
    says: str
    drafts: tuple[Draft, ...]
    settings: tuple[int, ...]
    setting_names: tuple[str, ...]
    loads: tuple[LoadPoint, ...]
    reach: np.ndarray
    cycle_ms: np.ndarray
    drift_sd: float = 0.0
    card: tuple[str, str] = ("h200-x8", "kimi-k2.5")
    objective: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        accept_len = 1 + self.reach.sum(axis=2)
        weights = np.array([load.weight for load in self.loads])
        rate = np.log(accept_len / self.cycle_ms) @ (weights / weights.sum())
        object.__setattr__(self, "objective", rate - rate[0])

    def off_at(self, configuration: int) -> int:
        """The configuration without speculation at the same setting."""
        wanted = self.settings[configuration]
        return next(
            i
            for i, (draft, setting) in enumerate(zip(self.drafts, self.settings, strict=True))
            if draft == OFF and setting == wanted
        )

    def better_baseline(self, configuration: int) -> float:
        """The objective of the better of the two baselines of a configuration."""
        return float(max(self.objective[0], self.objective[self.off_at(configuration)]))

    def gain(self, configuration: int) -> float:
        """The true gain over the better baseline, in log points."""
        return float(self.objective[configuration] - self.better_baseline(configuration))

    def regret(self, configuration: int) -> float:
        """What is lost against the best configuration, in log points."""
        return float(self.objective.max() - self.objective[configuration])


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What one launch measures, each of shape (loads,)."""

    tok_per_s: np.ndarray
    accept_len: np.ndarray
    reach: np.ndarray  # (loads, most steps)


class Machine:
    """Launches configurations of a landscape, one after the other, with noise."""

    def __init__(self, landscape: Landscape, seed: int) -> None:
        self.landscape = landscape
        self.launches = 0
        # Another stream than the one that drew the landscape, and another for each landscape.
        self._rng = np.random.default_rng([seed, 1, *landscape.name.encode()])
        self._drift = 0.0

    def measure(self, configuration: int) -> Reading:
        """One launch."""
        land, rng = self.landscape, self._rng
        self.launches += 1
        self._drift += land.drift_sd * rng.standard_normal()
        reach = land.reach[configuration]
        steps = land.drafts[configuration].steps
        seen = np.zeros_like(reach)
        for at, row in enumerate(reach):
            if steps:
                seen[at, :steps] = _counted(rng, row[:steps])
        accept_len = 1 + seen.sum(axis=1)
        common = LAUNCH_SD * rng.standard_normal() + self._drift
        own = CELL_SD * rng.standard_normal(len(reach))
        batch = np.array([load.batch for load in land.loads])
        rate = 1e3 * batch * accept_len / land.cycle_ms[configuration] * np.exp(common + own)
        return Reading(tok_per_s=rate, accept_len=accept_len, reach=seen)


def _counted(rng: np.random.Generator, reach: np.ndarray) -> np.ndarray:
    ends = -np.diff(np.concatenate([[1.0], reach, [0.0]]))
    hist = rng.multinomial(VERIFY_CT, np.clip(ends, 0, None) / np.clip(ends, 0, None).sum())
    return 1 - np.cumsum(hist)[:-1] / VERIFY_CT


def legal(draft: Draft) -> bool:
    """Whether SGLang starts with it and it is no alias.

    A chain verifies steps + 1 tokens whatever is asked; a tree cannot have more than it drafts and
    is no deeper than its tokens.
    """
    if draft.topk == 1:
        return draft.tokens == draft.steps + 1
    most = draft.topk + (draft.steps - 1) * draft.topk**2
    return draft.steps < draft.tokens <= most + 1


def drafts_of(
    steps: Sequence[int] = STEPS,
    topk: Sequence[int] = TOPK,
    tokens: Sequence[int] = DRAFT_TOKENS,
) -> tuple[Draft, ...]:
    """OFF, the chains, and the legal trees of the axes."""
    trees = [
        Draft(steps=s, topk=k, tokens=n) for k in topk if k > 1 for s in steps for n in tokens
    ]
    chains = [Draft(steps=s, topk=1, tokens=s + 1) for s in steps] if 1 in topk else []
    return (OFF, *chains, *(tree for tree in trees if legal(tree)))


Reach = Callable[[Draft, LoadPoint], Sequence[float]]
Cycle = Callable[[Draft, int, LoadPoint], float]


def build(  # noqa: PLR0913  # one keyword for each law of a landscape
    name: str,
    says: str,
    *,
    loads: Sequence[LoadPoint],
    reach: Reach,
    cycle_ms: Cycle,
    drafts: Sequence[Draft] | None = None,
    setting_names: Sequence[str] = ("default",),
    drift_sd: float = 0.0,
    card: tuple[str, str] = ("h200-x8", "kimi-k2.5"),
) -> Landscape:
    """A landscape from its laws; the first configuration is the baseline."""
    drafts = drafts_of() if drafts is None else drafts
    every = [(d, s) for s in range(len(setting_names)) for d in drafts]
    deepest = max(d.steps for d in drafts)
    reaches = np.zeros((len(every), len(loads), deepest))
    cycles = np.zeros((len(every), len(loads)))
    known: dict[tuple[Draft, LoadPoint], Sequence[float]] = {}
    for i, (draft, setting) in enumerate(every):
        for j, load in enumerate(loads):
            cycles[i, j] = cycle_ms(draft, setting, load)
            if draft != OFF:
                if (draft, load) not in known:
                    known[draft, load] = reach(draft, load)
                row = known[draft, load]
                reaches[i, j, : len(row)] = row
    return Landscape(
        name=name,
        says=says,
        drafts=tuple(d for d, _ in every),
        settings=tuple(s for _, s in every),
        setting_names=tuple(setting_names),
        loads=tuple(loads),
        reach=reaches,
        cycle_ms=cycles,
        drift_sd=drift_sd,
        card=card,
    )
