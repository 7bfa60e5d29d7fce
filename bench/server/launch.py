"""Starting a server: `start_server` gives a RunningServer that has generated tokens."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from bench import clock
from bench.errors import InputError, ServerError
from bench.gpu import visible_gpus
from bench.http import open_session, redact
from bench.server.command import (
    HOST,
    api_keys,
    command_line,
    free_port,
    secrets_of,
    server_environment,
)
from bench.server.process import ProcessOrder, start_process
from bench.server.running import RunningServer, ServerFacts, prove_gone
from bench.server.starting import LogTail, StartError, until_ready
from bench.sglang import control
from bench.sglang.arguments import asked_text, parse_arguments
from bench.sglang.log_lines import FailureClass
from bench.sglang.server_info import effective_config

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    import aiohttp

    from bench.model import EffectiveConfig, ServerConfig, Timeouts

__all__ = ["RunningServer", "start_server"]

PORT_TRIES = 3
REDACTED = "[redacted]"
_KEY_OPTIONS = frozenset({"--api-key", "--admin-api-key", "--ssl-keyfile-password"})
_PORT_TAKEN = frozenset({FailureClass.PORT_IN_USE, FailureClass.NCCL_PORT_IN_USE})


async def start_server(
    config: ServerConfig,
    *,
    log_path: Path,
    timeouts: Timeouts,
    environment_extra: Mapping[str, str] | None = None,
    on_progress: Callable[[str], None] | None = None,
    truth_path: Path | None = None,
) -> RunningServer:
    """Start a server, or turn to a running one, and wait until it has generated tokens.

    A start that fails because its port was taken meanwhile is tried again with another.

    Args:
        config: Which server.
        log_path: Where its output is appended, redacted; not used for an attached server.
        timeouts: `ready_s` is how long a start may go without progress in log, memory or disk.
        environment_extra: Variables beside those of the configuration.
        on_progress: Told in a few words what the starting server does.
        truth_path: Simulated servers only: where the simulator writes what really happened.

    Raises:
        InputError: The configuration cannot be started as written.
        ServerError: It did not start; the message has the kind of failure and the log's last
            lines.
        DiskError: The log cannot be written.
    """
    if config.launcher == "attached":
        return await _attach(config, timeouts)
    for attempt in range(1, PORT_TRIES + 1):
        try:
            return await _start(
                config, log_path, timeouts, environment_extra or {}, on_progress, truth_path
            )
        except StartError as error:
            if error.failure_class not in _PORT_TAKEN or attempt == PORT_TRIES:
                raise
    raise AssertionError("the last try returns or raises")


async def _start(
    config: ServerConfig,
    log_path: Path,
    timeouts: Timeouts,
    environment_extra: Mapping[str, str],
    on_progress: Callable[[str], None] | None,
    truth_path: Path | None,
) -> RunningServer:
    port = free_port()
    base_url = f"http://{HOST}:{port}"
    argv = command_line(config, port=port, truth_path=truth_path)
    environment = server_environment(config, os.environ, environment_extra)
    secrets = secrets_of(config, environment)
    log = LogTail(log_path)
    started_ns = clock.now_ns()
    process = await start_process(
        ProcessOrder(
            argv=argv,
            environment=environment,
            working_dir=config.working_dir,
            log_path=log_path,
            term_s=timeouts.term_s,
            secrets=secrets,
        )
    )
    try:
        async with open_session(
            base_url, api_key=api_keys(config)[0], connect_s=timeouts.connect_s
        ) as session:
            await until_ready(process, session, log, timeouts=timeouts, on_progress=on_progress)
            ready_ns = clock.now_ns()
            effective, model_name = await _read_back(session)
    except BaseException:  # whatever it was, Ctrl-C included: no server may be left
        await process.stop()
        await prove_gone(process, base_url)
        raise
    facts = ServerFacts(
        config=config,
        base_url=base_url,
        argv=_redacted(argv, secrets),
        effective=effective,
        model_name=model_name,
        gpu_indices=_gpu_indices(config, environment),
        started_ns=started_ns,
        ready_ns=ready_ns,
    )
    return RunningServer(facts, process=process, timeouts=timeouts)


async def _attach(config: ServerConfig, timeouts: Timeouts) -> RunningServer:
    if config.url is None:
        raise InputError("asked to attach to a running server without its URL.")
    base_url = config.url.rstrip("/")
    started_ns = clock.now_ns()
    async with open_session(
        base_url, api_key=api_keys(config)[0], connect_s=timeouts.connect_s
    ) as session:
        try:
            await control.generate_once(session, max_new_tokens=1, timeout_s=timeouts.request_s)
            effective, model_name = await _read_back(session)
        except ServerError as error:
            raise ServerError(
                f"asked to measure the server at {redact(base_url)}; {error}",
                hint=error.hint or "is the URL right, and does the server run?",
            ) from error
    facts = ServerFacts(
        config=config,
        base_url=base_url,
        argv=(),
        effective=effective,
        model_name=model_name,
        gpu_indices=(),
        started_ns=started_ns,
        ready_ns=clock.now_ns(),
    )
    return RunningServer(facts, process=None, timeouts=timeouts)


async def _read_back(session: aiohttp.ClientSession) -> tuple[EffectiveConfig, str]:
    """The server's own account of its settings, and the name of its model."""
    info = await control.server_info(session)
    model_name = info.get("served_model_name") or info.get("model_path")
    if not isinstance(model_name, str):
        model_name = str((await control.model_info(session)).get("model_path") or "default")
    return effective_config(info), model_name


def _gpu_indices(config: ServerConfig, environment: Mapping[str, str]) -> tuple[int, ...]:
    if config.launcher != "local":
        return ()
    asked = parse_arguments(config.arguments)
    first, step = (asked_text(asked, dest) or "" for dest in ("base_gpu_id", "gpu_id_step"))
    return visible_gpus(
        config.gpus,
        environment,
        first=int(first) if first.isdecimal() else 0,
        step=int(step) if step.isdecimal() and int(step) > 0 else 1,
    )


def _redacted(argv: Sequence[str], secrets: Sequence[str]) -> tuple[str, ...]:
    """A command line fit to be stored: the values of key options, and known secrets, removed."""
    return tuple(
        REDACTED if before in _KEY_OPTIONS else redact(word, secrets)
        for before, word in zip(("", *argv), argv, strict=False)
    )
