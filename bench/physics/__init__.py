"""What a decoding step costs and what acceptance gains: cards and pure functions over them.

Everything here is arithmetic on plain numbers: no numpy, no clock, no server. The simulator, the
plan's estimate and the `limit_tok_per_s` column all use it. Cards (of hardware, target models and
drafts) are YAML files under `cards/`; their fields are documented on the dataclasses.
"""

from __future__ import annotations

from bench.physics.acceptance import AcceptanceCard, accept_len_tok, reach_of, tree_reach
from bench.physics.cards import (
    HardwareCard,
    TargetCard,
    WeightPart,
    load_acceptance,
    load_hardware,
    load_target,
)
from bench.physics.steps import (
    Speculation,
    StepTime,
    allreduce_us,
    decode_step,
    kv_bytes_per_token_per_gpu,
    kv_capacity_tok,
    limit_tok_per_s,
    prefill_time,
    unique_experts,
    weight_bytes_per_gpu,
)

__all__ = [
    "AcceptanceCard",
    "HardwareCard",
    "Speculation",
    "StepTime",
    "TargetCard",
    "WeightPart",
    "accept_len_tok",
    "allreduce_us",
    "decode_step",
    "kv_bytes_per_token_per_gpu",
    "kv_capacity_tok",
    "limit_tok_per_s",
    "load_acceptance",
    "load_hardware",
    "load_target",
    "prefill_time",
    "reach_of",
    "tree_reach",
    "unique_experts",
    "weight_bytes_per_gpu",
]
