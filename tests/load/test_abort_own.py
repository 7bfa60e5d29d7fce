"""Requests given up on a server of others: aborted, each by its whole id, and no other."""

from __future__ import annotations

import asyncio
import re

import pytest
from aiohttp import web
from scripted import make_cell, make_workload, serve

from bench.load.generator import open_client
from bench.model import Api, Load, RequestStatus, Timeouts

UUID = re.compile(r"[0-9a-f]{32}")


async def hang(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await response.prepare(request)
    await asyncio.sleep(30)
    return response


async def run(served, cell, *, abort_own, cancel=False):
    client = await open_client(served.base_url, abort_own=abort_own)
    try:
        load = asyncio.ensure_future(client.run_cell(cell, model_name="m"))
        if cancel:
            while served.in_flight < 3:  # noqa: ASYNC110  # of another process
                await asyncio.sleep(0.01)
            client.cancel()
        return (await load).samples
    finally:
        await client.close()


@pytest.mark.parametrize("abort_own", [True, False])
async def test_a_cell_that_is_stopped_aborts_its_own_requests(abort_own):
    async with serve(hang) as served:
        cell = make_cell(load=Load(kind="closed", concurrency=3))
        samples = await run(served, cell, abort_own=abort_own, cancel=True)
    assert {s.status for s in samples} == {RequestStatus.CANCELLED}
    rids = [body["rid"] for body in served.bodies]
    assert len(set(rids)) == 3
    assert all(UUID.fullmatch(rid) for rid in rids)
    asked = [{"rid": rid} for rid in rids] if abort_own else []
    assert sorted(served.aborts, key=str) == sorted(asked, key=str)


async def test_a_request_that_takes_too_long_is_aborted():
    async with serve(hang) as served:
        timeouts = Timeouts(request_s=0.2)
        cell = make_cell(requests=2, warmup_requests=2, timeouts=timeouts)
        samples = await run(served, cell, abort_own=True)
    assert {s.status for s in samples} == {RequestStatus.TIMEOUT}
    assert sorted(abort["rid"] for abort in served.aborts) == sorted(
        body["rid"] for body in served.bodies
    )


@pytest.mark.parametrize("api", Api)
async def test_every_request_of_every_api_has_an_id_of_its_own(api):
    async with serve() as served:
        await run(served, make_cell(workload=make_workload(api=api)), abort_own=True)
    assert len({body["rid"] for body in served.bodies}) == 8
    assert served.aborts == []
