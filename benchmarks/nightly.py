"""How soon nightly series tell a change, how often they cry wolf, and how long judging takes.

    python -m benchmarks.nightly            # 400 series a row
    python -m benchmarks.nightly --quick    # 100 a row

Every series is made up, so that the truth is known. `false alarms` are series without a change in
which one is found at the last night, as a batch judgement of other tools would count them; beside
it stands how many showed a loss on any of the 83 nights on the way, which later nights took back.
"""

from __future__ import annotations

import argparse
import resource
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from bench.nightly.detect import FEWEST_NIGHTS, detect

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from bench.nightly.detect import Found

    Floats = NDArray[np.float64]

SERIES, QUICK_SERIES = 400, 100
NEVER = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One figure against what is to be reached."""

    what: str
    found: str
    wanted: str
    reached: bool | None = None


def noise(rng: np.random.Generator, series: int, nights: int, sd: float) -> Floats:
    return rng.normal(0.0, sd, (series, nights))


def with_outliers(rng: np.random.Generator, y: Floats, share: float) -> Floats:
    """A share of nights slower or faster by 3 to 15 %."""
    hit = rng.random(y.shape) < share
    size = rng.uniform(0.03, 0.15, y.shape) * rng.choice([-1, 1], y.shape)
    return np.where(hit, y + size, y)


def correlated(rng: np.random.Generator, series: int, nights: int, sd: float) -> Floats:
    """Noise that carries a fifth of each night over to the next."""
    y = noise(rng, series, nights, sd)
    for night in range(1, nights):
        y[:, night] = 0.2 * y[:, night - 1] + np.sqrt(1 - 0.04) * y[:, night]
    return y


def judged(y: Floats) -> list[Found]:
    return detect(list(np.exp(y)))


def alarms(y: Floats) -> tuple[float, float]:
    """(changes at the last night, losses on any night) in 80 series."""
    ever = np.zeros(len(y), dtype=bool)
    for nights in range(FEWEST_NIGHTS, y.shape[1] + 1):
        ever |= np.array(
            [any(m.ln_change < 0 for m in found.moves) for found in judged(y[:, :nights])]
        )
    last = np.array([bool(found.moves) for found in judged(y)])
    return 80 * float(last.mean()), 80 * float(ever.mean())


def false_alarms(name: str, y: Floats, most: float | None) -> list[Row]:
    last, ever = alarms(y)
    return [
        Row(
            what=f"{name}: false alarms in 80 series",
            found=f"{last:.1f} ({ever:.1f} a loss on any night)",
            wanted="" if most is None else f"<= {most:g}",
            reached=None if most is None else last <= most,
        )
    ]


def latencies(
    y: Floats, since: int, is_it: Callable[[Found], bool], most: int
) -> NDArray[np.intp]:
    """Nights of the new level until it is told, for each series."""
    told = np.full(len(y), NEVER, dtype=np.intp)
    for nights in range(since + 1, min(since + most, y.shape[1]) + 1):
        for place, found in enumerate(judged(y[:, :nights])):
            if told[place] == NEVER and is_it(found):
                told[place] = nights - since
    return told


def steps(
    rng: np.random.Generator, series: int, change: float, sd: float, median: int, p90: int | None
) -> list[Row]:
    since, nights = 45, 90
    y = noise(rng, series, nights, sd)
    y[:, since:] += np.log1p(change)
    told = latencies(
        y, since, lambda found: any(abs(m.index - since) <= 2 for m in found.moves), 25
    )
    name = f"{change:+.0%} step at {sd:.1%} noise"
    rows = [
        Row(
            what=f"{name}: nights until found, median",
            found=_night(np.median(told)),
            wanted=f"<= {median}",
            reached=bool(np.median(told) <= median),
        )
    ]
    p90_found = np.quantile(told, 0.9)
    rows.append(
        Row(
            what=f"{name}: nights until found, p90",
            found=_night(p90_found),
            wanted="" if p90 is None else f"<= {p90}",
            reached=None if p90 is None else bool(p90_found <= p90),
        )
    )
    off = [min((abs(m.index - since) for m in f.moves), default=NEVER) for f in judged(y)]
    within = float(np.mean(np.array(off) <= 1))
    rows.append(
        Row(
            what=f"{name}: located within a night, at the last",
            found=f"{within:.1%} (median off by {np.median(off):.0f})",
            wanted="median <= 1",
            reached=bool(np.median(off) <= 1),
        )
    )
    return rows


def drifts(rng: np.random.Generator, series: int) -> list[Row]:
    since, nights = 30, 60
    y = noise(rng, series, since + nights, 0.01)
    y[:, since:] += np.log1p(-0.10 * np.arange(1, nights + 1) / nights)
    told = latencies(y, since, lambda found: any(m.slides for m in found.moves), nights)
    lost = 0.10 * np.minimum(told, nights) / nights
    step = noise(rng, series, 90, 0.01)
    step[:, 45:] += np.log1p(-0.03)
    mistaken = float(np.mean([any(m.slides for m in f.moves) for f in judged(step)]))
    return [
        Row(
            what="-10% drift over 60 nights: lost when named as drift, median",
            found=f"{-np.median(lost):.1%} (p90 {-np.quantile(lost, 0.9):.1%})",
            wanted="before -5.0%",
            reached=bool(np.median(lost) < 0.05),
        ),
        Row(what="-3% steps that are named as drift", found=f"{mistaken:.1%}", wanted=""),
    ]


def speed(rng: np.random.Generator) -> list[Row]:
    y = noise(rng, 1000, 1000, 0.01)
    y[:500, 400:] += np.log1p(-0.03)
    y[:250, 700:] += np.log1p(0.05)
    before = resource.getrusage(resource.RUSAGE_SELF)
    judged(y)
    after = resource.getrusage(resource.RUSAGE_SELF)
    took_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return [
        Row(
            what="1,000 series of 1,000 nights: processor seconds",
            found=f"{took_s:.1f}",
            wanted="<= 20",
            reached=took_s <= 20,
        )
    ]


def _night(value: float) -> str:
    return "not found" if value >= NEVER else f"{value:.0f}"


def main() -> None:
    """Print every figure; end with 1 when one is not reached."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help=f"{QUICK_SERIES} series a row")
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    series = QUICK_SERIES if asked.quick else SERIES
    rng = np.random.default_rng(asked.seed)
    clean = noise(rng, series, 90, 0.01)
    parts: list[Callable[[], list[Row]]] = [
        lambda: false_alarms("90 clean nights, 1 % noise", clean, 1),
        lambda: false_alarms("with 3 % odd nights", with_outliers(rng, clean, 0.03), 4),
        lambda: false_alarms(
            "with noise that carries over", correlated(rng, series, 90, 0.01), None
        ),
        lambda: steps(rng, series, -0.03, 0.01, 2, 4),
        lambda: steps(rng, series, -0.01, 0.005, 3, None),
        lambda: drifts(rng, series),
        lambda: speed(rng),
    ]
    missed = False
    for part in parts:
        for row in part():
            mark = {True: "ok", False: "MISSED", None: ""}[row.reached]
            print(f"{row.what:62} {row.found:34} {row.wanted:14} {mark}".rstrip(), flush=True)
            missed |= row.reached is False
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
