"""What a server says it is, and where that departs from what was asked.

SGLang's `/server_info` reports its resolved arguments flat beside some run-time values, and once
more for each data-parallel rank in `internal_states`, with what only the scheduler knows (captured
graph sizes, the running limit once memory was counted).
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from bench.http import REDACTED, is_secret_name, redact
from bench.model import EffectiveConfig
from bench.sglang.arguments import AskedValue, asked_text, parse_arguments

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

SPECULATIVE_PREFIX = "speculative_"
RUNNING_LIMIT = "effective_max_running_requests"
"""Our name, in `EffectiveConfig.other`, for `effective_max_running_requests_per_dp` summed."""

_NOT_SETTINGS = frozenset(
    {
        # read into fields of their own
        "internal_states",
        "max_total_num_tokens",
        "version",
        "simulated",
        # state and times, not settings
        "status",
        "startup_time",
        "kv_events",
        "hicache_object_layout",
        "launch_command",
        # different in every launch by design (process ids: `_is_process_id`)
        "host",
        "port",
        "nccl_port",
        "dist_init_addr",
        "grpc_port",
        "random_seed",
        # secrets
        "api_key",
        "admin_api_key",
        "ssl_keyfile_password",
        "watermark_key",
        "watermark_key_b",
    }
)
"""Keys of `/server_info` that are no settings, differ in every launch, or must not be stored."""

_OF_ONE_WORKER = frozenset(
    {RUNNING_LIMIT, "base_gpu_id", "max_req_input_len", "node_rank", "served_model_name"}
)
"""What alike workers may differ in: where they run, and what their memory came to."""


def effective_config(server_info: Mapping[str, object]) -> EffectiveConfig:
    """The server's own account of its settings.

    Speculative settings keep their type, without the prefix (`num_steps`); all others become text:
    strings as they are, the rest as JSON. Keys that differ in every launch (port, random seed,
    times) and secrets are left out.

    Args:
        server_info: The body of `/server_info`.
    """
    states = _states(server_info)
    settings = {
        key: value
        for key, value in server_info.items()
        if key not in _NOT_SETTINGS
        and not key.startswith("_")
        and not _is_process_id(key)
        and not is_secret_name(key)
    }
    speculative = {
        key.removeprefix(SPECULATIVE_PREFIX): _scalar(value)
        for key, value in settings.items()
        if key.startswith(SPECULATIVE_PREFIX)
    }
    other = {
        key: _text(value)
        for key, value in settings.items()
        if not key.startswith(SPECULATIVE_PREFIX)
    }
    limits = [_whole(state.get("effective_max_running_requests_per_dp")) for state in states]
    if limits and None not in limits:
        other[RUNNING_LIMIT] = str(sum(limit for limit in limits if limit is not None))
    version = server_info.get("version")
    return EffectiveConfig(
        speculative=tuple(sorted(speculative.items())),
        other=tuple(sorted(other.items())),
        version=version if isinstance(version, str) else None,
        simulated=bool(server_info.get("simulated")),
        max_total_num_tokens=_kv_capacity_tok(server_info, states),
        decode_graph_batch_sizes=_graph_sizes(states),
    )


def _is_process_id(key: str) -> bool:
    """`pid`, `scheduler_pids` and the like: of one launch, and no setting."""
    return key.rpartition("_")[2] in {"pid", "pids"}


def of_workers(configs: Sequence[EffectiveConfig]) -> EffectiveConfig:
    """Several workers behind one address as one server; of one worker it is its own account.

    Settings are the first worker's (`worker_differences` tells where others depart from it);
    capacity is summed, of running limits the least counts, graph sizes are those of all.
    """
    first = configs[0]
    if len(configs) == 1:
        return first
    capacities = [config.max_total_num_tokens for config in configs]
    limits = [_number(dict(config.other).get(RUNNING_LIMIT, "")) for config in configs]
    sizes = [config.decode_graph_batch_sizes for config in configs]
    other = {key: value for key, value in first.other if key != RUNNING_LIMIT}
    if None not in limits:
        other[RUNNING_LIMIT] = f"{min(limit for limit in limits if limit is not None):g}"
    return replace(
        first,
        other=tuple(sorted(other.items())),
        simulated=any(config.simulated for config in configs),
        max_total_num_tokens=None
        if None in capacities
        else sum(capacity for capacity in capacities if capacity is not None),
        decode_graph_batch_sizes=None
        if None in sizes
        else tuple(sorted(set.intersection(*(set(each or ()) for each in sizes)))),
    )


def worker_differences(
    configs: Sequence[EffectiveConfig],
) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Settings that workers of one server do not share: (name, each distinct value)."""
    reported = [_reported(config) | {"version": config.version or "unknown"} for config in configs]
    names = sorted({name for each in reported for name in each} - _OF_ONE_WORKER)
    values = {
        name: tuple(dict.fromkeys(each.get(name, "unset") for each in reported)) for name in names
    }
    return tuple((name, found) for name, found in values.items() if len(found) > 1)


def _states(server_info: Mapping[str, object]) -> list[Mapping[str, object]]:
    states = server_info.get("internal_states")
    if not isinstance(states, list):
        return []
    return [state for state in states if isinstance(state, dict)]


def _kv_capacity_tok(
    server_info: Mapping[str, object], states: Sequence[Mapping[str, object]]
) -> int | None:
    """KV capacity over all ranks: the flat value is one rank's."""
    capacities = []
    for state in states:
        usage = state.get("memory_usage")
        capacities.append(_whole(usage.get("token_capacity")) if isinstance(usage, dict) else None)
    one_rank = _whole(server_info.get("max_total_num_tokens"))
    if len(states) <= 1:
        return one_rank if one_rank is not None else next(iter(capacities), None)
    if None not in capacities:
        return sum(capacity for capacity in capacities if capacity is not None)
    return None if one_rank is None else one_rank * len(states)


