"""Whether memory stays bounded over a long run, on simulated servers at ten times real speed.

    python -m benchmarks.endurance [--hours 6] [--out DIR]

Six simulated hours take about 40 minutes. Cells of a quarter of an hour at most; every two seconds
the resident memory of the bench, of the load worker and of the simulated server is read. Printed:
a line a simulated minute or ten, and of each process its highest memory, what it grew by in a
simulated hour (a line through the second half of its readings, so that what is taken at the
beginning is no growth), and what that would make of six hours. The worker and the server are
started anew with each launch: theirs is the growth within one.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from bench import clock

SCENARIO = Path(__file__).with_name("endurance.yaml")
SPEED = 10
LONGEST_CELL_S = 900.0
CELLS_A_PAIR = 4
SPARE = 1.4  # warm-up, and the plan's spare of 30 %
READ_EVERY_S = 2.0
PARTS = {"bench.load.worker": "worker", "bench.simulator": "simulator"}
LIMIT_MIB = 1024.0
FULL_H = 6.0


@dataclass
class Series:
    """The memory of one process: (simulated seconds since the run began, MiB)."""

    part: str
    pid: int
    points: list[tuple[float, float]] = field(default_factory=list)

    @property
    def most_mib(self) -> float:
        """Its highest reading."""
        return max(mib for _, mib in self.points)

    @property
    def growth_mib_per_h(self) -> float | None:
        """A line through the second half of its readings; None: too few."""
        half = self.points[len(self.points) // 2 :]
        if len(half) < 10:
            return None
        x = [at_s / 3600 for at_s, _ in half]
        slope, _ = statistics.linear_regression(x, [mib for _, mib in half])
        return slope


def read(process: psutil.Process, at_s: float, series: dict[int, Series]) -> None:
    """Add a reading of the bench and of those of its processes that are watched."""
    for found in (process, *process.children(recursive=True)):
        try:
            command = " ".join(found.cmdline())
            mib = found.memory_info().rss / 2**20
        except psutil.Error:
            continue
        named = [part for module, part in PARTS.items() if f"-m {module}" in command]
        part = "bench" if found.pid == process.pid else named[0] if named else None
        if part is not None:
            known = series.setdefault(found.pid, Series(part=part, pid=found.pid))
            known.points.append((at_s, mib))


def watch(command: list[str], every_s: float) -> tuple[int, list[Series], float]:
    """Run the bench to its end: its exit code, the memory read, and its simulated seconds."""
    series: dict[int, Series] = {}
    began_ns, told_s = clock.monotonic_ns(), 0.0
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as child:
        process = psutil.Process(child.pid)
        while child.poll() is None:
            at_s = (clock.monotonic_ns() - began_ns) / 1e9 * SPEED
            try:
                read(process, at_s, series)
            except psutil.NoSuchProcess:
                break
            if at_s >= told_s:
                told_s += every_s
                now = {s.part: s.points[-1][1] for s in series.values() if s.points[-1][0] == at_s}
                parts = ("bench", "worker", "simulator")
                told = "  ".join(
                    f"{p} {now[p]:7.1f}" if p in now else f"{p}       -" for p in parts
                )
                print(f"{at_s / 60:7.1f} min  MiB: {told}", flush=True)
            try:
                child.wait(READ_EVERY_S)
            except subprocess.TimeoutExpired:
                continue
        code = child.wait()
    return code, list(series.values()), (clock.monotonic_ns() - began_ns) / 1e9 * SPEED


def judge(series: list[Series], simulated_s: float) -> bool:
    """Print what each part took and grew by; whether all of it stays bounded."""
    bounded = True
    for part in ("bench", "worker", "simulator"):
        of_part = [s for s in series if s.part == part and s.points]
        if not of_part:
            continue
        most = max(s.most_mib for s in of_part)
        growths = [growth for s in of_part if (growth := s.growth_mib_per_h) is not None]
        growth = statistics.fmean(growths) if growths else 0.0
        left_h = max(0.0, FULL_H - simulated_s / 3600)
        after = most + max(0.0, growth) * left_h
        bounded &= after <= LIMIT_MIB
        print(
            f"{part:9}  {len(of_part)} processes, at most {most:.0f} MiB, {growth:+.1f} MiB a "
            f"simulated hour; over {FULL_H:g} h in one process that would be {after:.0f} MiB"
        )
    return bounded


def main() -> int:
    """Run, watch, tell; 1 when the run failed or a process would pass a GiB in six hours."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hours", type=float, default=FULL_H, help="simulated hours (6)")
    parser.add_argument("--out", type=Path, default=None, help="keep the run below this folder")
    asked = parser.parse_args()
    out = asked.out or Path(tempfile.mkdtemp(prefix="specdyno-endurance-"))
    cell_s = min(LONGEST_CELL_S, asked.hours * 3600 / CELLS_A_PAIR / SPARE)
    pairs = max(1, round(asked.hours * 3600 / (CELLS_A_PAIR * cell_s * SPARE)))
    command = [
        *(str(Path(sys.executable).with_name("bench")), "run", str(SCENARIO), "--sim", "--quiet"),
        *("--set", f"measure.steady_s={cell_s:g}", "--set", f"measure.pairs={pairs}"),
        *("--out", str(out)),
    ]
    print(f"{pairs} pairs of {CELLS_A_PAIR} cells of {cell_s:.0f} s, in {out}", flush=True)
    code, series, simulated_s = watch(command, 60.0 if asked.hours <= 1 else 600.0)
    print(f"ended with {code} after {simulated_s / 3600:.2f} simulated hours")
    return 0 if judge(series, simulated_s) and code in {0, 4} else 1


if __name__ == "__main__":
    sys.exit(main())
