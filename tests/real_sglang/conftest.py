"""One run of scenarios/lab.yaml against the real SGLang, for all tests of this folder."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from lab_runs import SECRET, LabRun

ROOT = Path(__file__).parents[2]
RUN_S = 1500
"""What the slowest machine is given; two idle cores need 150 s."""


@pytest.fixture(scope="session")
def lab() -> None:
    """That the real SGLang is installed."""
    _demand_lab()


@pytest.fixture(scope="session")
def lab_run(lab, tmp_path_factory) -> LabRun:
    """Runs the scenario with the installed `bench`, in a folder of its own."""
    folder = tmp_path_factory.mktemp("lab")
    command = Path(sys.executable).with_name("bench")
    scenario = ROOT / "scenarios" / "lab.yaml"
    done = subprocess.run(
        [command, "run", scenario, "--out", folder, "--json"],
        cwd=folder,
        env={**os.environ, "HF_TOKEN": SECRET},
        capture_output=True,
        text=True,
        timeout=RUN_S,
        check=False,
    )
    print(done.stderr[-20_000:], file=sys.stderr)  # pytest shows it when a test fails
    assert done.stdout, f"exit status {done.returncode} and no answer: {done.stderr[-5000:]}"
    return LabRun(done.returncode, json.loads(done.stdout), done.stderr, folder)


def _demand_lab() -> None:
    """Skip without a lab; fail where one must be: in CI, and when it is asked for."""
    install = ROOT / "tests" / "lab" / "install.py"
    where = subprocess.run([sys.executable, install, "--where"], capture_output=True, check=False)
    if where.returncode == 0:
        return
    message = "the lab with the real SGLang is not installed; do: make lab"
    if (
        os.environ.get("CI", "").lower() in {"true", "1"}
        or os.environ.get("SPECDYNO_LAB") == "require"
    ):
        pytest.fail(message, pytrace=False)
    pytest.skip(message)
