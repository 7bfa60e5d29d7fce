"""What two servers differ in beside speculation, by what they say of themselves."""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING, Final

from bench.sglang.arguments import known_options, option_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench.model import EffectiveConfig

# Values that are another in every launch, or that repeat the speculative settings under another
# name.
PER_LAUNCH: Final = re.compile(
    r"(^|_)(port|ports|host|seed|pid|uuid|url)$|^random_seed$|^dist_init_addr$|^startup_|_time$|_timestamp$|^launch_command$|"
    r"^last_gen_throughput$|^avg_spec_|^_?speculative_|^spec_|^memory_usage$|^log_|_log_|_ipc_name$|^internal_states$|^status$"
)


def speculative_setting(
    effective: EffectiveConfig | None, name: str
) -> str | int | float | bool | None:
    """A resolved speculative setting, e.g. `num_steps`; None when unset or unknown."""
    return dict(effective.speculative).get(name) if effective else None


_NOT_OPTIONS: Final = {
    "decode_graph_batch_sizes": "the CUDA graphs' batch sizes (--cuda-graph-bs-decode)",
    "effective_max_running_requests": "the running limit (--max-running-requests)",
    "max_req_input_len": "the longest input (--context-length)",
    "max_total_num_tokens": "the KV cache's tokens (--max-total-tokens)",
    "version": "SGLang's version",
}
"""Run-time values by what they are, with the argument that pins each."""


def called(name: str) -> str:
    """What to call a resolved value: by SGLang's argument, where there is one that sets it."""
    told = _NOT_OPTIONS.get(name)
    return told or (option_of(name) if name in _options() else name)


@cache
def _options() -> frozenset[str]:
    return frozenset(option.dest for option in known_options())


def config_differences(
    baseline: Sequence[EffectiveConfig], arm: Sequence[EffectiveConfig]
) -> tuple[tuple[str, str, str], ...]:
    """Non-speculative resolved values in which an arm's launches differ from the baseline's.

    A value that varies between launches of one arm is no difference between arms unless no launch
    of the other shares it.

    Returns:
        (name, baseline's values, arm's values), by name; several values of one side are joined by
        " | ".
    """
    if not baseline or not arm:
        return ()
    left, right = [_values(c) for c in baseline], [_values(c) for c in arm]
    names = sorted({name for values in (*left, *right) for name in values})
    differences: list[tuple[str, str, str]] = []
    for name in names:
        ours = {values.get(name, "unset") for values in left}
        theirs = {values.get(name, "unset") for values in right}
        if not ours & theirs:
            differences.append((name, " | ".join(sorted(ours)), " | ".join(sorted(theirs))))
    return tuple(differences)


def _values(config: EffectiveConfig) -> dict[str, str]:
    values = {name: value for name, value in config.other if not PER_LAUNCH.search(name)}
    sizes = config.decode_graph_batch_sizes
    for name, value in (
        ("version", config.version),
        ("max_total_num_tokens", config.max_total_num_tokens),
        # as the argument that pins them is written
        (
            "decode_graph_batch_sizes",
            None if sizes is None else " ".join(map(str, sizes)) or "none",
        ),
    ):
        if value is not None:
            values[name] = str(value)
    return values
