"""How each launcher is run: its command line, its environment, its port; pure but for the port."""

from __future__ import annotations

import socket
import sys
from typing import TYPE_CHECKING

from bench import clock
from bench.errors import InputError
from bench.sglang.arguments import asked_text, option_of, parse_arguments

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from bench.model import ServerConfig

HOST = "127.0.0.1"
MIN_SECRET_CHARS = 6
"""Shorter texts would be replaced where they are no secret; bench.http's patterns find them."""

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
    address = ("--host", HOST, "--port", str(port))
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
    """The keys that the server's arguments set: for requests, and for control calls if another."""
    asked = parse_arguments(config.arguments)
    return asked_text(asked, "api_key"), asked_text(asked, "admin_api_key")


def secrets_of(config: ServerConfig, environment: Mapping[str, str]) -> tuple[str, ...]:
    """Texts that must not be stored: keys among arguments, tokens and passwords in variables."""
    keys = [key for key in api_keys(config) if key]
    names = ("TOKEN", "SECRET", "PASSWORD", "API_KEY", "ACCESS_KEY")
    keys += [value for name, value in environment.items() if name.upper().endswith(names)]
    return tuple(
        sorted({key for key in keys if len(key) >= MIN_SECRET_CHARS}, key=len, reverse=True)
    )
