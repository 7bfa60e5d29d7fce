"""Runs the load of one cell: workers send its requests, and tell here what became of them."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from bench.clock import now_ns
from bench.load.capacity import search_capacity
from bench.load.frames import Job, Request
from bench.load.process import start_worker
from bench.load.prompts import retokenize
from bench.load.samples import client_stats, to_sample, unsent_sample
from bench.load.work import plan_requests
from bench.model import RequestStatus, TelemetryPoint
from bench.sglang.wire import PATHS

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.load.frames import JobEnd, Outcome, Pulse
    from bench.load.process import WorkerProcess
    from bench.load.work import PlannedRequest
    from bench.model import Cell, ClientStats, RequestSample

PRIMING_SLOTS: Final = 8
MOST_CONNECTIONS_AHEAD: Final = 64
"""Of an open load, whose concurrency is not known ahead."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How a cell is going, about twice a second.

    Attributes:
        done: Requests that have ended, priming left out.
        total: Requests of the cell, priming left out.
        in_flight: Requests sent and not ended.
        output_tok_per_s: Rough rate since the last one, from reads; None at first.
        accept_len_tok: Pooled over the requests that have ended; None without speculation.
        phase: `priming`, `warm-up` or `measuring`.
    """

    done: int
    total: int
    in_flight: int
    output_tok_per_s: float | None
    accept_len_tok: float | None
    phase: str


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
    base_url: str, *, api_key: str | None = None, abort_own: bool = False
) -> LoadClient:
    """Start the load worker for one server; close the client when the server goes.

    Args:
        base_url: Of the server.
        api_key: Of the server.
        abort_own: Whether requests that are given up are aborted on the server, each by its own
            id: where nobody else will do it.

    Raises:
        LoadError: The worker did not start.
    """
    workers = [await start_worker()]
    return LoadClient(base_url, api_key=api_key, workers=workers, abort_own=abort_own)


class LoadClient:
    """Sends the load of one cell after another to one server."""

    def __init__(
        self,
        base_url: str,
        *,
        api_key: str | None,
        workers: list[WorkerProcess],
        abort_own: bool = False,
    ) -> None:
        self._base_url = base_url
        self._abort_own = abort_own
        self._api_key = api_key
        self._workers = workers
        self._cancelled = False

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
        for place, worker in enumerate(self._workers):
            if not worker.is_alive:
                self._workers[place] = await start_worker()
        tally = _Tally(cell, planned, on_progress)
        priming = [request for request in planned if request.is_priming]
        if priming:
            await self._do(cell, priming, range(PRIMING_SLOTS), tally)
        main = [request for request in planned if not request.is_priming]
        slots = range(cell.load.concurrency or 0)
        ends = await self._do(cell, main, slots, tally)
        samples = await asyncio.to_thread(self._samples, cell, planned, tally)
        return CellLoad(
            samples=samples,
            client=client_stats(samples, [end for end in ends if end], workers=len(self._workers)),
            telemetry=tally.telemetry,
        )

    async def _do(
        self, cell: Cell, requests: list[PlannedRequest], slots: range, tally: _Tally
    ) -> list[JobEnd | None]:
        """Have the workers send `requests`, dealt out by slot (by place in an open load)."""
        if self._cancelled:
            return []
        many = len(self._workers)
        runs = [
            worker.run(
                self._job(cell, requests[place::many], list(slots)[place::many]),
                on_outcome=tally.take_outcome,
                on_pulse=tally.take_pulse,
            )
            for place, worker in enumerate(self._workers)
        ]
        return await asyncio.gather(*runs)

    def _job(self, cell: Cell, requests: list[PlannedRequest], slots: list[int]) -> Job:
        workload, timeouts = cell.workload, cell.timeouts
        return Job(
            base_url=self._base_url,
            api_key=self._api_key,
            path=PATHS[workload.api],
            requests=[Request(r.index, r.body, r.offset_ns) for r in requests],
            slots=slots,
            request_s=timeouts.request_s,
            connect_s=timeouts.connect_s,
            drain_s=timeouts.drain_s,
            keep_text=workload.store_text,
            abort_own=self._abort_own,
            connections=len(slots) or min(len(requests), MOST_CONNECTIONS_AHEAD),
        )

    def _samples(
        self, cell: Cell, planned: list[PlannedRequest], tally: _Tally
    ) -> list[RequestSample]:
        """One sample for each request; counts that the server did not give are made here."""
        samples = []
        lost_ns = now_ns()
        status, why = RequestStatus.CANCELLED, "stopped before it was sent"
        if not all(worker.is_alive for worker in self._workers):
            words = "; ".join(w.last_words for w in self._workers if not w.is_alive)
            status, why = RequestStatus.WORKER_LOST, f"the load worker ended: {words}"
        for request in planned:
            outcome = tally.outcomes.get(request.index)
            if outcome is None:
                samples.append(unsent_sample(cell, request, lost_ns, status, why))
                continue
            count = None
            stream, tokenizer = outcome.stream, cell.workload.tokenizer_path
            if stream.output_tok is None and stream.text is not None and tokenizer is not None:
                count = retokenize(tokenizer, stream.text) + retokenize(
                    tokenizer, stream.reasoning_text or ""
                )
            secrets = (self._api_key,) if self._api_key else ()
            samples.append(
                to_sample(cell, request, outcome, retokenized_tok=count, secrets=secrets)
            )
        return samples


class _Tally:
    """What the workers have told so far in one cell."""

    def __init__(
        self,
        cell: Cell,
        planned: list[PlannedRequest],
        on_progress: Callable[[Progress], None] | None,
    ) -> None:
        self.outcomes: dict[int, Outcome] = {}
        self.telemetry: list[TelemetryPoint] = []
        self._cell = cell
        self._priming_ct = sum(request.is_priming for request in planned)
        self._total = len(planned) - self._priming_ct
        self._on_progress = on_progress
        self._latest_pulse: Pulse | None = None
        self._output_tok = self._read_ct = 0
        self._verify_ct = self._correct_ct = 0

    def take_outcome(self, outcome: Outcome) -> None:
        self.outcomes[outcome.index] = outcome
        self._read_ct += outcome.stream.read_ct
        self._output_tok += outcome.stream.output_tok or 0
        if outcome.stream.spec is not None and outcome.stream.spec.num_correct_drafts is not None:
            self._verify_ct += outcome.stream.spec.verify_ct
            self._correct_ct += outcome.stream.spec.num_correct_drafts

    def take_pulse(self, pulse: Pulse) -> None:
        self.telemetry += [
            TelemetryPoint(t_ns=pulse.t_ns, source="client", name=name, value=value)
            for name, value in (
                ("loop_lag_ms", pulse.loop_lag_ms),
                ("cpu_share", pulse.cpu_share),
                ("requests_in_flight", float(pulse.in_flight)),
            )
        ]
        if self._on_progress is not None:
            self._on_progress(self._progress(pulse))
        self._latest_pulse = pulse

    def _progress(self, pulse: Pulse) -> Progress:
        done = max(len(self.outcomes) - self._priming_ct, 0)
        phase = "measuring" if done >= self._cell.warmup_requests else "warm-up"
        return Progress(
            done=done,
            total=self._total,
            in_flight=pulse.in_flight,
            output_tok_per_s=self._output_tok_per_s(pulse),
            accept_len_tok=1 + self._correct_ct / self._verify_ct if self._verify_ct else None,
            phase="priming" if len(self.outcomes) < self._priming_ct else phase,
        )

    def _output_tok_per_s(self, pulse: Pulse) -> float | None:
        # Streams are not parsed while they run; a read carries about as many tokens as those of
        # the requests that have ended did.
        latest = self._latest_pulse
        if latest is None or pulse.t_ns <= latest.t_ns or pulse.read_ct < latest.read_ct:
            return None
        tok_a_read = self._output_tok / self._read_ct if self._read_ct else 1.0
        return (pulse.read_ct - latest.read_ct) * tok_a_read / (pulse.t_ns - latest.t_ns) * 1e9