def _graph_sizes(states: Sequence[Mapping[str, object]]) -> tuple[int, ...] | None:
    """Batch sizes captured on every rank; None when a rank does not tell."""
    sizes: set[int] | None = None
    for state in states:
        captured = state.get("decode_cuda_graph_bs")
        if not isinstance(captured, list):
            return None
        here = {size for size in captured if isinstance(size, int)}
        sizes = here if sizes is None else sizes & here
    return None if sizes is None else tuple(sorted(sizes))


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _scalar(value: object) -> str | int | float | bool | None:
    return value if value is None or isinstance(value, int | float | bool) else _text(value)


def _text(value: object) -> str:
    """A setting as it is stored: whatever a server tells of itself, no secret."""
    plain = (
        value if isinstance(value, str) else json.dumps(_without_secrets(value), sort_keys=True)
    )
    return redact(plain)


def _without_secrets(value: object) -> object:
    if isinstance(value, dict):
        return {
            key: REDACTED if inner and is_secret_name(str(key)) else _without_secrets(inner)
            for key, inner in value.items()
        }
    return [_without_secrets(inner) for inner in value] if isinstance(value, list) else value


# --------------------------------------------------------------------------- asked and effective


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One setting that is not what the command line asked for; both values as text."""

    name: str
    asked: str
    effective: str


_SPELLINGS = {
    "half": "float16",
    "float": "float32",
    "bf16": "bfloat16",
    "nextn": "eagle",
    "nsa": "dsa",
    "tokenspeed_mla": "cutedsl_mla",
    "unquant": "null",
}
"""Asked spellings (lower case) that SGLang reports under another; equal, not different."""


def differences(arguments: Sequence[str], effective: EffectiveConfig) -> tuple[Difference, ...]:
    """Where the server's resolved settings are not those its command line asked for.

    Only what was asked is compared. Numbers compare as numbers, flags as flags, names without
    regard to case, paths literally; `auto` asks for nothing in particular. Settings that the
    server does not report cannot be compared and are left out.

    Args:
        arguments: The command line, as in ServerConfig.arguments.
        effective: The server's account.
    """
    asked = parse_arguments(arguments)
    found = _reported(effective)
    different = []
    for dest, value in asked.items():
        if dest in _NOT_SETTINGS or dest not in found or _means_auto(value):
            continue
        reported = found[_reported_under(dest, asked, found)]
        if not _equal(value, reported):
            different.append(Difference(name=dest, asked=_asked_words(value), effective=reported))
    limit = _reduced_running_limit(asked, effective)
    return (*different, limit) if limit else tuple(different)


def _reported(effective: EffectiveConfig) -> dict[str, str]:
    speculative = {
        SPECULATIVE_PREFIX + name: _text(value) for name, value in effective.speculative
    }
    return speculative | dict(effective.other)


def _reported_under(dest: str, asked: Mapping[str, AskedValue], found: Mapping[str, str]) -> str:
    """`--dp-size N --enable-dp-attention` is the old way to write `--attn-dp-size N`."""
    renamed = dest == "dp_size" and "enable_dp_attention" in asked and "attn_dp_size" in found
    return "attn_dp_size" if renamed and _equal(asked[dest], found["attn_dp_size"]) else dest


def _means_auto(value: AskedValue) -> bool:
    return isinstance(value, str) and value.lower() == "auto"


def _equal(asked: AskedValue, reported: str) -> bool:
    if asked is True:
        return reported == "true"
    if isinstance(asked, list):
        return asked == _words_of(reported)
    asked_number, reported_number = _number(asked), _number(reported)
    if asked_number is not None and reported_number is not None:
        return asked_number == reported_number
    same_name = "/" not in asked and _spelling(asked) == _spelling(reported)
    return asked == reported or same_name or _same_json(asked, reported)


def _spelling(name: str) -> str:
    return _SPELLINGS.get(name.lower(), name.lower())


def _words_of(reported: str) -> list[str]:
    try:
        value = json.loads(reported)
    except (ValueError, RecursionError):
        return reported.split()
    return [_text(item) for item in value] if isinstance(value, list) else [reported]


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _same_json(asked: str, reported: str) -> bool:
    """Whether a JSON argument is contained in what is reported (the server fills in the rest)."""
    try:
        return _contained(json.loads(asked), json.loads(reported))
    except (ValueError, RecursionError):
        return False


def _contained(part: object, whole: object) -> bool:
    if isinstance(part, dict) and isinstance(whole, dict):
        return all(key in whole and _contained(value, whole[key]) for key, value in part.items())
    return part == whole


def _asked_words(value: AskedValue) -> str:
    if value is True:
        return "true"
    return " ".join(value) if isinstance(value, list) else value


def _reduced_running_limit(
    asked: Mapping[str, AskedValue], effective: EffectiveConfig
) -> Difference | None:
    """C12: too little KV memory lowers the running limit; only the schedulers' states tell."""
    wanted = _number(asked_text(asked, "max_running_requests") or "")
    running = dict(effective.other).get(RUNNING_LIMIT)
    limit = None if running is None else _number(running)
    if wanted is None or running is None or limit is None or limit >= wanted:
        return None
    return Difference(name="max_running_requests", asked=f"{wanted:g}", effective=running)
