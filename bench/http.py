"""The one HTTP session factory, and the one redaction.

A session made here has no total time-out (each caller bounds its own calls), follows no redirect,
keeps no cookie, never reads .netrc, sends an API key only to the base URL it was made for, and
reaches loopback addresses without any proxy.
"""

from __future__ import annotations

import html
import ipaddress
import json
import re
import shlex
import urllib.request
from asyncio import get_running_loop, timeout
from dataclasses import dataclass
from functools import lru_cache
from http import HTTPStatus
from typing import TYPE_CHECKING, Final
from urllib.parse import quote, quote_plus

import aiohttp
from yarl import URL

from bench.clock import world_s
from bench.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from aiohttp.connector import Connection

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
) -> aiohttp.ClientSession:
    """Open a session to one server, inside a running event loop; the caller closes it.

    Give its methods paths relative to `base_url`, with no leading slash ("v1/models"): then a path
    prefix in the base URL, as behind a router, is kept.

    Args:
        base_url: `http://host:port` or `https://…`, with or without a path prefix.
        api_key: Sent as `Authorization: Bearer`.
        headers: Further headers of every request.
        connect_s: Time-out of making a connection, in seconds of the clock.

    Raises:
        InputError: `base_url` is no http(s) address.
    """
    address = _parse_base_url(base_url)
    return aiohttp.ClientSession(
        base_url=address,
        connector=_connector(),
        headers=_headers(api_key, headers),
        cookie_jar=aiohttp.DummyCookieJar(),
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=world_s(connect_s)),
        proxy=proxy_for(address),
        read_bufsize=READ_BUFFER_BYTES,
        middlewares=(_refuse_redirect,),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialed:
    """A connection made by a `Dialer`.

    Attributes:
        connection: aiohttp's; closing it is the caller's.
        head: What every request on it begins with: request line and header fields, up to where
            `Content-Length` goes.
        is_plain: Whether its bytes are those of the socket: no TLS between.
    """

    connection: Connection
    head: bytes
    is_plain: bool


class Dialer:
    """Makes connections for requests to one path of a server, all headers decided.

    They are as those of `open_session` (TLS, proxy, key) for a caller that writes and reads HTTP
    itself.
    """

    def __init__(
        self,
        base_url: str,
        path: str,
        *,
        api_key: str | None = None,
        headers: Mapping[str, str] | None = None,
        connect_s: float = 10.0,
    ) -> None:
        """Prepare, inside a running event loop; arguments as of `open_session`.

        Raises:
            InputError: `base_url` is no http(s) address.
        """
        address = _parse_base_url(base_url)
        self._url = address.join(URL(path))
        self._proxy = proxy_for(address)
        self._headers = _headers(api_key, headers)
        self._connect_s = connect_s
        self._connector = _connector()

    async def dial(self) -> Dialed:
        """Make a new connection.

        Raises:
            aiohttp.ClientError: There is none to be had; so say OSError and TimeoutError.
        """
        request = aiohttp.ClientRequest(
            "POST", self._url, headers=self._headers, proxy=self._proxy, loop=get_running_loop()
        )
        no_timeout = aiohttp.ClientTimeout(total=None)
        async with timeout(world_s(self._connect_s)):
            connection = await self._connector.connect(request, [], no_timeout)
        is_tls = request.is_ssl()
        # A proxy is told the whole address, but for TLS, which goes through a tunnel.
        target = str(self._url) if self._proxy and not is_tls else self._url.raw_path_qs
        to_proxy = self._proxy is not None and self._proxy.scheme == "https"
        return Dialed(
            connection=connection,
            head=_request_head(target, request.headers),
            is_plain=not is_tls and not to_proxy,
        )

    async def close(self) -> None:
        """Close what was made and not closed."""
        await self._connector.close()


def _connector() -> aiohttp.TCPConnector:
    return aiohttp.TCPConnector(limit=0, keepalive_timeout=KEEPALIVE_S)


def _headers(api_key: str | None, more: Mapping[str, str] | None) -> dict[str, str]:
    headers = {"Accept-Encoding": "identity", "User-Agent": "specdyno", **(more or {})}
    if api_key:
        headers["Authorization"] = f"Bearer {api_key}"
    return headers


def _request_head(target: str, headers: Mapping[str, str]) -> bytes:
    fields = [f"{k}: {v}" for k, v in headers.items() if k.lower() != "content-length"]
    if any("\r" in field or "\n" in field for field in fields):
        raise InputError(
            "a header of the requests has a line break in it.",
            hint="The API key is the likely one: see that it is one line.",
        )
    return "\r\n".join([f"POST {target} HTTP/1.1", *fields, ""]).encode()


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


