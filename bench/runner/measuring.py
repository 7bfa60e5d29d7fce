"""The bench itself: one server at a time, its cells measured and stored."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from bench import clock
from bench.errors import DiskError, Interrupted, LoadError, MachineError, ServerError
from bench.metrics import limit_tok_per_s, summarize, with_findings
from bench.model import LaunchRecord
from bench.runner.asking import Asking
from bench.runner.attached import ask_attached
from bench.runner.budgeting import NO_LIMIT
from bench.runner.events import (
    CellFinished,
    CellProgress,
    CellStarting,
    LaunchEnded,
    LaunchProgress,
    LaunchReady,
    LaunchStarting,
    Noted,
    say_nothing,
)
from bench.runner.instrument import Instrument, instrument_for
from bench.runner.lost import Patience, require_alive, require_answers, require_worker
from bench.runner.naming import next_launch_id
from bench.runner.refusing import refuse_launches
from bench.runner.waiting import until_stopped
from bench.server import start_server
from bench.telemetry import watch

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

    from bench.load.generator import CellLoad, LoadClient
    from bench.load.tally import Progress
    from bench.model import Cell, Launch, Plan, TelemetryPoint
    from bench.runner.budgeting import Limit
    from bench.runner.events import Event
    from bench.server import RunningServer
    from bench.store import RunWriter

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
        self._instrument = Instrument()

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

    async def prove_client(self, plan: Plan, *, workers: int | None = None) -> None:
        """Choose the load workers for a plan and prove them good for it, before it is measured.

        Raises:
            Interrupted: `ask_to_stop` was called.
        """
        self._instrument = await until_stopped(
            instrument_for(plan, workers=workers, on_event=self._on_event), self._stop_asked
        )

    async def prove_attached(self, plan: Plan) -> None:
        """Ask several attached servers for a token each before the first of them is measured."""
        if not self._writer.finished_cells():
            await until_stopped(ask_attached(plan, start_server), self._stop_asked)

    async def prove_arguments(self, plan: Plan) -> None:
        """Raise ScenarioError unless SGLang itself takes what is still to be launched."""
        launches = [launch for launch in plan.launches if self.pending(launch)]
        refusing = refuse_launches(self._asking, launches, self._writer.manifest)
        await until_stopped(refusing, self._stop_asked)

    def pending(self, launch: Launch) -> list[Cell]:
        """The launch's cells that are not on disk yet, in order."""
        finished = self._writer.finished_cells()
        return [cell for cell in launch.cells if cell.cell_id not in finished]

    async def measure(self, launch: Launch, *, launches: int = 1, limit: Limit = NO_LIMIT) -> None:
        """Measure the launch's cells that are not on disk yet, in one server start where possible.

        A server that dies is started once more; the cell it died in is then measured last, so that
        a load which kills servers costs no other cell.

        Args:
            launch: What to measure.
            launches: How many there are in all, for the console.
            limit: Until when a start may take, and which cells may still begin.

        Raises:
            OutOfTimeError: A start was cut short; its server is stopped.
            ServerError: It did not start, or died twice.
            MachineError: A server would not end.
            LoadError: The load worker died or failed twice in a cell.
            DiskError: A finished cell could not be written.
            Interrupted: `ask_to_stop` was called.
        """
        try:
            await self._measure_cells(self.pending(launch), launch, launches, limit)
        except ServerError as error:
            started = self._server is not None
            await self.close_server(failure=str(error))
            self._raise_if_stopping()
            if not started:
                raise
            # Its cells are done in order, so the first that is left is the one it died in.
            first, *others = self.pending(launch)
            await self._measure_cells([*others, first], launch, launches, limit)

    async def _measure_cells(
        self, cells: Sequence[Cell], launch: Launch, launches: int, limit: Limit
    ) -> None:
        for cell in cells:
            server = await self._running(launch, launches, limit)
            if not limit.may_begin(cell):
                continue
            try:
                await self._measure_cell(cell, launch, server)
            except LoadError as error:
                self._on_event(Noted(text=f"{error}; this cell is measured once more"))
                await self._measure_cell(cell, launch, server)

    async def _running(self, launch: Launch, launches: int, limit: Limit) -> RunningServer:
        """The launch's server: the one that runs already, or a new one."""
        record = self._record
        if self._server is not None and record is not None and record.ordinal == launch.ordinal:
            return self._server
        await self.close_server()
        self._raise_if_stopping()
        self._on_event(LaunchStarting(launch=launch, launches=launches))
        launch_id = next_launch_id(launch, self._writer.launches())
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
        await until_stopped(
            self._asking.require_accepted(launch.server, launch.server_key),
            self._stop_asked,
            limit,
        )
        server = await until_stopped(
            start_server(
                launch.server,
                log_path=log_path,
                timeouts=launch.cells[0].timeouts,
                on_progress=lambda text: self._on_event(LaunchProgress(text=text)),
                truth_path=log_path.with_suffix(".truth.jsonl")
                if launch.server.launcher == "simulated"
                else None,
            ),
            self._stop_asked,
            limit,
        )
        self._server = server
        self._record = replace(
            self._record,
            argv=server.argv,
            ready_ns=server.ready_ns,
            effective=server.effective,
            load_s=server.times.load_s,
            capture_s=server.times.capture_s,
        )
        self._writer.write_launch(self._record)
        if not attached:
            self._on_event(LaunchReady(record=self._record))
        self._raise_if_stopping()
        return server

    async def _measure_cell(self, cell: Cell, launch: Launch, server: RunningServer) -> None:
        record = self._record
        assert record is not None
        done = len(self._writer.finished_cells())
        self._on_event(CellStarting(cell=cell, done=done, total=self._cells_total))
        try:
            await until_stopped(server.between_cells(), self._stop_asked)
        except ServerError:
            self._require_alive(cell, server)
            raise
        self._raise_if_stopping()
        async with watch(
            server.base_url,
            worker_urls=server.worker_urls,
            gpus=server.gpu_indices,
            gpu_command=server.gpu_watch,
            timeouts=cell.timeouts,
            api_key=server.api_key,
        ) as points:
            load = await self._load(cell, server, points)
        gpus_unread = points.gpu_missing_reason or server.gpus_unseen
        self._raise_if_stopping()
        self._require_alive(cell, server)
        require_answers(load, server)
        require_worker(load)
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
            unread=points.missing_reason,
            gpus_unread=gpus_unread,
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

    async def _load(
        self, cell: Cell, server: RunningServer, points: Sequence[TelemetryPoint]
    ) -> CellLoad:
        client = await self._load_client(server)
        self._raise_if_stopping()
        patience = Patience(points)

        def on_progress(progress: Progress) -> None:
            patience.heard(progress)
            self._on_event(CellProgress(cell=cell, progress=progress))

        load = asyncio.ensure_future(
            client.run_cell(cell, model_name=server.model_name, on_progress=on_progress)
        )
        while not load.done():
            await asyncio.wait({load}, timeout=WATCH_S)
            # Asked again and again: the client forgets it when it has only just begun.
            if self.is_stopping or server.exited() is not None or patience.spun():
                patience.stop_asked()
                client.cancel()
            if (why := patience.lost()) is not None:
                load.cancel()  # which kills the worker
                await asyncio.wait({load})
                self._raise_if_stopping()
                raise LoadError(why)
        return await load

    async def _load_client(self, server: RunningServer) -> LoadClient:
        """The client of the running server; its worker starts with a launch's first cell."""
        if self._client is None:
            self._client = await self._instrument.open_for(server)
        return self._client

    def _require_alive(self, cell: Cell, server: RunningServer) -> None:
        assert self._record is not None
        launch_id = self._record.launch_id
        require_alive(cell, server, launch_id, self._writer.log_path(launch_id))

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
