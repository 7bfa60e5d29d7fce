"""What the simulated server says of itself: `/server_info`, `/model_info`, `/v1/models`, loads."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from bench import clock

if TYPE_CHECKING:
    from bench.sglang.arguments import AskedValue
    from bench.simulator.engine import Engine
    from bench.simulator.rank_stats import RankStats
    from bench.simulator.scheduler import Scheduler
    from bench.simulator.settings import Settings

VERSION = "0.5.23"
_DEFAULTS = Path(__file__).with_name("defaults.json")
_NO_GRAPH_TIMES = dict.fromkeys(
    (
        "prefill",
        "decode",
        "target_verify",
        "draft_prefill",
        "draft_decode",
        "draft_extend",
    ),
    0.0,
)

_START = {
    "load_weight": 0.0,
    "kv_cache_allocation": 0.0,
    "scheduler_e2e": 0.0,
    "cuda_graph": _NO_GRAPH_TIMES,
}

_FRONT_END_ONLY = frozenset(
    {"custom_sigquit_handler", "frontend", "hicache_object_layout", "kv_events"}
)
"""Keys of `/server_info` that its `internal_states` do not repeat."""

Json = dict[str, Any]


def resolved_arguments(settings: Settings) -> Json:
    """Every server argument of SGLang 0.5.23 with the value it resolved to."""
    info: Json = msgspec.json.decode(_DEFAULTS.read_bytes())["server_info"]
    for dest, value in settings.asked.items():
        info[dest] = _typed(value, info.get(dest))
    spec = settings.speculation
    draft = settings.text("speculative_draft_model_path")
    if spec is not None:
        info |= {
            "speculative_algorithm": settings.drafting.algorithm,
            "speculative_num_steps": spec.num_steps,
            "speculative_eagle_topk": spec.topk,
            "speculative_num_draft_tokens": spec.num_draft_tokens,
        }
        if settings.adaptive_tiers is not None:
            info["speculative_adaptive"] = True
        elif settings.flag("speculative_adaptive"):
            info["speculative_adaptive"] = False
        if draft is not None and info["speculative_draft_model_revision"] is None:
            info["speculative_draft_model_revision"] = "main"
    asked_running = settings.number("max_running_requests", 0)
    limited = asked_running or (settings.max_running_requests if spec is not None else None)
    info |= {
        "served_model_name": settings.model_name,
        "tokenizer_path": settings.text("tokenizer_path") or settings.text("model_path"),
        "tp_size": settings.tp,
        "chunked_prefill_size": settings.chunked_prefill_tok,
        "mem_fraction_static": settings.mem_fraction_static,
        "max_running_requests": limited,
        "cuda_graph_config": _graph_config(settings),
    }
    for secret in ("api_key", "admin_api_key"):
        if info.get(secret) is not None:
            info[secret] = "<redacted>"
    return info


def server_info(settings: Settings, arguments: Json, engine: Engine) -> Json:
    """The body of `/server_info`."""
    longest = min(settings.context_len, settings.kv_capacity_tok) - 1
    several = {"scheduler_pids": [os.getpid()] * settings.dp} if settings.dp > 1 else {}
    return arguments | {
        "launch_command": shlex.join(settings.argv),
        "status": "ready",
        "max_total_num_tokens": settings.kv_capacity_tok,
        "max_req_input_len": longest - 5,
        "startup_time": _START | {"tokenizer_e2e": 0.0},
        "internal_states": [
            _internal_state(settings, arguments, rank.stats) for rank in engine.schedulers
        ],
        "version": VERSION,
        "simulated": simulated(settings, engine),
        **several,
    }


def _internal_state(settings: Settings, arguments: Json, stats: RankStats) -> Json:
    """What one scheduler says of itself."""
    memory = settings.hardware.memory_gib
    ranks = {name: value for name, value in arguments.items() if name not in _FRONT_END_ONLY}
    state = ranks | {
        "world_size": settings.tp * settings.dp,
        "startup_time": _START,
        "effective_max_running_requests_per_dp": settings.max_running_requests,
        "last_gen_throughput": stats.last_gen_throughput,
        "memory_usage": {
            "weight": 0.0,
            "kvcache": 0.0,
            "startup_available": round(memory * (1 - settings.mem_fraction_static), 3),
            "token_capacity": settings.kv_capacity_tok,
            "token_capacity_swa": None,
            "graph": _NO_GRAPH_TIMES,
        },
        "decode_cuda_graph_bs": list(settings.graph_batch_sizes),
        "decode_cuda_graph_memory_gb": 0.0,
    }
    if stats.total_forward_ct:
        state["avg_spec_accept_length"] = stats.total_accept_tok / stats.total_forward_ct
    return state


def simulated(settings: Settings, engine: Engine) -> Json:
    """That this is a simulation, of what, and how well it kept time."""
    return {
        "by": "specdyno",
        "hardware": settings.hardware.name,
        "target": settings.target.name,
        "acceptance": settings.acceptance.name,
        "seed": settings.seed,
        "speed": clock.speed(),
        "launch_factor": engine.launch_factor,
        "behind_max_ms": engine.behind_max_ns / 1e6,
        "not_modelled": list(settings.not_modelled),
        "faults": [fault.text for fault in settings.faults],
    }


def model_info(settings: Settings) -> Json:
    """The body of `/model_info`."""
    info: Json = msgspec.json.decode(_DEFAULTS.read_bytes())["model_info"]
    return info | {
        "model_path": settings.text("model_path"),
        "served_model_name": settings.model_name,
        "tokenizer_path": settings.text("tokenizer_path") or settings.text("model_path"),
        "reasoning_parser": settings.text("reasoning_parser"),
        "tool_call_parser": settings.text("tool_call_parser"),
        "model_type": settings.target.model_type,
        "architectures": [settings.target.architecture],
    }


def models(settings: Settings) -> Json:
    """The body of `/v1/models`."""
    model = {
        "id": settings.model_name,
        "object": "model",
        "created": int(clock.utc_now().timestamp()),
        "owned_by": "sglang",
        "root": settings.model_name,
        "parent": None,
        "max_model_len": settings.context_len,
    }
    return {"object": "list", "data": [model]}


def loads(settings: Settings, engine: Engine, include: set[str], dp_rank: int | None) -> Json:
    """The body of `/v1/loads`; sections beyond the core as asked for, of one rank or of all."""
    now = clock.utc_now()
    return {
        "timestamp": now.isoformat(),
        "version": VERSION,
        "accelerator": None,
        "num_accelerators": settings.tp * settings.dp,
        "loads": [
            {"timestamp": now.timestamp(), **_load(settings, rank, include)}
            for rank in engine.schedulers
            if dp_rank in {None, rank.rank}
        ],
    }


def _load(settings: Settings, rank: Scheduler, include: set[str]) -> Json:
    stats = rank.stats
    used = rank.pool.used_tok
    waiting_tok = sum(request.context_tok for request in rank.waiting)
    load: Json = {
        "dp_rank": rank.rank,
        "num_running_reqs": len(rank.running),
        "num_waiting_reqs": len(rank.waiting),
        "num_waiting_uncached_tokens": waiting_tok,
        "num_used_tokens": used,
        "num_total_tokens": used + waiting_tok,
        "num_active_tokens": used,
        "num_prealloc_ready_tokens": 0,
        "max_total_num_tokens": settings.kv_capacity_tok,
        "max_running_requests": settings.max_running_requests,
        "token_usage": round(used / settings.kv_capacity_tok, 4),
        "gen_throughput": stats.gen_throughput,
        "cache_hit_rate": round(stats.cache_hit_rate, 4),
        "utilization": 0.0,
        "total_prefill_uncached_tokens": stats.prefill_compute_tok,
    }
    every = "all" in include
    if every or "memory" in include:
        memory = {"weight_gb": 0.0, "kv_cache_gb": 0.0, "graph_gb": 0.0}
        load["memory"] = memory | {"token_capacity": settings.kv_capacity_tok}
    if (every or "spec" in include) and stats.total_forward_ct:
        load["speculative"] = {
            "accept_length": stats.total_accept_tok / stats.total_forward_ct,
            "accept_rate": stats.accept_rate,
        }
    if every or "queues" in include:
        queues = dict.fromkeys(("grammar", "paused", "retracted", "prealloc_ready"), 0)
        load["queues"] = {"waiting": len(rank.waiting), **queues}
    return load


def _graph_config(settings: Settings) -> Json:
    sizes = list(settings.graph_batch_sizes)
    unset = {
        "tc_compiler": "eager",
        "max_context_size": None,
        "full_prefill_max_req": None,
        "full_prefill_prefix_chunk_tokens": None,
        "max_seq_len": None,
    }
    decode: Json = {"backend": "full" if sizes else "disabled", "max_bs": max(sizes, default=None)}
    prefill: Json = {"backend": "disabled", "max_bs": None, "bs": []}
    return {"decode": decode | {"bs": sizes} | unset, "prefill": prefill | unset}


def _typed(value: AskedValue, default: object) -> object:
    """An argument's word as the type that `/server_info` has for it."""
    if isinstance(value, list):
        return [_typed(item, None) for item in value]
    if value is True or isinstance(default, str):
        return value
    if isinstance(default, float):
        return float(value)
    if isinstance(value, str) and value.isdecimal():
        return int(value)
    return value
