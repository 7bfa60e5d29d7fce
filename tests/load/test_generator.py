"""The whole way: cell -> worker process -> scripted server -> samples."""

from __future__ import annotations

import asyncio
import itertools
import os
import signal

import pytest
import pytest_asyncio
from aiohttp import web
from scripted import (
    chat_chunk,
    chat_events,
    client_of,
    make_cell,
    make_workload,
    serve,
    sse,
    stream,
)

from bench import clock
from bench.load.generator import LoadClient, open_client
from bench.load.process import WorkerProcess, start_worker
from bench.model import Api, Load, RequestStatus, Timeouts, TokenSource

pytestmark = pytest.mark.asyncio(loop_scope="module")
_shared: list[WorkerProcess] = []


@pytest_asyncio.fixture(scope="module", loop_scope="module", autouse=True)
async def shared_worker():
    """Most tests use one worker: starting it is most of their time."""
    _shared.append(await start_worker())
    yield
    await _shared.pop().close()


async def run(served, cell, **options):
    async with client_of(served, _shared[0]) as client:
        return await client.run_cell(cell, model_name="m", **options)


async def until(condition):
    for _ in range(1000):
        if condition():
            return
        await asyncio.sleep(0.01)
    pytest.fail("waited in vain")


async def test_a_closed_cell():
    cell = make_cell(load=Load(kind="closed", concurrency=3), requests=9, warmup_requests=3)
    async with serve(gap_s=0.002) as served:
        got = await run(served, cell)
    samples = got.samples
    assert [s.index for s in samples] == list(range(12))
    assert [s.phase for s in samples] == ["warmup"] * 3 + ["measure"] * 9
    assert {s.status for s in samples} == {RequestStatus.OK}
    assert {s.slot for s in samples} == {0, 1, 2}
    assert served.most_in_flight == got.client.max_in_flight == 3
    by_send = sorted(samples, key=lambda s: s.sent_ns)
    assert [s.index for s in by_send] == list(range(12))
    for sample in samples:
        times = (sample.due_ns, sample.sent_ns, sample.first_byte_ns, *sample.event_ns)
        assert list(times) == sorted(times)
        assert sample.ended_ns >= sample.event_ns[-1]
        assert sample.output_tok == sample.event_tok[-1] == len(sample.event_tok)
        assert sample.token_source is TokenSource.SERVER
    assert {s.output_tok for s in samples[3:]} == {16}
    assert all(2 <= s.output_tok <= 16 for s in samples[:3])


async def test_a_slot_sends_again_only_when_its_response_has_ended():
    async with serve(gap_s=0.001) as served:
        samples = (await run(served, make_cell())).samples
    for slot in (0, 1):
        mine = [s for s in samples if s.slot == slot]
        assert all(b.sent_ns >= a.ended_ns for a, b in itertools.pairwise(mine))


async def test_the_same_work_in_every_arm():
    async with serve() as served:
        first = (await run(served, make_cell(cell_id="a", arm="baseline"))).samples
        bodies, served.bodies = served.bodies, []
        second = (await run(served, make_cell(cell_id="b", arm="eagle", pair=1))).samples
    assert [(s.prompt_sha256, s.seed) for s in first] == [
        (s.prompt_sha256, s.seed) for s in second
    ]
    assert sorted(b["seed"] for b in bodies) == sorted(b["seed"] for b in served.bodies)
    assert len({s.seed for s in first}) == len(first)


async def test_an_open_cell_is_sent_on_schedule():
    cell = make_cell(load=Load(kind="open", rate_per_s=200.0), requests=30, warmup_requests=5)
    async with serve(gap_s=0.01) as served:
        got = await run(served, cell)
    assert {s.status for s in got.samples} == {RequestStatus.OK}
    assert {s.slot for s in got.samples} == {None}
    assert all(s.sent_ns >= s.due_ns for s in got.samples)
    due = [s.due_ns for s in got.samples]
    assert due == sorted(due)
    assert served.most_in_flight > 2  # arrivals do not wait for responses
    assert got.client.send_late_p99_ms >= got.client.send_late_p50_ms >= 0


async def test_what_an_open_cell_still_waits_for_after_the_drain_is_cancelled():
    async def never(request: web.Request) -> web.StreamResponse:
        await asyncio.sleep(30)
        return web.Response()

    cell = make_cell(
        load=Load(kind="open", rate_per_s=500.0),
        requests=4,
        warmup_requests=0,
        timeouts=Timeouts(request_s=30.0, drain_s=0.2),
    )
    async with serve(never) as served:
        samples = (await run(served, cell)).samples
    assert [s.status for s in samples] == [RequestStatus.CANCELLED] * 4
    assert all(s.sent_ns is not None for s in samples)


