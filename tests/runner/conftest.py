import pytest
from bench_stand_ins import World

from bench import clock


@pytest.fixture
def world(monkeypatch):
    made = World()
    made.install(monkeypatch)
    return made


@pytest.fixture(autouse=True)
def _the_clock_is_set_back(monkeypatch):
    monkeypatch.setenv(clock.SPEED_VARIABLE, "1")
    yield
    clock.set_speed(1)
