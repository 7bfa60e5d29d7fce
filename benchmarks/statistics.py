"""Whether intervals, verdicts and the check for drift are right, on runs whose truth is known.

    python -m benchmarks.statistics [--runs 1500] [--no-simulation]

Made-up speeds with known noise go through the product itself: its plan (order and time of
launches), its `compare`, its `summarize`. Then the plan is run on the simulated server, whose
noise must be the noise that was made up. Seeded: the same figures every time, but for the
simulation's, which a busy machine disturbs. Five minutes on one core; ends with 1 when a bound is
missed.
"""

from __future__ import annotations

import argparse
import math
import sys
import tempfile
import zlib
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from bench.metrics.speedup import judge
from bench.model import FindingKind, Verdict
from bench.plan import make_plan
from bench.scenario import load_scenario
from benchmarks.loops import LENGTHS, LOOPS, Loop, findings_of
from benchmarks.noise import (
    Noise,
    compared,
    made_up_run,
    one_arm_after_the_other,
    template,
)
from benchmarks.simulated import simulated_arms

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bench.model import Comparison, Launch, Plan

SCENARIO: Final = Path(__file__).with_name("statistics.yaml")
PAIRS: Final = (3, 5, 8)
COVERAGE: Final = (0.93, 0.97)
FALSE_VERDICTS: Final = 0.05
STANDARD_ERRORS: Final = 3.0  # that a share of runs may be above what it is a sample of
FALSE_DRIFTS: Final = 0.02
DRIFT_LEFT: Final = 0.002
LEFT_SHARE: Final = 0.5  # of the launches' noise: steps, and the client's machine
BUSY_MS: Final = 2.0  # a step of the simulated server takes a millisecond or two of the world
POWER: Final = 0.80
GAINS: Final = np.arange(0.0005, 0.3, 0.0005)

SCATTER: Final = tuple(
    Noise(name=f"launches {sd:.1%}", launch_sd=sd, block_sd=sd / 4)
    for sd in (0.002, 0.005, 0.01, 0.02)
)
SHAPES: Final = (
    Noise(name="launches 1 %, cut at 2 sd", launch_sd=0.01, block_sd=0.0025, shape="cut"),
    Noise(name="launches 1 %, heavy tails", launch_sd=0.01, block_sd=0.0025, shape="heavy"),
    Noise(
        name="launches 1 %, 5 % of them up to 10 % slower",
        launch_sd=0.01,
        block_sd=0.0025,
        outlier_share=0.05,
        outlier=0.10,
    ),
    Noise(name="launches 1 %, drift of 3 %", launch_sd=0.01, block_sd=0.0025, drift=0.03),
    Noise(name="launches 1 %, cold start of 3 %", launch_sd=0.01, block_sd=0.0025, warmup=0.03),
)
# Here the interval has to be no narrower than it says, and is wider: a drift that alternates from
# pair to pair is spread to it.
DRIFT: Final = Noise(
    name="launches 0.2 %, drift of 3 %", launch_sd=0.002, block_sd=0.0005, drift=0.03
)
TRUTH: Final = {"baseline": 1.0, "same": 1.0, "eagle3": 1.02}  # eagle3 at the practical margin


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """What became of many runs with one noise and number of pairs; shares of comparisons.

    Attributes:
        covered: Intervals that contain the truth.
        false_verdicts: FASTER or SLOWER of an arm that is the baseline.
        false_at_margin: SAME or SLOWER of an arm that is faster by the whole practical margin.
        bias: Mean error of the logarithm of the speedup.
        found: The smallest gain that is called FASTER in 80 % of runs; None: none up to 30 %.
    """

    noise: Noise
    pairs: int
    covered: float
    false_verdicts: float
    false_at_margin: float
    bias: float
    found: float | None


def plan_of(pairs: int) -> Plan:
    return make_plan(load_scenario(SCENARIO, [f"measure.pairs={pairs}"]), simulated=True)


def many_runs(
    plan: Plan,
    launches: Sequence[Launch],
    noise: Noise,
    runs: int,
    truth: Mapping[str, float] = TRUTH,
) -> list[Comparison]:
    """The comparisons of many made-up runs of a plan."""
    made = template()
    seed = zlib.crc32(noise.name.encode())
    return [
        comparison
        for run in range(runs)
        for comparison in compared(
            plan,
            made_up_run(
                launches, made, noise, truth, np.random.default_rng([run, plan.pairs, seed])
            ),
        )
    ]


def row_of(plan: Plan, launches: Sequence[Launch], noise: Noise, runs: int) -> Row:
    comparisons = many_runs(plan, launches, noise, runs)
    same = [c for c in comparisons if c.arm == "same"]
    at_margin = [c for c in comparisons if c.arm == "eagle3"]
    return Row(
        noise=noise,
        pairs=plan.pairs,
        covered=_share(_covers(c, TRUTH[c.arm]) for c in comparisons),
        false_verdicts=_share(c.verdict in {Verdict.FASTER, Verdict.SLOWER} for c in same),
        false_at_margin=_share(c.verdict in {Verdict.SAME, Verdict.SLOWER} for c in at_margin),
        bias=float(np.mean([math.log(c.speedup or math.nan) for c in same])),
        found=_smallest_gain(same, plan.practical_margin),
    )


def _at_most(share: float, runs: int) -> float:
    return share + STANDARD_ERRORS * math.sqrt(share * (1 - share) / runs)


def _share(values: object) -> float:
    return float(np.mean(list(values)))  # type: ignore[call-overload]


