"""`/metrics`: Prometheus text with those of SGLang's names and labels that mean something here."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from bench import clock

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.simulator.engine import Engine
    from bench.simulator.settings import Settings
    from bench.simulator.stats import Histogram, Stats

Labels = dict[str, str]


def render(settings: Settings, stats: Stats, engine: Engine) -> str:
    """The whole page."""
    lines: list[str] = []
    lines += _requests(settings, stats)
    lines += _scheduler(settings, stats, engine)
    lines += _http(stats)
    lines += _family("specdyno_simulated", "gauge", [({}, 1.0)])
    behind_ms = stats.behind_max_ns / 1e6
    lines += _family("specdyno_simulated_behind_max_ms", "gauge", [({}, behind_ms)])
    lines += _family("specdyno_simulated_speed", "gauge", [({}, float(clock.speed()))])
    return "\n".join(lines) + "\n"


def _family(name: str, kind: str, samples: list[tuple[Labels, float]]) -> Iterator[str]:
    yield f"# HELP {name} Simulated."
    yield f"# TYPE {name} {kind}"
    for labels, value in samples:
        yield f"{name}{_labels(labels)} {_number(value)}"


def _histogram(name: str, samples: list[tuple[Labels, Histogram]]) -> Iterator[str]:
    yield f"# HELP {name} Simulated."
    yield f"# TYPE {name} histogram"
    for labels, histogram in samples:
        total = 0
        bounds = [*(str(float(bound)) for bound in histogram.bounds), "+Inf"]
        for bound, count in zip(bounds, histogram.counts, strict=True):
            total += count
            yield f"{name}_bucket{_labels({**labels, 'le': bound})} {_number(total)}"
        yield f"{name}_sum{_labels(labels)} {_number(histogram.sum)}"
        yield f"{name}_count{_labels(labels)} {_number(total)}"


def _labels(labels: Labels) -> str:
    if not labels:
        return ""
    escaped = {
        key: value.replace("\\", r"\\").replace('"', r"\"") for key, value in labels.items()
    }
    return "{" + ",".join(f'{key}="{escaped[key]}"' for key in sorted(escaped)) + "}"


def _number(value: float) -> str:
    return "NaN" if value != value else repr(float(value))  # noqa: PLR0124  # only NaN differs from itself


def _requests(settings: Settings, stats: Stats) -> Iterator[str]:
    """What SGLang's front end counts when a request ends."""
    front = {"engine_type": "unified", "model_name": settings.model_name}
    ended = [
        ({**front, "is_streaming": streaming}, totals)
        for streaming, totals in stats.ended.items()
        if totals.requests
    ]
    counters = (
        ("sglang:prompt_tokens_total", [(labels, t.prompt_tok) for labels, t in ended]),
        ("sglang:generation_tokens_total", [(labels, t.generation_tok) for labels, t in ended]),
        ("sglang:num_requests_total", [(labels, t.requests) for labels, t in ended]),
    )
    for name, samples in counters:
        yield from _family(name, "counter", [(labels, float(value)) for labels, value in samples])
    cached = {**front, "cache_source": "device"}
    yield from _family(
        "sglang:cached_tokens_total", "counter", [(cached, float(stats.cached_tok))]
    )
    if settings.speculation is not None:
        yield from _family(
            "sglang:spec_verify_calls_total", "counter", [(front, float(stats.verify_ct))]
        )
    if stats.aborted_ct:
        yield from _family(
            "sglang:num_aborted_requests_total", "counter", [(front, float(stats.aborted_ct))]
        )
    histograms = (
        ("sglang:time_to_first_token_seconds", [(labels, t.ttft) for labels, t in ended]),
        ("sglang:e2e_request_latency_seconds", [(labels, t.e2e) for labels, t in ended]),
        ("sglang:request_time_per_output_token_seconds", [(la, t.tpot) for la, t in ended]),
    )
    for name, samples_of in histograms:
        yield from _histogram(name, samples_of)


def _scheduler(settings: Settings, stats: Stats, engine: Engine) -> Iterator[str]:
    """What SGLang's scheduler sets at log ticks, and its constants."""
    rank = {
        "engine_type": "unified",
        "model_name": settings.model_name,
        "moe_ep_rank": "0",
        "pp_rank": "0",
        "tp_rank": "0",
    }
    modes = {
        "prefill_compute": stats.prefill_compute_tok,
        "prefill_cache": stats.prefill_cache_tok,
        "decode": stats.decode_tok,
    }
    yield from _by_mode("sglang:realtime_tokens_total", rank, modes)
    passes = {mode: count for mode, count in stats.graph_passes.items() if count}
    yield from _by_mode("sglang:cuda_graph_passes_total", rank, passes)
    capacity = settings.kv_capacity_tok
    evictable = engine.cache.evictable_tok
    spec = settings.speculation
    gauges: dict[str, float] = {
        "max_total_num_tokens": capacity,
        "page_size": settings.number("page_size", 1),
        "num_pages": capacity,
        "context_len": settings.context_len,
        "num_running_reqs": stats.running_ct,
        "num_queue_reqs": stats.queue_ct,
        "num_grammar_queue_reqs": 0,
        "gen_throughput": stats.gen_throughput,
        "cache_hit_rate": stats.cache_hit_rate,
        "decode_sum_seq_lens": stats.sum_seq_len_tok,
        "token_usage": stats.token_usage,
        "full_token_usage": stats.token_usage,
        "num_used_tokens": stats.used_tok,
        "kv_available_tokens": max(0, capacity - stats.used_tok - evictable),
        "kv_evictable_tokens": evictable,
        "kv_used_tokens": stats.used_tok,
        "spec_accept_length": stats.accept_length,
        "spec_accept_rate": stats.accept_rate,
        "spec_num_steps": 0 if spec is None else spec.num_steps,
        "spec_num_draft_tokens": 0 if spec is None else spec.num_draft_tokens,
        "utilization": 0.0,
        "fwd_occupancy": float("nan"),
        "is_cuda_graph": stats.is_cuda_graph,
    }
    for name, value in gauges.items():
        yield from _family(f"sglang:{name}", "gauge", [(rank, value)])
    retracted = {**rank, "pid": str(os.getpid())}
    yield from _family("sglang:num_retracted_reqs", "gauge", [(retracted, 0.0)])
    yield from _histogram("sglang:queue_time_seconds", [(rank, stats.queue_time)])


def _by_mode(name: str, labels: Labels, modes: dict[str, int]) -> Iterator[str]:
    samples = [({**labels, "mode": mode}, float(value)) for mode, value in modes.items()]
    return _family(name, "counter", samples)


def _http(stats: Stats) -> Iterator[str]:
    yield from _family(
        "sglang:http_requests_total",
        "counter",
        [
            ({"endpoint": path, "method": method}, float(count))
            for (path, method), count in stats.http_requests.items()
        ],
    )
    yield from _family(
        "sglang:http_responses_total",
        "counter",
        [
            ({"endpoint": path, "method": method, "status_code": str(status)}, float(count))
            for (path, method, status), count in stats.http_responses.items()
        ],
    )
    yield from _family(
        "sglang:http_requests_active",
        "gauge",
        [
            ({"endpoint": path, "method": method}, float(count))
            for (path, method), count in stats.http_active.items()
        ],
    )
