"""Cells, requests and servers for the tests of the metrics, healthy unless told otherwise."""

from __future__ import annotations

import dataclasses
import hashlib
from typing import Any

from bench.metrics.summarize import summarize
from bench.model import (
    Api,
    Cell,
    ClientStats,
    EffectiveConfig,
    Finding,
    Load,
    Measurement,
    RequestSample,
    RequestStatus,
    Sampling,
    TelemetryPoint,
    TokenSource,
    Workload,
)

MS = 1_000_000
S = 1_000 * MS
T0 = 7_777_777_777_777_777  # clocks do not start at 0


def make_workload(**changes: Any) -> Workload:
    return dataclasses.replace(
        Workload(
            name="chat",
            api=Api.CHAT,
            dataset="generated",
            max_output_tok=512,
            sampling=Sampling(temperature=0.0),
        ),
        **changes,
    )


def closed(concurrency: int) -> Load:
    return Load(kind="closed", concurrency=concurrency)


def make_cell(
    *, arm: str = "baseline", pair: int = 0, load: Load | None = None, **changes: Any
) -> Cell:
    the_load = load or closed(2)
    workload = changes.pop("workload", make_workload())
    return dataclasses.replace(
        Cell(
            cell_id=f"{arm}-{workload.name}-{the_load.label}-p{pair}",
            comparison_key=f"{workload.name}-{the_load.label}",
            arm=arm,
            workload=workload,
            load=the_load,
            pair=pair,
            requests=20,
            warmup_requests=0,
            steady_s=1.0,
            seed=1,
            arm_is_speculative=arm != "baseline",
        ),
        **changes,
    )


def make_sample(index: int = 0, *, start_ms: float = 0.0, **changes: Any) -> RequestSample:
    """One request by its times in ms: `events_ms` since its start; `event_tok` cumulative."""
    start = T0 + round(start_ms * MS)
    events_ms = changes.pop("events_ms", (100.0, 110.0, 120.0))
    events = tuple(start + round(t * MS) for t in events_ms)
    ended = changes.pop("ended_ms", (events_ms[-1] if events_ms else 50.0) + 1.0)
    defaults: dict[str, Any] = {
        "cell_id": "c",
        "index": index,
        "phase": "measure",
        "slot": 0,
        "prompt_id": f"p{index}",
        "prompt_sha256": f"sha{index}",
        "seed": 100 + index,
        "due_ns": start,
        "sent_ns": start,
        "first_byte_ns": start + MS,
        "ended_ns": start + round(ended * MS),
        "status": RequestStatus.OK,
        "http_status": 200,
        "finish_reason": "stop",
        "prompt_tok": 1000,
        "cached_tok": 0,
        "output_tok": len(events),
        "token_source": TokenSource.SERVER,
        "event_ns": events,
        "event_tok": tuple(range(1, len(events) + 1)),
        "first_visible_ns": events[0] if events else None,
        "tokens_before_first_event": False,
        "text_sha256": hashlib.sha256(str(index).encode()).hexdigest(),
        "text_block_hashes": tuple(index * 1000 + k for k in range(10)),
        "text_chars": 650,
        "bigram_ct": 100,
        "distinct_bigram_ct": 90,
        "num_retractions": 0,
        "queue_ns": 5 * MS,
    }
    return RequestSample(**(defaults | changes))


def spec_fields(steps: list[int]) -> dict[str, Any]:
    """Events and counters of a request whose verify steps accepted so many drafts each."""
    counts = [1]
    for accepted in steps:
        counts.append(counts[-1] + accepted + 1)
    return {
        "output_tok": counts[-1],
        "event_tok": tuple(counts),
        "spec_verify_ct": len(steps),
        "spec_num_correct_drafts": sum(steps),
        "spec_num_proposed_drafts": 3 * len(steps),
        "spec_correct_drafts_histogram": tuple(steps.count(k) for k in range(max(steps) + 1)),
    }


STEPS = [0, 1, 2, 3, 1, 0, 2, 1, 1, 2] * 4  # 40 verify steps, 52 drafts accepted
STEP_MS = 20.0


def healthy_samples(
    *, speculative: bool = False, concurrency: int = 2, each: int = 10
) -> list[RequestSample]:
    """A closed loop: a slot's requests follow one another, slots a third of a request apart."""
    events_ms = [100.0 + STEP_MS * k for k in range(len(STEPS) + 1)]
    length_ms = events_ms[-1] + 2.0
    samples: list[RequestSample] = []
    for turn in range(each + 1):
        for slot in range(concurrency):
            index = turn * concurrency + slot
            samples.append(
                make_sample(
                    index,
                    start_ms=turn * length_ms + slot * length_ms / 3,
                    slot=slot,
                    phase="measure" if turn else "warmup",
                    events_ms=events_ms,
                    ended_ms=length_ms - 1.0,
                    **(spec_fields(STEPS) if speculative else {}),
                )
            )
    return samples


