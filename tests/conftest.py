"""For every test: the process's clock and signals are as they were when the tests began.

Also where a fixture of a module began a run before the test, or a command ignored signals at its
end: what they set does not outlast them.
"""

import os
import signal

import pytest

from bench import clock

_CLOCK = clock.speed(), os.environ.get(clock.SPEED_VARIABLE)

# A shell's background job ignores Ctrl-C, and so would every bench that the tests start.
_SIGNALS = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL}


def _set_back():
    speed, variable = _CLOCK
    if clock.speed() != speed:
        clock.set_speed(speed)
    if variable is None:
        os.environ.pop(clock.SPEED_VARIABLE, None)
    else:
        os.environ[clock.SPEED_VARIABLE] = variable
    for number, handler in _SIGNALS.items():
        if signal.getsignal(number) is not handler:
            signal.signal(number, handler)


@pytest.fixture(autouse=True)
def process_as_it_was():
    _set_back()
    yield
    _set_back()
