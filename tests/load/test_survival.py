"""Servers that fail, workers that die, readers that are slow: every request is accounted for."""

from __future__ import annotations

import asyncio
import collections
import itertools
import os
import resource
import signal
import socket
import time

import psutil
import pytest
from raw_servers import OK_HEAD, chunks, serve_raw, stream_of
from scripted import chat_chunk, chat_events, client_of, make_cell, make_workload, serve, sse

from bench.errors import DiskError
from bench.load.generator import open_client
from bench.load.process import start_worker
from bench.load.samples import client_stats
from bench.model import Load, RequestStatus, Timeouts

OK, CUT, LOST = RequestStatus.OK, RequestStatus.DISCONNECTED, RequestStatus.WORKER_LOST
TIMES = ("due_ns", "sent_ns", "first_byte_ns", "ended_ns", "event_ns", "first_visible_ns")


async def run(base_url, cell, *, workers=1, **options):
    client = await open_client(base_url, workers=workers)
    try:
        return await client.run_cell(cell, model_name="m", **options)
    finally:
        await client.close()


def counts(samples):
    return collections.Counter(sample.status for sample in samples)


def closed(concurrency, requests, **changes):
    load = Load(kind="closed", concurrency=concurrency)
    return make_cell(load=load, requests=requests, warmup_requests=0, **changes)


@pytest.fixture
def refusing_address():
    """An address at which nothing listens, kept from whoever looks for a free port meanwhile.

    (A dial from that very port would even reach itself.)
    """
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{held.getsockname()[1]}"


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("kind", ["closed", "open"])
async def test_2000_refused_connections(kind, workers, refusing_address):
    load = (
        Load(kind="closed", concurrency=64)
        if kind == "closed"
        else Load(kind="open", rate_per_s=2000.0)
    )
    patient = Timeouts(request_s=300.0, connect_s=300.0, drain_s=300.0)
    cell = make_cell(load=load, requests=2000, warmup_requests=0, timeouts=patient)
    got = await run(refusing_address, cell, workers=workers)
    assert counts(got.samples) == {RequestStatus.REFUSED: 2000}
    assert [s.index for s in got.samples] == list(range(2000))
    assert {s.sent_ns for s in got.samples} == {None}


