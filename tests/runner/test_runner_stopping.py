"""Ctrl-C and TERM at every moment: the server is stopped, what is finished is kept."""

import asyncio
import os
import signal

import pytest
from bench_stand_ins import begin, forever

from bench.errors import Interrupted
from bench.runner import Noted, open_bench, run
from bench.runner.events import say_nothing
from bench.store import RunStatus, load_run


async def stopped(plan, writer, *, on_event=say_nothing):
    with pytest.raises(Interrupted):
        await run(plan, writer, on_event=on_event)
    stored = load_run(writer.folder)
    assert (stored.published, stored.manifest.status) == (False, RunStatus.INTERRUPTED)
    return stored


def interrupt(_argument=None):
    os.kill(os.getpid(), signal.SIGINT)


async def interrupt_and_wait(argument=None):
    interrupt()
    await forever()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_under_load_the_cell_is_given_up_and_the_server_stopped(world, tmp_path, number):
    async def loads(cell):
        if cell.load.label == "2":
            os.kill(os.getpid(), number)
            await forever()

    world.loads = loads
    plan, writer = begin(tmp_path)
    stored = await stopped(plan, writer)
    assert [m.load for m in stored.measurements] == ["1"]
    assert world.journal[-4:] == ["load 2", "watched", "close client", "stop"]
    (record,) = stored.manifest.launches
    assert (record.exit_code, record.failure) == (0, None)
    assert record.stopped_ns is not None


async def test_while_the_server_starts_the_start_is_given_up(world, tmp_path):
    world.starts = interrupt_and_wait
    plan, writer = begin(tmp_path)
    stored = await stopped(plan, writer)
    assert world.journal == ["start baseline", "start given up"]
    (record,) = stored.manifest.launches
    assert record.ready_ns is None
    assert record.stopped_ns is not None


async def test_a_start_that_ends_in_the_same_moment_leaves_no_server(world, tmp_path):
    """The start is asked to give up, but it has a server already: that one is stopped."""

    async def starts(arm):
        interrupt()
        try:
            await forever()
        except asyncio.CancelledError:
            asyncio.current_task().uncancel()

    world.starts = starts
    plan, writer = begin(tmp_path)
    await stopped(plan, writer)
    assert world.journal == ["start baseline", "stop"]


async def test_while_the_load_client_opens_no_load_is_sent(world, tmp_path):
    async def opens(_argument):
        interrupt()
        await asyncio.sleep(0.02)

    world.opens = opens
    plan, writer = begin(tmp_path)
    await stopped(plan, writer)
    assert world.journal == [
        *("start baseline", "between", "watch", "watched", "close client", "stop")
    ]


async def test_a_client_that_forgets_the_wish_is_told_again(world, tmp_path):
    """`run_cell` begins by forgetting what was asked before: a wish in that moment must not go."""

    async def begins(cell):
        interrupt()
        await asyncio.sleep(0.005)
        assert world.clients[-1].cancelled

    world.begins, world.loads = begins, forever
    plan, writer = begin(tmp_path)
    await stopped(plan, writer)
    assert world.journal[-4:] == ["load 1", "watched", "close client", "stop"]


async def test_between_two_launches_the_next_is_not_started(world, tmp_path):
    async def stops(server):
        interrupt()
        await asyncio.sleep(0.01)

    world.stops = stops
    plan, writer = begin(tmp_path)
    stored = await stopped(plan, writer)
    assert world.journal.count("stop") == 1
    assert "start eagle3" not in world.journal
    assert len(stored.measurements) == 2


async def test_after_the_last_cell_there_is_nothing_to_stop_and_the_run_is_published(
    world, tmp_path
):
    def stops(server):
        if server.arm == "eagle3":
            interrupt()

    world.stops = stops
    plan, writer = begin(tmp_path)
    assert load_run(await run(plan, writer)).status is RunStatus.COMPLETE


async def test_a_server_that_dies_while_stopping_is_not_started_again(world, tmp_path):
    async def loads(cell):
        world.server.exit_code = 1
        await interrupt_and_wait()

    world.loads = loads
    plan, writer = begin(tmp_path)
    await stopped(plan, writer)
    assert world.journal.count("start baseline") == 1


async def test_asking_again_and_again_does_no_harm_and_is_answered(world, tmp_path):
    async def loads(cell):
        interrupt()
        await asyncio.sleep(0.005)
        await interrupt_and_wait()

    world.loads = loads
    plan, writer = begin(tmp_path)
    events = []
    await stopped(plan, writer, on_event=events.append)
    told = [event.text.split(":")[0] for event in events if isinstance(event, Noted)]
    assert told == ["stopping", "still stopping"]


async def test_cancelled_requests_are_no_cell(world, tmp_path):
    """A load that was cut short is thrown away, even when every request of it has a row."""
    world.loads = interrupt
    plan, writer = begin(tmp_path)
    stored = await stopped(plan, writer)
    assert stored.measurements == ()


async def test_signals_are_as_before_once_the_bench_is_closed(tmp_path):
    _, writer = begin(tmp_path)
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    async with open_bench(writer, gpus=8, cells_total=4) as bench:
        assert all(signal.getsignal(number) != before[number] for number in before)
        interrupt()
        await asyncio.sleep(0.01)
        assert bench.is_stopping
    assert {number: signal.getsignal(number) for number in before} == before
    writer.close()


async def test_signals_that_were_ignored_stay_ignored(tmp_path, monkeypatch):
    """Nohup and a shell's background jobs ignore them."""
    _, writer = begin(tmp_path)
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        async with open_bench(writer, gpus=8, cells_total=4) as bench:
            interrupt()
            await asyncio.sleep(0.01)
            assert not bench.is_stopping
    finally:
        signal.signal(signal.SIGINT, before)
        writer.close()
