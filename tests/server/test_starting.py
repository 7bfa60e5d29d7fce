"""A server that answers every generation with an error inside status 200."""

from types import SimpleNamespace

import pytest

from bench.errors import ServerError
from bench.server import starting
from bench.sglang.control import NothingGeneratedError

REQUEST_S = 600.0


@pytest.fixture
def now(monkeypatch):
    """Nanoseconds of a clock that only sleeping moves."""
    time = SimpleNamespace(ns=0)

    async def sleep_ns(ns):
        time.ns += ns

    monkeypatch.setattr(
        starting, "clock", SimpleNamespace(now_ns=lambda: time.ns + 1, sleep_ns=sleep_ns)
    )
    return time


def answering(monkeypatch, answers):
    async def model_info(_session):
        return {}

    async def generate_once(_session, *, timeout_s):
        assert timeout_s == REQUEST_S
        answer = next(answers)
        if answer is not None:
            raise answer

    monkeypatch.setattr(starting.control, "model_info", model_info)
    monkeypatch.setattr(starting.control, "generate_once", generate_once)


async def test_the_same_answer_without_tokens_again_and_again_ends_the_start(monkeypatch, now):
    answering(
        monkeypatch,
        (NothingGeneratedError(f"no tokens: scheduler broke, id {k:032x}") for k in range(10**6)),
    )
    told = []
    with pytest.raises(ServerError, match="scheduler broke"):
        await starting.until_generating(None, request_s=REQUEST_S, on_progress=told.append)
    assert 30 <= now.ns / 1e9 < 32
    assert len(told) == 1
    assert "scheduler broke" in told[0]


async def test_a_server_that_says_something_else_is_waited_for(monkeypatch, now):
    def answers():
        for _ in range(25):
            yield NothingGeneratedError("no tokens: loading")
        for _ in range(25):
            yield ServerError("status 503")
        for _ in range(25):
            yield NothingGeneratedError("no tokens: warming up")
        yield None

    answering(monkeypatch, answers())
    told = []
    await starting.until_generating(None, request_s=REQUEST_S, on_progress=told.append)
    assert now.ns > 60e9
    assert [text.rpartition(": ")[2] for text in told] == ["loading", "warming up"]
