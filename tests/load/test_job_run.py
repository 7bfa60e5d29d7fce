"""A job in this process: what goes wrong in the worker itself is told, and ends it."""

from __future__ import annotations

import asyncio

import pytest
from scripted import serve

from bench.errors import DiskError
from bench.load.frames import Go, Job, JobEnd, Prepared
from bench.load.job_run import JobRun
from bench.load.shared_requests import Request, RequestReader, RequestWriter

BODY = b'{"max_completion_tokens": 3}'


def job(served, **changes) -> Job:
    values = {
        "base_url": served.base_url,
        "api_key": None,
        "path": "v1/chat/completions",
        "rid_stem": "a" * 24,
        "is_open": False,
        "slots": [0, 1],
        "request_s": 20.0,
        "connect_s": 5.0,
        "drain_s": 5.0,
        "keep_text": False,
        "connections": 2,
        "starts_a_ms": 16,
    }
    return Job(**(values | changes))


async def run(job, write):
    shared = RequestWriter().share()
    shared.write(Request(number, BODY) for number in range(6))
    requests = RequestReader(*shared.descriptors())
    told = []
    go = asyncio.get_running_loop().create_future()
    go.set_result(Go(start_ns=0))
    try:
        await JobRun(job, requests, tell=told.append, write=write).run(go)
    finally:
        requests.close()
        shared.release()
    return told


async def test_a_job_that_goes_well():
    outcomes = []
    async with serve() as served:
        told = await run(job(served), outcomes.append)
    assert sorted(o.index for o in outcomes) == list(range(6))
    assert [type(message) for message in told] == [Prepared, JobEnd]
    assert told[0].connections == 2
    assert [body["rid"] for body in served.bodies] == [f"{'a' * 24}{n:08x}" for n in range(6)]


async def test_a_worker_without_a_slot_of_a_closed_load_sends_nothing():
    outcomes = []
    async with serve() as served:
        told = await run(job(served, slots=[], connections=0), outcomes.append)
    assert [type(message) for message in told] == [Prepared, JobEnd]
    assert outcomes == served.bodies == []


async def test_outcomes_that_cannot_be_written_end_the_job():
    def full(_outcome):
        raise DiskError("No space left on device")

    async with serve() as served:
        with pytest.raises(DiskError, match="No space left"):
            await run(job(served), full)


@pytest.mark.parametrize("where", ["exchange.Exchange.take_reads", "stream.StreamAssembly.feed"])
async def test_a_mistake_in_a_callback_ends_the_job(where, monkeypatch):
    def mistaken(*_):
        raise RuntimeError("a mistake of ours")

    monkeypatch.setattr(f"bench.load.{where}", mistaken)
    async with serve() as served:
        with pytest.raises(RuntimeError, match="a mistake of ours"):
            await asyncio.wait_for(run(job(served), print), 10.0)
