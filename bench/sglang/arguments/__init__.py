"""SGLang's command line: what was asked, what it will become, what it would not start with.

    asked = parse_arguments(["--speculative-algorithm", "EAGLE3", …])
    outcome = effective_speculative(asked, Known(gpu="hopper", target=read_model_facts(path)))

Nothing here needs SGLang. The rules are those of 0.5.23, a row each in `RULES`; docs/arguments.md
explains them. `bench.sglang.own_resolution` asks SGLang itself.
"""

from __future__ import annotations

from bench.sglang.arguments.eagle import tree_capacity_tok
from bench.sglang.arguments.graphs import graph_batch_sizes, known_graph_batch_sizes
from bench.sglang.arguments.known import (
    NOTHING,
    SUPPORTED,
    GpuClass,
    Known,
    ModelFacts,
    attention_of,
    gpu_class_of,
    model_facts,
    read_model_facts,
)
from bench.sglang.arguments.likeness import likeness
from bench.sglang.arguments.options import Option, find_option, known_options, option_of
from bench.sglang.arguments.outcome import (
    Advice,
    Change,
    EffectiveSpeculative,
    Rejection,
    by_rule,
)
from bench.sglang.arguments.parsing import (
    AskedValue,
    asked_text,
    is_speculative,
    parse_arguments,
    whole_number,
)
from bench.sglang.arguments.resolving import effective_speculative
from bench.sglang.arguments.rules import RULES, RULES_BY_ID, Rule
from bench.sglang.arguments.working import EAGLE_FAMILY

__all__ = [
    "EAGLE_FAMILY",
    "NOTHING",
    "RULES",
    "RULES_BY_ID",
    "SUPPORTED",
    "Advice",
    "AskedValue",
    "Change",
    "EffectiveSpeculative",
    "GpuClass",
    "Known",
    "ModelFacts",
    "Option",
    "Rejection",
    "Rule",
    "asked_text",
    "attention_of",
    "by_rule",
    "effective_speculative",
    "find_option",
    "gpu_class_of",
    "graph_batch_sizes",
    "is_speculative",
    "known_graph_batch_sizes",
    "known_options",
    "likeness",
    "model_facts",
    "option_of",
    "parse_arguments",
    "read_model_facts",
    "tree_capacity_tok",
    "whole_number",
]
