"""The bench itself: one server at a time, its cells measured and stored."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Final, TypeVar

from bench import clock
from bench.errors import DiskError, Interrupted, LoadError, MachineError, ServerError
from bench.metrics import limit_tok_per_s, summarize, with_findings
from bench.model import LaunchRecord, RequestStatus
from bench.runner.asking import Asking
from bench.runner.events import (
    CellFinished,
    CellProgress,
    CellStarting,
    LaunchEnded,
    LaunchProgress,
    LaunchStarting,
    Noted,
    say_nothing,
)
from bench.server import start_server
from bench.server.starting import exit_text
from bench.telemetry import watch

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

    from bench.load.generator import CellLoad, LoadClient
    from bench.model import Cell, Launch
    from bench.runner.events import Event
    from bench.server import RunningServer
    from bench.store import RunWriter

T = TypeVar("T")

WATCH_S: Final = 0.5
"""How often a cell in hand is asked whether its server has died or it is to stop, in seconds of
the world."""


class Bench:
    """A place to measure: at most one server at a time, every finished cell on disk at once.

    Made by `open_bench`, which also stops the server and the load worker at its end.
    """

    def __init__(
        self,
        writer: RunWriter,
        *,
        gpus: int,
        cells_total: int,
        on_event: Callable[[Event], None] = say_nothing,
    ) -> None:
        self._writer = writer
        self._gpus = gpus
        self._on_event = on_event
        self._cells_total = cells_total
        self._server: RunningServer | None = None
        self._client: LoadClient | None = None
        self._record: LaunchRecord | None = None
        self._asking = Asking(on_event)
        self._stop_asked = asyncio.Event()

    # -- stopping

    def ask_to_stop(self) -> None:
        """Stop soon (Ctrl-C): the cell in hand is given up, then the server is stopped."""
        again = self.is_stopping
        self._stop_asked.set()
        if self._client is not None:
            self._client.cancel()
        self._on_event(
            Noted(
                text="still stopping: the server is given time to end, then it is killed"
                if again
                else "stopping: the cell in hand is given up and the server stopped; "
                "finished cells are stored"
            )
        )

    @property
    def is_stopping(self) -> bool:
        """Whether `ask_to_stop` was called."""
        return self._stop_asked.is_set()

    # -- measuring

    def pending(self, launch: Launch) -> list[Cell]:
        """The launch's cells that are not on disk yet, in order."""
        finished = self._writer.finished_cells()
        return [cell for cell in launch.cells if cell.cell_id not in finished]

    async def measure(self, launch: Launch, *, launches: int = 1) -> None:
        """Measure the launch's cells that are not on disk yet, in one server start where possible.

        A server that dies is started once more; the cell it died in is then measured last, so that
        a load which kills servers costs no other cell.

        Raises:
            ServerError: It did not start, or died twice.
            MachineError: A server would not end.
            LoadError: The load worker died or failed twice in a cell.
            DiskError: A finished cell could not be written.
            Interrupted: `ask_to_stop` was called.
        """
        try:
            await self._measure_cells(self.pending(launch), launch, launches)
        except ServerError as error:
            started = self._server is not None
            await self.close_server(failure=str(error))
            self._raise_if_stopping()
            if not started:
                raise
            # Its cells are done in order, so the first that is left is the one it died in.
            first, *others = self.pending(launch)
            await self._measure_cells([*others, first], launch, launches)

    async def _measure_cells(self, cells: Sequence[Cell], launch: Launch, launches: int) -> None:
        for cell in cells:
            server = await self._running(launch, launches)
            try:
                await self._measure_cell(cell, launch, server)
            except LoadError as error:
                self._on_event(Noted(text=f"{error}; this cell is measured once more"))
                await self._measure_cell(cell, launch, server)

    async def _running(self, launch: Launch, launches: int) -> RunningServer:
        """The launch's server: the one that runs already, or a new one."""
        record = self._record
        if self._server is not None and record is not None and record.ordinal == launch.ordinal:
            return self._server
        await self.close_server()
        self._raise_if_stopping()
        self._on_event(LaunchStarting(launch=launch, launches=launches))
        launch_id = self._next_launch_id(launch)
        log_path = self._writer.log_path(launch_id)
        attached = launch.server.launcher == "attached"
        self._record = LaunchRecord(
            launch_id=launch_id,
            ordinal=launch.ordinal,
            arm=launch.arm,
            pair=launch.pair,
            server_key=launch.server_key,
            argv=(),
            started_ns=clock.now_ns(),
            log_file=None if attached else str(log_path.relative_to(self._writer.folder)),
        )
        self._writer.write_launch(self._record)
        await self._until_stop_asked(
            self._asking.require_accepted(launch.server, launch.server_key)
        )
        server = await self._until_stop_asked(
            start_server(
                launch.server,
                log_path=log_path,
                timeouts=launch.cells[0].timeouts,
                on_progress=lambda text: self._on_event(LaunchProgress(text=text)),
                truth_path=log_path.with_suffix(".truth.jsonl")
                if launch.server.launcher == "simulated"
                else None,
            )
        )
        self._server = server
        self._record = replace(
            self._record, argv=server.argv, ready_ns=server.ready_ns, effective=server.effective
        )
        self._writer.write_launch(self._record)
        self._raise_if_stopping()
        return server

    def _next_launch_id(self, launch: Launch) -> str:
        """`L03-eagle3-p1`; with `.1`, `.2` … behind it when it was started before."""
        base = f"L{launch.ordinal:02d}-{launch.arm}-p{launch.pair}"
        taken = {record.launch_id for record in self._writer.launches()}
        number = 0
        while (name := base if number == 0 else f"{base}.{number}") in taken:
            number += 1
        return name

    async def _measure_cell(self, cell: Cell, launch: Launch, server: RunningServer) -> None:
        record = self._record
        assert record is not None
        done = len(self._writer.finished_cells())
        self._on_event(CellStarting(cell=cell, done=done, total=self._cells_total))
        try:
            await self._until_stop_asked(server.between_cells())
        except ServerError:
            self._raise_if_server_died(cell, server)
            raise
        self._raise_if_stopping()
        async with watch(
            server.base_url,
            gpus=server.gpu_indices,
            gpu_command=server.gpu_watch,
            timeouts=cell.timeouts,
            api_key=server.api_key,
        ) as points:
            load = await self._load(cell, server)
        self._raise_if_stopping()
        self._raise_if_server_died(cell, server)
        _raise_if_nobody_listens(load, server)
        _raise_if_worker_died(load)
        telemetry = [*points, *load.telemetry]
        measurement, findings = summarize(
            cell,
            load.samples,
            telemetry,
            client=load.client,
            effective=server.effective,
            launch_id=record.launch_id,
            gpus=self._gpus,
            simulated=server.effective.simulated,
            limit_tok_per_s=limit_tok_per_s(cell, launch.server, server.effective, load.samples),
            speed=clock.speed(),
        )
        of_server = (
            *server.findings(cell.cell_id),
            *self._asking.findings(launch.server_key, cell.cell_id),
        )
        measurement, findings = with_findings(measurement, of_server), (*findings, *of_server)
        self._writer.write_cell(
            cell, record.launch_id, load.samples, telemetry, measurement, findings
        )
        self._on_event(
            CellFinished(
                cell=cell,
                measurement=measurement,
                findings=findings,
                done=len(self._writer.finished_cells()),
                total=self._cells_total,
            )
        )

    async def _load(self, cell: Cell, server: RunningServer) -> CellLoad:
        client = await self._load_client(server)
        self._raise_if_stopping()
        load = asyncio.ensure_future(
            client.run_cell(
                cell,
                model_name=server.model_name,
                on_progress=lambda progress: self._on_event(
                    CellProgress(cell=cell, progress=progress)
                ),
            )
        )
        while not load.done():
            await asyncio.wait({load}, timeout=WATCH_S)
            # Asked again and again: the client forgets it when it has only just begun.
            if self.is_stopping or server.exited() is not None:
                client.cancel()
        return await load

    async def _load_client(self, server: RunningServer) -> LoadClient:
        """The client of the running server; its worker starts with a launch's first cell."""
        if self._client is None:
            from bench.load.generator import open_client  # noqa: PLC0415  # keeps `bench --help` quick

            self._client = await open_client(
                server.base_url, api_key=server.api_key, abort_own=server.pid is None
            )
        return self._client

    def _raise_if_server_died(self, cell: Cell, server: RunningServer) -> None:
        exit_code = server.exited()
        if exit_code is None:
            return
        assert self._record is not None
        raise ServerError(
            f"the server of {self._record.launch_id} ended ({exit_text(exit_code)}) at load "
            f"{cell.load.label} of {cell.workload.name}.",
            hint=f"Its log: {self._writer.log_path(self._record.launch_id)}",
        )

    # -- ending

    async def close_server(self, *, failure: str | None = None) -> None:
        """Stop the server and the load worker, if any, and record how the launch ended.

        Raises:
            MachineError: The server would not end; another would find its GPUs taken.
            DiskError: The launch's end could not be written.
        """
        client, self._client = self._client, None
        server, self._server = self._server, None
        record, self._record = self._record, None
        if client is not None:
            await client.close()
        if record is None:
            return
        exit_code = None
        try:
            if server is not None:
                exit_code = await server.stop()
        except ServerError as error:
            failure = failure or str(error)
            raise MachineError(str(error), hint=error.hint) from error
        finally:
            record = replace(
                record,
                stopped_ns=clock.now_ns(),
                exit_code=exit_code,
                failure=failure.splitlines()[0] if failure else None,
            )
            self._on_event(LaunchEnded(record=record))
            self._writer.write_launch(record)

    def _raise_if_stopping(self) -> None:
        if self.is_stopping:
            raise Interrupted("stopped as asked.")

    async def _until_stop_asked(self, work: Awaitable[T]) -> T:
        """Await `work`, or give it up as soon as stopping is asked for.

        Raises:
            Interrupted: It was given up. What it had begun is undone: `work` saw its cancellation.
        """
        task = asyncio.ensure_future(work)
        stop = asyncio.ensure_future(self._stop_asked.wait())
        try:
            await asyncio.wait({task, stop}, return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                task.cancel()
                await asyncio.wait({task})
            if task.cancelled():
                raise Interrupted("stopped as asked.")
            return task.result()
        finally:
            task.cancel()  # only when this was cancelled itself
            stop.cancel()


def _raise_if_nobody_listens(load: CellLoad, server: RunningServer) -> None:
    """An attached server that was stopped tells nobody of its end."""
    if load.samples and all(s.status is RequestStatus.REFUSED for s in load.samples):
        raise ServerError(
            f"nothing answers at {server.base_url} any more: all {len(load.samples)} requests "
            "were refused.",
            hint="Was the server stopped?",
        )


def _raise_if_worker_died(load: CellLoad) -> None:
    lost = [s for s in load.samples if s.status is RequestStatus.WORKER_LOST]
    if lost:
        raise LoadError(
            f"{lost[0].error_message or 'the load worker ended'}, and {len(lost)} of "
            f"{len(load.samples)} requests with it",
            hint="Was it killed for want of memory (dmesg says so)?",
        )


@asynccontextmanager
async def open_bench(
    writer: RunWriter,
    *,
    gpus: int,
    cells_total: int,
    on_event: Callable[[Event], None] = say_nothing,
) -> AsyncIterator[Bench]:
    """A bench over an open run folder; whatever ends it, its server and worker are stopped.

    SIGINT and SIGTERM ask it to stop while it is open (unless they were ignored, as nohup and a
    shell's background jobs have it).
    """
    bench = Bench(writer, gpus=gpus, cells_total=cells_total, on_event=on_event)
    loop = asyncio.get_running_loop()
    before = {
        signum: handler
        for signum in (signal.SIGINT, signal.SIGTERM)
        if (handler := signal.getsignal(signum)) is not signal.SIG_IGN
    }
    for signum in before:
        loop.add_signal_handler(signum, bench.ask_to_stop)
    try:
        yield bench
    except BaseException:
        # What ended it is what is told, not that a full disk has no room for the record either.
        with contextlib.suppress(DiskError):
            await bench.close_server()
        raise
    else:
        await bench.close_server()
    finally:
        for signum, handler in before.items():
            loop.remove_signal_handler(signum)
            signal.signal(signum, handler)
