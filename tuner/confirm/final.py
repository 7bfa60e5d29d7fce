"""The final: the best one or two and the baselines in randomised, neighbouring launches.

Everything that is said of a gain comes from here. A finalist was chosen because its search
launches came out well, so these flatter it; they are left out of the figure, and what is said is
what the launches of all other configurations and the final's own tell.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from bench.metrics.speedup import CONFIDENCE, judge

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from bench.model import Verdict
    from tuner.predict import Knowledge, Predictor, Reading

FINAL_SHARE: Final = 0.3  # of all launches
LEAST_BLOCKS: Final = 2
# Launches: with fewer only one goes to the final, launched on both sides of the baselines, so that
# a steady drift cancels; the baseline's repeat is then the search's own.
TWO_FROM: Final = 16
FEWEST: Final = 5  # launches of a verdict: the baseline, one other, that around the baseline
DOUBT: Final = 0.25  # standard deviations that count against what was never launched
CLEARLY: Final = 2.0  # standard deviations by which the best has to lead to be alone in the final
OFF_MAY_WIN: Final = 0.02  # log ratio by which speculation has to be ahead, else off competes
# What the prior of the launch noise is worth in repeats: a logarithm known within 0.5 is what two
# degrees of freedom tell, 1 / (2 · 0.5²).
PRIOR_REPEATS: Final = 2
_DRAWS: Final = 4000


@dataclass(frozen=True, slots=True, kw_only=True)
class FinalPlan:
    """Who meets whom.

    Attributes:
        finalists: The best one or two.
        baselines: The user's baseline; where the best has other settings, those without
            speculation; where speculation may lose, the best known without it.
        present: What the user has in use, if that is no baseline.
        blocks: Launches in order; each block holds every arm once, in a random order. In a short
            final the best comes first, the others in a random order, and the best once more.
    """

    finalists: tuple[int, ...]
    baselines: tuple[int, ...]
    present: int | None
    blocks: tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Conclusion:
    """What a sweep hands over; gains are log ratios.

    Attributes:
        configuration: What to deploy; a baseline means: leave speculation off.
        best: The best speculative configuration, whether it is deployed or not.
        baseline: The better baseline, which the gain is over.
        gain: Of `best`.
        low: Of the 95 % interval.
        high: Of it.
        degrees_of_freedom: Of the interval.
        verdict: On `best`.
        optimism: By how much the best figure of the search alone is expected to flatter.
    """

    configuration: int
    best: int
    baseline: int
    gain: float
    low: float
    high: float
    degrees_of_freedom: float
    verdict: Verdict
    optimism: float


def plan_final(  # noqa: PLR0913  # each is another thing; a record would only rename them
    knowledge: Knowledge,
    *,
    baseline: int,
    off_of: Sequence[int],
    launched: NDArray[np.bool_],
    allowed: NDArray[np.bool_],
    budget: int,
    left: int,
    rng: np.random.Generator,
    present: int | None = None,
) -> FinalPlan | None:
    """The final that would be held now; None while no speculative configuration was launched.

    Args:
        knowledge: Of all launches.
        baseline: The user's setting without speculation.
        off_of: For each configuration the one without speculation at the same setting.
        launched: Which were.
        allowed: Which may be.
        budget: All launches of the study.
        left: Launches that are left of it: what does not fit stays out, the present first.
        rng: Orders the blocks.
        present: What the user has in use.
    """
    speculative = allowed & (np.array(off_of) != np.arange(len(off_of)))
    if not (launched & speculative).any():
        return None
    order = ranked(knowledge, speculative, launched & speculative)
    finalists = [int(c) for c in order[: 2 if budget >= TWO_FROM else 1] if speculative[c]]
    if len(finalists) == 2:
        ahead, sd = knowledge.difference(*finalists)
        if ahead > CLEARLY * sd:
            finalists = finalists[:1]
    own = off_of[finalists[0]]
    baselines = list(dict.fromkeys([baseline, *([own] if allowed[own] else [])]))
    off = allowed & (np.array(off_of) == np.arange(len(off_of)))
    if (launched & off).any():
        best_off = int(ranked(knowledge, off, launched & off)[0])
        near = knowledge.mean[best_off] > knowledge.mean[finalists[0]] - OFF_MAY_WIN
        if near and best_off not in baselines:
            # Speculation may lose, and then its place is for the best without it.
            finalists, baselines = finalists[:1], [*baselines, best_off]
    pair = [baseline, finalists[0]]
    wanted = [*pair, *baselines, *finalists, *([] if present is None else [present])]
    arms = list(dict.fromkeys(wanted))
    blocks = max(LEAST_BLOCKS, round(FINAL_SHARE * budget / len(arms)))

    short = budget < TWO_FROM

    def needed() -> int:
        return len(arms) + (blocks - 1) * (1 if short else len(arms))

    while needed() > left and (blocks > LEAST_BLOCKS or len(arms) > len(pair)):
        if len(arms) > len(pair):
            arms.pop()
        else:
            blocks -= 1
    return FinalPlan(
        finalists=tuple(c for c in finalists if c in arms),
        baselines=tuple(c for c in baselines if c in arms),
        present=present,
        blocks=_short(finalists[0], arms, rng) if short else _whole(arms, blocks, rng),
    )


def _whole(
    arms: Sequence[int], blocks: int, rng: np.random.Generator
) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(int(c) for c in rng.permutation(arms)) for _ in range(blocks))


def _short(
    best: int, arms: Sequence[int], rng: np.random.Generator
) -> tuple[tuple[int, ...], ...]:
    others = rng.permutation([c for c in arms if c != best])
    return (best, *(int(c) for c in others)), (best,)


def whole_blocks(final: FinalPlan, measured: Iterable[tuple[int, int]]) -> int:
    """How many blocks measured the best and a baseline; a verdict needs two.

    The last block of a short final is the best alone, beside the baseline of the one before.

    Args:
        final: The plan.
        measured: (block, configuration) of the launches that measured.
    """
    best, baseline = final.finalists[0], final.baselines[0]
    known = set(measured)
    whole, met = 0, 0
    for at, block in enumerate(final.blocks):
        met = at if baseline in block else met
        whole += {(at, best), (met, baseline)} <= known
    return whole


def ranked(
    knowledge: Knowledge, allowed: NDArray[np.bool_], launched: NDArray[np.bool_]
) -> NDArray[np.int64]:
    """Configurations, the best first; one that was never launched has to be better for certain.

    Its mean is lowered by a quarter of the standard deviation of its difference to the best
    launched one: laws that hold elsewhere may not hold for it.
    """
    best = int(np.where(launched, knowledge.mean, -np.inf).argmax())
    cov = knowledge.cov
    variance = np.diag(cov) + cov[best, best] - 2 * cov[best]
    doubt = np.where(launched, 0.0, DOUBT * np.sqrt(np.maximum(variance, 0.0)))
    return np.argsort(-np.where(allowed, knowledge.mean - doubt, -np.inf), kind="stable")


def conclude(
    predictor: Predictor,
    readings: Sequence[Reading],
    *,
    final: FinalPlan,
    final_from: int,
    margin: float,
) -> Conclusion:
    """What the launches say.

    Args:
        predictor: Of the space.
        readings: All, in order.
        final: Who met whom.
        final_from: Which of them is the final's first.
        margin: Speedups within ± this share of 1 are SAME.
    """
    from scipy.special import stdtrit  # noqa: PLC0415  # importing scipy costs time

    knowledge = predictor.learn(readings)
    launched = {reading.configuration for reading in readings}
    met = [c for c in final.finalists if c in launched]
    best = max(met, key=lambda c: knowledge.mean[c])
    against = max((c for c in final.baselines if c in launched), key=lambda c: knowledge.mean[c])
    unflattered = [
        reading
        for at, reading in enumerate(readings)
        if at >= final_from or reading.configuration not in final.finalists
    ]
    told = predictor.learn(unflattered)
    gain, sd = told.difference(best, against)
    sd = max(sd, told.launch_sd * _of_means(unflattered, best, against))
    freedom = float(len(readings) - len(launched) + PRIOR_REPEATS)
    half = float(stdtrit(freedom, 0.5 + CONFIDENCE / 2)) * sd
    candidates = [best, against, *([final.present] if final.present in launched else [])]
    return Conclusion(
        configuration=max(candidates, key=lambda c: knowledge.mean[c]),
        best=best,
        baseline=against,
        gain=gain,
        low=gain - half,
        high=gain + half,
        degrees_of_freedom=freedom,
        verdict=judge(float(np.exp(gain - half)), float(np.exp(gain + half)), margin),
        optimism=expected_optimism(knowledge, readings[:final_from]),
    )


def _of_means(readings: Sequence[Reading], best: int, against: int) -> float:
    """Standard deviation of the difference of two configurations' means, in launch noises.

    No law makes a difference better known than its own launches do.
    """
    counts = [sum(reading.configuration == c for reading in readings) for c in (best, against)]
    return math.sqrt(sum(1 / max(1, count) for count in counts))


def expected_optimism(knowledge: Knowledge, readings: Sequence[Reading]) -> float:
    """How much the highest mean of the search is expected to be above what it stands for.

    The maximum of noisy figures is flattered by luck. Truths are drawn from what is known, noise
    is added to each by its number of launches, and the winner's noise is averaged.
    """
    configurations, counts = np.unique(
        [reading.configuration for reading in readings], return_counts=True
    )
    rng = np.random.default_rng(0)
    cov = knowledge.cov[np.ix_(configurations, configurations)]
    truth = rng.multivariate_normal(
        knowledge.mean[configurations], cov, size=_DRAWS, method="eigh", check_valid="ignore"
    )
    noise = knowledge.launch_sd / np.sqrt(counts) * rng.standard_normal(truth.shape)
    winner = (truth + noise).argmax(axis=1)
    return float(noise[np.arange(_DRAWS), winner].mean())
