"""Whether the variables that were asked for have reached the server's own processes.

A launcher, a wrapper script or a container can drop them without a word, and the run would then
measure something else than it says. What counts is the environment of the process that answers,
as the kernel has it; where that cannot be read, NCCL's own log lines count.
"""

from __future__ import annotations

import contextlib
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from bench.clock import world_s
from bench.errors import ServerError
from bench.server.asking import run_command

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import psutil

READ_S: Final = 10.0
"""How long reading the environments of a server elsewhere may take, in seconds of the clock."""

_NCCL_LINE = re.compile(r"(NCCL_\w+) set by environment to (.*?)\.?\s*$")

SEPARATOR: Final = b"\0\1\0"

Environments = list[dict[str, str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """What became of the variables that were asked for.

    Attributes:
        lost: Those that the server does not have, each with what was found.
        unproved: Those of which nothing is known.
    """

    lost: tuple[tuple[str, str], ...] = ()
    unproved: tuple[str, ...] = ()


def arrival(
    asked: Mapping[str, str], environments: Environments, log_lines: Iterable[str]
) -> Arrival:
    """Compare what was asked with what the server's processes have.

    Args:
        asked: Variables and values.
        environments: Of its processes, as far as they could be read.
        log_lines: Of its log; NCCL tells there which of its variables it took.
    """
    told = {
        found[1]: found[2] for line in log_lines if (found := _NCCL_LINE.search(line)) is not None
    }
    lost, unproved = [], []
    for name, value in asked.items():
        having = sum(environment.get(name) == value for environment in environments)
        if told.get(name) == value or 2 * having > len(environments):
            continue
        if not environments and name not in told:
            unproved.append(name)
        else:
            others = [told.get(name), *(environment.get(name) for environment in environments)]
            other = next((one for one in others if one not in {None, value}), None)
            lost.append((name, "is not set there" if other is None else f"is {other!r} there"))
    return Arrival(lost=tuple(lost), unproved=tuple(unproved))


def read_environments(text: bytes) -> Environments:
    """Environments as /proc/PID/environ has them, with SEPARATOR behind each if several.

    One that holds something, but no variables, is left out: a process that renamed itself
    overwrote it.
    """
    parts = text.split(SEPARATOR)
    found: Environments = []
    for part in parts if len(parts) == 1 else parts[:-1]:
        if not part:
            found.append({})
            continue
        pairs = (entry.decode("utf-8", "replace").partition("=") for entry in part.split(b"\0"))
        variables = {name.strip(): value for name, equals, value in pairs if equals and name}
        if "PATH" in variables or len(variables) > 1:
            found.append(variables)
    return found


def environments_here(pid: int, port: int) -> Environments:
    """The environment of the process that listens at `port`, below the process `pid`.

    Of all of them where it cannot be told which one listens, or where it cannot be read.
    """
    import psutil  # noqa: PLC0415  # only after a start

    with contextlib.suppress(psutil.Error):
        root = psutil.Process(pid)
        processes = [root, *root.children(recursive=True)]
        listening = [process for process in processes if _listens(process, port)]
        return _environs(listening) or _environs(processes)
    return []


def _listens(process: psutil.Process, port: int) -> bool:
    import psutil  # noqa: PLC0415

    try:
        sockets = process.net_connections("tcp")
    except (psutil.Error, OSError):
        return False
    return any(
        one.status == psutil.CONN_LISTEN and one.laddr and one.laddr.port == port
        for one in sockets
    )


def _environs(processes: Iterable[psutil.Process]) -> Environments:
    import psutil  # noqa: PLC0415

    found: Environments = []
    for process in processes:
        with contextlib.suppress(OSError, psutil.Error):
            if process.status() == psutil.STATUS_ZOMBIE:
                continue
            found += read_environments(Path(f"/proc/{process.pid}/environ").read_bytes())
    return found


async def environments_elsewhere(command: Sequence[str], environment: Mapping[str, str]) -> bytes:
    """What a template's `environ` prints.

    Raises:
        ServerError: It cannot be run, fails, or does not end.
    """
    try:
        ran = await run_command(command, most_s=world_s(READ_S), environment=environment)
    except OSError as error:
        raise ServerError(f"{command[0]} cannot be run: {error.strerror}") from error
    if ran.status is None:
        raise ServerError(f"{command[0]} did not end within {READ_S:g} s")
    if ran.status != 0:
        raise ServerError(f"{command[0]} ended with status {ran.status}")
    return ran.output
