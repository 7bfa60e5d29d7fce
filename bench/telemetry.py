"""What the server and its GPUs tell of themselves while a cell is measured.

One task scrapes `/metrics` once a second of the clock, with one scrape before the first request
and one after the last, since SGLang counts a request when it has finished; another samples NVML at
10 Hz, or follows what `nvidia-smi` prints on the server's machine. Neither ever raises into the
run: what could not be read is missing, and says why.
"""

from __future__ import annotations

import asyncio
import contextlib
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bench import clock, gpu
from bench.errors import ServerError
from bench.http import open_session
from bench.model import TelemetryPoint, Timeouts
from bench.sglang import control, scrape

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

    import aiohttp

SCRAPE_PERIOD_NS = 1_000_000_000
GPU_PERIOD_NS = 100_000_000
EDGE_TRIES = 3
_NO_SERIES = (
    "the server's /metrics has none of SGLang's series; if it is a router, give its worker_urls"
)
END_S = 5.0
"""How long a followed command may take to end after TERM, in seconds of the world."""


class Readings(list[TelemetryPoint]):
    """The points read so far, in the order they were read.

    Attributes:
        missing_reason: Why server metrics (or some readings) are missing; None when all is well.
        gpu_missing_reason: Why the GPUs' readings (or some) are missing; None when all is well, or
            when none were asked for.
        failed_reason: Why the last scrape that failed did.
    """

    def __init__(self) -> None:
        super().__init__()
        self.missing_reason: str | None = None
        self.gpu_missing_reason: str | None = None
        self.failed_reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _NoAnswer:
    """Why a scrape has no text, and whether asking again may help."""

    reason: str
    is_final: bool


@asynccontextmanager
async def watch(
    server_base_url: str,
    *,
    worker_urls: Sequence[str] = (),
    gpus: Sequence[int] = (),
    gpu_command: Sequence[str] = (),
    timeouts: Timeouts | None = None,
    api_key: str | None = None,
) -> AsyncIterator[Readings]:
    """Read the server's metrics and its GPUs for as long as the context is open.

    Entering waits for the first scrape, leaving for the last one, each for at most
    `timeouts.scrape_s`.

    Args:
        server_base_url: Of the server; every data-parallel rank behind it is in its scrape.
        worker_urls: Of the workers behind it, where it is a router: then these are scraped and it
            is not. Ranks of the n-th worker are counted from `scrape.WORKER_STRIDE` × n. A scrape
            counts only when every worker answers, so that sums never lack one.
        gpus: NVML indices of the server's GPUs; empty for none, and where it runs elsewhere.
        gpu_command: For a server elsewhere: what prints its GPUs again and again, as in
            `("ssh", "gpu-7", *gpu.NVIDIA_SMI, "-lms", "100")`; `gpus` then chooses among them.
        timeouts: `scrape_s` bounds a scrape.
        api_key: Of the server.

    Yields:
        A list that grows.
    """
    timeout_s = (timeouts or Timeouts()).scrape_s
    readings = Readings()
    async with AsyncExitStack() as stack:
        sessions = [
            await stack.enter_async_context(open_session(url, api_key=api_key))
            for url in worker_urls or (server_base_url,)
        ]

        async def scrape_once() -> bool:
            return await _scrape_into(readings, sessions, timeout_s)

        async def sample_gpus() -> None:
            _add_gpus(readings, await asyncio.to_thread(_gpu_points, gpus))

        await _insist(scrape_once)
        tasks = [asyncio.create_task(_repeat(scrape_once, SCRAPE_PERIOD_NS))]
        if gpu_command:
            tasks.append(asyncio.create_task(_follow(readings, gpu_command, gpus)))
        elif gpus:
            tasks.append(asyncio.create_task(_repeat(sample_gpus, GPU_PERIOD_NS)))
        try:
            yield readings
        finally:
            for task in tasks:
                task.cancel()
            ends = await asyncio.gather(*tasks, return_exceptions=True)
            if not await _insist(scrape_once) and readings.missing_reason is None:
                readings.missing_reason = f"the last reading failed: {readings.failed_reason}"
            of_server, *of_gpus = ends
            if isinstance(of_server, Exception):
                readings.missing_reason = f"reading ended with {of_server!r}"
            for failure in of_gpus:
                if isinstance(failure, Exception):
                    readings.gpu_missing_reason = f"reading ended with {failure!r}"