async def test_primed_prompts_are_sent_first_with_one_token():
    cell = make_cell(workload=make_workload(cache="primed"), requests=4, warmup_requests=2)
    async with serve() as served:
        samples = (await run(served, cell)).samples
    assert [s.phase for s in samples] == ["warmup"] * 8 + ["measure"] * 4
    assert [b["max_completion_tokens"] for b in served.bodies[:6]] == [1] * 6
    assert [s.prompt_sha256 for s in samples[:6]] == [s.prompt_sha256 for s in samples[6:]]


async def test_several_cells_through_one_client_and_progress():
    seen = []
    async with serve(gap_s=0.02) as served, client_of(served, _shared[0]) as client:
        for name in ("a", "b"):
            got = await client.run_cell(
                make_cell(cell_id=name, requests=2), model_name="m", on_progress=seen.append
            )
            assert {s.cell_id for s in got.samples} == {name}
    assert seen
    assert all(progress.total == 4 for progress in seen)
    assert {"loop_lag_ms", "cpu_share", "requests_in_flight"} == {p.name for p in got.telemetry}


# ------------------------------------------------------------------------------------ failures


def one_request():
    return make_cell(requests=1, warmup_requests=0, load=Load(kind="closed", concurrency=1))


async def statuses(answer, **changes):
    async with serve(answer) as served:
        samples = (await run(served, make_cell(requests=2, warmup_requests=0, **changes))).samples
    [status] = {s.status for s in samples}
    return status, samples[0]


async def test_an_http_error_is_told_with_its_message():
    async def refuse(request):
        return web.json_response({"object": "error", "message": "too long"}, status=400)

    status, sample = await statuses(refuse)
    assert status is RequestStatus.HTTP_ERROR
    assert sample.http_status == 400
    assert "too long" in sample.error_message


@pytest.mark.parametrize("in_stream", [False, True])
async def test_secrets_in_an_error_are_removed_and_messages_cut(in_stream):
    async def leak(request):
        text = "key k3y-of-ours, header Bearer abcdef123456, " + "x" * 9000
        if in_stream:
            return await stream(request, [sse({"error": text}), sse("[DONE]")])
        return web.Response(text=text, status=401)

    async with serve(leak) as served:
        client = LoadClient(served.base_url, api_key="k3y-of-ours", workers=[_shared[0]])
        [sample] = (await client.run_cell(one_request(), model_name="m")).samples
    assert "k3y" not in sample.error_message
    assert "abcdef123456" not in sample.error_message
    assert len(sample.error_message) == 500


async def test_a_redirect_is_not_followed():
    async def elsewhere(request):
        raise web.HTTPTemporaryRedirect("/generate")

    status, sample = await statuses(elsewhere)
    assert status is RequestStatus.HTTP_ERROR
    assert sample.http_status == 307


async def test_a_connection_that_breaks_mid_way():
    async def breaks(request):
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(sse(chat_chunk("half", tok=1)))
        request.transport.close()
        return response

    status, sample = await statuses(breaks)
    assert status is RequestStatus.DISCONNECTED
    assert len(sample.event_ns) == 1
    assert sample.text_sha256 is None


async def test_no_response_at_all():
    async def breaks(request):
        request.transport.close()
        return web.Response()

    status, sample = await statuses(breaks)
    assert status is RequestStatus.DISCONNECTED
    assert sample.first_byte_ns is None
    assert sample.sent_ns is not None


async def test_a_time_out_counts_as_a_failure():
    async def slow(request):
        return await stream(request, chat_events(3), gap_s=0.5)

    status, sample = await statuses(slow, timeouts=Timeouts(request_s=0.2))
    assert status is RequestStatus.TIMEOUT
    assert "0.2 s" in sample.error_message
    assert sample.http_status == 200


async def test_an_unending_stream_cannot_outlive_the_time_out():
    async def unending(request):
        response = web.StreamResponse()
        await response.prepare(request)
        while True:
            await response.write(sse(chat_chunk("x")))
            await asyncio.sleep(0.01)

    status, _ = await statuses(unending, timeouts=Timeouts(request_s=0.3))
    assert status is RequestStatus.TIMEOUT


async def test_no_server():
    async with serve() as served:
        gone = served.base_url
    client = await open_client(gone)
    try:
        got = await client.run_cell(make_cell(requests=3, warmup_requests=1), model_name="m")
    finally:
        await client.close()
    assert {s.status for s in got.samples} == {RequestStatus.REFUSED}
    assert {s.sent_ns for s in got.samples} == {None}


async def test_a_server_that_gives_no_counts_is_counted_by_the_tokenizer(tmp_path):
    from test_prompts import TOKENIZER

    async def uncounted(request):
        pieces = [sse(chat_chunk("def f():")), sse(chat_chunk(" return", finish="stop"))]
        return await stream(request, [*pieces, sse("[DONE]")])

    for tokenizer, source in ((TOKENIZER, TokenSource.RETOKENIZED), (None, None)):
        status, sample = await statuses(
            uncounted, workload=make_workload(tokenizer_path=tokenizer)
        )
        assert status is RequestStatus.OK
        assert sample.token_source is source
        assert (sample.output_tok is None) == (tokenizer is None)
        assert sample.text is None


