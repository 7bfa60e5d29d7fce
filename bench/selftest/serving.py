"""A ground-truth server while it runs, and what it noted once it has ended."""

from __future__ import annotations

import asyncio
import contextlib
import csv
import tempfile
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from struct import Struct
from typing import TYPE_CHECKING, Final

from bench.errors import LoadError
from bench.selftest.building import truth_command

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from bench.selftest.building import TruthCommand

_EVENT: Final = Struct("<qq")
_START_S: Final = 20.0
_END_S: Final = 5.0
_INDEX_DIGITS: Final = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How the ground-truth server answers.

    Attributes:
        ttft_us: Microseconds from a request to its first event.
        interval_us: Microseconds between events of a stream; 0: as fast as they are read.
        tok_per_event: Tokens that an event carries.
        usage_on_events: Whether every event carries counts where asked for, as SGLang's do.
    """

    ttft_us: int = 0
    interval_us: int = 0
    tok_per_event: int = 1
    usage_on_events: bool = True

    def options(self) -> tuple[str, ...]:
        """The same on its command line."""
        return (
            *("--ttft-us", str(self.ttft_us)),
            *("--interval-us", str(self.interval_us)),
            *("--per-event", str(self.tok_per_event)),
            *("--usage", "asked" if self.usage_on_events else "end"),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TrueAnswer:
    """What really happened to one request, by the server's clock, which is ours.

    Attributes:
        index: Of the request in its cell.
        received_ns: When it had been read.
        event_ns: When each of its events was written.
        output_tok: Its tokens.
    """

    index: int
    received_ns: int
    event_ns: tuple[int, ...]
    output_tok: int


class TruthServer:
    """A running one.

    Attributes:
        base_url: Of the server.
        command: How it was run.
        answers: What it noted of each answer that it ended; known once it has ended.
    """

    def __init__(self, base_url: str, command: TruthCommand) -> None:
        self.base_url = base_url
        self.command = command
        self.answers: list[TrueAnswer] = []


@asynccontextmanager
async def truth_server(pace: Pace) -> AsyncIterator[TruthServer]:
    """Run a ground-truth server on loopback; its answers are known when the block has ended.

    Raises:
        LoadError: It does not start.
    """
    command = await asyncio.to_thread(truth_command)
    with tempfile.TemporaryDirectory() as folder:
        log, event_log = Path(folder) / "answers.csv", Path(folder) / "events"
        process = await asyncio.create_subprocess_exec(
            *command.argv,
            *pace.options(),
            *("--log", str(log), "--elog", str(event_log)),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
        try:
            server = TruthServer(f"http://127.0.0.1:{await _port(process)}", command)
            yield server
        finally:
            await _end(process)
        server.answers = read_answers(log, event_log)


async def _port(process: asyncio.subprocess.Process) -> int:
    assert process.stdout is not None
    assert process.stderr is not None
    with contextlib.suppress(TimeoutError):
        said = await asyncio.wait_for(process.stdout.readline(), _START_S)
        if said.startswith(b"listening "):
            return int(said.split()[1])
    with contextlib.suppress(ProcessLookupError):
        process.kill()
    last = (await process.stderr.read()).decode("utf-8", "replace").strip().splitlines()
    raise LoadError(
        f"the ground-truth server did not start: {last[-1] if last else 'it said nothing'}"
    )


async def _end(process: asyncio.subprocess.Process) -> None:
    with contextlib.suppress(ProcessLookupError):
        process.terminate()
    try:
        await asyncio.wait_for(process.wait(), _END_S)
    except TimeoutError:
        process.kill()
        await process.wait()


def read_answers(log: Path, event_log: Path) -> list[TrueAnswer]:
    """What a ground-truth server noted (truth_server.c), by the index of the request.

    Args:
        log: Its `--log`; the last 8 digits of a request's id are its index.
        event_log: Its `--elog`.
    """
    event_ns: dict[int, list[int]] = {}
    for number, written_ns in _EVENT.iter_unpack(event_log.read_bytes()):
        event_ns.setdefault(number, []).append(written_ns)
    with log.open(encoding="ascii", newline="") as file:
        answers = [
            TrueAnswer(
                index=int(row["rid"][-_INDEX_DIGITS:], 16),
                received_ns=int(row["recv_ns"]),
                event_ns=tuple(event_ns.get(int(row["id"]), ())),
                output_tok=int(row["tokens"]),
            )
            for row in csv.DictReader(file)
        ]
    return sorted(answers, key=lambda answer: answer.index)
