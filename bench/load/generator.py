"""Runs the load of one cell: workers send its requests, and tell here what became of them."""

from __future__ import annotations

import asyncio
import secrets
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final

from bench.clock import now_ns, speed
from bench.load.capacity import search_capacity
from bench.load.frames import Go, Job
from bench.load.pacing import STARTS_A_MS
from bench.load.process import start_worker
from bench.load.prompts import retokenize
from bench.load.samples import client_stats, to_sample, unsent_sample
from bench.load.shared_requests import Request
from bench.load.tally import Progress, Tally
from bench.load.work import plan_requests
from bench.model import RequestStatus
from bench.sglang.wire import PATHS

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.load.frames import JobEnd, Outcome, Pulse
    from bench.load.process import WorkerProcess
    from bench.load.work import PlannedRequest
    from bench.model import Cell, ClientStats, RequestSample, TelemetryPoint

__all__ = ["CellLoad", "LoadClient", "Progress", "open_client"]

PRIMING_SLOTS: Final = 8
MOST_CONNECTIONS_AHEAD: Final = 64
"""Of an open load, whose concurrency is not known ahead."""
MOST_STARTS_A_MS: Final = 32
"""Of all workers together."""
LEAD_NS: Final = 100_000_000
"""From the last worker's being prepared to the start of an open load's schedule, of the world."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CellLoad:
    """What the load of one cell yielded.

    Attributes:
        samples: One for each request, in the order of indices.
        client: How the load workers did.
        telemetry: Their own readings: `loop_lag_ms`, `cpu_share`, `requests_in_flight`; of a
            capacity search also `probe_rate_per_s` and `probe_met` (1 or 0), one for each rate.
    """

    samples: list[RequestSample]
    client: ClientStats
    telemetry: list[TelemetryPoint] = field(default_factory=list)


async def open_client(
    base_url: str,
    *,
    api_key: str | None = None,
    admin_api_key: str | None = None,
    abort_own: bool = False,
    workers: int = 1,
    proven_event_per_s: float | None = None,
) -> LoadClient:
    """Start the load worker for one server; close the client when the server goes.

    Args:
        base_url: Of the server.
        api_key: Of the server.
        admin_api_key: Of the server, where aborting needs one of its own.
        abort_own: Whether requests that are given up are aborted on the server, each by its own
            id: where nobody else will do it.
        workers: How many processes share the load.
        proven_event_per_s: Up to which load they are proven to be exact; None: not known.

    Raises:
        LoadError: The worker did not start.
    """
    started = [await start_worker()]
    try:
        for _ in range(workers - 1):
            started.append(await start_worker(started[0].requests))
    except BaseException:
        await asyncio.gather(*(worker.close() for worker in started))
        raise
    return LoadClient(
        base_url,
        api_key=api_key,
        admin_api_key=admin_api_key,
        workers=started,
        abort_own=abort_own,
        proven_event_per_s=proven_event_per_s,
    )


class LoadClient:
    """Sends the load of one cell after another to one server."""

    def __init__(
        self,
        base_url: str,
        *,
        api_key: str | None,
        workers: list[WorkerProcess],
        admin_api_key: str | None = None,
        abort_own: bool = False,
        proven_event_per_s: float | None = None,
    ) -> None:
        self._base_url = base_url
        self._abort_own = abort_own
        self._api_key = api_key
        self._admin_api_key = admin_api_key
        self._workers = workers
        self._cancelled = False
        self._second_reader_ct = self._resent_ct = 0
        self._proven_event_per_s = proven_event_per_s

    @property
    def worker_pids(self) -> tuple[int, ...]:
        """Of the processes that share the load."""
        return tuple(worker.pid for worker in self._workers)

    async def run_cell(
        self,
        cell: Cell,
        *,
        model_name: str,
        on_progress: Callable[[Progress], None] | None = None,
        first_index: int = 0,
    ) -> CellLoad:
        """Run the load of one cell to its end.

        Args:
            cell: What to measure.
            model_name: The served model's name.
            on_progress: Called about twice a second.
            first_index: Of the first request.

        Raises:
            InputError: A dataset or tokenizer cannot be read.
            LoadError: No worker can be used, or a worker failed.
        """
        self._cancelled = False
        if cell.load.kind == "capacity":
            return await search_capacity(
                cell,
                lambda probe, index: self._run(probe, model_name, on_progress, index),
                is_stopped=lambda: self._cancelled,
            )
        return await self._run(cell, model_name, on_progress, first_index)

    def cancel(self) -> None:
        """Stop promptly: the requests that are outstanding or unsent end as CANCELLED."""
        self._cancelled = True
        for worker in self._workers:
            worker.stop()

    async def close(self) -> None:
        """End the workers."""
        await asyncio.gather(*(worker.close() for worker in self._workers))

    async def _run(
        self,
        cell: Cell,
        model_name: str,
        on_progress: Callable[[Progress], None] | None,
        first_index: int,
    ) -> CellLoad:
        planned = await asyncio.to_thread(
            plan_requests, cell, model_name=model_name, first_index=first_index
        )
        await self._replace_dead_workers()
        priming = [request for request in planned if request.is_priming]
        main = [request for request in planned if not request.is_priming]
        tally = Tally(total=len(main), warmup=cell.warmup_requests, on_progress=on_progress)
        samples: list[RequestSample] = []
        self._second_reader_ct = self._resent_ct = 0
        if priming:
            tally.is_priming = True
            await self._do(cell, priming, range(PRIMING_SLOTS), tally)
            tally.is_priming = False
            samples += await asyncio.to_thread(self._samples, cell, priming)
        ends = await self._do(cell, main, range(cell.load.concurrency or 0), tally)
        samples += await asyncio.to_thread(self._samples, cell, main)
        return CellLoad(
            samples=samples,
            client=client_stats(
                samples,
                [end for end in ends if end],
                workers=len(self._workers),
                second_reader_ct=self._second_reader_ct,
                resent_ct=self._resent_ct,
                proven_event_per_s=self._proven_event_per_s,
            ),
            telemetry=tally.telemetry,
        )

    async def _replace_dead_workers(self) -> None:
        for place, worker in enumerate(self._workers):
            if not worker.is_alive:
                self._workers[place] = await start_worker(worker.requests)
                await worker.close()

    async def _do(
        self, cell: Cell, requests: list[PlannedRequest], slots: range, tally: Tally
    ) -> list[JobEnd | None]:
        """Have the workers send `requests`: whichever can take one takes the next."""
        shared = self._workers[0].requests
        await asyncio.to_thread(
            shared.write, [Request(r.index, r.body, r.offset_ns) for r in requests]
        )
        if self._cancelled:
            return []
        many = len(self._workers)
        start = _CommonStart(many)
        jobs = self._jobs(cell, len(requests), slots)

        async def run(place: int) -> JobEnd | None:
            worker, pulse = self._workers[place], partial(tally.take, place)
            try:
                return await start.run(worker, jobs[place], on_pulse=pulse)
            finally:
                tally.end_of(place)

        running = [asyncio.create_task(run(place)) for place in range(many)]
        try:
            return await asyncio.gather(*running)
        finally:
            for task in running:  # where one has failed, the others are not waited for
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)
            tally.end_job()

    def _jobs(self, cell: Cell, request_ct: int, slots: range) -> list[Job]:
        workload, timeouts = cell.workload, cell.timeouts
        many = len(self._workers)
        rid_stem = secrets.token_hex(12)
        ahead = -(-min(request_ct, MOST_CONNECTIONS_AHEAD) // many)
        return [
            Job(
                base_url=self._base_url,
                api_key=self._api_key,
                path=PATHS[workload.api],
                rid_stem=rid_stem,
                is_open=not slots,
                slots=list(slots)[place::many],
                request_s=timeouts.request_s,
                connect_s=timeouts.connect_s,
                drain_s=timeouts.drain_s,
                keep_text=workload.store_text,
                connections=len(slots[place::many]) if slots else ahead,
                starts_a_ms=max(min(MOST_STARTS_A_MS // many, STARTS_A_MS), 1),
                abort_own=self._abort_own,
                admin_api_key=self._admin_api_key,
            )
            for place in range(many)
        ]

    def _samples(self, cell: Cell, planned: list[PlannedRequest]) -> list[RequestSample]:
        """One sample for each request; counts that the server did not give are made here."""
        by_index = {request.index: request for request in planned}
        samples: dict[int, RequestSample] = {}
        for worker in self._workers:
            for outcome in worker.outcomes():
                request = by_index[outcome.index]
                samples[outcome.index] = self._sample(cell, request, outcome)
                self._second_reader_ct += outcome.second_reader is not None
                self._resent_ct += outcome.is_resent
        lost_ns = now_ns()
        status, why = RequestStatus.CANCELLED, "stopped before it was sent"
        if not all(worker.is_alive for worker in self._workers):
            words = "; ".join(w.last_words for w in self._workers if not w.is_alive)
            status, why = RequestStatus.WORKER_LOST, f"the load worker ended: {words}"
        return [
            samples.get(request.index) or unsent_sample(cell, request, lost_ns, status, why)
            for request in planned
        ]

    def _sample(self, cell: Cell, request: PlannedRequest, outcome: Outcome) -> RequestSample:
        count = None
        stream, tokenizer = outcome.stream, cell.workload.tokenizer_path
        if stream.output_tok is None and stream.text is not None and tokenizer is not None:
            count = retokenize(tokenizer, stream.text) + retokenize(
                tokenizer, stream.reasoning_text or ""
            )
        keys = tuple(key for key in (self._api_key, self._admin_api_key) if key)
        return to_sample(cell, request, outcome, retokenized_tok=count, secrets=keys)


class _CommonStart:
    """Lets the workers of a job begin at one time, once each is prepared or gone."""

    def __init__(self, workers: int) -> None:
        self._missing = workers
        self._go: asyncio.Future[Go] = asyncio.get_running_loop().create_future()

    async def run(
        self, worker: WorkerProcess, job: Job, *, on_pulse: Callable[[Pulse], None]
    ) -> JobEnd | None:
        has_come = False

        async def go() -> Go:
            nonlocal has_come
            has_come = True
            self._come()
            return await asyncio.shield(self._go)

        try:
            return await worker.run(job, go=go, on_pulse=on_pulse)
        finally:
            if not has_come:
                self._come()

    def _come(self) -> None:
        self._missing -= 1
        if not self._missing and not self._go.done():
            self._go.set_result(Go(start_ns=now_ns() + LEAD_NS * speed()))
