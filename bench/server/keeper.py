"""The process that stands for a server started through another program (docker, ssh, srun, …).

`python -m bench.server.keeper` is to the supervisor what a local server's main process is: it
lives as long as the server does, prints its log, and ends it on TERM. The server itself is no
child of it: killing what started it would leave it running, so it is ended by the template's own
commands, by container name, process group or job. Like the supervisor it imports nothing but the
standard library, and what runs its commands.

The order is one JSON object in the environment variable ORDER::

    {"start": ["docker", "run", …], "alive": […], "stop": […], "force_stop": […], "log": […],
     "forward": […], "term_s": 30, "gone_s": 10}

A `start` that ends with status 0 has let go of its server, which is then asked for every few
seconds where there is an `alive`: status 0 and an output is yes, status 0 without is no, and any
other status is nothing certain. Exit status: that of `start` when it ended by itself, STILL_ALIVE
when the server would not end, else 0.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import json
import os
import signal
import sys
from typing import Any

from bench.server.asking import REST_S, close, ended, run_command

ORDER = "SPECDYNO_KEEPER_ORDER"
STILL_ALIVE = 97
"""Exit status when the server is alive after all was tried."""

ALIVE_EVERY_S = 2.0
MOST_MISSES = 10
"""So many times in a row a server cannot be asked for before it counts as gone: networks blink."""

NO_COUNTS = 5
"""A clear no is worth so many of them."""

READ_BYTES = 64 * 1024
CALL_S = 60.0
"""How long a command that asks or ends may take beside the time it is told to wait."""

SAID_CHARS = 300

AGAIN_S = 1.0
"""Pause before a log or a forwarded port that ended is taken up again."""

_PR_SET_PDEATHSIG = 1


class _Keeper:
    """One server, from its start to its end."""

    def __init__(self, order: dict[str, Any]) -> None:
        self._order = order
        self._stop_asked = asyncio.Event()
        self._start: asyncio.subprocess.Process | None = None
        self._followers: list[asyncio.Task[None]] = []
        self._complaints: dict[str, str] = {}  # of the commands that ask and end, the newest

    def ask_to_stop(self) -> None:
        self._stop_asked.set()

    async def run(self) -> int:
        """Start, keep, end."""
        try:
            self._start = await asyncio.create_subprocess_exec(*self._order["start"], **_QUIET)
        except OSError as error:
            _say(f"{self._order['start'][0]} cannot be run: {error.strerror}")
            return 127
        for name in ("log", "forward"):
            if self._order[name]:
                self._followers.append(asyncio.create_task(self._follow(name)))
        over = asyncio.create_task(self._until_gone())
        stop = asyncio.create_task(self._stop_asked.wait())
        await asyncio.wait({over, stop}, return_when=asyncio.FIRST_COMPLETED)
        asked, code = stop.done(), self._start.returncode
        for task in (over, stop):
            task.cancel()
        await asyncio.gather(over, stop, return_exceptions=True)
        if asked:
            await self._call("stop", CALL_S + self._order["term_s"])
            await self._wait_gone(self._order["term_s"])
        else:
            await asyncio.sleep(AGAIN_S)  # its last words are still on their way
        alive = await self._end_for_certain()
        for task in self._followers:
            task.cancel()
        await asyncio.gather(*self._followers, return_exceptions=True)
        if alive:
            self._tell_complaints(*self._complaints)
            _say("the server is still alive: it would not end")
            return STILL_ALIVE
        if asked:
            self._tell_complaints("stop")  # which force_stop had to make up for
            return max(self._start.returncode or 0, 0)
        return code or (1 if self._order["alive"] else 0)

    def _tell_complaints(self, *names: str) -> None:
        for name in names:
            if name in self._complaints:
                _say(f"{name}: {self._complaints[name]}")

    async def _until_gone(self) -> None:
        """Until the server has ended by itself."""
        assert self._start is not None
        code = await self._start.wait()
        if code != 0 or not self._order["alive"]:
            return
        misses = 0
        while misses < MOST_MISSES:
            answer = await self._call("alive", CALL_S)
            if answer:
                misses = 0
            else:
                misses += 1 if answer is None else NO_COUNTS
            await asyncio.sleep(AGAIN_S if misses else ALIVE_EVERY_S)
        _say("the server is not alive any more")

    async def _wait_gone(self, most_s: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(most_s):
                while await self._is_there():  # noqa: ASYNC110  # another program is asked
                    await asyncio.sleep(0.2)

    async def _is_there(self) -> bool:
        """Whether anything is left: what started it, or the server."""
        assert self._start is not None
        if self._order["alive"]:
            return await self._is_alive()
        return self._start.returncode is None

    async def _end_for_certain(self) -> bool:
        """Whether the server lives on all the same."""
        assert self._start is not None
        if self._start.returncode is None:
            await self._call("force_stop", CALL_S)
            with contextlib.suppress(TimeoutError):
                # told of the server's end it ends by itself; else it may be starting it only now
                await asyncio.wait_for(self._start.wait(), AGAIN_S)
            with contextlib.suppress(ProcessLookupError):
                self._start.terminate()
                await _within(self._start, self._order["gone_s"])
        await self._call("force_stop", CALL_S)
        if not self._order["alive"]:
            return False
        await self._wait_gone(self._order["gone_s"])
        return await self._is_alive()

    async def _is_alive(self) -> bool:
        return bool(await self._call("alive", CALL_S))

    async def _call(self, name: str, most_s: float) -> str | None:
        """A command's output when it ended with status 0, else None.

        What it complains of is no part of the server's log, where it would hide why the server
        ended; it is kept for the case that the server lives on.
        """
        command = self._order[name]
        if not command:
            return None
        try:
            ran = await run_command(command, most_s=most_s)
        except OSError as error:
            self._note(name, f"{command[0]} cannot be run: {error.strerror}")
            return None
        if ran.status == 0:
            return ran.output.decode("utf-8", "replace").strip()
        if ran.status is None:
            self._note(name, f"no end within {most_s:g} s")
        else:
            said = (ran.errors or ran.output).decode("utf-8", "replace").strip().splitlines()
            told = f": {said[-1][:SAID_CHARS]}" if said else ""
            self._note(name, f"ended with status {ran.status}{told}")
        return None

    def _note(self, name: str, what: str) -> None:
        self._complaints[name] = what

    async def _follow(self, name: str) -> None:
        """Keep a command running; before the server is there it fails, and is tried again.

        What a log that fails at once has to say is no part of the server's, and is dropped.
        """
        is_log = name == "log"
        command = self._order[name]
        while True:
            try:
                process = await asyncio.create_subprocess_exec(
                    *command,
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=asyncio.subprocess.PIPE if is_log else asyncio.subprocess.DEVNULL,
                    stderr=asyncio.subprocess.STDOUT if is_log else asyncio.subprocess.DEVNULL,
                )
            except OSError as error:
                _say(f"{name}: {command[0]} cannot be run: {error.strerror}")
                return
            try:
                if process.stdout is not None:
                    await _pass_on(process.stdout, process)
                await ended(process)
            finally:
                with contextlib.suppress(ProcessLookupError):
                    process.terminate()
                await _within(process, AGAIN_S)
                close(process)
            await self._pause()

    async def _pause(self) -> None:
        """Between two tries; a stop ends it, so that what a short life has said is still read."""
        if self._stop_asked.is_set():
            await asyncio.sleep(AGAIN_S / 2)
            return
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._stop_asked.wait(), AGAIN_S / 2)


async def _pass_on(output: asyncio.StreamReader, process: asyncio.subprocess.Process) -> None:
    """Print what comes until the command ends, but for what comes within moments of a failure."""
    held: list[bytes] = []

    async def hold() -> None:
        while part := await output.read(READ_BYTES):
            held.append(part)
        await ended(process)

    try:
        await asyncio.wait_for(hold(), AGAIN_S)
    except TimeoutError:
        pass
    except asyncio.CancelledError:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(hold(), REST_S)  # what it still has to say
        if not process.returncode:
            _write(b"".join(held))
        raise
    if process.returncode:
        return
    _write(b"".join(held))
    passing = asyncio.create_task(_print(output))
    try:
        await ended(process)
        await asyncio.wait([passing], timeout=REST_S)
    finally:
        passing.cancel()


async def _print(output: asyncio.StreamReader) -> None:
    while part := await output.read(READ_BYTES):
        _write(part)


def _write(data: bytes) -> None:
    while data:
        data = data[os.write(1, data) :]


async def _within(process: asyncio.subprocess.Process, most_s: float) -> None:
    """Wait for an end, and bring it about when it does not come."""
    try:
        await asyncio.wait_for(ended(process), most_s)
    except TimeoutError:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await ended(process)


_QUIET: dict[str, Any] = {"stdin": asyncio.subprocess.DEVNULL}


def _say(text: str) -> None:
    print(f"[specdyno: {text}]", flush=True)  # noqa: T201  # its output is the server's log


async def _main(order: dict[str, Any]) -> int:
    keeper = _Keeper(order)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, keeper.ask_to_stop)
    return await keeper.run()


def main() -> int:
    """Keep one server."""
    # Should the supervisor be killed, this is killed with it unless it asks for a TERM instead:
    # a killed keeper would leave its server running.
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    return asyncio.run(_main(json.loads(os.environ.pop(ORDER))))


if __name__ == "__main__":
    sys.exit(main())
