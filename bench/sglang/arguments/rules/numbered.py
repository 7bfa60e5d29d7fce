"""C1 to C44, numbered as in docs/arguments.md."""

from __future__ import annotations

from typing import Final

from bench.sglang.arguments.rules.rule import Rule

NUMBERED: Final = (
    Rule(
        id="C1",
        asked="EAGLE family: steps without topk",
        server="TypeError at start",
        ours="reject",
        always=True,
    ),
    Rule(
        id="C2",
        asked="EAGLE family, not adaptive: topk or draft tokens without steps",
        server="AssertionError at start",
        ours="reject",
        always=True,
    ),
    Rule(
        id="C3",
        asked="topk 1 with draft tokens other than steps + 1",
        server="draft tokens become steps + 1",
        ours="change",
        always=True,
    ),
    Rule(
        id="C4",
        asked="topk above 1 without draft tokens",
        server="TypeError after loading",
        ours="reject",
        always=True,
    ),
    Rule(
        id="C5",
        asked="topk above 1 and a page size above 1, backend not flashinfer, fa3 or triton "
        "(before 0.5.12 not flashinfer)",
        server="ValueError at start",
        ours="reject",
    ),
    Rule(
        id="C6",
        asked="topk above 1 with trtllm_mha",
        server="ValueError at start",
        ours="reject",
        always=True,
    ),
    Rule(
        id="C7",
        source="layers/attention/flashmla_backend.py, flashinfer_mla_backend.py",
        asked="topk above 1, two steps or more, MLA draft on flashmla or flashinfer",
        server="ValueError after loading",
        ours="reject",
    ),
    Rule(
        id="C8",
        source="arg_groups/model_override_base.py",
        asked="a tree (or on Hopper a page size above 1) and no attention backend, MHA target; "
        "topk counts without an algorithm as well",
        server="another default backend than without speculation",
        ours="advise to pin it in every arm",
    ),
    Rule(
        id="C9",
        source="arg_groups/model_override_base.py",
        asked="topk not given and no attention backend, MHA target on SM 10.x",
        server="flashinfer instead of trtllm_mha, though topk may become 1",
        ours="advise to give topk",
    ),
    Rule(
        id="C10",
        asked="speculation (not UNO) without --max-running-requests",
        server="48 (256 with DeepSeek V4) over all ranks",
        ours="change; scenarios must pin it",
    ),
    Rule(
        id="C11",
        source="model_executor/base_cuda_graph_runner.py",
        asked="as C10, and no --cuda-graph-max-bs-decode",
        server="memory is kept for graphs of the larger default, which are never captured",
        ours="advise to pin both",
    ),
    Rule(
        id="C12",
        source="mem_cache/kv_cache_configurator.py",
        asked="more running requests than half the KV capacity in tokens",
        server="fewer run",
        ours="advise where --max-total-tokens tells, else check after the start",
    ),
    Rule(
        id="C13",
        source="speculative/spec_info.py",
        asked="--enable-mixed-chunk with STANDALONE, NGRAM, FROZEN_KV_MTP or UNO",
        server="turned off",
        ours="change",
    ),
    Rule(
        id="C14",
        asked="STANDALONE with attention data parallelism",
        server="ValueError at start",
        ours="reject",
        always=True,
    ),
    Rule(
        id="C15",
        source="speculative/standalone_worker_v2.py",
        asked="STANDALONE with a draft of another vocabulary",
        server="ValueError after loading",
        ours="reject where both config.json can be read",
    ),
    Rule(
        id="C16",
        asked="NGRAM with attention data parallelism, or on a device not cuda, cpu or xpu",
        server="ValueError at start",
        ours="reject",
    ),
    Rule(
        id="C17",
        asked="NGRAM: topk, draft tokens, steps, breadths",
        server="topk becomes the largest breadth (10); draft tokens default to 12, steps to "
        "draft tokens // topk; mixed chunk is turned off; breadths below 1, or the largest below "
        "the least, fail at start or after loading",
        ours="change, reject",
    ),
    Rule(
        id="C18",
        asked="NGRAM with a breadth and a page size above 1, backend not flashinfer",
        server="ValueError at start",
        ours="reject",
    ),
    Rule(
        id="C19",
        asked="NGRAM's corpus: budget not from 1 to draft tokens - 1",
        server="ValueError at start",
        ours="reject",
    ),
    Rule(
        id="C20",
        asked="DFLASH with steps or topk other than 1",
        server="both become 1",
        ours="change",
    ),
    Rule(
        id="C21",
        asked="DFLASH's block size and draft tokens",
        server="ValueError when they differ; unset: the draft's own, else 16",
        ours="reject, change",
    ),
    Rule(
        id="C22",
        asked="DFLASH without a draft, with pipeline parallelism, on a CPU; attention data "
        "parallelism without --enable-dp-lm-head",
        server="ValueError at start",
        ours="reject",
    ),
    Rule(
        id="C23",
        asked="DFLASH with a draft backend it has not",
        server="flashinfer",
        ours="change",
    ),
    Rule(
        id="C24",
        asked="DSPARK: steps, topk, block size (gamma), draft tokens; no draft",
        server="steps and topk become 1, draft tokens gamma + 1; ValueError when they differ, or "
        "the target has no draft of its own",
        ours="reject, change",
    ),
    Rule(
        id="C25",
        asked="UNO: no adapter or draft tokens, a draft model, TP or PP above 1, not fa3, "
        "a tree it cannot hold",
        server="ValueError at start",
        ours="reject",
    ),
    Rule(
        id="C26",
        source="spec, speculative/eagle_worker_v2.py",
        asked="rejection sampling or block verification with another algorithm (the latter also "
        "with none), topk above 1, "
        "accept thresholds, or a draft vocabulary of its own",
        server="an error, the last one after loading",
        ours="reject",
    ),
    Rule(
        id="C27",
        asked="draft window or sink that cannot be (with an algorithm or none), or has no effect",
        server="ValueError, or a warning",
        ours="reject, advise",
    ),
    Rule(
        id="C28",
        source="speculative/adaptive_spec_params.py",
        asked="adaptive with another algorithm than EAGLE or EAGLE3, topk above 1, attention "
        "data parallelism, multi-layer EAGLE, two-batch overlap or pdmux",
        server="adaptive is turned off: the same as the static arm",
        ours="change",
    ),
    Rule(
        id="C29",
        asked="adaptive with steps that are no candidate",
        server="ValueError; unset: the middle candidate; draft tokens become steps + 1",
        ours="reject, change",
    ),
    Rule(
        id="C30",
        source="arg_groups/validation_hook.py",
        asked="speculation with pipeline parallelism",
        server="AssertionError, but for EAGLE on a prefill node or with SGLANG_ENABLE_PP_SPEC",
        ours="reject",
    ),
    Rule(
        id="C31",
        asked="EAGLE family or NGRAM on a CPU",
        server="overlap schedule is turned off (without speculation it stays on)",
        ours="change",
    ),
    Rule(
        id="C32",
        source="arg_groups/attention_hook.py",
        asked="flex_attention with speculation",
        server="AssertionError at start",
        ours="reject",
    ),
    Rule(
        id="C33",
        source="speculative/draft_utils.py",
        asked="an MHA draft on trtllm_mla or cutedsl_mla, or a draft on a backend without one",
        server="ValueError after loading",
        ours="reject where the draft's config.json can be read",
    ),
    Rule(
        id="C34",
        source="spec, configs/model_config.py",
        asked="no draft model",
        server="the target's own multi-token layer where it has one, else the start fails",
        ours="change, reject",
        always=True,
    ),
    Rule(
        id="C35",
        source="arg_groups/overrides.py",
        asked="a page size that the attention backend has not, or below 1",
        server="another page size; an error when chunked prefill, which is 2048 to 16384 by the "
        "GPUs' memory unasked, is no multiple of it",
        ours="change, reject",
    ),
    Rule(
        id="C36",
        source="arg_groups/parallel_hook.py",
        asked="attention data parallelism",
        server="chunked prefill is divided by the ranks, conservativeness times 0.3",
        ours="change",
    ),
    Rule(
        id="C37",
        asked="a decode node's radix cache with another algorithm than EAGLE, EAGLE3, DSPARK",
        server="ValueError at start",
        ours="reject",
    ),
    Rule(
        id="C38",
        source="configs/model_config.py",
        asked="a context longer than target or draft are made for",
        server="ValueError unless SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN=1",
        ours="reject where config.json can be read",
    ),
    Rule(
        id="C39",
        source="arg_groups/deepseek_v4_hook.py, model_overrides/deepseek_v2.py",
        asked="DeepSeek V4 with another algorithm than EAGLE or DSPARK, or topk not given as 1; "
        "sparse attention with --dcp-size and a tree",
        server="an error at start",
        ours="reject",
    ),
    Rule(
        id="C40",
        source="arg_groups/attention_hook.py",
        asked="torch_native or flex_attention",
        server="CUDA graphs are turned off",
        ours="advise",
    ),
    Rule(
        id="C41",
        source="arg_groups/attention_hook.py",
        asked="--enable-deterministic-inference",
        server="with TP no custom all-reduce and NCCL's tree, with some backends no radix cache",
        ours="change",
    ),
    Rule(
        id="C42",
        source="arg_groups/kv_cache_hook.py, attention_hook.py, hisparse_hook.py",
        asked="unified memory, ReplaySSM or HiSparse with a tree or another algorithm; the first "
        "two look at topk without an algorithm as well",
        server="an error at start",
        ours="reject",
    ),
    Rule(
        id="C43",
        source="speculative/eagle_utils.py",
        asked="rejection sampling, block verification or accept thresholds at temperature 0; "
        "any temperature on a CPU",
        server="verification takes the likeliest token: the former change nothing, the latter "
        "is ignored",
        ours="advise; such arms are alike",
    ),
    Rule(
        id="C44",
        source="arg_groups/cuda_graph_hook.py",
        asked="a load above the largest captured CUDA graph",
        server="decodes without graphs (captured sizes are finer with speculation)",
        ours="advise",
    ),
)
