import asyncio
import contextlib
import gzip
import json
from contextlib import asynccontextmanager
from urllib.parse import quote

import pytest
from aiohttp import web

from bench.errors import ServerError
from bench.http import open_session
from bench.sglang import control


@asynccontextmanager
async def answering(answers, *, api_key=None):
    """A session to a server with these (status, body) answers by path, and what it was sent."""
    got, over = [], asyncio.Event()

    async def answer(request):
        body = await request.read()
        key = request.headers.get("Authorization")
        got.append((request.method, request.path_qs, json.loads(body) if body else None, key))
        status, text = answers.get(request.path, (404, "{}"))
        if status is None:
            await over.wait()
        return web.Response(status=status or 200, text=text)

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(app, shutdown_timeout=0)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = site._server.sockets[0].getsockname()[1]
    try:
        async with open_session(f"http://127.0.0.1:{port}", api_key=api_key) as session:
            yield session, got
    finally:
        over.set()
        await runner.cleanup()


async def test_server_info_is_the_object_it_answers(recording):
    body = (recording / "server_info.json").read_text()
    async with answering({"/server_info": (200, body)}) as (session, _):
        assert await control.server_info(session) == json.loads(body)


async def test_older_servers_are_asked_by_the_older_names():
    answers = {
        "/get_server_info": (200, '{"version": "0.4"}'),
        "/get_model_info": (200, '{"a": 1}'),
    }
    async with answering(answers) as (session, _):
        assert await control.server_info(session) == {"version": "0.4"}
        assert await control.model_info(session) == {"a": 1}


@pytest.mark.parametrize(
    ("status", "body", "message"),
    [
        (500, "boom", "status 500: boom"),
        (401, '{"error":"Unauthorized"}', "status 401"),
        (200, "not json", "not answered with a JSON object: not json"),
        (200, "[1]", "not answered with a JSON object"),
        (500, "x" * 5000, "x" * 300 + "…"),
        (500, "Bearer abcdefghijkl", r"Bearer \[redacted\]"),
    ],
)
async def test_other_answers_are_errors_with_status_and_body(status, body, message):
    async with answering({"/server_info": (status, body)}) as (session, _):
        with pytest.raises(ServerError, match=message):
            await control.server_info(session)


async def test_nobody_there_is_an_error():
    async with open_session("http://127.0.0.1:9") as session:
        with pytest.raises(control.UnreachableError) as told:
            await control.scrape_metrics(session)
    assert str(told.value) == "no connection to 127.0.0.1:9, connection refused"


async def test_a_name_that_leads_nowhere_is_told_without_the_librarys_words():
    async with open_session("http://no-such-host.invalid:9") as session:
        with pytest.raises(control.UnreachableError) as told:
            await control.scrape_metrics(session)
    assert str(told.value).startswith("no connection to no-such-host.invalid:9, ")
    assert "ssl" not in str(told.value)


async def test_no_answer_in_time_is_an_error():
    async with answering({"/metrics": (None, "")}) as (session, _):
        with pytest.raises(ServerError, match=r"no answer within 0\.05 s"):
            await control.scrape_metrics(session, timeout_s=0.05)


async def test_a_flush_is_done_refused_or_an_error():
    async with answering({"/flush_cache": (200, "Cache flushed.")}) as (session, got):
        assert await control.flush_cache(session, timeout_s=2.5) is True
        assert got[0][:2] == ("POST", "/flush_cache?timeout=2.5")
    async with answering({"/flush_cache": (400, "Flush cache failed")}) as (session, _):
        assert await control.flush_cache(session, timeout_s=0) is False
    async with answering({"/flush_cache": (403, "Forbidden")}) as (session, _):
        with pytest.raises(ServerError, match="403"):
            await control.flush_cache(session, timeout_s=0)


async def test_control_calls_use_the_admin_key_where_there_is_one():
    answers = {"/abort_request": (200, ""), "/flush_cache": (200, "")}
    async with answering(answers, api_key="user") as (session, got):
        await control.abort_all(session)
        await control.abort_all(session, admin_api_key="admin")
        await control.flush_cache(session, timeout_s=0, admin_api_key="admin")
    assert got[0] == ("POST", "/abort_request", {"abort_all": True}, "Bearer user")
    assert [key for *_, key in got[1:]] == ["Bearer admin", "Bearer admin"]


