"""A plan on the simulated server: how its launches scatter, and how much of it is their own."""

from __future__ import annotations

import json
import math
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from bench import physics
from bench.store import find_run, load_run

if TYPE_CHECKING:
    from bench.store import StoredRun


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedArm:
    """An arm at a load over its launches.

    Attributes:
        own_sd: Standard deviation over launches of the logarithm of the launch's own factor, as
            the server tells it in its truth file.
        log_sd: The same of tok/s.
        left: What is left of it once that factor is taken out: 1.48 times the median deviation
            from the median, so that a launch that the machine disturbed is one of several.
        lag_ms: The load worker's own lateness, of the world (99th percentile, worst cell).
        compared: The comparison's interval; None for the baseline.
        truth: What the speedup has to be, where it is known.
    """

    arm: str
    load: str
    own_sd: float
    log_sd: float
    left: float
    lag_ms: float
    compared: tuple[float, float, float] | None
    truth: float | None

    def line(self) -> str:
        """As a row of a table."""
        speedup = ""
        if self.compared is not None:
            speedup = "{:.3f} [{:.3f}, {:.3f}]".format(*self.compared)
        truth = "" if self.truth is None else f"{self.truth:g}"
        return (
            f"| {self.arm} | {self.load} | {self.own_sd:.2%} | {self.log_sd:.2%} "
            f"| {self.left:.2%} | {speedup} | {truth} |"
        )


def simulated_arms(
    scenario: Path, out: Path, *, launch_sd: float, pairs: int
) -> list[SimulatedArm]:
    """Run a scenario on the simulated server whose launches scatter by `launch_sd`."""
    card = out / "scattering.yaml"
    original = Path(physics.__file__).parent / "cards" / "hardware" / "h200-x8.yaml"
    card.write_text(
        re.sub(r"(?m)^launch_sd: .*$", f"launch_sd: {launch_sd}", original.read_text())
    )
    command: list[str | Path] = [
        Path(sys.executable).with_name("bench"),
        *("run", scenario, "--sim", "--sim-hardware", card, "--out", out),
        *("--set", f"measure.pairs={pairs}"),
    ]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    folder = find_run(out, "latest")
    run = load_run(folder)
    arms = sorted({(m.arm, m.load) for m in run.measurements})
    return [_arm(run, folder, arm, load) for arm, load in arms]


def _arm(run: StoredRun, folder: Path, arm: str, load: str) -> SimulatedArm:
    cells = [m for m in run.measurements if (m.arm, m.load) == (arm, load)]
    logs = np.array([math.log(m.output_tok_per_s or math.nan) for m in cells])
    own = np.array([math.log(launch_factor(folder, m.launch_id)) for m in cells])
    told = [c for c in run.comparisons if (c.arm, c.load) == (arm, load)]
    compared = None
    if told:
        of_arm = told[0]
        assert of_arm.speedup is not None
        assert of_arm.ci95_low is not None
        assert of_arm.ci95_high is not None
        compared = (of_arm.speedup, of_arm.ci95_low, of_arm.ci95_high)
    return SimulatedArm(
        arm=arm,
        load=load,
        own_sd=float(own.std(ddof=1)),
        log_sd=float(logs.std(ddof=1)),
        left=1.48 * float(np.median(np.abs(logs + own - np.median(logs + own)))),
        lag_ms=max((m.client.loop_lag_p99_ms or 0.0) / run.speed for m in cells if m.client),
        compared=compared,
        truth=1.0 if arm == "same" else None,
    )


def launch_factor(folder: Path, launch_id: str) -> float:
    """How much slower a launch was than its card, by the server's own account."""
    with (folder / "logs" / f"{launch_id}.truth.jsonl").open() as lines:
        return float(json.loads(next(lines))["launch_factor"])
