"""What the server and its GPUs tell of themselves while a cell is measured.

One task scrapes `/metrics` once a second of the clock, with one scrape before the first request
and one after the last, since SGLang counts a request when it has finished; another samples NVML at
10 Hz. Neither ever raises into the run: what could not be read is missing, and says why.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
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


class Readings(list[TelemetryPoint]):
    """The points read so far, in the order they were read.

    Attributes:
        missing_reason: Why server metrics (or some readings) are missing; None when all is well.
    """

    def __init__(self) -> None:
        super().__init__()
        self.missing_reason: str | None = None


@asynccontextmanager
async def watch(
    server_base_url: str,
    *,
    gpus: Sequence[int] = (),
    timeouts: Timeouts | None = None,
    api_key: str | None = None,
) -> AsyncIterator[Readings]:
    """Read the server's metrics and its GPUs for as long as the context is open.

    Entering waits for the first scrape, leaving for the last one, each for at most
    `timeouts.scrape_s`.

    Args:
        server_base_url: Of the server; every data-parallel rank behind it is in its scrape.
        gpus: NVML indices of the server's GPUs; empty for none, and where it runs elsewhere.
        timeouts: `scrape_s` bounds a scrape.
        api_key: Of the server.

    Yields:
        A list that grows.
    """
    timeout_s = (timeouts or Timeouts()).scrape_s
    readings = Readings()
    async with open_session(server_base_url, api_key=api_key) as session:

        async def scrape_once() -> bool:
            return await _scrape_into(readings, session, timeout_s)

        async def sample_gpus() -> None:
            readings.extend(await asyncio.to_thread(_gpu_points, gpus))

        await _insist(scrape_once)
        tasks = [asyncio.create_task(_repeat(scrape_once, SCRAPE_PERIOD_NS))]
        if gpus:
            tasks.append(asyncio.create_task(_repeat(sample_gpus, GPU_PERIOD_NS)))
        try:
            yield readings
        finally:
            for task in tasks:
                task.cancel()
            ends = await asyncio.gather(*tasks, return_exceptions=True)
            await _insist(scrape_once)
            for failure in ends:
                if isinstance(failure, Exception):
                    readings.missing_reason = f"reading ended with {failure!r}"


async def _insist(scrape_once: Callable[[], Awaitable[bool]]) -> None:
    """The first and the last scrape bound every counter's rise: a missed one is tried again."""
    for _ in range(EDGE_TRIES):
        if await scrape_once():
            return


async def _repeat(read: Callable[[], Awaitable[object]], period_ns: int) -> None:
    """Call `read` once a period, beginning one period from now; a late reading delays the next."""
    due_ns = clock.now_ns()
    while True:
        due_ns = max(due_ns + period_ns, clock.now_ns())
        await clock.sleep_until_ns(due_ns)
        await read()


async def _scrape_into(
    readings: Readings, session: aiohttp.ClientSession, timeout_s: float
) -> bool:
    """Scrape once; False when the server did not answer, so that it may be asked again."""
    try:
        text = await control.scrape_metrics(session, timeout_s=timeout_s)
    except control.CallRefusedError as error:
        has_none = error.status == control.NOT_FOUND
        why = "the server has no /metrics; start it with --enable-metrics"
        _missing(readings, why if has_none else str(error))
        return True
    except ServerError as error:
        _missing(readings, str(error))
        return False
    read_ns = clock.now_ns()
    points = [
        TelemetryPoint(
            t_ns=read_ns,
            source="server",
            name=reading.name,
            rank=reading.rank,
            value=reading.value,
        )
        for reading in scrape.readings(text)
    ]
    readings.extend(points)
    if points:
        readings.missing_reason = None
    else:
        _missing(readings, "the server's /metrics has none of SGLang's series")
    return True


def _missing(readings: Readings, reason: str) -> None:
    if not any(point.source == "server" for point in readings):
        readings.missing_reason = reason


def _gpu_points(gpus: Sequence[int]) -> list[TelemetryPoint]:
    points = []
    for index in gpus:
        values = gpu.read_gpu(index)
        read_ns = clock.now_ns()
        points += [
            TelemetryPoint(t_ns=read_ns, source="gpu", name=name, rank=index, value=value)
            for name, value in values
        ]
    return points
