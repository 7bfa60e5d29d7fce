"""One short command of a template: what it prints, bounded in time and in length.

It imports nothing but the standard library, since the keeper needs it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

MOST_BYTES = 1024 * 1024
"""So much of what a command prints is kept; the rest is read and dropped."""

REST_S = 0.3
"""How long what was printed last may be on its way. What a command leaves behind in the background
may keep its output open for ever, so that its end is not waited for."""

_POLL_S = 0.01
_READ_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """A command that was run.

    Attributes:
        status: Its exit status; None: it did not end in time and was killed.
        output: Its standard output.
        errors: Its standard error.
    """

    status: int | None
    output: bytes
    errors: bytes


async def run_command(
    command: Sequence[str], *, most_s: float, environment: Mapping[str, str] | None = None
) -> Ran:
    """Run a command to its end, and kill it with its children when that does not come.

    Args:
        command: Its words.
        most_s: How long it may take, in seconds of the world.
        environment: All its variables; None: those of this process.

    Raises:
        OSError: It cannot be run.
    """
    process = await asyncio.create_subprocess_exec(
        *command,
        env=None if environment is None else dict(environment),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    kept = bytearray(), bytearray()
    readers = [
        asyncio.create_task(_keep(stream, into))
        for stream, into in zip((process.stdout, process.stderr), kept, strict=True)
    ]
    try:
        async with asyncio.timeout(most_s):
            status = await ended(process)
        await asyncio.wait(readers, timeout=REST_S)
    except TimeoutError:
        status = None
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await ended(process)
        for reader in readers:
            reader.cancel()
        await asyncio.gather(*readers, return_exceptions=True)
        close(process)
    return Ran(status=status, output=bytes(kept[0]), errors=bytes(kept[1]))


async def ended(process: asyncio.subprocess.Process) -> int:
    """Wait for a process itself; `Process.wait` waits for whoever has its output open as well."""
    while process.returncode is None:  # noqa: ASYNC110  # nothing else tells of it
        await asyncio.sleep(_POLL_S)
    return process.returncode


def close(process: asyncio.subprocess.Process) -> None:
    """Let go of the pipes of a process that has ended, whoever else has them open."""
    process._transport.close()  # type: ignore[attr-defined]  # noqa: SLF001  # asyncio has no other way


async def _keep(stream: asyncio.StreamReader, kept: bytearray) -> None:
    while part := await stream.read(_READ_BYTES):
        kept += part[: MOST_BYTES - len(kept)]
