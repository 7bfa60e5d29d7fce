"""A whole sweep on simulated servers: how long it takes, and whether what it says is true.

    python -m benchmarks.sweep [--launches 8] [--seeds 1] [--scenario scenarios/kimi.yaml]

For each seed a line: the wall time, the verdict, the gain with its interval, the simulator's own
truth (the same launches with each one's own noise, which the server writes down, taken out), and
whether the interval covers it. Goals for kimi with 8 launches on two cores: within 5 minutes, with
a verdict or UNDECIDED, and covered.
"""

from __future__ import annotations

import argparse
import math
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from bench import clock
from bench.store import load_run
from bench.store.study import read_study, studies_in
from benchmarks.simulated import launch_factor

GOAL_S = 300.0


def true_gain(folder: Path) -> float | None:
    """Log ratio of the best to its baseline without the launches' noise; None: cells are missing.

    Args:
        folder: Of the study.
    """
    study = read_study(folder)
    told = study.conclusion
    if told is None:
        return None
    weights = {(c.workload, c.load): c.weight for c in study.cells}
    means = []
    for place in (told.best, told.baseline):
        arm = study.configurations[place].arm
        logs: dict[tuple[str, str], list[float]] = {}
        for m in load_run(folder).measurements:
            if m.arm == arm and m.output_tok_per_s is not None and m.status.value != "INVALID":
                noiseless = math.log(m.output_tok_per_s) + math.log(
                    launch_factor(folder, m.launch_id)
                )
                logs.setdefault((m.workload, m.load), []).append(noiseless)
        if set(logs) != set(weights):
            return None
        means.append(sum(w * float(np.median(logs[cell])) for cell, w in weights.items()))
    return means[0] - means[1]


def sweep(scenario: Path, launches: int, seed: int) -> bool:
    """Run one sweep and print its line; whether the goals are met."""
    with tempfile.TemporaryDirectory(prefix="specdyno-sweep-") as out:
        command = [
            Path(sys.executable).with_name("tuner"),
            *("sweep", scenario, "--sim", "--launches", str(launches)),
            *("--set", f"sim.seed={seed}", "--out", out, "--quiet", "--json"),
        ]
        began_ns = clock.monotonic_ns()
        done = subprocess.run(command, check=False, stdout=subprocess.DEVNULL)
        took_s = (clock.monotonic_ns() - began_ns) / 1e9
        [folder] = studies_in(Path(out))
        study = read_study(folder)
        told, truth = study.conclusion, true_gain(folder)
        late = sum("simulation_late" in t.marks for t in study.trials)
    if done.returncode != 0 or told is None or truth is None:
        print(f"seed {seed}: {took_s:.0f} s, exit {done.returncode}, no figure; late {late}")
        return False
    covered = told.ci95_low <= truth <= told.ci95_high
    verdict = "none" if told.verdict is None else told.verdict.value
    low, middle, high = (math.exp(x) for x in (told.ci95_low, told.gain, told.ci95_high))
    print(
        f"seed {seed}: {took_s:.0f} s, {verdict} {study.configurations[told.best].label}, "
        f"{middle:.3f} [{low:.3f}, {high:.3f}], truth {math.exp(truth):.3f}, "
        f"{'covered' if covered else 'NOT covered'}; launches marked late: {late}"
    )
    return covered and took_s <= GOAL_S and told.verdict is not None


def main() -> int:
    """Run the sweeps; 1 when a goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--launches", type=int, default=8)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--scenario", type=Path, default=Path("scenarios/kimi.yaml"))
    asked = parser.parse_args()
    met = [sweep(asked.scenario, asked.launches, seed) for seed in range(1, asked.seeds + 1)]
    print(f"{sum(met)} of {len(met)} meet the goals")
    return 0 if all(met) else 1


if __name__ == "__main__":
    sys.exit(main())
