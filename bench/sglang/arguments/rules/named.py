"""Rules that have a name in place of a number."""

from __future__ import annotations

from typing import Final

from bench.sglang.arguments.rules.rule import Rule

NAMED: Final = (
    Rule(
        id="tree",
        source="speculative/eagle_utils.py",
        asked="more draft tokens than 1 + topk + (steps - 1) * topk^2",
        server="fails at its first draft, after loading",
        ours="reject",
        always=True,
    ),
    Rule(
        id="auto",
        asked="EAGLE family with none of steps, topk and draft tokens",
        server="5, 4, 8 for LlamaForCausalLM and Grok-1, else 3, 1, 4",
        ours="change",
    ),
    Rule(
        id="adaptive-cpu",
        source="speculative/eagle_worker_v2.py",
        asked="adaptive on a CPU without --disable-cuda-graph",
        server="NotImplementedError after loading",
        ours="reject",
    ),
    Rule(
        id="context",
        source="managers/tokenizer_manager.py, managers/utils.py",
        asked="prompt and answer longer than the context less what EAGLE keeps for drafts, "
        "max(topk * steps, draft tokens)",
        server="refuses every request",
        ours="reject",
        always=True,
    ),
    Rule(
        id="algorithm",
        source="speculative/spec_info.py",
        asked="an algorithm that SGLang has not of its own",
        server="ValueError unless a plug-in registers it",
        ours="advise",
    ),
    Rule(
        id="name",
        source="server_args.py",
        asked="an option that there is not, or a shortened one that could be several",
        server="ends with exit status 2",
        ours="reject",
    ),
    Rule(
        id="number",
        source="arg_groups/fields/",
        asked="an option that wants a number and is given none; fewer than one step, branch, "
        "draft token or running request where these count",
        server="ends with exit status 2, or fails once it has loaded",
        ours="reject",
        always=True,
    ),
    Rule(
        id="value",
        source="server_args.py, arg_groups/arg_utils.py",
        asked="a flag with a value, an option without one, a choice that there is not, JSON that "
        "is none, a word that belongs to no option",
        server="ends with exit status 2",
        ours="reject",
    ),
    Rule(
        id="idle",
        asked="speculative arguments that the algorithm does not read",
        server="ignores them",
        ours="advise; such arms are alike",
    ),
    Rule(
        id="spec-v2",
        source="sgl-project/sglang#13352, #14077",
        asked="SGLANG_ENABLE_SPEC_V2 with topk above 1",
        server="fails with a tensor size mismatch; since 0.5.23 the variable is not read",
        ours="reject before 0.5.12, advise on 0.5.23",
    ),
)
