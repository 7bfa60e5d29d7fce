"""A router before several workers: each of them is asked, and it is not."""

from contextlib import AsyncExitStack, asynccontextmanager

import pytest
from test_launch import stand_in, start

from bench.errors import ServerError
from bench.model import FindingKind, ServerConfig, Severity


@asynccontextmanager
async def workers(tmp_path, *arguments):
    """A server for each list of arguments, with a folder of its own for its marks."""
    async with AsyncExitStack() as stack:
        servers = []
        for place, more in enumerate(arguments):
            folder = tmp_path / str(place)
            folder.mkdir()
            server = await start(stand_in("--state", str(folder), *more), folder)
            stack.push_async_callback(server.stop)
            servers.append(server)
        yield [server.base_url for server in servers]


async def attach(tmp_path, router, urls, **more):
    config = ServerConfig(
        arguments=(), launcher="attached", url=router, worker_urls=tuple(urls), **more
    )
    return await start(config, tmp_path)


def calls(tmp_path, place):
    path = tmp_path / str(place) / "calls"
    text = path.read_text().split()
    path.unlink()
    return text


async def test_every_worker_is_emptied_and_the_router_is_not(tmp_path):
    async with workers(tmp_path, (), (), ()) as (router, *urls):
        attached = await attach(tmp_path, router, urls, exclusive=True)
        assert calls(tmp_path, 0)[-1] == "/generate"  # requests go to the router
        for place in (1, 2):
            (tmp_path / str(place) / "calls").unlink(missing_ok=True)
        await attached.between_cells()
        assert not (tmp_path / "0" / "calls").exists()
        for place in (1, 2):
            found = calls(tmp_path, place)
            assert found[0] == "/abort_request"
            assert set(found[1:]) == {"/flush_cache"}


async def test_what_all_workers_hold_is_one_servers(tmp_path):
    async with workers(tmp_path, (), (), ()) as (router, *urls):
        attached = await attach(tmp_path, router, urls)
        assert attached.worker_urls == tuple(urls)
        assert attached.effective.max_total_num_tokens == 2000
        assert attached.effective.decode_graph_batch_sizes == (1, 2)
        assert attached.findings("c1") == ()


async def test_workers_that_are_not_alike_are_told(tmp_path):
    odd = ("--version-told", "0.5.9")
    async with workers(tmp_path, (), (), odd) as (router, *urls):
        attached = await attach(tmp_path, router, urls)
        (finding,) = attached.findings("c1")
    assert (finding.kind, finding.severity) == (FindingKind.CONFIG_NOT_AS_ASKED, Severity.NOTE)
    assert "the 2 workers of the server are not alike: version: 0.5.23 | 0.5.9" in finding.message


async def test_requests_of_others_on_any_worker_are_foreign(tmp_path, monkeypatch):
    monkeypatch.setattr("bench.server.running._DISCONNECT_S", 0.1)
    busy = [("--running", "1"), ("--running", "2")]
    async with workers(tmp_path, (), *busy) as (router, *urls):
        attached = await attach(tmp_path, router, urls)
        await attached.between_cells()
        (finding,) = attached.findings("c1")
    assert finding.kind is FindingKind.FOREIGN_TRAFFIC
    assert "3 requests of others" in finding.message


async def test_a_worker_that_is_not_there_is_named(tmp_path):
    async with workers(tmp_path, ()) as (router,):
        with pytest.raises(ServerError, match=r"worker http://127\.0\.0\.1:9: no connection"):
            await attach(tmp_path, router, ["http://127.0.0.1:9"])
