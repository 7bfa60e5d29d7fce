from __future__ import annotations

import html
import json
import shlex
from urllib.parse import quote, quote_plus

import aiohttp
import pytest
from aiohttp import web
from hypothesis import given, settings
from hypothesis import strategies as st
from yarl import URL

from bench.errors import InputError
from bench.http import is_loopback, is_secret_name, open_session, proxy_for, redact


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
    "unit",
    [
        *("x", "A_", "a-", "a:", "://", "key", "api_key", "--secret ", "bearer ", " ", "sk-"),
        *('"', "'", "\\", "api_key='", 'api_key="\\', "--a", "--a-", "_KEY=", "?token=", "&a-"),
        *(
            "://a:",
            "https://",
            "token='",
            "token",
            "authorization: ",
            "cookie: ",
            '\\"api_key\\": \\"',
            "secret = ",
        ),
    ],
)
def test_redacting_takes_time_in_proportion_to_the_text(unit):
    """A pattern that looks again at each place would take hours: only a time-out can tell."""
    text = unit * (1_000_000 // len(unit))
    assert len(redact(text)) <= 2 * len(text)


@pytest.mark.parametrize(
    "text",
    [
        "--ssl-keyfile-password S3CRET",
        '{"token": "S3CRETof8"}',
        "HfApi(token='S3CRETof8')",
        '"extra": "{\\"token\\": \\"S3CRETof8\\"}"',
        "--ssl-keyfile-p S3CRET",
        *("--ap S3CRET", "--api-ke S3CRET", "--api-ke=S3CRET", "--admin-api S3CRET"),
        '--api-key "S3CRET and more S3CRET" --port 1',
        "--api-key='S3CRET S3CRET' --port 1",
        "['--api-key', 'S3CRET S3CRET', '--port']",
        r"[\"--api-key\", \"S3CRET S3CRET\"]",
        "--token S3CRET",
        "--hf-token=S3CRET",
        "Authorization: Bearer S3",
        "Authorization: S3CRET",
        "authorization=Basic S3==",
        "'Proxy-Authorization': 'Digest S3CRET'",
        "('Authorization', 'Bearer S3')",
        r"{\"Authorization\": \"Bearer S3\"}",
        "X-Api-Key: S3CRET",
        "Cookie: a=S3CRET; b=S3CRET",
        "AWS_SECRET_ACCESS_KEY=S3CRET",
        "GITHUB_TOKEN=S3CRET",
        "export GITHUB_TOKEN='S3CRET S3CRET'; run",
        "FOO_KEY=S3CRET",
        "MYTOKEN: S3CRET",
        "DB_PASS=S3CRET",
        "DB_PWD=S3CRET",
        "db_pwd=S3CRET",
        "passwd=S3CRET",
        "my_passphrase = S3CRET",
        "private_key: S3CRET",
        "{'GITHUB_TOKEN': 'S3CRET'}",
        "http://h/x?token=S3CRET&b=1",
        "https://h/x?a=1&X-Amz-Signature=S3CRET",
        "http://h/x?a=1&api_key=S3CRET",
        "http://user:p@S3CRET@host/",
        "http://:S3CRET@host",
        "https://S3CRETtoken@host/repo.git",
        "redis://:S3CRET@host:6379/0",
        '{"api_key": "S3CRET b c S3CRET", "port": 1}',
        r'{"api_key": "S3CRET\"S3CRET c", "port": 1}',
        r"{\"api_key\": \"S3CRET\\\"S3CRET c\", \"port\": 1}",
        "{'password': 'S3CRET c S3CRET'}",
        '"api_key": "S3CRET that is cut off S3CRET',
        "ghp_S3CRETS3CRETS3CRET",
        "github_pat_S3CRETS3CRETS3CRET",
    ],
)
def test_every_kind_of_secret_is_removed_and_the_rest_stays(text):
    found = redact(text)
    assert "S3" not in found
    assert "[redacted]" in found
    assert redact(found) == found
    for kept in ("--port", '"port": 1', "; run", "&b=1", "@host", "?a=1"):
        assert (kept in text) == (kept in found)


@pytest.mark.parametrize(
    "text",
    [
        *("experts_per_token=8", "time_to_first_token: 3", "PWD=/root", "OLDPWD=/root/x"),
        *('{"token": " Hello", "logprob": -1}', "token: 7512345678", "next_token='a-long-word'"),
        *("num_forward_pass: 3", "--api-key-env NAME", "--api-key-file /run/key", "--app x"),
        *("--api-key --port 30000", "skip_secret=false", '{"api_key": ""}', "TOKENIZERS=1"),
        *("http://h:80/v1?page=1&size=2", "http://h:80/a@b", "ssh://user@host", "http://[::1]:8/"),
        *("Missing key: model.layers.0", "author: me", "http://host?mail=a@b", "the bypass=1"),
        "http://127.0.0.1:30000,http://127.0.0.1:30001",
    ],
)
def test_settings_that_look_like_secrets_stay(text):
    assert redact(text) == text


SPELLED = (
    lambda key: json.dumps({"echo": key}),
    lambda key: json.dumps(json.dumps({"echo": key})),
    lambda key: json.dumps([key], ensure_ascii=False),
    lambda key: json.dumps(key).replace("/", "\\/"),
    lambda key: repr([key]),
    lambda key: json.dumps(repr(key)),
    quote,
    lambda key: quote(key, safe=""),
    quote_plus,
    lambda key: json.dumps(quote(key)),
    shlex.quote,
    html.escape,
)


@given(st.text(st.characters(codec="utf-8"), min_size=6, max_size=24).filter(str.strip))
@settings(deadline=None, max_examples=100)
def test_a_known_secret_is_removed_however_it_is_written(key):
    for spell in SPELLED:
        assert redact(spell(key), [key]).count("[redacted]") >= 1
        assert redact(f"a {spell(key)} b", [key]) != f"a {spell(key)} b"


def test_the_key_of_a_report_is_removed_from_json():
    key = 'ky-9f8e7d6c5b4a"Q%$'
    for text in (json.dumps({"a": key}), json.dumps(json.dumps(key)), quote(key)):
        assert "9f8e" not in redact(text, [key])


@pytest.mark.parametrize(
    ("name", "is_secret"),
    [
        *((name, True) for name in ("MYTOKEN", "DB_PASS", "DB_PWD", "db_pass", "GITHUB_TOKEN")),
        *((name, True) for name in ("AWS_SECRET_ACCESS_KEY", "FOO_KEY", "passwd", "ftp_passwd")),
        *((name, True) for name in ("--ssl-keyfile-password", "SESSION_COOKIE", "github_token")),
        *((name, False) for name in ("PWD", "OLDPWD", "experts_per_token", "forward_pass")),
        *((name, False) for name in ("max_total_tokens", "token_usage", "API_KEY_FILE")),
        *((name, False) for name in ("TOKENIZERS_PARALLELISM", "ssl_keyfile", "monkey")),
    ],
)
def test_which_names_are_of_secrets(name, is_secret):
    assert is_secret_name(name) is is_secret


@given(st.text(st.sampled_from("\"'\\ =:,-apikey_TOKEN/@?&{}[]\n"), max_size=60))
@settings(deadline=None, max_examples=100)
def test_any_text_can_be_redacted(text):
    once = redact(text)
    assert once.count("\n") <= text.count("\n")
    redact(once)
