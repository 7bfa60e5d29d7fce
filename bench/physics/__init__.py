"""What a decoding step costs and what acceptance gains: cards and pure functions over them.

Everything here is arithmetic on plain numbers: no numpy, no clock, no server. The simulator, the
plan's estimate and the `limit_tok_per_s` column all use it. Cards (of hardware, target models,
drafts and acceptance) are YAML files under `cards/`, or a user's own by path; their fields are
documented on the dataclasses and in docs/physics.md.
"""

from __future__ import annotations

from bench.physics.acceptance import (
    AcceptanceCard,
    accept_len_tok,
    chain_reach,
    reach_of,
    tree_reach,
)
from bench.physics.allreduce import Communication, allreduce_us, nccl_us, with_communication
from bench.physics.cards import DraftCard, HardwareCard, Links, TargetCard, WeightPart
from bench.physics.engines import (
    SGLANG_0_4_4,
    SGLANG_0_5_23,
    SGLANG_0_5_SPEC_V1,
    Engine,
    graph_batch,
)
from bench.physics.reading import load_acceptance, load_draft, load_hardware, load_target
from bench.physics.steps import Speculation, StepTime, decode_step, mixed_step, prefill_time
from bench.physics.weights import (
    flop_per_token,
    kv_bytes_per_token_per_gpu,
    kv_capacity_tok,
    limit_tok_per_s,
    unique_experts,
    weight_bytes_per_gpu,
)

__all__ = [
    "SGLANG_0_4_4",
    "SGLANG_0_5_23",
    "SGLANG_0_5_SPEC_V1",
    "AcceptanceCard",
    "Communication",
    "DraftCard",
    "Engine",
    "HardwareCard",
    "Links",
    "Speculation",
    "StepTime",
    "TargetCard",
    "WeightPart",
    "accept_len_tok",
    "allreduce_us",
    "chain_reach",
    "decode_step",
    "flop_per_token",
    "graph_batch",
    "kv_bytes_per_token_per_gpu",
    "kv_capacity_tok",
    "limit_tok_per_s",
    "load_acceptance",
    "load_draft",
    "load_hardware",
    "load_target",
    "mixed_step",
    "nccl_us",
    "prefill_time",
    "reach_of",
    "tree_reach",
    "unique_experts",
    "weight_bytes_per_gpu",
    "with_communication",
]
