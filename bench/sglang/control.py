"""The control calls of a running SGLang server, over a session of `bench.http.open_session`.

Each call asks once and raises ServerError with the status and the body when the answer is not what
SGLang gives (endpoints: SGLang 0.5.23 `entrypoints/http_server.py`).
"""

from __future__ import annotations

import asyncio
import json
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import aiohttp

from bench.clock import world_s
from bench.errors import ServerError
from bench.http import REDACTED, redact, spellings

if TYPE_CHECKING:
    from collections.abc import Mapping

CALL_S = 10.0
"""How long a control call may take, in seconds of the clock; none of them waits for generation."""

MOST_BODY_BYTES = 16 * 1024 * 1024
"""A larger answer to a control call is none of SGLang's: its longest are below 1 MiB a rank."""

_MOST_NESTED = 50
_SHOWN_CHARS = 300
_LOOKED_AT_CHARS = 16 * 1024
_ADMIN_CALLS = frozenset({"POST flush_cache", "POST abort_request"})
"""Calls that take the server's admin key, and no other, where it has one."""

NOT_FOUND = 404
DENIED = frozenset({401, 403})
"""Statuses of a call that needs a key which was not given."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """One HTTP response, whole."""

    status: int
    body: str


class CallRefusedError(ServerError):
    """A control call was answered with a status other than 200.

    Attributes:
        status: The HTTP status.
    """

    def __init__(self, message: str, *, status: int, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.status = status


class NothingGeneratedError(ServerError):
    """A generation was answered with status 200 and no token: SGLang's errors may come so."""


class UnreachableError(ServerError):
    """No connection could be made: nothing listens there, or the address leads nowhere."""


async def server_info(session: aiohttp.ClientSession) -> dict[str, object]:
    """All resolved server arguments and the schedulers' states.

    Raises:
        ServerError: No answer, an error status, or a body that is no JSON object.
    """
    try:
        return await _json(session, "server_info")
    except CallRefusedError as error:
        if error.status != NOT_FOUND:
            raise
        return await _json(session, "get_server_info")  # servers before 0.5.6


async def model_info(session: aiohttp.ClientSession) -> dict[str, object]:
    """The served model: `model_path`, `served_model_name`, `architectures`, ….

    Raises:
        ServerError: As `server_info`.
    """
    try:
        return await _json(session, "model_info")
    except CallRefusedError as error:
        if error.status != NOT_FOUND:
            raise
        return await _json(session, "get_model_info")


async def flush_cache(
    session: aiohttp.ClientSession, *, timeout_s: float, admin_api_key: str | None = None
) -> bool:
    """Drop the prefix cache and set the server's speculative counters to zero.

    Args:
        session: To the server.
        timeout_s: How long the server may wait for its running requests to end first, in seconds
            of the clock.
        admin_api_key: Needed when the server has one.

    Returns:
        False when requests were still pending, so that nothing was flushed (status 400).

    Raises:
        ServerError: Any other answer than 200 or 400.
    """
    answer = await _ask(
        session,
        "POST",
        f"flush_cache?timeout={world_s(timeout_s):g}",
        timeout_s=timeout_s + CALL_S,
        admin_api_key=admin_api_key,
    )
    if answer.status == 400:
        return False
    _require_200(answer, "POST flush_cache")
    return True


async def abort_all(session: aiohttp.ClientSession, *, admin_api_key: str | None = None) -> None:
    """Abort every request on the server, whoever sent it.

    Raises:
        ServerError: No answer or an error status.
    """
    answer = await _ask(
        session, "POST", "abort_request", body={"abort_all": True}, admin_api_key=admin_api_key
    )
    _require_200(answer, "POST abort_request")


async def generate_once(
    session: aiohttp.ClientSession, *, max_new_tokens: int = 8, timeout_s: float
) -> int:
    """Generate a few tokens, the only proof that a server is ready.

    Returns:
        How many tokens came.

    Raises:
        NothingGeneratedError: An answer without a generated token.
        ServerError: No answer in time, or an error status.
    """
    body = {
        "text": "One, two, three, four, five, six, seven,",
        "sampling_params": {
            "max_new_tokens": max_new_tokens,
            "temperature": 0.0,
            "ignore_eos": True,
        },
    }
    answer = await _ask(session, "POST", "generate", body=body, timeout_s=timeout_s)
    _require_200(answer, "POST generate")
    meta_info = _object(answer, "POST generate").get("meta_info")
    tokens = meta_info.get("completion_tokens") if isinstance(meta_info, dict) else None
    if not isinstance(tokens, int) or tokens < 1:
        raise NothingGeneratedError(
            f"asked for {max_new_tokens} tokens, the server answered without any: "
            f"{_shown(answer.body)}",
            hint="is it an SGLang server of a generating model?",
        )
    return tokens


async def complete(
    session: aiohttp.ClientSession,
    path: str,
    body: Mapping[str, object],
    *,
    timeout_s: float,
) -> bytes:
    """One generation that is not streamed: the whole answer, for `wire.decode_chunk`.

    Args:
        session: To the server.
        path: One of `wire.PATHS`.
        body: The request, with `"stream": false`.
        timeout_s: How long the answer may take, in seconds of the clock.

    Raises:
        ServerError: No answer in time, or an error status.
    """
    answer = await _ask(session, "POST", path, body=body, timeout_s=timeout_s)
    _require_200(answer, f"POST {path}")
    return answer.body.encode()