async def test_one_stream_in_a_hundred_is_cut():
    served = 0

    async def cuts(writer, request):
        nonlocal served
        served += 1
        data = stream_of(10)
        if served % 100 == 0:
            writer.write(data[: len(data) * 2 // 3])
            await writer.drain()
            writer.close()
        else:
            writer.write(data)

    async with serve_raw(cuts) as server:
        got = await run(server.base_url, closed(16, 1000))
    assert counts(got.samples) == {OK: 990, CUT: 10}
    for sample in got.samples:
        if sample.status is CUT:
            assert 0 < len(sample.event_ns) < 10
            assert "inside the response" in sample.error_message


async def test_a_server_that_stalls():
    """Those that it leaves hanging time out; the others go on meanwhile."""
    served = 0

    async def stalls(writer, request):
        nonlocal served
        served += 1
        if served % 5:
            writer.write(stream_of(4))
        else:
            writer.write(OK_HEAD + chunks(*chat_events(4)[:3]))
            await writer.drain()
            await asyncio.sleep(30)

    async with serve_raw(stalls) as server:
        cell = closed(4, 40, timeouts=Timeouts(request_s=0.5))
        got = await run(server.base_url, cell)
    assert counts(got.samples) == {OK: 32, RequestStatus.TIMEOUT: 8}
    assert {len(s.event_ns) for s in got.samples if s.status is not OK} == {2}


async def test_a_server_that_accepts_and_says_nothing():
    async def silent(writer, request):
        await asyncio.sleep(30)

    async with serve_raw(silent) as server:
        got = await run(server.base_url, closed(8, 16, timeouts=Timeouts(request_s=0.3)))
    assert counts(got.samples) == {RequestStatus.TIMEOUT: 16}


async def test_events_of_ten_megabytes():
    text = "y" * 10_000_000
    first = sse(chat_chunk("a", tok=1))
    last = sse(chat_chunk(text, finish="stop", tok=2)) + sse("[DONE]")

    async def huge(writer, request):
        writer.write(OK_HEAD + chunks(first, last) + b"0\r\n\r\n")

    async with serve_raw(huge) as server:
        cell = closed(2, 4, workload=make_workload(store_text=True))
        got = await run(server.base_url, cell)
    assert counts(got.samples) == {OK: 4}
    assert {s.text for s in got.samples} == {"a" + text}
    assert {s.event_tok for s in got.samples} == {(1, 2)}


async def test_a_worker_that_stands_still_for_a_while():
    async with serve(gap_s=0.002) as served, client_of(served) as client:
        cell = closed(8, 80, workload=make_workload(max_output_tok=40))
        load = asyncio.create_task(client.run_cell(cell, model_name="m"))
        while served.in_flight < 8:  # noqa: ASYNC110  # of another process
            await asyncio.sleep(0.01)
        [worker] = client._workers
        os.kill(worker.pid, signal.SIGSTOP)
        await asyncio.sleep(0.5)
        os.kill(worker.pid, signal.SIGCONT)
        samples = (await load).samples
    assert counts(samples) == {OK: 80}
    assert {s.event_tok for s in samples} == {tuple(range(1, 41))}


async def test_a_bench_that_stands_still_for_a_while():
    def stand_still(_progress):
        time.sleep(0.3)

    async def quick(writer, request):
        writer.write(stream_of(50))

    async with serve_raw(quick) as server:
        got = await run(server.base_url, closed(16, 3000), on_progress=stand_still)
    assert counts(got.samples) == {OK: 3000}


async def test_a_worker_of_two_is_killed():
    async with serve(gap_s=0.005) as served:
        client = await open_client(served.base_url, workers=2)
        try:
            cell = closed(6, 60, workload=make_workload(max_output_tok=20))
            load = asyncio.create_task(client.run_cell(cell, model_name="m"))
            while len(served.bodies) < 18:  # noqa: ASYNC110  # of another process
                await asyncio.sleep(0.005)
            os.kill(client._workers[0].pid, signal.SIGKILL)
            got = await load
            again = (await client.run_cell(closed(6, 12), model_name="m")).samples
        finally:
            await client.close()
    samples = got.samples
    by_status = counts(samples)
    assert got.telemetry[-1].name == "requests_in_flight"
    assert got.telemetry[-1].value <= 3  # none of the dead one's
    assert [s.index for s in samples] == list(range(60))
    assert set(by_status) == {OK, LOST}
    assert by_status[LOST] <= 3  # what it had in flight; the other has done the rest
    lost = [s for s in samples if s.status is LOST]
    assert all("exit status -9" in s.error_message for s in lost)
    assert counts(again) == {OK: 12}


@pytest.mark.parametrize("workers", [1, 2])
async def test_outcomes_that_find_no_room(workers):
    """The cell ends with the reason, and the client goes on where there is room again."""
    async with serve() as served:
        client = await open_client(served.base_url, workers=workers)
        try:
            worker = psutil.Process(client.worker_pids[0])
            worker.rlimit(psutil.RLIMIT_FSIZE, (12_000, 12_000))
            with pytest.raises(DiskError, match="File too large") as raised:
                await client.run_cell(closed(4, 300), model_name="m")
            again = (await client.run_cell(closed(4, 8), model_name="m")).samples
        finally:
            await client.close()
    assert "TMPDIR" in raised.value.hint
    assert counts(again) == {OK: 8}


async def test_more_streams_than_files_may_be_open():
    async with serve(gap_s=0.02) as served:
        client = await open_client(served.base_url)
        try:
            psutil.Process(client.worker_pids[0]).rlimit(psutil.RLIMIT_NOFILE, (64, 64))
            samples = (await client.run_cell(closed(256, 400), model_name="m")).samples
        finally:
            await client.close()
    refused = [s for s in samples if s.status is RequestStatus.REFUSED]
    assert set(counts(samples)) == {OK, RequestStatus.REFUSED}
    assert len(samples) == 400
    assert all("ulimit" in s.error_message for s in refused)


async def test_a_worker_opens_as_many_files_as_it_may():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft // 2, hard))
    try:
        worker = await start_worker()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert psutil.Process(worker.pid).rlimit(psutil.RLIMIT_NOFILE) == (hard, hard)
    await worker.close()


@pytest.mark.parametrize("concurrency", [1, 2])
async def test_more_workers_than_slots(concurrency):
    async with serve(gap_s=0.002) as served:
        got = await run(served.base_url, closed(concurrency, 9), workers=3)
    assert counts(got.samples) == {OK: 9}
    assert got.client.max_in_flight == concurrency
    edges = [(s.sent_ns, 1) for s in got.samples] + [(s.ended_ns, -1) for s in got.samples]
    in_flight = list(itertools.accumulate(step for _, step in sorted(edges)))
    assert max(in_flight) == concurrency


async def test_two_workers_bring_the_same_records_as_one():
    def without_times(sample):
        return {
            name: getattr(sample, name)
            for name in sample.__slots__
            if name not in TIMES and name not in {"slot", "read_ct"}
        }

    loads = [Load(kind="closed", concurrency=6), Load(kind="open", rate_per_s=300.0)]
    async with serve(gap_s=0.001) as served:
        for load in loads:
            cell = make_cell(load=load, requests=40, warmup_requests=6)
            one, two = [await run(served.base_url, cell, workers=n) for n in (1, 2)]
            assert counts(two.samples) == {OK: 46}
            assert list(map(without_times, two.samples)) == list(map(without_times, one.samples))
            assert two.client.workers == 2
            assert {s.slot for s in two.samples} == {s.slot for s in one.samples}
            due_ns = [s.due_ns - two.samples[0].due_ns for s in two.samples]
            if load.kind == "open":  # one schedule, to the nanosecond
                assert due_ns == [s.due_ns - one.samples[0].due_ns for s in one.samples]


async def test_what_a_long_stream_holds_in_memory_is_bounded():
    """40 MB of stream that has little text leave a trace of three numbers an event."""
    event = sse(chat_chunk("z", tok=1) | {"padding": "p" * 4000})
    event_ct = 10_000

    async def long(writer, request):
        writer.write(OK_HEAD)
        for _ in range(event_ct // 20):
            writer.write(chunks(*[event] * 20))
            await writer.drain()
        writer.write(chunks(sse(chat_chunk(finish="stop", tok=2)), sse("[DONE]")) + b"0\r\n\r\n")

    async with serve_raw(long) as server:
        client = await open_client(server.base_url)
        try:
            process = psutil.Process(client._workers[0].pid)
            await client.run_cell(closed(2, 6), model_name="m")  # what the allocator then keeps
            before = process.memory_info().rss
            got = await client.run_cell(closed(2, 12), model_name="m")
            after = process.memory_info().rss
        finally:
            await client.close()
    assert counts(got.samples) == {OK: 12}
    assert after - before < 60 * 2**20  # of 480 MB that came


def test_client_stats_of_nothing():
    got = client_stats([], [], workers=1)
    assert (got.events_per_read, got.in_flight_mean, got.send_late_p50_ms) == (None, None, None)
