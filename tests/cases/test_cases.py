"""Cases from public reports of what measuring tools got wrong; each README names its sources."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import case_checks
import case_checks_arguments
import case_checks_logs
import case_checks_nccl
import case_checks_nightly
import case_checks_results
import case_checks_tuning
import pytest
import pytest_asyncio
from aiohttp import web
from case_checks import ANY_CELL, ANY_WORKLOAD, read_json, read_stream
from case_fields import mistakes, read_expected

from bench.load.generator import LoadClient
from bench.load.process import start_worker
from bench.load.stream import assemble
from bench.model import Api, RequestStatus

CHECKS = (
    case_checks.CHECKS
    | case_checks_arguments.CHECKS
    | case_checks_logs.CHECKS
    | case_checks_nccl.CHECKS
    | case_checks_nightly.CHECKS
    | case_checks_results.CHECKS
    | case_checks_tuning.CHECKS
)
"""The check of each kind of case."""

WRITE_BYTES = 65536
MOST_SPLIT_BYTES = 4_000_000
"""What re-splitting one stream may parse in all: streams under 2 kB are cut at every byte."""


def check(folder: Path) -> None:
    kind = read_json(folder / "case.json")["kind"]
    if kind not in CHECKS:
        pytest.fail(f"{folder.name}: unknown kind {kind!r}; known: {', '.join(CHECKS)}")
    expected = read_expected((folder / "expected.json").read_text())
    found = CHECKS[kind](folder)
    if isinstance(expected, list):
        assert len(expected) == len(found)
        expected, found = ({str(i): x for i, x in enumerate(xs)} for xs in (expected, found))
    said = mistakes(expected, found)
    if said:
        pytest.fail(f"{folder.name}:\n" + "\n".join(said))


def test_case(case_folder):
    check(case_folder)


# -------------------------------------------------------------------- streams, in other pieces


def record_of(pieces, end):
    record = assemble([(0, piece) for piece in pieces], end, keep_text=True)
    record.read_ct = 0
    return record


def test_a_stream_means_the_same_however_it_is_split(stream_folder):
    reads, end = read_stream(stream_folder)
    data = b"".join(piece for _, piece in reads)
    whole = record_of([data], end)
    assert record_of([bytes([byte]) for byte in data], end) == whole
    for cut in range(1, len(data), 1 + len(data) ** 2 // MOST_SPLIT_BYTES):
        assert record_of([data[:cut], data[cut:]], end) == whole, cut


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def worker():
    worker = await start_worker()
    yield worker
    await worker.close()


@pytest.mark.asyncio(loop_scope="module")
async def test_a_stream_means_the_same_through_a_server_and_the_load_worker(stream_folder, worker):
    reads, end = read_stream(stream_folder)
    data = b"".join(piece for _, piece in reads)
    if end.status is not None:
        return  # a failure of the transport, which this server does not have

    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for start in range(0, len(data), WRITE_BYTES):
            await response.write(data[start : start + WRITE_BYTES])
        await response.write_eof()
        return response

    app = web.Application()
    app.router.add_post("/{path:.*}", answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        host, port = runner.addresses[0][:2]
        client = LoadClient(f"http://{host}:{port}", api_key=None, workers=[worker])
        api = Api.GENERATE if b'"meta_info"' in data else Api.CHAT
        workload = replace(ANY_WORKLOAD, api=api, store_text=True)
        got = await client.run_cell(replace(ANY_CELL, workload=workload), model_name="m")
    finally:
        await runner.cleanup()
    [sample] = got.samples
    record = record_of([data], end)
    names = ("status", "error_message", "finish_reason", "text", "output_tok", "reasoning_tok")
    assert {n: getattr(sample, n) for n in names} == {n: getattr(record, n) for n in names}
    assert len(sample.event_ns) == len(record.event_ns)
    assert sample.http_status == 200
    assert (sample.text_sha256 is None) == (sample.status is not RequestStatus.OK)
