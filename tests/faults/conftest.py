import sys
from pathlib import Path

import pytest

from bench import clock

# The stand-ins of the runner's tests and the command of the command line's are used here too.
for room in ("runner", "cli"):
    sys.path.append(str(Path(__file__).parents[1] / room))


@pytest.fixture(autouse=True)
def _the_clock_is_set_back(monkeypatch):
    monkeypatch.setenv(clock.SPEED_VARIABLE, "1")
    yield
    clock.set_speed(1)
