"""What SGLang's Prometheus series mean: which may be averaged, and which only look like it.

Source: SGLang 0.5.23 `observability/metrics_collector.py` and
`scheduler_components/metrics_reporter.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping


class SeriesKind(StrEnum):
    """What a reading of a series tells."""

    COUNTER = "counter"  # grows; what it rose by between two readings is exact
    LAST_INTERVAL = "last_interval"  # a ratio or rate over the last log interval alone: a sample
    STATE = "state"  # how things stand at the last log tick: may be averaged over time
    CONSTANT = "constant"  # set once at the start


@dataclass(frozen=True, slots=True, kw_only=True)
class Meaning:
    """One series.

    Attributes:
        kind: What a reading tells.
        over_labels: How several label sets of one data-parallel rank (streaming or not, cache
            sources, priorities) become one value.
        is_kept: Whether telemetry keeps it.
    """

    kind: SeriesKind
    over_labels: Literal["sum", "max"]
    is_kept: bool = False


_COUNT = Meaning(kind=SeriesKind.COUNTER, over_labels="sum")
_KEPT_COUNT = Meaning(kind=SeriesKind.COUNTER, over_labels="sum", is_kept=True)
_KEPT_STATE_SUM = Meaning(kind=SeriesKind.STATE, over_labels="sum", is_kept=True)
_STATE_SUM = Meaning(kind=SeriesKind.STATE, over_labels="sum")
_KEPT_STATE_MAX = Meaning(kind=SeriesKind.STATE, over_labels="max", is_kept=True)
_STATE_MAX = Meaning(kind=SeriesKind.STATE, over_labels="max")
_LAST_MAX = Meaning(kind=SeriesKind.LAST_INTERVAL, over_labels="max")
_KEPT_LAST_MAX = Meaning(kind=SeriesKind.LAST_INTERVAL, over_labels="max", is_kept=True)
_KEPT_LAST_SUM = Meaning(kind=SeriesKind.LAST_INTERVAL, over_labels="sum", is_kept=True)
_LAST_SUM = Meaning(kind=SeriesKind.LAST_INTERVAL, over_labels="sum")
_CONSTANT = Meaning(kind=SeriesKind.CONSTANT, over_labels="max")

MEANINGS: Final[Mapping[str, Meaning]] = {
    # speculation
    "sglang:spec_accept_length": _KEPT_LAST_MAX,
    "sglang:spec_accept_rate": _LAST_MAX,
    "sglang:spec_cap_length": _LAST_MAX,
    "sglang:spec_block_accept_length": _LAST_MAX,
    "sglang:spec_num_steps": _KEPT_STATE_MAX,
    "sglang:spec_num_draft_tokens": _STATE_MAX,
    "sglang:spec_verify_calls_total": _KEPT_COUNT,
    # requests and tokens, counted when a request ends
    "sglang:generation_tokens_total": _KEPT_COUNT,
    "sglang:prompt_tokens_total": _KEPT_COUNT,
    "sglang:cached_tokens_total": _KEPT_COUNT,
    "sglang:num_requests_total": _KEPT_COUNT,
    "sglang:queue_time_seconds_sum": _KEPT_COUNT,  # of its histogram
    "sglang:num_aborted_requests_total": _KEPT_COUNT,
    # the same at every step
    "sglang:realtime_tokens_total": _KEPT_COUNT,
    "sglang:cuda_graph_passes_total": _KEPT_COUNT,
    "sglang:num_retracted_requests_total": _KEPT_COUNT,
    "sglang:num_retracted_input_tokens_total": _COUNT,
    "sglang:num_retracted_output_tokens_total": _COUNT,
    "sglang:forward_execution_seconds_total": _COUNT,
    "sglang:scheduler_idle_seconds_total": _COUNT,
    "sglang:scheduler_process_cpu_seconds_total": _COUNT,
    "sglang:scheduler_stage_seconds_total": _COUNT,
    "sglang:dp_attention_tokens_total": _COUNT,
    "sglang:dp_attention_steps_total": _COUNT,
    # the batch and its memory
    "sglang:num_running_reqs": _KEPT_STATE_SUM,
    "sglang:num_queue_reqs": _KEPT_STATE_SUM,
    "sglang:num_grammar_queue_reqs": _STATE_SUM,
    "sglang:num_used_tokens": _KEPT_STATE_SUM,
    "sglang:kv_available_tokens": _STATE_SUM,
    "sglang:kv_evictable_tokens": _STATE_SUM,
    "sglang:kv_used_tokens": _STATE_SUM,
    "sglang:decode_sum_seq_lens": _STATE_SUM,
    "sglang:token_usage": _KEPT_STATE_MAX,
    "sglang:full_token_usage": _STATE_MAX,
    "sglang:swa_token_usage": _STATE_MAX,
    "sglang:mamba_usage": _STATE_MAX,
    "sglang:new_token_ratio": _STATE_MAX,
    "sglang:is_cuda_graph": _KEPT_STATE_MAX,
    # rates and shares of the last interval, or of the last prefill
    "sglang:gen_throughput": _KEPT_LAST_SUM,
    "sglang:cache_hit_rate": _KEPT_LAST_MAX,
    "sglang:utilization": _LAST_MAX,
    "sglang:fwd_occupancy": _LAST_MAX,
    "sglang:num_retracted_reqs": _LAST_SUM,
    # of the bundled simulated server: how much it served too late
    "specdyno_simulated_late_seconds_total": _KEPT_COUNT,
    # set at the start
    "sglang:max_total_num_tokens": _CONSTANT,
    "sglang:weight_memory_usage_gb": _CONSTANT,
    "sglang:kv_cache_memory_usage_gb": _CONSTANT,
    "sglang:graph_memory_usage_gb": _CONSTANT,
    "sglang:page_size": _CONSTANT,
    "sglang:num_pages": _CONSTANT,
    "sglang:context_len": _CONSTANT,
    "sglang:startup_available_gpu_memory_gb": _CONSTANT,
    "sglang:startup_time_seconds": _CONSTANT,
}
"""Every series whose meaning is known (histograms aside)."""

SERIES: Final[Mapping[str, Meaning]] = {
    name: meaning for name, meaning in MEANINGS.items() if meaning.is_kept
}
"""Those kept as telemetry."""


TOTAL_LABELS: Final[Mapping[str, str]] = {"priority": ""}
"""The label values under which a server with priorities tells the total of a gauge, beside the
part of each priority under its own."""


def may_be_averaged(name: str) -> bool:
    """Whether readings of a series over time have a mean that means something.

    Readings of a last-interval gauge are samples at unequal weights, some of them stale: what they
    sample has a counter, whose rise is exact.
    """
    meaning = MEANINGS.get(name.partition("{")[0])
    return meaning is None or meaning.kind is SeriesKind.STATE
