"""Checks on a machine with NVIDIA GPUs (make test-gpu), and what to send back of them."""

from __future__ import annotations

import platform

import pytest

from bench import gpu

REPORT = pytest.StashKey[list[str]]()
"""What to send back, a line each."""

NO_GPU = pytest.StashKey[bool]()
"""Whether this machine has none to check."""


@pytest.fixture(scope="session")
def gpus(pytestconfig):
    """The machine's GPUs; without one the checks are skipped, and say why."""
    found = gpu.list_gpus()
    pytestconfig.stash[NO_GPU] = not found
    if not found:
        pytest.skip("NVML finds no NVIDIA GPU (no driver, no rights, or no GPU)")
    return found


@pytest.fixture
def report(pytestconfig):
    """Lines to send back."""
    return pytestconfig.stash.setdefault(REPORT, [])


def pytest_terminal_summary(terminalreporter, config):
    lines = config.stash.get(REPORT, [])
    if config.stash.get(NO_GPU, False):
        terminalreporter.section("nothing was checked")
        terminalreporter.line("NVML finds no NVIDIA GPU here: no driver, no rights, or no GPU.")
        terminalreporter.line(
            "Run this on a machine where nvidia-smi lists GPUs; there is nothing"
        )
        terminalreporter.line("to send back (docs/hardware.md).")
    if not lines:
        return
    terminalreporter.section("please send this back")
    terminalreporter.line(f"python {platform.python_version()} on {platform.platform()}")
    for line in lines:
        terminalreporter.line(line)
