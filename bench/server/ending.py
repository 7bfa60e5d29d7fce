"""A server's end, and the proof that nothing of it is left."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

from bench import clock, gpu
from bench.errors import ServerError
from bench.server.command import port_of
from bench.server.keeper import STILL_ALIVE
from bench.server.orphans import forget_note, require_ended
from bench.server.starting import exit_text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from bench.server.orphans import ServerNote
    from bench.server.process import ServerProcess

PORT_CLOSED_S = 10.0
"""How long after the last process's end the port may still answer, in seconds of the world."""

MEMORY_BACK_S = 60.0
"""How long after the last process's end the driver may take to free its GPU memory, likewise."""

_RETRY_NS = 100_000_000


async def end_process(
    process: ServerProcess, note: ServerNote | None, log_path: Path | None
) -> int:
    """Stop a server's process, and the server itself if that was killed before it could.

    Returns:
        The process's exit code.

    Raises:
        ServerError: The process was killed, and the server that it kept lives on.
    """
    exit_code = await process.stop()
    if note is not None:
        if exit_code < 0:
            await require_ended(note)
        if exit_code != STILL_ALIVE and log_path is not None:
            forget_note(log_path)
    return exit_code


async def prove_gone(
    process: ServerProcess,
    urls: Sequence[str],
    gpu_memory_before: Mapping[int, float | None],
    note: ServerNote | None = None,
) -> None:
    """Raise unless a stopped server has left nothing: no process, no listener, no GPU memory.

    Args:
        process: It.
        urls: Where it answered, and where its workers did.
        gpu_memory_before: Bytes that were held on each of its GPUs before it started.
        note: How it is ended by hand, where the process only stands for it.

    Raises:
        ServerError: It has.
    """
    if process.left:
        pids = ", ".join(str(pid) for pid in process.left)
        raise ServerError(
            f"the server would not end: processes {pids} are left, even after KILL.",
            hint="they hang in the driver; the next start would find their memory and GPUs taken.",
        )
    if process.exited() == STILL_ALIVE:
        raise ServerError(
            "the server would not end: its launcher's `alive` still finds it after `force_stop`.",
            hint="end it by hand, its log has what `stop` and `force_stop` complained of: "
            f"{'' if note is None else note.by_hand}. The next start would find its memory and "
            "GPUs taken.",
        )
    ended = f"the server ended ({exit_text(process.exited() or 0)})"
    for url in urls:
        if not await _is_closed(*port_of(url)):
            raise ServerError(
                f"{ended}, but something still answers at {url}.",
                hint="see which process listens there (ss -ltnp) and end it.",
            )
    held = await gpu.memory_back(gpu_memory_before, timeout_s=MEMORY_BACK_S)
    if held:
        told = ", ".join(f"GPU {index} {size / 2**30:.1f} GiB" for index, size in held.items())
        raise ServerError(
            f"{ended}, but GPU memory is still held {MEMORY_BACK_S:g} s later, beyond what was "
            f"before it started: {told}.",
            hint="nvidia-smi shows whose it is; the next server would not find its memory.",
        )


async def _is_closed(host: str, port: int) -> bool:
    """Whether nothing answers at a port any more, waiting for it for a while."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(PORT_CLOSED_S):
            while await _answers(host, port):
                await clock.sleep_ns(_RETRY_NS)
            return True
    return False


async def _answers(host: str, port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection(host, port)
    except OSError:
        return False
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()
    return True
