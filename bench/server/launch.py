"""Starting a server: `start_server` gives a RunningServer that has generated tokens."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from bench import clock
from bench.errors import InputError, ServerError
from bench.gpu import memory_used, visible_gpus
from bench.http import REDACTED, is_secret_name, open_session, redact
from bench.model import EffectiveConfig, FindingKind, Severity
from bench.server.command import (
    Start,
    api_keys,
    free_port,
    port_of,
    secrets_of,
    server_environment,
    start_of,
)
from bench.server.ending import end_process, prove_gone
from bench.server.environment import (
    arrival,
    environments_elsewhere,
    environments_here,
    read_environments,
)
from bench.server.orphans import write_note
from bench.server.process import ProcessOrder, start_process
from bench.server.running import Remark, RunningServer, ServerFacts, refused
from bench.server.starting import LogTail, StartError, until_ready
from bench.sglang import control
from bench.sglang.arguments import Option, asked_text, find_option, parse_arguments
from bench.sglang.failures import FailureClass
from bench.sglang.server_info import (
    SPECULATIVE_PREFIX,
    effective_config,
    of_workers,
    worker_differences,
)
from bench.sglang.start_lines import start_times

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    import aiohttp

    from bench.model import ServerConfig, Timeouts

__all__ = ["RunningServer", "start_server"]

PORT_TRIES = 3
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
    environment = server_environment(config, os.environ, environment_extra)
    variables = {**dict(config.environment), **environment_extra}
    start = start_of(
        config,
        environment,
        variables,
        port=free_port(),
        term_s=timeouts.term_s,
        truth_path=truth_path,
    )
    base_url = start.base_url
    secrets = secrets_of(config, environment)
    log = LogTail(log_path)
    gpu_indices = _gpu_indices(config, environment)
    memory_before = memory_used(gpu_indices)
    started_ns = clock.now_ns()
    if start.note is not None:
        write_note(log_path, start.note)
    process = await start_process(
        ProcessOrder(
            argv=start.process_argv,
            environment=start.process_environment,
            working_dir=config.working_dir,
            log_path=log_path,
            term_s=start.term_s,
            is_keeper=start.note is not None,
            secrets=secrets,
        )
    )
    try:
        async with open_session(
            base_url, api_key=api_keys(config)[0], connect_s=timeouts.connect_s
        ) as session:
            await until_ready(
                process,
                session,
                log,
                gpus=gpu_indices,
                timeouts=timeouts,
                on_progress=on_progress,
            )
            ready_ns = clock.now_ns()
            effective, model_name, remarks = await _read_back(config, session)
            remarks += await _environment_remarks(config, start, variables, process.pid, log)
    except BaseException:  # whatever it was, Ctrl-C included: no server may be left
        await end_process(process, start.note, log_path)
        await prove_gone(process, (base_url, *config.worker_urls), memory_before, start.note)
        raise
    facts = ServerFacts(
        config=config,
        base_url=base_url,
        argv=_redacted(start.argv, secrets),
        effective=effective,
        model_name=model_name,
        gpu_indices=gpu_indices,
        gpu_memory_before=memory_before,
        gpu_watch=start.gpu_watch,
        remarks=remarks,
        times=start_times(log.all_lines()),
        note=start.note,
        log_path=log_path,
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
            effective, model_name, remarks = await _read_back_if_let(config, session)
        except ServerError as error:
            raise ServerError(
                f"asked to measure the server at {redact(base_url)}: {error}",
                hint=error.hint or "Is the URL right, and does the server run?",
            ) from error
    facts = ServerFacts(
        config=config,
        base_url=base_url,
        argv=(),
        effective=effective,
        model_name=model_name,
        gpu_indices=(),
        remarks=remarks,
        started_ns=started_ns,
        ready_ns=clock.now_ns(),
    )
    return RunningServer(facts, process=None, timeouts=timeouts)


async def _read_back(
    config: ServerConfig, session: aiohttp.ClientSession
) -> tuple[EffectiveConfig, str, tuple[Remark, ...]]:
    """The server's own account of its settings, the name of its model, and what is remarkable.

    Where workers stand behind it these are asked, and it is not: a router has other settings.
    """
    api_key, found = api_keys(config)[0], []
    for url in config.worker_urls:
        async with open_session(url, api_key=api_key) as of_worker:
            try:
                found.append(await control.server_info(of_worker))
            except ServerError as error:
                raise _of_worker(error, url) from error
    infos = found or [await control.server_info(session)]
    model_name = infos[0].get("served_model_name") or infos[0].get("model_path")
    if not isinstance(model_name, str):
        model_name = str((await control.model_info(session)).get("model_path") or "default")
    configs = [effective_config(info) for info in infos]
    return of_workers(configs), model_name, _unlike(configs)


def _of_worker(error: ServerError, url: str) -> ServerError:
    """The same error, with the worker named."""
    message = f"worker {redact(url)}: {error}"
    if isinstance(error, control.CallRefusedError):
        return control.CallRefusedError(message, status=error.status, hint=error.hint)
    return ServerError(message, hint=error.hint or "Are the worker_urls right?")


def _unlike(configs: Sequence[EffectiveConfig]) -> tuple[Remark, ...]:
    """That workers of one server differ: what is measured is then a mixture."""
    differing = worker_differences(configs)
    if not differing:
        return ()
    told = "; ".join(f"{name}: {' | '.join(values)}" for name, values in differing)
    decisive = any(name.startswith(SPECULATIVE_PREFIX) for name, _ in differing)
    severity = Severity.SUSPECT if decisive else Severity.NOTE
    message = f"the {len(configs)} workers of the server are not alike: {told}."
    return ((FindingKind.CONFIG_NOT_AS_ASKED, severity, message),)


async def _read_back_if_let(
    config: ServerConfig, session: aiohttp.ClientSession
) -> tuple[EffectiveConfig, str, tuple[Remark, ...]]:
    """As `_read_back`; a server that does not tell its settings is measured without them."""
    try:
        return await _read_back(config, session)
    except control.CallRefusedError as error:
        if error.status not in control.DENIED:
            raise
        remark = refused("tell its settings, so that none was compared", error.status)
    asked = parse_arguments(config.arguments)
    model_name = asked_text(asked, "served_model_name") or asked_text(asked, "model_path")
    unknown = EffectiveConfig(speculative=(), other=(), version=None)
    return unknown, model_name or "default", (remark,)


async def _environment_remarks(
    config: ServerConfig, start: Start, variables: Mapping[str, str], pid: int, log: LogTail
) -> tuple[Remark, ...]:
    """Whether the variables that were asked for have arrived."""
    if not variables or config.launcher == "simulated":
        return ()
    environments, why = [], "the launcher has no `environ` command"
    if config.template is None:
        environments = environments_here(pid, port_of(start.base_url)[1])
        why = "no environment of its processes can be read"
    elif start.environ:
        try:
            text = await environments_elsewhere(start.environ, start.process_environment)
        except ServerError as error:
            why = f"its launcher's `environ` tells nothing: {error}"
        else:
            environments = read_environments(text)
            why = "its launcher's `environ` prints no environment"
    found = arrival(variables, environments, log.all_lines())
    remarks: list[Remark] = []
    if found.lost:
        told = ", ".join(f"{name} {what}" for name, what in found.lost)
        message = f"variables that were asked for did not reach the server: {told}."
        remarks.append((FindingKind.ENVIRONMENT_LOST, Severity.SUSPECT, redact(message)))
    if found.unproved:
        told = ", ".join(found.unproved)
        message = f"whether these variables reached the server is not known: {told}; {why}."
        remarks.append((FindingKind.ENVIRONMENT_NOT_PROVED, Severity.NOTE, message))
    return tuple(remarks)


def _gpu_indices(config: ServerConfig, environment: Mapping[str, str]) -> tuple[int, ...]:
    template = config.template
    is_here = config.launcher == "local" or (template and template.gpus_seen == "local")
    if not is_here:
        return ()
    asked = parse_arguments(config.arguments)
    first, step = (asked_text(asked, dest) or "" for dest in ("base_gpu_id", "gpu_id_step"))
    return visible_gpus(
        config.gpus,
        environment,
        first=int(first) if first.isdecimal() else 0,
        step=int(step) if step.isdecimal() and int(step) > 0 else 1,
    )


def _is_key_option(word: str) -> bool:
    """Whether the next word is a secret: an option that names one, shortened or not."""
    option = find_option(word) if word.startswith("--") else ()
    return is_secret_name(option.spellings[0] if isinstance(option, Option) else word)


def _redacted(argv: Sequence[str], secrets: Sequence[str]) -> tuple[str, ...]:
    """A command line fit to be stored: the values of key options, and known secrets, removed."""
    return tuple(
        REDACTED if _is_key_option(before) and not word.startswith("--") else redact(word, secrets)
        for before, word in zip(("", *argv), argv, strict=False)
    )
