"""Checks on a machine with NVIDIA GPUs (make test-gpu), and what to send back of them."""

from __future__ import annotations

import platform

import pytest

from bench import gpu

REPORT = pytest.StashKey[list[str]]()
"""What to send back, a line each."""


@pytest.fixture(scope="session")
def gpus():
    """The machine's GPUs; without one the checks are skipped, and say why."""
    found = gpu.list_gpus()
    if not found:
        pytest.skip("NVML finds no NVIDIA GPU (no driver, no rights, or no GPU)")
    return found


@pytest.fixture
def report(pytestconfig):
    """Lines to send back."""
    return pytestconfig.stash.setdefault(REPORT, [])


def pytest_terminal_summary(terminalreporter, config):
    lines = config.stash.get(REPORT, [])
    if not lines:
        return
    terminalreporter.section("please send this back")
    terminalreporter.line(f"python {platform.python_version()} on {platform.platform()}")
    for line in lines:
        terminalreporter.line(line)
