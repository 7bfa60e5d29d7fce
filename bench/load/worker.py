"""A load worker: the process in which requests are sent and every stream is read.

Started as `python -m bench.load.worker RECORDS BODIES OUTCOMES`, three file descriptors
(`bench.load.shared_requests`); takes orders on its standard input and answers on its standard
output (`bench.load.frames`). It ends when its input is closed, busy or not: then bench is gone,
and nobody is left to want the load.
"""

from __future__ import annotations

import asyncio
import gc
import os
import resource
import sys
import traceback
from typing import TYPE_CHECKING

from bench.errors import DiskError
from bench.load.frames import Go, Job, JobFailed, Ready, Stop, framed, read_frame, to_worker
from bench.load.job_run import JobRun
from bench.load.shared_requests import RequestReader

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.load.frames import FromWorker, Outcome


async def _run_job(
    job: Job, go: asyncio.Future[Go], tell: Callable[[FromWorker], None], files: tuple[int, ...]
) -> None:
    records, bodies, outcomes = files
    requests = RequestReader(records, bodies)

    def write(outcome: Outcome) -> None:
        payload = memoryview(framed(outcome))
        try:
            while payload:
                payload = payload[os.write(outcomes, payload) :]
        except OSError as error:
            raise DiskError(error.strerror or str(error)) from error

    # A collection of the many small objects of a long run takes milliseconds: none during the job.
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        await JobRun(job, requests, tell=tell, write=write).run(go)
    except DiskError as error:
        tell(JobFailed(message=str(error), is_disk=True))
    except Exception:  # noqa: BLE001  # whatever it was, bench is told and can go on
        tell(JobFailed(message=traceback.format_exc()))
    finally:
        gc.enable()
        gc.unfreeze()
        requests.close()


async def serve(files: tuple[int, ...]) -> None:
    """Take orders until the input is closed."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=2**24)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    output, _ = await loop.connect_write_pipe(asyncio.BaseProtocol, sys.stdout)

    def tell(message: FromWorker) -> None:
        output.write(framed(message))

    tell(Ready())
    running: asyncio.Task[None] | None = None
    go: asyncio.Future[Go] = loop.create_future()
    while (payload := await read_frame(reader)) is not None:
        match to_worker(payload):
            case Job() as job:
                go = loop.create_future()
                running = asyncio.create_task(_run_job(job, go, tell, files))
                await asyncio.sleep(0)  # a task that is cancelled before its first turn never runs
            case Go() as order if not go.done():
                go.set_result(order)
            case Stop() if running is not None:
                running.cancel()
                running = None  # a second cancel would hit the telling of outcomes
    # Bench is gone, in order or killed: stop at once, whatever is in flight.
    os._exit(0)


def _allow_as_many_files_as_may_be() -> None:
    """Each connection is a file, and shells set the limit that a process may raise to 1024."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def main() -> None:
    """Run the worker on uvloop, or on asyncio's own loop where uvloop is missing."""
    files = tuple(map(int, sys.argv[1:]))
    _allow_as_many_files_as_may_be()
    try:
        import uvloop  # noqa: PLC0415
    except ImportError:
        asyncio.run(serve(files))
    else:
        uvloop.run(serve(files))


if __name__ == "__main__":
    main()
