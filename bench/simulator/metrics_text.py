"""`/metrics`: Prometheus text with those of SGLang's names and labels that mean something here."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from bench import clock

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from bench.simulator.engine import Engine
    from bench.simulator.rank_stats import RankStats
    from bench.simulator.settings import Settings
    from bench.simulator.stats import Histogram, Stats

Labels = dict[str, str]


def render(settings: Settings, stats: Stats, engine: Engine) -> str:
    """The whole page."""
    lines: list[str] = []
    lines += _requests(settings, stats)
    lines += _schedulers(settings, engine)
    lines += _http(stats)
    lines += _family("specdyno_simulated", "gauge", [({}, 1.0)])
    behind_ms = engine.behind_max_ns / 1e6
    lines += _family("specdyno_simulated_behind_max_ms", "gauge", [({}, behind_ms)])
    late_s = engine.late_step_ns / 1e9
    lines += _family("specdyno_simulated_late_seconds_total", "counter", [({}, late_s)])
    lines += _family("specdyno_simulated_speed", "gauge", [({}, float(clock.speed()))])
    return "\n".join(lines) + "\n"


def _family(name: str, kind: str, samples: Sequence[tuple[Labels, float]]) -> Iterator[str]:
    if not samples:
        return
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


def _schedulers(settings: Settings, engine: Engine) -> Iterator[str]:
    """What SGLang's schedulers set at log ticks, and their constants."""
    ranks = [(_labels_of(settings, rank.rank), rank.stats) for rank in engine.schedulers]
    yield from _by_mode(
        "sglang:realtime_tokens_total",
        [
            (
                labels,
                {
                    "prefill_compute": stats.prefill_compute_tok,
                    "prefill_cache": stats.prefill_cache_tok,
                    "decode": stats.decode_tok,
                },
            )
            for labels, stats in ranks
        ],
    )
    yield from _by_mode(
        "sglang:cuda_graph_passes_total",
        [
            (labels, {mode: count for mode, count in stats.graph_passes.items() if count})
            for labels, stats in ranks
        ],
    )
    gauges = [(labels, _gauges(settings, stats)) for labels, stats in ranks]
    for name in gauges[0][1]:
        samples = [(labels, values[name]) for labels, values in gauges]
        yield from _family(f"sglang:{name}", "gauge", samples)
    pid = str(os.getpid())
    yield from _family(
        "sglang:num_retracted_reqs",
        "gauge",
        [({**labels, "pid": pid}, float(stats.retracted_ct)) for labels, stats in ranks],
    )
    thrown_out = [(labels, stats) for labels, stats in ranks if stats.all_retracted_ct]
    for name, counts in (
        ("requests", [(labels, s.all_retracted_ct) for labels, s in thrown_out]),
        ("input_tokens", [(labels, s.retracted_input_tok) for labels, s in thrown_out]),
        ("output_tokens", [(labels, s.retracted_output_tok) for labels, s in thrown_out]),
    ):
        lines = [(labels, float(count)) for labels, count in counts]
        yield from _family(f"sglang:num_retracted_{name}_total", "counter", lines)
    yield from _histogram(
        "sglang:queue_time_seconds", [(labels, stats.queue_time) for labels, stats in ranks]
    )


def _labels_of(settings: Settings, rank: int) -> Labels:
    labels = {
        "engine_type": "unified",
        "model_name": settings.model_name,
        "moe_ep_rank": "0",
        "pp_rank": "0",
        "tp_rank": "0",
    }
    return {**labels, "dp_rank": str(rank)} if settings.dp > 1 else labels


def _gauges(settings: Settings, stats: RankStats) -> dict[str, float]:
    capacity = settings.kv_capacity_tok
    return {
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
        "kv_available_tokens": max(0, capacity - stats.used_tok - stats.evictable_tok),
        "kv_evictable_tokens": stats.evictable_tok,
        "kv_used_tokens": stats.used_tok,
        "new_token_ratio": stats.new_token_ratio,
        "spec_accept_length": stats.accept_length,
        "spec_accept_rate": stats.accept_rate,
        "spec_num_steps": stats.num_steps,
        "spec_num_draft_tokens": stats.num_draft_tokens,
        "utilization": 0.0,
        "fwd_occupancy": float("nan"),
        "is_cuda_graph": stats.is_cuda_graph,
    }


def _by_mode(name: str, ranks: list[tuple[Labels, dict[str, int]]]) -> Iterator[str]:
    samples = [
        ({**labels, "mode": mode}, float(value))
        for labels, modes in ranks
        for mode, value in modes.items()
    ]
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