def _covers(c: Comparison, truth: float) -> bool:
    assert c.ci95_low is not None
    assert c.ci95_high is not None
    return c.ci95_low <= truth <= c.ci95_high


def _smallest_gain(same: Sequence[Comparison], margin: float) -> float | None:
    """Were the arm faster by a gain, each interval would be so much higher and as wide."""
    intervals = [(c.ci95_low or math.nan, c.ci95_high or math.nan) for c in same]
    for gain in GAINS:
        verdicts = (judge(low * (1 + gain), high * (1 + gain), margin) for low, high in intervals)
        if _share(v is Verdict.FASTER for v in verdicts) >= POWER:
            return float(gain)
    return None


def coverage_table(runs: int) -> bool:
    """Print coverage, false verdicts, bias and power; whether all are within their bounds."""
    print(f"\n{runs} runs a row, 2 arms and 2 loads each; 95 % intervals, margin 2 %")
    print("\n| noise | pairs | covered | false verdict | at the margin | bias | gain found |")
    print("|---|---|---|---|---|---|---|")
    ok = True
    for noise in (*SCATTER, *SHAPES, DRIFT):
        for pairs in PAIRS:
            plan = plan_of(pairs)
            row = row_of(plan, plan.launches, noise, runs)
            highest = 1.0 if noise is DRIFT else COVERAGE[1]
            good = COVERAGE[0] <= row.covered <= highest and (
                max(row.false_verdicts, row.false_at_margin) <= _at_most(FALSE_VERDICTS, runs)
            )
            ok &= good
            found = "over 30 %" if row.found is None else f"{row.found:.2%}"
            print(
                f"| {noise.name} | {pairs} | {row.covered:.1%} | {row.false_verdicts:.1%} "
                f"| {row.false_at_margin:.1%} | {row.bias:+.2%} | {found} |"
                f"{'' if good else ' MISSED'}",
                flush=True,
            )
    return ok


def order_table(runs: int) -> bool:
    """Print what the plan's order makes of a drift; whether it is gone."""
    print("\na drift of 3 % over the run, launches 0.2 %")
    print("\n| order | pairs | bias | false verdict | covered |\n|---|---|---|---|---|")
    ok = True
    for pairs in PAIRS:
        plan = plan_of(pairs)
        for name, launches in (
            ("the plan's", list(plan.launches)),
            ("one arm after the other", one_arm_after_the_other(plan.launches)),
        ):
            row = row_of(plan, launches, DRIFT, runs)
            good = name != "the plan's" or (
                abs(row.bias) <= DRIFT_LEFT and row.false_verdicts <= FALSE_VERDICTS
            )
            ok &= good
            print(
                f"| {name} | {pairs} | {row.bias:+.2%} | {row.false_verdicts:.1%} "
                f"| {row.covered:.1%} |{'' if good else ' MISSED'}",
                flush=True,
            )
    return ok


def steadiness_table(cells: int) -> bool:
    """Print how often a steady server and one that slows down are called drifting."""
    print(f"\n{cells} cells a row (a quarter at 64 slots): how often a cell is called drifting")
    print(
        "\n| slots | requests a slot | lengths | steady | 20 % slower at the end | few requests |"
    )
    print("|---|---|---|---|---|---|")
    ok = True
    for slots, turns in LOOPS:
        for lengths in LENGTHS:
            count = cells if slots < 64 else cells // 4
            told: dict[float, Counter[FindingKind]] = {}
            for slower in (0.0, 0.2):
                told[slower] = Counter()
                for seed in range(count):
                    loop = Loop(slots=slots, turns=turns, lengths=lengths, slower=slower)
                    told[slower].update(findings_of(loop, seed))
            steady, drifts, few = (
                told[slower][kind] / count
                for slower, kind in (
                    (0.0, FindingKind.DRIFTING),
                    (0.2, FindingKind.DRIFTING),
                    (0.0, FindingKind.FEW_REQUESTS),
                )
            )
            good = steady <= FALSE_DRIFTS
            ok &= good
            print(
                f"| {slots} | {turns} | {lengths} | {steady:.1%} | {drifts:.0%} | {few:.0%} |"
                f"{'' if good else ' MISSED'}",
                flush=True,
            )
    return ok


def simulation_table(launch_sd: float) -> bool:
    """Run the plan on the simulated server; whether its noise is the one that is made up above."""
    with tempfile.TemporaryDirectory(prefix="specdyno-statistics-") as folder:
        arms = simulated_arms(SCENARIO, Path(folder), launch_sd=launch_sd, pairs=6)
    print(f"\nthe simulated server itself, 6 pairs, launches {launch_sd:.0%} (cut at 2 sd)")
    print("\n| arm | load | launches' own sd | sd of tok/s | left | speedup | truth |")
    print("|---|---|---|---|---|---|---|")
    for arm in arms:
        print(arm.line())
    lag_ms = max(arm.lag_ms for arm in arms)
    if lag_ms > BUSY_MS:
        print(f"\nthe machine was busy (the load worker was {lag_ms:.1f} ms late): not judged")
        return True
    return all(arm.left <= LEFT_SHARE * launch_sd for arm in arms)


def main() -> int:
    """Print the tables; 1 when a bound is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=1500, help="made-up runs a row")
    parser.add_argument("--no-simulation", action="store_true", help="leave out the last table")
    asked = parser.parse_args()
    ok = coverage_table(asked.runs)
    ok &= order_table(asked.runs)
    ok &= steadiness_table(max(20, asked.runs // 20))
    if not asked.no_simulation:
        ok &= simulation_table(0.02)
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
