"""A scripted server, cells, and prompts for the tests of the load room."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from aiohttp import web

from bench.load.generator import LoadClient, open_client
from bench.load.process import WorkerProcess
from bench.model import Api, Cell, Load, Sampling, Timeouts, Workload

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def make_workload(**changes) -> Workload:
    values = {
        "name": "w",
        "api": Api.CHAT,
        "dataset": "generated",
        "max_output_tok": 16,
        "sampling": Sampling(temperature=0.0),
    }
    return Workload(**(values | changes))


def make_cell(**changes) -> Cell:
    values = {
        "cell_id": "c1",
        "comparison_key": "k1",
        "arm": "baseline",
        "workload": make_workload(),
        "load": Load(kind="closed", concurrency=2),
        "pair": 0,
        "requests": 6,
        "warmup_requests": 2,
        "steady_s": 1.0,
        "seed": 7,
        "timeouts": Timeouts(request_s=20.0, drain_s=5.0),
    }
    return Cell(**(values | changes))


def sse(payload: object) -> bytes:
    text = payload if isinstance(payload, str) else json.dumps(payload)
    return f"data: {text}\n\n".encode()


def chat_chunk(content: str | None = None, *, finish: str | None = None, tok: int | None = None):
    delta = {} if content is None else {"content": content}
    chunk = {"id": "r", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}
    if tok is not None:
        chunk["usage"] = {"prompt_tokens": 5, "completion_tokens": tok}
    return chunk


def chat_events(tok: int) -> list[bytes]:
    """A whole chat stream of `tok` one-token events, as SGLang sends it."""
    events = [sse({"id": "r", "choices": [{"index": 0, "delta": {"role": "assistant"}}]})]
    events += [sse(chat_chunk(f"t{i} ", tok=i + 1)) for i in range(tok)]
    events.append(sse(chat_chunk(finish="length")))
    usage = {"prompt_tokens": 5, "completion_tokens": tok, "reasoning_tokens": 0}
    events.append(sse({"id": "r", "choices": [], "usage": usage}))
    return [*events, sse("[DONE]")]


class Served:
    """A running scripted server: its address, the bodies it got, how many it served at once."""

    def __init__(self) -> None:
        self.base_url = ""
        self.bodies: list[dict] = []
        self.aborts: list[dict] = []
        self.connections: set[int] = set()
        self.in_flight = 0
        self.most_in_flight = 0


@asynccontextmanager
async def serve(answer: Handler | None = None, *, gap_s: float = 0.0) -> AsyncIterator[Served]:
    """Serve `answer` (default: as many chat events as were asked for) on every API's path."""
    served = Served()

    async def generation(request: web.Request) -> web.StreamResponse:
        served.bodies.append(await request.json())
        served.connections.add(id(request.transport))
        served.in_flight += 1
        served.most_in_flight = max(served.most_in_flight, served.in_flight)
        try:
            return await (answer or in_chat)(request)
        finally:
            served.in_flight -= 1

    async def in_chat(request: web.Request) -> web.StreamResponse:
        events = chat_events((await request.json())["max_completion_tokens"])
        return await stream(request, events, gap_s=gap_s)

    async def model_info(_: web.Request) -> web.Response:
        return web.json_response({"model_path": "m"})

    async def abort(request: web.Request) -> web.Response:
        served.aborts.append(await request.json())
        return web.Response()

    app = web.Application(client_max_size=2**26)
    app.router.add_post("/abort_request", abort)
    app.router.add_get("/model_info", model_info)
    for path in ("/v1/chat/completions", "/v1/completions", "/generate"):
        app.router.add_post(path, generation)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    served.base_url = f"http://{host}:{port}"
    try:
        yield served
    finally:
        await runner.cleanup()


async def stream(
    request: web.Request, pieces: list[bytes], *, gap_s: float = 0.0
) -> web.StreamResponse:
    """Answer 200 with an event stream of these pieces."""
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await response.prepare(request)
    for piece in pieces:
        await response.write(piece)
        if gap_s:
            await asyncio.sleep(gap_s)
    await response.write_eof()
    return response


@asynccontextmanager
async def client_of(
    served: Served, worker: WorkerProcess | None = None
) -> AsyncIterator[LoadClient]:
    """A client of the server; with a worker of the caller's, which it leaves running."""
    if worker is not None:
        yield LoadClient(served.base_url, api_key=None, workers=[worker])
        return
    client = await open_client(served.base_url)
    try:
        yield client
    finally:
        await client.close()
