from __future__ import annotations

import aiohttp
import pytest
from aiohttp import web
from yarl import URL

from bench.errors import InputError
from bench.http import is_loopback, open_session, proxy_for, redact


@pytest.fixture
async def server():
    seen: list[web.Request] = []

    async def echo(request: web.Request) -> web.Response:
        seen.append(request)
        return web.json_response({"path": request.path, "headers": dict(request.headers)})

    async def moved(request: web.Request) -> web.Response:
        raise web.HTTPFound("/elsewhere")

    app = web.Application()
    app.router.add_get("/moved", moved)
    app.router.add_get("/{tail:.*}", echo)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    host, port = runner.addresses[0][:2]
    yield f"http://{host}:{port}", seen
    await runner.cleanup()


async def test_the_api_key_goes_along_and_nothing_from_netrc(server, tmp_path, monkeypatch):
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login me password secret\n")
    netrc.chmod(0o600)
    monkeypatch.setenv("NETRC", str(netrc))
    base_url, _ = server
    for key, expected in (("k3y", "Bearer k3y"), (None, None)):
        async with open_session(base_url, api_key=key) as session, session.get("x") as response:
            headers = (await response.json())["headers"]
        assert headers.get("Authorization") == expected
        assert headers["Accept-Encoding"] == "identity"


@pytest.mark.parametrize("ending", ["", "/"])
async def test_a_path_prefix_is_kept(server, ending):
    base_url, _ = server
    async with (
        open_session(f"{base_url}/router/a{ending}") as session,
        session.get("v1/models") as response,
    ):
        assert (await response.json())["path"] == "/router/a/v1/models"


async def test_redirects_are_not_followed(server):
    base_url, seen = server
    async with open_session(base_url) as session:
        with pytest.raises(aiohttp.ClientResponseError, match="redirect to /elsewhere"):
            await session.get("moved")
    assert not seen


async def test_loopback_is_reached_without_the_proxy(server, monkeypatch):
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    base_url, _ = server
    async with open_session(base_url) as session, session.get("x") as response:
        assert response.status == 200


def test_which_addresses_go_through_a_proxy(monkeypatch):
    monkeypatch.setenv("http_proxy", "http://proxy:3128")
    monkeypatch.setenv("https_proxy", "proxy:3129")
    monkeypatch.setenv("no_proxy", "inside.example")
    assert proxy_for(URL("http://outside.example")) == URL("http://proxy:3128")
    assert proxy_for(URL("https://outside.example")) == URL("http://proxy:3129")
    assert proxy_for(URL("http://inside.example:8000")) is None
    assert proxy_for(URL("http://localhost:8000")) is None


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "127.8.9.1", "::1", "a.localhost"])
def test_loopback(host):
    assert is_loopback(host)


@pytest.mark.parametrize("host", ["10.0.0.1", "example.org", "localhost.example.org", None])
def test_not_loopback(host):
    assert not is_loopback(host)


@pytest.mark.parametrize("url", ["localhost:30000", "ftp://host", "", "http://", "http://h:port"])
async def test_an_address_that_is_none(url):
    with pytest.raises(InputError, match="no http"):
        open_session(url)


@pytest.mark.parametrize(
    "text",
    [
        "Authorization: Bearer s3cr3t-t0ken",
        "python -m server --api-key s3cr3t-t0ken --port 1",
        "['--api-key', 's3cr3t-t0ken', '--port', '1']",
        "--admin-api-key=s3cr3t-t0ken",
        "server_args=ServerArgs(api_key='s3cr3t-t0ken', port=1)",
        '{"api_key": "s3cr3t-t0ken"}',
        "OPENAI_API_KEY=s3cr3t-t0ken",
        "HF_TOKEN=s3cr3t-t0ken",
        "http://user:s3cr3t-t0ken@proxy:3128/",
    ],
)
def test_secrets_are_removed(text):
    assert "s3cr3t" not in redact(text)
    assert "[redacted]" in redact(text)


@pytest.mark.parametrize(
    "text",
    [
        "api_key=None, admin_api_key=None",
        '{"api_key":null}',
        "max_total_num_tokens=32768",
        "the input (3001 tokens) is longer than the context",
        "http://127.0.0.1:30000/v1/models",
    ],
)
def test_what_is_no_secret_stays(text):
    assert redact(text) == text


def test_known_secrets_are_removed_wherever_they_stand():
    assert redact("it said hunter2!", ["hunter2", ""]) == "it said [redacted]!"


def test_redacting_twice_changes_nothing():
    once = redact("Bearer abcdef, --api-key x1, password=y2")
    assert redact(once) == once


@pytest.mark.parametrize(
    "unit", ["x", "A_", "a-", "a:", "://", "key", "api_key", "--secret ", "bearer ", " ", "sk-"]
)
def test_redacting_takes_time_in_proportion_to_the_text(unit):
    """A pattern that looks again at each place would take hours: only a time-out can tell."""
    text = unit * (1_000_000 // len(unit))
    assert len(redact(text)) <= 2 * len(text)
