"""For every test: the process's one clock is as it was when the tests began.

Also where a fixture of a module began a run before the test: what it set does not outlast it.
"""

import os
import signal

import pytest

from bench import clock

# A shell's background job ignores Ctrl-C, and so would every bench that the tests start.
for _number, _handler in (
    (signal.SIGINT, signal.default_int_handler),
    (signal.SIGTERM, signal.SIG_DFL),
):
    if signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, _handler)

_AT_FIRST = clock.speed(), os.environ.get(clock.SPEED_VARIABLE)


def _set_back():
    speed, variable = _AT_FIRST
    if clock.speed() != speed:
        clock.set_speed(speed)
    if variable is None:
        os.environ.pop(clock.SPEED_VARIABLE, None)
    else:
        os.environ[clock.SPEED_VARIABLE] = variable


@pytest.fixture(autouse=True)
def clock_as_it_was():
    _set_back()
    yield
    _set_back()
