"""The process: routes, start, and an end that drains."""

from __future__ import annotations

import asyncio
import os
import signal
from dataclasses import replace
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING

import uvloop

from bench import clock
from bench.simulator import about
from bench.simulator.engine import Engine
from bench.simulator.faults import Faults
from bench.simulator.faults_wire import FaultyExchange, json_page, metrics_page
from bench.simulator.http11 import Connection, Exchange, Hooks, HttpRequest
from bench.simulator.intake import (
    PATHS,
    InvalidRequestError,
    parse_body,
    read_request,
    wants_stream,
)
from bench.simulator.log import log, log_listening, log_start
from bench.simulator.metrics_text import render
from bench.simulator.refusals import StartFailure
from bench.simulator.replies import encode
from bench.simulator.stats import Stats
from bench.simulator.truth import Truth

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.simulator.request import Request
    from bench.simulator.settings import Settings

_ADMIN_PATHS = ("/abort_request", "/flush_cache")
_OPEN_PATHS = ("/health", "/health_generate", "/ready", "/metrics")


def serve(settings: Settings) -> int:
    """Serve until SIGTERM or SIGINT, let what runs finish, and return the exit code."""
    return uvloop.run(Server(settings).run())


class Server:
    """One simulated server: its engine, its counts and its routes."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._stats = Stats()
        self._truth = Truth(settings)
        self._faults = Faults(settings)
        self._engine = Engine(settings, self._stats, self._truth, self._faults)
        self._arguments = about.resolved_arguments(settings)
        self._connections: set[Connection] = set()
        self._draining = False
        self._stopped = asyncio.Event()
        self._get: dict[str, Callable[[Exchange], None]] = {
            "/health": self._health,
            "/health_generate": self._health,
            "/ready": self._health,
            "/server_info": self._server_info,
            "/get_server_info": self._server_info,
            "/model_info": self._model_info,
            "/get_model_info": self._model_info,
            "/v1/models": self._models,
            "/v1/loads": self._loads,
            "/flush_cache": self._flush_cache,
        }
        if settings.flag("enable_metrics"):
            self._get |= {"/metrics": self._metrics, "/metrics/": self._metrics}
        self._post: dict[str, Callable[[Exchange], None]] = {
            "/flush_cache": self._flush_cache,
            "/abort_request": self._abort_request,
            **dict.fromkeys(PATHS, self._generate),
        }

    async def run(self) -> int:
        """Start, serve, drain."""
        settings = self._settings
        log_start(settings, self._arguments, self._faults.boot)
        loop = asyncio.get_running_loop()
        self._engine.start(loop)
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._terminate)
        host, port = settings.text("host") or "127.0.0.1", settings.number("port", 30000)
        hooks = Hooks(handle=self._handle, responding=self._responding, ended=self._ended)
        try:
            listener = await loop.create_server(
                lambda: Connection(hooks, self._connections), host, port, backlog=2048
            )
        except OSError as error:
            raise StartFailure(f"ERROR:    {error}", exit_code=1) from None
        self._truth.server(about.simulated(settings, self._engine))
        log_listening(f"http://{host}:{port}", os.getpid())
        self._faults.ready()
        await self._stopped.wait()
        listener.close()
        for connection in list(self._connections):
            connection.close_when_idle()
        log("INFO:     Shutting down")
        log("INFO:     Application shutdown complete.")
        log(f"INFO:     Finished server process [{os.getpid()}]")
        self._truth.flush()
        return 0

    def _terminate(self) -> None:
        if self._faults.has("ignore-term"):
            log("SIMULATED: SIGTERM ignored on request")
            return
        if self._draining:  # the second signal does not wait
            self._engine.abort_all()
            self._stopped.set()
            return
        self._draining = True
        log("SIGTERM received. signum=None frame=None. Draining requests and shutting down...")
        self._engine.when_idle(self._drained)

    def _drained(self) -> None:
        log(
            "Gracefully exiting... Remaining number of requests 0. Remaining requests "
            "remaining_rids=[]."
        )
        self._stopped.set()

    # ---------------------------------------------------------------------------------- routing

    def _handle(self, exchange: Exchange) -> None:
        request = exchange.request
        self._stats.http_began(request.method, request.path)
        key = self._key_of(request.path)
        if key is not None and request.path not in _OPEN_PATHS:
            given = request.headers.get("authorization", "")
            if given != f"Bearer {key}":
                exchange.respond(401, encode({"error": "Unauthorized"}))
                return
        routes = {"GET": self._get, "POST": self._post}.get(request.method, {})
        if route := routes.get(request.path):
            try:
                route(exchange)
            except InvalidRequestError as error:
                self._refuse(exchange, str(error))
            except (TypeError, ValueError, KeyError, OverflowError, RecursionError) as error:
                self._refuse(exchange, f"{type(error).__name__}: {error}")  # of what was sent
        elif request.path in self._get or request.path in self._post:
            exchange.respond(405, encode({"detail": "Method Not Allowed"}))
        else:
            exchange.respond(404, encode({"detail": "Not Found"}))

    def _key_of(self, path: str) -> str | None:
        """What a call needs; where there is an admin key, no other lets abort and flush."""
        admin_key = self._settings.text("admin_api_key") if path in _ADMIN_PATHS else None
        return admin_key or self._settings.text("api_key")

    def _responding(self, request: HttpRequest, status: int) -> None:
        query = f"?{request.query}" if request.query else ""
        log(
            f'INFO:     {request.peer} - "{request.method} {request.path}{query} HTTP/1.1" '
            f"{status} {HTTPStatus(status).phrase}"
        )

    def _ended(self, request: HttpRequest, status: int) -> None:
        self._stats.http_ended(request.method, request.path, status)

    def _refuse(self, exchange: Exchange, message: str) -> None:
        """A request's error, in the form its API gives it."""
        log(f"[http_server] Error: {message}")
        if exchange.request.path != "/generate":
            error = {"object": "error", "message": message, "type": "BadRequestError"}
            exchange.respond(400, encode({**error, "param": None, "code": 400}))
        elif wants_stream(exchange):
            error = {"message": message, "type": "invalid_request_error"}
            event = {"error": {**error, "code": 400, "retryable": False}}
            exchange.begin_stream()
            exchange.send_event(encode(event))
            exchange.end_stream()
        else:
            exchange.respond(400, encode({"error": {"message": message}}))

    # ----------------------------------------------------------------------------------- routes

    def _generate(self, exchange: Exchange) -> None:
        if self._draining:
            exchange.respond(503, encode({"error": {"message": "Server is shutting down"}}))
            return
        request = self._read(exchange)
        if request is None:
            return
        exchange.on_gone = partial(self._abort_named, request.rid)
        request.reply.accepted()
        self._engine.submit(request)

    def _read(self, exchange: Exchange) -> Request | None:
        """The request with the faults it is to have; None: it is refused."""
        if not self._faults:
            return read_request(exchange, self._settings)
        self._faults.step_clock()
        hits = self._faults.request_came()
        outlet = FaultyExchange(exchange, hits, self._faults)
        if outlet.refused():
            return None
        request = read_request(outlet, self._settings)
        request.acceptance = self._faults.drafts(request.acceptance)
        if any(hit.fault.name == "repeat" for hit in hits):
            request.answer = replace(request.answer, vocabulary=range(1))
        return request

    def _health(self, exchange: Exchange) -> None:
        exchange.respond(503 if self._draining else 200, b"", content_type="")

    def _server_info(self, exchange: Exchange) -> None:
        info = about.server_info(self._settings, self._arguments, self._engine)
        exchange.respond(200, json_page(encode(info), self._faults))

    def _model_info(self, exchange: Exchange) -> None:
        exchange.respond(200, encode(about.model_info(self._settings)))

    def _models(self, exchange: Exchange) -> None:
        exchange.respond(200, encode(about.models(self._settings)))

    def _loads(self, exchange: Exchange) -> None:
        include = set((exchange.request.parameter("include") or "core").split(","))
        rank = exchange.request.parameter("dp_rank")
        dp_rank = int(rank) if rank is not None and rank.isdecimal() else None
        load = about.loads(self._settings, self._engine, include, dp_rank)
        exchange.respond(200, json_page(encode(load), self._faults))

    def _metrics(self, exchange: Exchange) -> None:
        text = metrics_page(render(self._settings, self._stats, self._engine), self._faults)
        exchange.respond(200, text.encode(), content_type="text/plain; version=1.0.0")

    def _flush_cache(self, exchange: Exchange) -> None:
        timeout = exchange.request.parameter("timeout") or "0"
        try:
            timeout_s = float(timeout)
        except ValueError:
            raise InvalidRequestError(f"timeout must be a number, got {timeout!r}") from None
        answered = False

        def answer() -> None:
            nonlocal answered
            if answered:
                return
            answered = True
            if self._engine.flush():
                log("Cache flushed successfully!")
                self._faults.cell_began()
                body = (
                    "Cache flushed.\nPlease check backend logs for more details. (When there are "
                    "running or waiting requests, the operation will not be performed.)\n"
                )
                exchange.respond(200, body.encode(), content_type="text/plain; charset=utf-8")
            else:
                text = "text/plain; charset=utf-8"
                exchange.respond(400, b"Flush cache failed.\n", content_type=text)

        if timeout_s > 0:
            asyncio.get_running_loop().call_later(clock.world_s(timeout_s), answer)
            self._engine.when_idle(answer)
        else:
            answer()

    def _abort_request(self, exchange: Exchange) -> None:
        body = parse_body(exchange)
        every, rid = body.get("abort_all") is True, body.get("rid")
        if every:
            self._stats.abort_asked()
            self._engine.abort_all()
        elif isinstance(rid, str) and rid:
            self._abort_named(rid)
        else:
            log("Ignore abort_request with empty rid and abort_all=False")
        exchange.respond(200, b"", content_type="")

    def _abort_named(self, rid: str) -> None:
        """Abort a request, and with it, as in SGLang, those whose names begin with its name."""
        if self._engine.abort(rid):
            self._stats.abort_asked()