async def test_text_is_stored_when_asked_for():
    async with serve() as served:
        samples = (await run(served, make_cell(workload=make_workload(store_text=True)))).samples
    assert samples[-1].text == "".join(f"t{i} " for i in range(16))


@pytest.mark.parametrize("api", [Api.COMPLETIONS, Api.GENERATE])
async def test_the_other_apis(api):
    meta = {"completion_tokens": 2, "finish_reason": {"type": "stop"}}
    choice = {"index": 0, "text": "a b", "finish_reason": "stop"}
    payload = {
        Api.GENERATE: {"text": "a b", "output_ids": [1, 2], "meta_info": meta},
        Api.COMPLETIONS: {"choices": [choice], "usage": {"completion_tokens": 2}},
    }[api]

    async def answer(request):
        assert request.path.endswith("generate" if api is Api.GENERATE else "v1/completions")
        return await stream(request, [sse(payload), sse("[DONE]")])

    status, sample = await statuses(answer, workload=make_workload(api=api))
    assert (status, sample.output_tok) == (RequestStatus.OK, 2)


async def test_a_line_longer_than_any_reader_limit():
    text = "x" * 300_000

    async def long(request):
        data = sse(chat_chunk(text, finish="stop")) + sse("[DONE]")
        return await stream(request, [data[k : k + 65536] for k in range(0, len(data), 65536)])

    _, sample = await statuses(long, workload=make_workload(store_text=True))
    assert sample.text == text


# ------------------------------------------------------------------------------ stop and death


async def test_cancel_ends_what_is_outstanding_or_unsent():
    cell = make_cell(requests=20, workload=make_workload(max_output_tok=2000))
    async with serve(gap_s=0.01) as served, client_of(served, _shared[0]) as client:
        load = asyncio.create_task(client.run_cell(cell, model_name="m"))
        await until(lambda: served.in_flight == 2)
        client.cancel()
        client.cancel()
        samples = (await load).samples
        assert len(samples) == 22
        assert {s.status for s in samples} == {RequestStatus.CANCELLED}
        assert [s.sent_ns is None for s in samples].count(False) == 2
        again = await client.run_cell(make_cell(requests=2), model_name="m")
        assert {s.status for s in again.samples} == {RequestStatus.OK}


async def test_a_lost_worker_loses_its_requests_but_not_the_client():
    cell = make_cell(requests=20, workload=make_workload(max_output_tok=60))
    async with serve(gap_s=0.005) as served, client_of(served) as client:
        load = asyncio.create_task(client.run_cell(cell, model_name="m"))
        await until(lambda: len(served.bodies) >= 6)
        os.kill(client._workers[0]._process.pid, signal.SIGKILL)
        samples = (await load).samples
        by_status = {s.status for s in samples}
        assert by_status == {RequestStatus.OK, RequestStatus.WORKER_LOST}
        assert len(samples) == 22
        again = await client.run_cell(make_cell(requests=2), model_name="m")
        assert {s.status for s in again.samples} == {RequestStatus.OK}


async def test_a_busy_worker_ends_with_its_input():
    cell = make_cell(requests=20, workload=make_workload(max_output_tok=5000))
    async with serve(gap_s=0.005) as served, client_of(served) as client:
        load = asyncio.create_task(client.run_cell(cell, model_name="m"))
        await until(lambda: served.in_flight == 2)
        [worker] = client._workers
        worker._process.stdin.close()
        assert await asyncio.wait_for(worker._process.wait(), 5.0) == 0
        assert {s.status for s in (await load).samples} == {RequestStatus.WORKER_LOST}


async def test_outcomes_are_told_as_requests_end():
    async def quick_then_never(request):
        if len(seen_by_server) < 3:
            seen_by_server.append(1)
            return await stream(request, chat_events(2))
        await asyncio.sleep(30)
        return web.Response()

    seen_by_server: list[int] = []
    async with serve(quick_then_never) as served, client_of(served) as client:
        load = asyncio.create_task(client.run_cell(make_cell(), model_name="m"))
        [worker] = client._workers
        await until(lambda: len(list(worker.outcomes())) == 3)
        assert {outcome.stream.status for outcome in worker.outcomes()} == {RequestStatus.OK}
        assert not load.done()
        client.cancel()
        await load


async def test_a_fast_clock_is_the_same_clock_in_the_worker(monkeypatch):
    monkeypatch.setenv(clock.SPEED_VARIABLE, "10")
    async with serve(gap_s=0.01) as served, client_of(served) as client:
        got = await client.run_cell(make_cell(requests=2, warmup_requests=2), model_name="m")
    sample = got.samples[-1]
    # 18 gaps of 10 ms of the world are at least 1.8 s of a clock ten times as fast
    assert sample.ended_ns - sample.sent_ns > 1_500_000_000
