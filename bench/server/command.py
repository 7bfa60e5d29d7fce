"""How each launcher is run: its command line, its environment, its port; pure but for the port."""

from __future__ import annotations

import json
import os
import secrets
import shlex
import socket
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import SplitResult, urlsplit

from bench import clock
from bench.errors import InputError
from bench.http import is_http_address, is_secret_name, redact
from bench.plan.launchers import COMMANDS, filled
from bench.server.keeper import ORDER
from bench.server.orphans import GONE_S, note_for
from bench.sglang.arguments import asked_text, option_of, parse_arguments

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bench.model import KeySource, LauncherTemplate, ServerConfig
    from bench.server.orphans import ServerNote

HOST = "127.0.0.1"
MIN_SECRET_CHARS = 6
"""Shorter texts would be replaced where they are no secret; bench.http's patterns find them."""

KEEPER_S = 240.0
"""How much longer than its server the keeper may take to end: it asks, forces and looks again."""

TRUTH_SUFFIX = ".truth.jsonl"
"""What is behind a launch's id in the name of a simulated server's truth file."""

PYTHON_PLACE = "{python}"
"""In a launcher's command: the Python that runs specdyno."""


def free_port() -> int:
    """A port of 127.0.0.1 that nobody listens on now; another process may still take it first."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
        return port


def command_line(
    config: ServerConfig, *, port: int, truth_path: Path | None = None
) -> tuple[str, ...]:
    """The argv that starts a server on 127.0.0.1 at `port`.

    Args:
        config: A local or simulated server.
        port: Where it shall listen.
        truth_path: Simulated servers only: where the simulator writes what really happened.

    Raises:
        InputError: The arguments name a host or port of their own, or there is no command.
    """
    asked = parse_arguments(config.arguments)
    for dest in ("host", "port"):
        if dest in asked:
            raise InputError(
                f"the server's arguments have {option_of(dest)}; specdyno chooses where a server "
                "that it starts listens.",
                hint=f"leave {option_of(dest)} out, or --attach to a running server.",
            )
    bind = HOST if config.template is None else config.template.bind
    address = (*_key_options(config), "--host", bind, "--port", str(port))
    if config.launcher == "simulated":
        simulator = (sys.executable, "-m", "bench.simulator")
        return (*simulator, *config.arguments, *_simulator_options(config, truth_path), *address)
    if not config.command:
        raise InputError(
            "the server has no launch command.",
            hint='give the launcher one, for example ["python3", "-m", "sglang.launch_server"].',
        )
    command = tuple(word.replace(PYTHON_PLACE, sys.executable) for word in config.command)
    return (*command, *config.arguments, *address)


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """One start of a server.

    Attributes:
        argv: What is told and stored: the command line that is run for it.
        process_argv: The process that the supervisor owns: the server, or its keeper.
        process_environment: That process's whole environment.
        base_url: Where the server will answer.
        environ: Prints the environments of a server elsewhere; empty: it is here, or nothing does.
        gpu_watch: Prints the GPUs of a server elsewhere; empty: none do.
        term_s: How long the process may take to end after TERM.
        note: How the server is found and ended should that process be killed, where it only
            stands for the server; None: it is the server.
    """

    argv: tuple[str, ...]
    process_argv: tuple[str, ...]
    process_environment: Mapping[str, str]
    base_url: str
    environ: tuple[str, ...] = ()
    gpu_watch: tuple[str, ...] = ()
    term_s: float
    note: ServerNote | None = None


def start_of(
    config: ServerConfig,
    environment: Mapping[str, str],
    variables: Mapping[str, str],
    *,
    port: int,
    term_s: float,
    truth_path: Path | None = None,
) -> Start:
    """How a server is started at a port.

    Args:
        config: Which server.
        environment: Its whole environment, as a process here.
        variables: Those of it that were asked for, to be passed on to a server elsewhere.
        port: Where it shall listen.
        term_s: How long it may take to end after TERM.
        truth_path: Simulated servers only: where the simulator writes what really happened.

    Raises:
        InputError: As `command_line`.
    """
    argv = command_line(config, port=port, truth_path=truth_path)
    template = config.template
    if template is None:
        return Start(
            argv=argv,
            process_argv=argv,
            process_environment=environment,
            base_url=f"http://{HOST}:{port}",
            term_s=term_s,
        )
    values = {
        "name": f"specdyno-{secrets.token_hex(6)}",
        "port": str(port),
        "local_port": str(free_port()),
        "term_s": f"{clock.world_s(term_s):.0f}",
    }
    commands = {
        key: _expanded(getattr(template, key), template, argv, variables, values)
        for key in COMMANDS
    }
    order = {**commands, "term_s": clock.world_s(term_s), "gone_s": GONE_S}
    return Start(
        argv=commands["start"],
        process_argv=(sys.executable, "-m", "bench.server.keeper"),
        process_environment={**environment, ORDER: json.dumps(order)},
        base_url=filled(template.base_url, values),
        environ=commands["environ"],
        gpu_watch=commands["gpu_watch"],
        term_s=2 * term_s + KEEPER_S,
        note=note_for(
            name=values["name"],
            alive=commands["alive"],
            stop=commands["stop"],
            force_stop=commands["force_stop"],
            term_s=clock.world_s(term_s),
        ),
    )


def _expanded(
    words: Sequence[str],
    template: LauncherTemplate,
    argv: Sequence[str],
    variables: Mapping[str, str],
    values: Mapping[str, str],
) -> tuple[str, ...]:
    """A command of a template with its places filled in.

    A word that is a place becomes as many words as there are; inside one they are quoted for the
    shell that will read it.
    """
    env = [
        filled(word, {"variable": variable, "value": value})
        for variable, value in variables.items()
        for word in template.variable
    ]
    quoted = {**values, "argv": shlex.join(argv), "env": shlex.join(env)}
    found: list[str] = []
    for word in words:
        whole = {"{argv}": argv, "{env}": env}.get(word)
        found += [filled(word, quoted)] if whole is None else whole
    return tuple(found)


def port_of(base_url: str) -> tuple[str, int]:
    """Host and port of a base URL.

    Raises:
        InputError: It is no address.
    """
    if not is_http_address(base_url):
        raise InputError(
            f"asked for a server at {redact(base_url)!r}, which is no http:// or https:// address",
            hint="give it as http://HOST:PORT",
        )
    parts = urlsplit(base_url)
    return parts.hostname or HOST, parts.port or (443 if parts.scheme == "https" else 80)


def _simulator_options(config: ServerConfig, truth_path: Path | None) -> tuple[str, ...]:
    acceptance = config.acceptance
    if isinstance(acceptance, tuple):
        acceptance = ",".join(repr(share) for share in acceptance)
    values = {
        "--sim-hardware": config.hardware,
        "--sim-target": config.target_card,
        "--sim-acceptance": acceptance,
        "--sim-seed": str(config.simulation_seed),
        "--sim-truth": None if truth_path is None else str(truth_path),
        "--sim-launch": None if truth_path is None else truth_path.name.removesuffix(TRUTH_SUFFIX),
        "--sim-faults": ",".join(config.faults) or None,
    }
    given = ((option, value) for option, value in values.items() if value is not None)
    return tuple(word for pair in given for word in pair)


def server_environment(
    config: ServerConfig, inherited: Mapping[str, str], extra: Mapping[str, str] | None = None
) -> dict[str, str]:
    """The server's whole environment: inherited, then the configuration's, then `extra`.

    Only a simulated server is told the clock's speed; for a real one a second is a second.
    """
    environment = {**inherited, **dict(config.environment), **(extra or {})}
    environment.pop(clock.SPEED_VARIABLE, None)
    if config.launcher == "simulated":
        environment[clock.SPEED_VARIABLE] = str(clock.speed())
    return environment


def api_keys(config: ServerConfig) -> tuple[str | None, str | None]:
    """The server's keys: for requests, and for calls that abort and flush if they need another."""
    asked = parse_arguments(config.arguments)

    def key(source: KeySource | None, name: str) -> str | None:
        return read_key(source) if source else asked_text(asked, name)

    return key(config.api_key, "api_key"), key(config.admin_api_key, "admin_api_key")


