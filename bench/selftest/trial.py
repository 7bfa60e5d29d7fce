"""One trial of the client: a load like a cell's, against a ground-truth server."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from bench.model import Api, Cell, Load, Sampling, Workload
from bench.selftest.accuracy import accuracy
from bench.selftest.serving import Pace, truth_server

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench.model import ClientStats, RequestSample
    from bench.selftest.accuracy import Accuracy
    from bench.selftest.serving import TrueAnswer

TTFT_US: Final = 50_000
_INPUT_TOK: Final = 64
_SEED: Final = 1
_MOST_TOK: Final = 256
_LEAST_EVENTS: Final = 8
_LEAST_INTERVAL_US: Final = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """What is tried.

    Attributes:
        load: As of a cell.
        requests: How many.
        output_tok: Tokens of each answer.
        pace: Of the server.
    """

    load: Load
    requests: int
    output_tok: int
    pace: Pace


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialResult:
    """How it went.

    Attributes:
        accuracy: The client's errors.
        client: What the client says of itself.
        event_per_s: Events a second from the first to the last, over all streams.
        cpu_us_per_event: Of all workers, opening connections and parsing included.
        is_compiled: Whether the ground-truth server was the one in C.
        why_not_compiled: Why it was not.
    """

    accuracy: Accuracy
    client: ClientStats
    event_per_s: float
    cpu_us_per_event: float | None
    is_compiled: bool
    why_not_compiled: str | None = None

    @property
    def is_right(self) -> bool:
        """Whether the client is to be believed at this load."""
        return not self.accuracy.faults()


def paced(*, streams: int, event_per_s: float, seconds: float) -> Trial:
    """Streams that bring so many events a second, each `seconds` long.

    A stream has an event a millisecond at most: more than `streams` of them run where the rate
    needs it.
    """
    streams = max(streams, math.ceil(event_per_s * _LEAST_INTERVAL_US / 1e6))
    interval_us = max(round(streams / event_per_s * 1e6), _LEAST_INTERVAL_US)
    events = max(round(seconds * 1e6 / interval_us), _LEAST_EVENTS)
    answers = math.ceil(events / _MOST_TOK)
    return Trial(
        load=Load(kind="closed", concurrency=streams),
        requests=streams * answers,
        output_tok=math.ceil(events / answers),
        pace=Pace(ttft_us=TTFT_US, interval_us=interval_us),
    )


def scheduled(*, rate_per_s: float, event_per_s: float, seconds: float) -> Trial:
    """Arrivals on a Poisson schedule, whose answers bring so many events a second in all."""
    requests = max(round(rate_per_s * seconds), 2)
    tokens = min(max(round(event_per_s / rate_per_s), 1), _MOST_TOK)
    return Trial(
        load=Load(kind="open", rate_per_s=rate_per_s),
        requests=requests,
        output_tok=tokens,
        pace=Pace(ttft_us=10_000, interval_us=5_000),
    )


def unpaced(*, streams: int, events: int) -> Trial:
    """Streams as fast as the client reads them: what it can take at most."""
    requests = max(round(events / _MOST_TOK), streams)
    return Trial(
        load=Load(kind="closed", concurrency=streams),
        requests=requests,
        output_tok=_MOST_TOK,
        pace=Pace(),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialRecord:
    """What both sides have written down of a trial.

    Attributes:
        samples: By the client.
        client: What it says of itself.
        answers: By the server.
        is_compiled: Whether that was the one in C.
        why_not_compiled: Why it was not.
    """

    samples: Sequence[RequestSample]
    client: ClientStats
    answers: Sequence[TrueAnswer]
    is_compiled: bool
    why_not_compiled: str | None = None


async def record_trial(trial: Trial, *, workers: int) -> TrialRecord:
    """Run a trial: about as long as its answers take, and half a second.

    Raises:
        LoadError: The ground-truth server or a load worker does not start.
    """
    from bench.load.generator import open_client  # noqa: PLC0415  # keeps `bench --help` quick

    async with truth_server(trial.pace) as server:
        client = await open_client(server.base_url, workers=workers)
        try:
            load = await client.run_cell(_cell(trial), model_name="m")
        finally:
            await client.close()
    return TrialRecord(
        samples=load.samples,
        client=load.client,
        answers=server.answers,
        is_compiled=server.command.is_compiled,
        why_not_compiled=server.command.why_not,
    )


async def run_trial(trial: Trial, *, workers: int) -> TrialResult:
    """Run a trial and judge it.

    Raises:
        LoadError: As `record_trial`.
    """
    record = await record_trial(trial, workers=workers)
    samples, client = record.samples, record.client
    event_ns = [ns for sample in samples for ns in (sample.event_ns[:1] + sample.event_ns[-1:])]
    event_ct = sum(len(sample.event_ns) for sample in samples)
    span_s = (max(event_ns) - min(event_ns)) / 1e9 if event_ns else 0.0
    us_per_event = None
    if client.cpu_share is not None and client.events_per_s:
        us_per_event = client.cpu_share / client.events_per_s * 1e6
    is_open = trial.load.kind == "open"
    return TrialResult(
        accuracy=accuracy(samples, record.answers, trial.pace, is_open=is_open),
        client=client,
        event_per_s=event_ct / span_s if span_s > 0 else 0.0,
        cpu_us_per_event=us_per_event,
        is_compiled=record.is_compiled,
        why_not_compiled=record.why_not_compiled,
    )


def _cell(trial: Trial) -> Cell:
    return Cell(
        cell_id="selftest",
        comparison_key="selftest",
        arm="selftest",
        workload=Workload(
            name="selftest",
            api=Api.CHAT,
            dataset="generated",
            input_tok=_INPUT_TOK,
            max_output_tok=trial.output_tok,
            sampling=Sampling(temperature=0.0),
        ),
        load=trial.load,
        pair=0,
        requests=trial.requests,
        warmup_requests=0,
        steady_s=1.0,
        seed=_SEED,
    )