async def running_requests(session: aiohttp.ClientSession) -> int | None:
    """Requests running or waiting, over all ranks, from `/v1/loads`; None when it does not say."""
    try:
        answer = await _json(session, "v1/loads")
    except ServerError:
        return None
    loads = answer.get("loads")
    if not isinstance(loads, list):
        return None
    total = 0
    for load in loads:
        counts = [
            load.get(name) if isinstance(load, dict) else None
            for name in ("num_running_reqs", "num_waiting_reqs")
        ]
        if not all(isinstance(count, int) for count in counts):
            return None
        total += sum(cast("list[int]", counts))
    return total


async def scrape_metrics(session: aiohttp.ClientSession, *, timeout_s: float = CALL_S) -> str:
    """The text of `/metrics`.

    Raises:
        CallRefusedError: The server has none (404: it was started without `--enable-metrics`).
        ServerError: No answer.
    """
    answer = await _ask(session, "GET", "metrics", timeout_s=timeout_s)
    _require_200(answer, "GET metrics")
    return answer.body


# ------------------------------------------------------------------------------------- the asking


async def _ask(
    session: aiohttp.ClientSession,
    method: str,
    path: str,
    *,
    body: Mapping[str, object] | None = None,
    timeout_s: float = CALL_S,
    admin_api_key: str | None = None,
) -> Answer:
    headers = {"Authorization": f"Bearer {admin_api_key}"} if admin_api_key else None
    try:
        async with (
            asyncio.timeout(world_s(timeout_s)),
            session.request(method, path, json=body, headers=headers) as response,
        ):
            text = await _read(response, f"{method} {path}")
            for key in spellings(_keys(session, admin_api_key)):  # some repeat what they were sent
                text = text.replace(key, REDACTED)
            return Answer(status=response.status, body=text)
    except TimeoutError as error:
        raise ServerError(f"{method} {path}: no answer within {timeout_s:g} s") from error
    except aiohttp.ClientConnectorError as error:
        raise UnreachableError(_no_connection(error)) from error
    except (aiohttp.ClientError, OSError) as error:
        said = error.message if isinstance(error, aiohttp.ClientResponseError) else str(error)
        what = redact(said) or type(error).__name__
        raise ServerError(f"{method} {path}: {what}") from error


async def _read(response: aiohttp.ClientResponse, call: str) -> str:
    """A body, at most MOST_BODY_BYTES of it once it is inflated."""
    parts, size = [], 0
    async for part in response.content.iter_any():
        parts.append(part)
        size += len(part)
        if size > MOST_BODY_BYTES:
            response.close()  # or what is still to come would be read
            raise ServerError(
                f"{call} was answered with more than {MOST_BODY_BYTES >> 20} MiB.",
                hint="is it an SGLang server that answers there?",
            )
    return b"".join(parts).decode("utf-8", "replace")


def _no_connection(error: aiohttp.ClientConnectorError) -> str:
    """Why there is none, in the system's words and without the library's."""
    cause = error.os_error
    why = os.strerror(cause.errno) if cause.errno and cause.errno > 0 else cause.strerror
    told = (why or type(cause).__name__).lower()
    return redact(f"no connection to {error.host}:{error.port}, {told}")


def _keys(session: aiohttp.ClientSession, admin_api_key: str | None) -> list[str]:
    """The keys that a call sends."""
    key = session.headers.get("Authorization", "").removeprefix("Bearer ")
    return [found for found in (key, admin_api_key) if found]


async def _json(session: aiohttp.ClientSession, path: str) -> dict[str, object]:
    answer = await _ask(session, "GET", path)
    _require_200(answer, f"GET {path}")
    return _object(answer, f"GET {path}")


def _require_200(answer: Answer, call: str) -> None:
    if answer.status == 200:
        return
    hint = None
    if answer.status in DENIED:
        which = "admin-api-key" if call in _ADMIN_CALLS else "api-key"
        hint = f"give the server's key: --{which}-env NAME or --{which}-file PATH"
    raise CallRefusedError(
        f"{call} was answered with status {answer.status}: {_shown(answer.body)}",
        status=answer.status,
        hint=hint,
    )


def _object(answer: Answer, call: str) -> dict[str, object]:
    try:
        value = json.loads(answer.body)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict) or _is_deep(value):
        raise ServerError(f"{call} was not answered with a JSON object: {_shown(answer.body)}")
    return value


def _is_deep(value: object) -> bool:
    """Whether an answer is nested so deeply that nothing of SGLang's is."""
    level: list[object] = [value]
    for _ in range(_MOST_NESTED):
        level = [inner for outer in level for inner in _inner(outer)]
    return bool(level)


def _inner(value: object) -> list[object]:
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [part for part in parts if isinstance(part, dict | list)]


def _shown(body: str) -> str:
    text = redact(" ".join(body[:_LOOKED_AT_CHARS].split())[: 4 * _SHOWN_CHARS])
    return text if len(text) <= _SHOWN_CHARS else text[:_SHOWN_CHARS] + "…"
