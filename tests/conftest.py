"""For every test: the process's one clock is left as it was found."""

import os

import pytest

from bench import clock


@pytest.fixture(autouse=True)
def clock_as_it_was():
    speed, variable = clock.speed(), os.environ.get(clock.SPEED_VARIABLE)
    yield
    if clock.speed() != speed:
        clock.set_speed(speed)
    if variable is None:
        os.environ.pop(clock.SPEED_VARIABLE, None)
    else:
        os.environ[clock.SPEED_VARIABLE] = variable
