import pytest
from bench_stand_ins import World


@pytest.fixture
def world(monkeypatch):
    made = World()
    made.install(monkeypatch)
    return made