async def test_a_generation_must_bring_tokens(baseline):
    recorded = (baseline / "generate.json").read_text()
    async with answering({"/generate": (200, recorded)}) as (session, got):
        tokens = await control.generate_once(session, max_new_tokens=3, timeout_s=5)
        assert tokens == json.loads(recorded)["meta_info"]["completion_tokens"]
    parameters = got[0][2]["sampling_params"]
    assert (parameters["max_new_tokens"], parameters["temperature"]) == (3, 0.0)
    for empty in ('{"meta_info": {"completion_tokens": 0}}', '{"text": ""}', "[]"):
        async with answering({"/generate": (200, empty)}) as (session, _):
            with pytest.raises(ServerError):
                await control.generate_once(session, timeout_s=5)


async def test_requests_at_work_are_counted_over_all_ranks(recording):
    loads = {"num_running_reqs": 2, "num_waiting_reqs": 1}
    async with answering({"/v1/loads": (200, json.dumps({"loads": [loads, loads]}))}) as (
        session,
        _,
    ):
        assert await control.running_requests(session) == 6
    async with answering({"/v1/loads": (200, (recording / "loads.json").read_text())}) as (
        session,
        _,
    ):
        assert await control.running_requests(session) == 0
    for unknown in ("{}", '{"loads": [{}]}', "x"):
        async with answering({"/v1/loads": (200, unknown)}) as (session, _):
            assert await control.running_requests(session) is None


@asynccontextmanager
async def streaming(send, **headers):
    """A session to a server that answers everything with what `send` writes."""
    over = asyncio.Event()

    async def answer(request):
        response = web.StreamResponse(headers=headers)
        await response.prepare(request)
        with contextlib.suppress(ConnectionError):
            await send(response)
        return response

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(app, shutdown_timeout=0)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = site._server.sockets[0].getsockname()[1]
    try:
        async with open_session(f"http://127.0.0.1:{port}") as session:
            yield session
    finally:
        over.set()
        await runner.cleanup()


async def test_a_body_without_end_is_given_up(monkeypatch):
    monkeypatch.setattr(control, "MOST_BODY_BYTES", 1 << 20)
    sent = 0

    async def send(response):
        nonlocal sent
        for _ in range(1000):
            await response.write(b"{" + b" " * 999_999)
            sent += 1

    async with streaming(send) as session:
        for call in (control.server_info, control.model_info, control.scrape_metrics):
            with pytest.raises(ServerError, match="answered with more than 1 MiB"):
                await call(session)
    assert sent < 100


async def test_a_body_that_unfolds_without_end_is_given_up(monkeypatch):
    monkeypatch.setattr(control, "MOST_BODY_BYTES", 1 << 20)
    bomb = gzip.compress(b" " * 100_000_000, 1)

    async def send(response):
        await response.write(bomb)

    async with streaming(send, **{"Content-Encoding": "gzip"}) as session:
        with pytest.raises(ServerError, match="answered with more than 1 MiB"):
            await control.server_info(session)


@pytest.mark.parametrize(
    "body", ["[" * 1_000_000, '{"a":' * 200_000, '{"a":' * 200 + "1" + "}" * 200, "1" * 5000]
)
async def test_an_answer_nested_without_end_is_none(body):
    async with answering({"/server_info": (200, body)}) as (session, _):
        with pytest.raises(ServerError, match="not answered with a JSON object") as caught:
            await control.server_info(session)
    assert len(str(caught.value)) < 500


async def test_a_long_answer_with_an_error_is_told_in_short_and_quickly():
    body = "Bearer " + "x " * 7_000_000 + "api_key=abc"
    async with answering({"/server_info": (500, body)}) as (session, _):
        with pytest.raises(ServerError) as caught:
            await control.server_info(session)
    assert len(str(caught.value)) < 500


KEY = 'ky-9f8e7d6c5b4a"Q%$'


@pytest.mark.parametrize(
    "spell",
    [json.dumps, lambda key: json.dumps(json.dumps(key)), quote, repr, lambda key: key],
)
async def test_a_key_that_is_repeated_is_removed_however_it_is_written(spell):
    body = json.dumps({"version": "1"})[:-1] + ', "echo": ' + json.dumps("x" + spell(KEY)) + "}"
    async with answering({"/server_info": (200, body)}, api_key=KEY) as (session, _):
        info = await control.server_info(session)
    assert "9f8e" not in json.dumps(info)
    assert "[redacted]" in json.dumps(info)