def read_key(source: KeySource) -> str:
    """The API key that an environment variable or a file holds.

    Raises:
        InputError: It is not there, or is empty.
    """
    if source.kind == "env":
        key = os.environ.get(source.place, "")
        what = f"the environment variable {source.place}"
    else:
        what = f"the file {source.place}"
        try:
            key = Path(source.place).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "it is no text"
            raise InputError(
                f"the API key cannot be read from {what}: {reason}.",
                hint="Give a file that holds the key and nothing else.",
            ) from None
    key = key.strip()
    if not key or not key.isprintable():
        raise InputError(
            f"asked to read an API key from {what}, which "
            f"{'holds more than one line' if key else 'is empty or not there'}.",
            hint="Put the key there; it is stored nowhere.",
        )
    return key


def _key_options(config: ServerConfig) -> tuple[str, ...]:
    """SGLang takes its keys from its command line alone; what is stored of that is redacted."""
    sources = (("--api-key", config.api_key), ("--admin-api-key", config.admin_api_key))
    return tuple(
        word for option, source in sources if source for word in (option, read_key(source))
    )


def urlsplit_or_none(text: str) -> SplitResult | None:
    """An address taken apart; None when it is none."""
    try:
        return urlsplit(text)
    except ValueError:
        return None


def secrets_of(config: ServerConfig, environment: Mapping[str, str]) -> tuple[str, ...]:
    """Texts that must not be stored: keys among arguments, tokens and passwords in variables."""
    keys = [key for key in api_keys(config) if key]
    keys += [value for name, value in environment.items() if is_secret_name(name)]
    addresses = (urlsplit_or_none(value) for value in environment.values() if "://" in value)
    keys += [address.password for address in addresses if address and address.password]
    return tuple(
        sorted({key for key in keys if len(key) >= MIN_SECRET_CHARS}, key=len, reverse=True)
    )
