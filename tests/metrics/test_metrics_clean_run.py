"""`bench run scenarios/quick.yaml --sim` from end to end: a clean run with nothing to tell."""

import subprocess
import sys
from pathlib import Path

import pytest

from bench.model import CellStatus, FindingKind, Verdict
from bench.store import find_run, load_run

K = FindingKind
QUICK = Path(__file__).parents[2] / "scenarios" / "quick.yaml"
SAID_OF_EVERY_SIMULATION = {K.SIMULATED, K.SIMULATION_SPEED}
OF_A_BUSY_MACHINE = {
    K.CLIENT_LATE,
    K.CLIENT_SATURATED,
    K.CONCURRENCY_NOT_REACHED,
    K.CYCLE_DISAGREES,
    K.DRIFTING,
    K.SIMULATION_LATE,
    K.STREAM_COALESCED,
    K.WINDOW_TOO_SHORT,
}
LATE_MS = 2.0
"""Of the world. A step of the simulated server takes a millisecond or two of it."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    out = tmp_path_factory.mktemp("quick")
    bench = Path(sys.executable).with_name("bench")
    done = subprocess.run(
        [bench, "run", QUICK, "--sim", "--out", out, "--json"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return find_run(out, "latest")


def was_busy(run):
    """Whether the simulated server or the load worker's loop was late itself."""
    if any(f.kind is K.SIMULATION_LATE for f in run.findings):
        return True
    lags_ms = [m.client.loop_lag_p99_ms or 0.0 for m in run.measurements if m.client]
    return max(lags_ms, default=0.0) / run.speed > LATE_MS


def test_a_clean_run_has_nothing_to_tell(folder):
    run = load_run(folder)
    allowed = set(SAID_OF_EVERY_SIMULATION)
    if was_busy(run):
        allowed |= OF_A_BUSY_MACHINE
    told = [f for f in run.findings if f.kind not in allowed]
    assert told == []


def test_and_it_has_its_answer(folder):
    run = load_run(folder)
    assert {(c.arm, c.load) for c in run.comparisons} == {("eagle3", "1"), ("eagle3", "8")}
    for comparison in run.comparisons:
        assert comparison.pairs == 2
        assert comparison.speedup > 1
    alone = next(c for c in run.comparisons if c.load == "1")
    if not was_busy(run):
        assert alone.verdict is Verdict.FASTER
        assert {m.status for m in run.measurements} == {CellStatus.VALID}
