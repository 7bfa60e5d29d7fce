from __future__ import annotations

import asyncio

from bench import clock
from bench.load import pacing
from bench.load.pacing import Alarm, Pacer


class World:
    """A clock that stands still until it is told to go on."""

    def __init__(self, monkeypatch):
        self.now_ns = 10**12
        monkeypatch.setattr(pacing, "monotonic_ns", lambda: self.now_ns)


async def test_no_more_start_in_a_millisecond_than_may(monkeypatch):
    world = World(monkeypatch)
    monkeypatch.setattr(pacing.Alarm, "set", lambda _self, when_ns: alarms.append(when_ns))
    started, alarms = [], []
    pacer = Pacer(asyncio.get_running_loop(), started.append, starts_a_ms=16)
    for item in range(100):
        pacer.push(item)
    for _ in range(30):
        await asyncio.sleep(0)
    assert started == list(range(len(started)))
    assert 16 <= len(started) <= 17
    for _ in range(100):
        if len(started) == 100:
            break
        before, world.now_ns = len(started), alarms.pop()
        pacer._turn()
        assert 1 <= len(started) - before <= 4
    assert started == list(range(100))
    assert world.now_ns - 10**12 >= (100 - 17) * 62_500
    pacer.stop()


async def test_a_burst_is_spread_over_turns_of_the_loop():
    started = []
    pacer = Pacer(asyncio.get_running_loop(), started.append, starts_a_ms=1000)
    pacer.push(0)
    assert started == [0]  # nothing waits: at once
    turns = []
    pacer._waiting.extend(range(1, 13))
    pacer.push(13)
    while len(started) < 14:
        before = len(started)
        await asyncio.sleep(0)
        turns.append(len(started) - before)
    assert started == list(range(14))
    assert max(turns) == 4
    pacer.stop()


async def test_what_is_pushed_while_starting_comes_in_its_turn():
    started = []

    def start(item):
        started.append(item)
        if item < 5:
            pacer.push(item + 1)

    pacer = Pacer(asyncio.get_running_loop(), start, starts_a_ms=16)
    pacer.push(0)
    while len(started) < 6:  # noqa: ASYNC110  # turns are counted, not time
        await asyncio.sleep(0)
    assert started == [0, 1, 2, 3, 4, 5]
    pacer.stop()


async def test_a_stopped_pacer_starts_nothing():
    started = []
    pacer = Pacer(asyncio.get_running_loop(), started.append, starts_a_ms=1)
    for item in range(50):
        pacer.push(item)
    pacer.stop()
    before = len(started)
    await asyncio.sleep(0.02)
    assert len(started) == before < 50


async def test_an_alarm_rings_once_and_never_early():
    rang = asyncio.Event()
    rings = []

    def ring():
        rings.append(clock.monotonic_ns())
        rang.set()

    alarm = Alarm(asyncio.get_running_loop(), ring)
    for when_ns in (clock.monotonic_ns() + 3_000_000, clock.monotonic_ns() - 5, 0):
        rang.clear()
        alarm.set(when_ns)
        await rang.wait()
        assert rings[-1] >= when_ns
    await asyncio.sleep(0.01)
    assert len(rings) == 3
    alarm.close()
    alarm.close()