def is_http_address(text: str) -> bool:
    """Whether a text is an address that a session can be opened to."""
    try:
        address = URL(text)
        usable = address.scheme in {"http", "https"} and bool(address.host) and bool(address.port)
    except ValueError:
        return False
    return usable and not any(char.isspace() for char in text)


def _parse_base_url(base_url: str) -> URL:
    if not is_http_address(base_url):
        raise InputError(
            f"asked for a server at {redact(base_url)!r}, which is no http:// or https:// address",
            hint="give it as http://HOST:PORT",
        )
    address = URL(base_url)
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
_OWNERS: Final = (
    *("access", "admin", "api", "auth", "bearer", "bot", "csrf", "github", "gitlab", "hf", "hub"),
    *("id", "npm", "personal", "refresh", "registry", "secret", "service", "session", "slack"),
)
_ACCOUNTS: Final = (
    *("admin", "db", "ftp", "mysql", "pg", "postgres", "proxy", "redis", "root", "smtp", "ssh"),
    *("sudo", "user"),
)
_OWNER, _ACCOUNT = f"(?:{'|'.join(_OWNERS)})", f"(?:{'|'.join(_ACCOUNTS)})"
_SECRET_NAME = re.compile(
    r"(?:^|_)(?:api_?key|key|secret|passw(?:or)?d|pass(?:code|phrase)|credentials?|pat|cookie)$"
    rf"|(?:^|_){_OWNER}_?token$|(?:^|_){_ACCOUNT}_?(?:pass|pwd)$"
    r"|^token$|[A-Z0-9_]TOKEN$|_(?:PASS|PWD)$"
    r"|secret|passw(?:or)?d|api_?key|access_?key|private_?key",
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


def _beginnings(name: str, least: int) -> str:
    """A pattern of a name and its beginnings, as argparse takes them."""
    pattern = ""
    for letter in reversed(name[least:]):
        pattern = f"(?:{letter}{pattern})?"
    return name[:least] + pattern


def _after(word: str, owners: Iterable[str], *joints: str) -> str:
    """A pattern of a word behind one of its owners, quick to fail where the word is not."""
    ways = (f"(?<={owner}{joint}{word})" for owner in owners for joint in joints)
    return f"{word}(?:{'|'.join(ways)})"


_NAME = (
    rf"(?:{_after('key', ('api', 'access', 'private', 'secret'), '', '[-_]')}"
    rf"|{_after('token', _OWNERS, '', '[-_]')}|{_after('pass', _ACCOUNTS, '[-_]')}"
    rf"|{_after('pwd', _ACCOUNTS, '[-_]')}|secret|passw(?:or)?d|pass(?:code|phrase)|credentials?)"
)
_VARIABLE = r"(?:_KEY|_PASS|_PWD|_PAT|_COOKIE|(?<![a-z])TOKEN)"
_OPTION = (
    rf"(?<![a-z0-9_-])--(?:[a-z0-9_-]{{0,40}}{_NAME}|token|ssl-keyfile-p[a-z]*"
    rf"|{_beginnings('api-key', 2)}|{_beginnings('admin-api-key', 2)})"
)
_END = r"\\*[\"']?"
_IS = rf"{_END}[ \t]*(?:=>|[:=])[ \t]*"
# A value in quotes, which may be escaped as those of JSON within JSON are, or without any. Long
# ones end somewhere, so that a quote that never closes costs no more than that.
_QUOTED = (
    r"(?:(?P<q>[\"'])(?:\\.|(?!(?P=q))[^\\\n]){1,4096}(?P=q)?"
    r"|(?P<e>\\+[\"'])(?:(?!(?<!\\)(?P=e))[^\n]){1,4096}(?:(?<!\\)(?P=e))?"
)
# What follows a name and is no value of it: none at all, or how messages of ours go on.
_NOTHING = (
    r"(?!\\*[\"']|None\b|null\b|[Tt]rue\b|[Ff]alse\b|\[redacted|\{"
    r"|(?<=: )(?:does|has|holds|is|makes|missing|must|only|unknown|wanted)[ .])"
)
_VALUE = rf"{_QUOTED}|{_NOTHING}[^\s\"',;&}})\\]+)"
_KEPT = rf"\g<n>\g<q>\g<e>{REDACTED}\g<q>\g<e>"
SECRET_PATTERNS: tuple[tuple[re.Pattern[str], str], ...] = (
    (
        re.compile(
            rf"(?i)(?P<n>\bauthorization{_END}\s*[:=,]\s*\\*[\"']?"
            r"(?:(?:apikey|basic|bearer|digest|negotiate|token)\s+)?+)(?!\[redacted)[^\s\"',}\\]+"
        ),
        rf"\g<n>{REDACTED}",
    ),
    (re.compile(r"(?i)(?P<n>\b(?:set-)?cookie: )[^\r\n\"']+"), rf"\g<n>{REDACTED}"),
    (re.compile(r"(?i)\b(bearer|basic)\s+[A-Za-z0-9._~+/=-]{4,}"), rf"\1 {REDACTED}"),
    # on a command line, quoted in a list or not: --api-key KEY, --api-key=KEY, '--api-key', 'KEY'
    (re.compile(rf"(?i)(?P<n>{_OPTION}=){_VALUE}"), _KEPT),
    (re.compile(rf"(?i)(?P<n>{_OPTION}{_END}(?:\s*,\s*|\s+))(?![\"']?--){_VALUE}"), _KEPT),
    # in a record, a log line or an environment: api_key='KEY', "api_key": "KEY", MY_API_KEY=KEY
    (re.compile(rf"(?i)(?P<n>{_NAME}{_IS}){_VALUE}"), _KEPT),
    (re.compile(rf"(?P<n>{_VARIABLE}{_IS}){_VALUE}"), _KEPT),
    # a token of nobody's: only where quotes and length say that it is no count and no word
    (
        re.compile(rf"(?i)(?P<n>(?<![\w-])token{_IS}\\*[\"'])(?!\[redacted)[^\s\"'\\]{{8,}}"),
        rf"\g<n>{REDACTED}",
    ),
    # in an address
    (
        re.compile(
            r"(?i)(?P<n>[?&;](?:[\w-]*[_-])?(?:auth|credential|key|passw(?:or)?d|secret|sig"
            r"|signature|token)=)[^&;#\s\"']+"
        ),
        rf"\g<n>{REDACTED}",
    ),
    (re.compile(r"(://)[^/?#\s\"'@:]*:[^/?#\s\"']*@"), rf"\1{REDACTED}@"),
    (re.compile(r"(https?://)[^/?#\s\"'@:]+@"), rf"\1{REDACTED}@"),
    (
        re.compile(
            r"\b(sk|hf|gh[oprsu]|github_pat|glpat|nvapi|xox[abprs])([-_])[A-Za-z0-9_-]{12,}"
        ),
        rf"\1\2{REDACTED}",
    ),
)
"""What `redact` replaces, in order; a server's supervisor is given it as data."""

_ENCODERS: tuple[Callable[[str], str], ...] = (
    lambda text: json.dumps(text)[1:-1],
    lambda text: json.dumps(text, ensure_ascii=False)[1:-1],
    lambda text: json.dumps(text)[1:-1].replace("/", "\\/"),
    lambda text: re.sub(r"[<>&]", lambda found: f"\\u{ord(found[0]):04x}", json.dumps(text)[1:-1]),
    lambda text: repr(text)[1:-1],
    lambda text: quote(text, safe=""),
    quote,
    quote_plus,
    lambda text: shlex.quote(text).removeprefix("'").removesuffix("'"),
    html.escape,
)


@lru_cache(maxsize=256)
def _spellings(secret: str) -> tuple[str, ...]:
    found = {secret: None}
    for encoders in (_ENCODERS, _ENCODERS, _ENCODERS[:1]):  # within one another, all in JSON
        found |= {encode(text): None for text in tuple(found) for encode in encoders}
    return tuple(sorted(found, key=len, reverse=True))


def spellings(secrets: Iterable[str]) -> tuple[str, ...]:
    """Secrets as a text may have them, the longest first.

    As they are, and as JSON, Python, addresses, HTML and a shell write them, also within one
    another.
    """
    found = {text for secret in secrets if secret for text in _spellings(secret)}
    return tuple(sorted(found, key=lambda text: (-len(text), text)))


def redact(text: str, secrets: Iterable[str] = ()) -> str:
    """Remove bearer tokens, API keys and passwords in addresses from `text`, and all `secrets`."""
    for secret in spellings(secrets):
        text = text.replace(secret, REDACTED)
    for pattern, replacement in SECRET_PATTERNS:
        text = pattern.sub(replacement, text)
    return text
