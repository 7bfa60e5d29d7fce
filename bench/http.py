"""The one HTTP session factory, and the one redaction.

A session made here has no total time-out (each caller bounds its own calls), follows no redirect,
keeps no cookie, never reads .netrc, sends an API key only to the base URL it was made for, and
reaches loopback addresses without any proxy.
"""

from __future__ import annotations

import ipaddress
import re
import urllib.request
from http import HTTPStatus
from typing import TYPE_CHECKING

import aiohttp
from yarl import URL

from bench.clock import world_s
from bench.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

# Servers under uvicorn, SGLang's among them, close a connection idle for 5 s. Letting go of
# ours long before that keeps a request from being sent into a connection that is being closed.
KEEPALIVE_S = 2.0
READ_BUFFER_BYTES = 4 * 1024 * 1024
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
REDACTED = "[redacted]"


def open_session(
    base_url: str,
    *,
    api_key: str | None = None,
    headers: Mapping[str, str] | None = None,
    connect_s: float = 10.0,
    request_class: type[aiohttp.ClientRequest] = aiohttp.ClientRequest,
) -> aiohttp.ClientSession:
    """Open a session to one server, inside a running event loop; the caller closes it.

    Give its methods paths relative to `base_url`, with no leading slash ("v1/models"): then a path
    prefix in the base URL, as behind a router, is kept.

    Args:
        base_url: `http://host:port` or `https://…`, with or without a path prefix.
        api_key: Sent as `Authorization: Bearer`.
        headers: Further headers of every request.
        connect_s: Time-out of making a connection, in seconds of the clock.
        request_class: A subclass may stamp when its bytes are written.

    Raises:
        InputError: `base_url` is no http(s) address.
    """
    address = _parse_base_url(base_url)
    all_headers = {"Accept-Encoding": "identity", "User-Agent": "specdyno", **(headers or {})}
    if api_key:
        all_headers["Authorization"] = f"Bearer {api_key}"
    return aiohttp.ClientSession(
        base_url=address,
        connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=KEEPALIVE_S),
        headers=all_headers,
        cookie_jar=aiohttp.DummyCookieJar(),
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=world_s(connect_s)),
        proxy=proxy_for(address),
        read_bufsize=READ_BUFFER_BYTES,
        request_class=request_class,
        middlewares=(_refuse_redirect,),
    )


def is_loopback(host: str | None) -> bool:
    """Whether a host name or address can only be this machine."""
    if host is None:
        return False
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def proxy_for(address: URL) -> URL | None:
    """The proxy that the environment asks for; None for loopback and where `no_proxy` says so."""
    host = address.host
    if host is None or is_loopback(host):
        return None
    proxies = urllib.request.getproxies_environment()
    proxy = proxies.get(address.scheme) or proxies.get("all")
    if not proxy or urllib.request.proxy_bypass(f"{host}:{address.port}"):
        return None
    return URL(proxy if "://" in proxy else f"http://{proxy}")


def _parse_base_url(base_url: str) -> URL:
    try:
        address = URL(base_url)
        usable = address.scheme in {"http", "https"} and bool(address.host)
    except ValueError:
        usable = False
    if not usable:
        raise InputError(
            f"asked for a server at {redact(base_url)!r}, which is no http:// or https:// address",
            hint="give it as http://HOST:PORT",
        )
    return address if address.path.endswith("/") else address / ""


async def _refuse_redirect(
    request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType
) -> aiohttp.ClientResponse:
    # A redirected request would be measured, and carry the API key, elsewhere than was asked.
    response = await handler(request)
    if response.status not in _REDIRECTS:
        return response
    target = response.headers.get("Location", "")
    response.close()
    raise aiohttp.ClientResponseError(
        response.request_info,
        response.history,
        status=response.status,
        message=f"{HTTPStatus(response.status).phrase}: redirect to {redact(target)} not followed",
        headers=response.headers,
    )


# Not every `…_token`: a server's `time_to_first_token` or `experts_per_token` is a setting.
_SECRET_NAME = re.compile(
    r"(?:^|_)(?:api_?key|key|secret|password|passwd|passphrase|credentials?|pat"
    r"|(?:access|api|auth|bearer|hf|hub|secret|session)_?token)$"
    r"|^token$|_TOKEN$|secret|password|api_?key|access_?key|private_?key",
)
_PLACE_OF_A_SECRET = re.compile(r"_(?:env|file)$", re.IGNORECASE)


def is_secret_name(name: str) -> bool:
    """Whether what bears this name (an option, a variable, a key) is a secret.

    A name that says where a secret is read from (`--api-key-env`, `api_key.file`) is none.
    """
    plain = name.lstrip("-").replace("-", "_").replace(".", "_")
    if _PLACE_OF_A_SECRET.search(plain):
        return False
    return bool(_SECRET_NAME.search(plain) or _SECRET_NAME.search(plain.lower()))


_KEY_NAME = (
    r"(?:admin[-_])?(?:api[-_]?key|access[-_]?token|auth[-_]?token|hf[-_]?token|secret|password)"
)
SECRET_PATTERNS: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"(?i)\b(bearer|basic)\s+[A-Za-z0-9._~+/=-]{4,}"), rf"\1 {REDACTED}"),
    # on a command line, quoted in a list or not: --api-key KEY, --api-key=KEY, '--api-key', 'KEY'
    (
        re.compile(rf"(?i)(--{_KEY_NAME}[\"']?(?:\s*,\s*|\s+|=)[\"']?)(?!None\b)[^\s\"',]+"),
        rf"\1{REDACTED}",
    ),
    # in a record, a log line or an environment: api_key='KEY', "api_key": "KEY", MY_API_KEY=KEY
    (
        re.compile(
            rf"(?i)({_KEY_NAME}[\"']?[ \t]*[:=][ \t]*[\"']?)"
            r"(?!None\b|null\b|\[redacted|\{)[^\s\"',})]+"
        ),
        rf"\1{REDACTED}",
    ),
    (re.compile(r"\b(sk|hf)([-_])[A-Za-z0-9_-]{12,}"), rf"\1\2{REDACTED}"),
    (re.compile(r"(://)[^/\s:@]+:[^/\s@]+@"), rf"\1{REDACTED}@"),
)
"""What `redact` replaces, in order; a server's supervisor is given it as data."""


def redact(text: str, secrets: Iterable[str] = ()) -> str:
    """Remove bearer tokens, API keys and passwords in addresses from `text`, and all `secrets`."""
    for secret in secrets:
        if secret:
            text = text.replace(secret, REDACTED)
    for pattern, replacement in SECRET_PATTERNS:
        text = pattern.sub(replacement, text)
    return text
