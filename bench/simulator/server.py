"""The process: routes, start, and an end that drains."""

from __future__ import annotations

import asyncio
import os
import signal
from functools import partial
from typing import TYPE_CHECKING

import uvloop

from bench import clock
from bench.simulator import about
from bench.simulator.engine import Engine
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
from bench.simulator.replies import encode
from bench.simulator.settings import Settings, StartFailure
from bench.simulator.stats import Stats
from bench.simulator.truth import Truth

if TYPE_CHECKING:
    from collections.abc import Callable

_OPEN_PATHS = ("/health", "/health_generate", "/ready", "/metrics")


def serve(settings: Settings) -> int:
    """Serve until SIGTERM or SIGINT, let what runs finish, and return the exit code."""
    return uvloop.run(Server(settings).run())


class Server:
    """One simulated server: its engine, its counts and its routes."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._stats = Stats(settings)
        self._truth = Truth(settings)
        self._engine = Engine(settings, self._stats, self._truth)
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
        log_start(settings, self._arguments)
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
        self._truth.server(about.simulated(settings, self._stats, self._engine.launch_factor))
        log_listening(f"http://{host}:{port}", os.getpid())
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
        if self._draining:  # the second signal does not wait
            for request in self._engine.requests():
                self._engine.abort(request)
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
        key = self._settings.text("api_key")
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
        elif request.path in self._get or request.path in self._post:
            exchange.respond(405, encode({"detail": "Method Not Allowed"}))
        else:
            exchange.respond(404, encode({"detail": "Not Found"}))

    def _responding(self, request: HttpRequest, status: int) -> None:
        reason = {200: "OK", 400: "Bad Request", 401: "Unauthorized", 404: "Not Found"}
        query = f"?{request.query}" if request.query else ""
        log(
            f'INFO:     {request.peer} - "{request.method} {request.path}{query} HTTP/1.1" '
            f"{status} {reason.get(status, '')}".rstrip()
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
        request = read_request(exchange, self._settings)
        exchange.on_gone = partial(self._engine.abort, request)
        self._engine.submit(request)

    def _health(self, exchange: Exchange) -> None:
        exchange.respond(503 if self._draining else 200, b"", content_type="")

    def _server_info(self, exchange: Exchange) -> None:
        info = about.server_info(
            self._settings, self._arguments, self._stats, self._engine.launch_factor
        )
        exchange.respond(200, encode(info))

    def _model_info(self, exchange: Exchange) -> None:
        exchange.respond(200, encode(about.model_info(self._settings)))

    def _models(self, exchange: Exchange) -> None:
        exchange.respond(200, encode(about.models(self._settings)))

    def _loads(self, exchange: Exchange) -> None:
        include = set((exchange.request.parameter("include") or "core").split(","))
        load = about.loads(self._settings, self._stats, self._engine, include)
        exchange.respond(200, encode(load))

    def _metrics(self, exchange: Exchange) -> None:
        text = render(self._settings, self._stats, self._engine)
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
        for request in self._engine.requests():
            if every or (isinstance(rid, str) and rid and request.rid.startswith(rid)):
                self._engine.abort(request)
        exchange.respond(200, b"", content_type="")