async def _insist(scrape_once: Callable[[], Awaitable[bool]]) -> bool:
    """The first and the last scrape bound every counter's rise: a missed one is tried again.

    Returns:
        Whether one succeeded, or none ever will.
    """
    for _ in range(EDGE_TRIES):
        if await scrape_once():
            return True
    return False


async def _repeat(read: Callable[[], Awaitable[object]], period_ns: int) -> None:
    """Call `read` once a period, beginning one period from now; a late reading delays the next."""
    due_ns = clock.now_ns()
    while True:
        due_ns = max(due_ns + period_ns, clock.now_ns())
        await clock.sleep_until_ns(due_ns)
        await read()


# -------------------------------------------------------------------------------------- the server


async def _scrape_into(
    readings: Readings, sessions: Sequence[aiohttp.ClientSession], timeout_s: float
) -> bool:
    """Scrape every worker once; False when they may answer if they are asked again."""
    answers = await asyncio.gather(*(_scrape(session, timeout_s) for session in sessions))
    for worker, answer in enumerate(answers):
        if isinstance(answer, _NoAnswer):
            of = f"worker {worker + 1} of {len(sessions)}: " if len(sessions) > 1 else ""
            readings.failed_reason = f"{of}{answer.reason}"
            _missing(readings, readings.failed_reason)
            return answer.is_final
    read_ns = clock.now_ns()
    points = [
        TelemetryPoint(
            t_ns=read_ns,
            source="server",
            name=reading.name,
            rank=scrape.rank_of_worker(worker, reading.rank),
            value=reading.value,
        )
        for worker, text in enumerate(answers)
        if isinstance(text, str)
        for reading in scrape.readings(text)
    ]
    readings.extend(points)
    if points:
        readings.missing_reason = None
    else:
        _missing(readings, _NO_SERIES)
    return True


async def _scrape(session: aiohttp.ClientSession, timeout_s: float) -> str | _NoAnswer:
    try:
        return await control.scrape_metrics(session, timeout_s=timeout_s)
    except control.CallRefusedError as error:
        has_none = error.status == control.NOT_FOUND
        why = "the server has no /metrics; start it with --enable-metrics"
        return _NoAnswer(reason=why if has_none else str(error), is_final=True)
    except ServerError as error:
        return _NoAnswer(reason=str(error), is_final=False)


def _missing(readings: Readings, reason: str) -> None:
    if not any(point.source == "server" for point in readings):
        readings.missing_reason = reason


# -------------------------------------------------------------------------------------- its GPUs


def _gpu_points(gpus: Sequence[int]) -> list[TelemetryPoint]:
    points = []
    for index in gpus:
        values = gpu.read_gpu(index)
        points += _points(index, values)
    return points


def _points(index: int, values: gpu.Values) -> list[TelemetryPoint]:
    read_ns = clock.now_ns()
    return [
        TelemetryPoint(t_ns=read_ns, source="gpu", name=name, rank=index, value=value)
        for name, value in values
    ]


def _add_gpus(readings: Readings, points: Sequence[TelemetryPoint]) -> None:
    readings.extend(points)
    nothing = all(point.value is None for point in points)
    why = "NVML tells nothing of the GPUs: no driver, no rights, or a GPU that is lost"
    readings.gpu_missing_reason = why if nothing else None


async def _follow(readings: Readings, command: Sequence[str], gpus: Sequence[int]) -> None:
    """Read the rows that a command prints until it ends or this is cancelled."""
    try:
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
    except OSError as error:
        readings.gpu_missing_reason = f"{command[0]} cannot be run: {error.strerror}"
        return
    assert process.stdout is not None
    readings.gpu_missing_reason = f"{command[0]} has printed no GPU yet"
    try:
        header, last = None, ""
        async for raw in process.stdout:
            line = raw.decode("utf-8", "replace").strip()
            header = gpu.smi_header(line) or header
            row = gpu.smi_row(header, line) if header else None
            if row is not None and (not gpus or row.facts.index in gpus):
                readings.extend(_points(row.facts.index, row.values))
                readings.gpu_missing_reason = None
            elif row is None:
                last = line or last
        code = await process.wait()
        readings.gpu_missing_reason = f"{command[0]} ended with status {code}: {last[:200]}"
    finally:
        await _end(process)


async def _end(process: asyncio.subprocess.Process) -> None:
    with contextlib.suppress(ProcessLookupError):
        process.terminate()
        try:
            async with asyncio.timeout(END_S):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()