def make_client(**changes: Any) -> ClientStats:
    return dataclasses.replace(
        ClientStats(
            send_late_p50_ms=0.1,
            send_late_p99_ms=1.0,
            loop_lag_p99_ms=1.0,
            cpu_share=0.2,
            events_per_s=100.0,
            max_in_flight=2,
        ),
        **changes,
    )


def make_effective(*, speculative: bool = False, **changes: Any) -> EffectiveConfig:
    settings = {
        "algorithm": "EAGLE3" if speculative else None,
        "num_steps": 3 if speculative else None,
        "adaptive": False,
    }
    return dataclasses.replace(
        EffectiveConfig(
            speculative=tuple(settings.items()),
            other=(
                ("attention_backend", "fa3"),
                ("max_running_requests", "64"),
                ("random_seed", "7"),
            ),
            version="0.5.23",
            max_total_num_tokens=100_000,
            decode_graph_batch_sizes=(1, 2, 4, 8),
        ),
        **changes,
    )


def point(
    name: str, t_ns: int, value: float | None, *, rank: int | None = None, source: str = "server"
) -> TelemetryPoint:
    return TelemetryPoint(t_ns=t_ns, source=source, name=name, rank=rank, value=value)  # type: ignore[arg-type]


def healthy_telemetry(samples: list[RequestSample], *, gpus: int = 0) -> list[TelemetryPoint]:
    """A scrape before, one a second during and one after; counters as the requests have them."""
    first = min(s.sent_ns or s.due_ns for s in samples) - MS
    last = max(s.ended_ns for s in samples) + MS
    times = [*range(first, last, S), last]
    verify = sum(s.spec_verify_ct or 0 for s in samples)
    totals = {
        "sglang:generation_tokens_total": sum(s.output_tok or 0 for s in samples),
        "sglang:prompt_tokens_total": sum(s.prompt_tok or 0 for s in samples),
        "sglang:num_requests_total": len(samples),
        "sglang:cuda_graph_passes_total{mode=decode_cuda_graph}": 1000,
        "sglang:cuda_graph_passes_total{mode=decode_none}": 0,
        **({"sglang:spec_verify_calls_total": verify} if verify else {}),
    }
    points: list[TelemetryPoint] = []
    for t in times:
        share = (t - first) / (last - first)
        points += [point(name, t, 50 + round(share * total)) for name, total in totals.items()]
        points += [
            point("sglang:num_queue_reqs", t, 0.0),
            point("sglang:token_usage", t, 0.5),
        ]
        if verify:
            points += [
                point("sglang:spec_num_steps", t, 3.0),
                point("sglang:spec_accept_length", t, 2.3),
            ]
        for gpu in range(gpus):
            points += [
                point("power_w", t, 300.0, rank=gpu, source="gpu"),
                point("total_energy_j", t, 300.0 * (t - first) / S, rank=gpu, source="gpu"),
                point("power_limit_w", t, 700.0, rank=gpu, source="gpu"),
                point("utilisation_pct", t, 90.0, rank=gpu, source="gpu"),
                point("throttle_reasons", t, 0.0, rank=gpu, source="gpu"),
            ]
    return points


def changed(samples, which, **changes):
    """The samples with the chosen measured ones changed."""
    measured = [s.index for s in samples if s.phase == "measure"]
    chosen = set(measured[which])
    return [dataclasses.replace(s, **changes) if s.index in chosen else s for s in samples]


def with_series(samples, name, value, *, gpus=0, source="server"):
    """Healthy telemetry in which one series has another value in every reading."""
    points = [p for p in healthy_telemetry(samples, gpus=gpus) if p.name != name]
    times = sorted({p.t_ns for p in points})
    return points + [point(name, t, value, rank=0, source=source) for t in times]


def with_counter(samples, name, total):
    """Healthy telemetry in which a counter grows by another total over the cell."""
    points = [p for p in healthy_telemetry(samples) if p.name != name]
    times = sorted({p.t_ns for p in points})
    span = times[-1] - times[0]
    return points + [point(name, t, 7 + total * (t - times[0]) / span) for t in times]


def run_summarize(
    *,
    speculative: bool = False,
    samples: list[RequestSample] | None = None,
    telemetry: list[TelemetryPoint] | None = None,
    cell: Cell | None = None,
    **changes: Any,
) -> tuple[Measurement, tuple[Finding, ...]]:
    """Summarise a cell that is healthy but for what is given."""
    the_samples = healthy_samples(speculative=speculative) if samples is None else samples
    gpus = changes.get("gpus", 0)
    arguments: dict[str, Any] = {
        "client": make_client(),
        "effective": make_effective(speculative=speculative),
        "launch_id": "L00",
        "gpus": gpus,
        "simulated": False,
    }
    return summarize(
        cell or make_cell(arm="eagle3" if speculative else "baseline"),
        the_samples,
        healthy_telemetry(the_samples, gpus=gpus) if telemetry is None else telemetry,
        **(arguments | changes),
    )
