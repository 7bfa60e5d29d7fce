"""A load worker that hangs: it is replaced, and never keeps the bench from stopping."""

import asyncio
import os
import signal

import pytest
from bench_stand_ins import Client, World, begin, forever

from bench.errors import Interrupted
from bench.runner import Noted, run
from bench.store import load_run


@pytest.fixture
def world(monkeypatch):
    world = World()
    world.install(monkeypatch)
    monkeypatch.setattr(Client, "cancel", lambda _self: None)  # it hears nothing
    return world


async def test_a_worker_that_says_nothing_is_given_up_and_its_cell_measured_again(
    world, tmp_path, monkeypatch
):
    monkeypatch.setattr("bench.runner.lost.SILENT_S", 0.1)
    hangs = [forever]
    world.loads = lambda _cell: hangs.pop()() if hangs else None
    plan, writer = begin(tmp_path, only=("arm=baseline",))
    events = []
    stored = load_run(await run(plan, writer, on_event=events.append))
    assert [m.load for m in stored.measurements] == ["1", "2"]
    told = [event.text for event in events if isinstance(event, Noted)]
    assert told == ["the load worker has said nothing for 0.1 s; this cell is measured once more"]
    assert world.journal.count("load 1") == 2


async def test_a_worker_that_does_not_stop_does_not_keep_the_bench(world, tmp_path, monkeypatch):
    monkeypatch.setattr("bench.runner.lost.STOPPED_S", 0.1)
    began = asyncio.Event()

    async def hang(_cell):
        began.set()
        await forever()

    world.loads = hang
    plan, writer = begin(tmp_path, only=("arm=baseline",))
    running = asyncio.create_task(run(plan, writer))
    await began.wait()
    os.kill(os.getpid(), signal.SIGINT)
    with pytest.raises(Interrupted):
        await asyncio.wait_for(running, 20)
    assert world.journal[-2:] == ["close client", "stop"]
