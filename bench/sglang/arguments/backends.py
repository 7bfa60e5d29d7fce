"""Attention backends and page size: what the server takes, and what it will not go with.

Source: SGLang 0.5.23, `arg_groups/model_override_base.py`, `overrides.py`, `attention_hook.py`,
`model_overrides/deepseek_v2.py`. A backend that is neither asked for nor certain stays unknown,
and no rule speaks about it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from bench.sglang.arguments.options import option_of

if TYPE_CHECKING:
    from bench.sglang.arguments.working import Working

_RENAMED: Final = {"nsa": "dsa", "tokenspeed_mla": "cutedsl_mla"}
# Architectures without a default of their own.
PLAIN_MHA: Final = frozenset(
    {
        "LlamaForCausalLM",
        "MistralForCausalLM",
        "Qwen2ForCausalLM",
        "Qwen2MoeForCausalLM",
        "Qwen3ForCausalLM",
    }
)
DEEPSEEK_V3: Final = frozenset(
    {"DeepseekV3ForCausalLM", "KimiK25ForConditionalGeneration", "MistralLarge3ForCausalLM"}
)
_PAGE_TREE: Final = ("flashinfer", "fa3", "triton")
_RADIX_DETERMINISTIC: Final = ("ascend", "fa3", "fa4", "triton")
_DETERMINISTIC: Final = (*_RADIX_DETERMINISTIC, "flashinfer", "intel_xpu")
_OPTIONS: Final = ("attention_backend", "prefill_attention_backend", "decode_attention_backend")

DRAFT_BACKENDS: Final = frozenset(
    {
        *("flashinfer", "triton", "intel_amx", "intel_xpu", "aiter", "fa3", "hybrid_linear_attn"),
        *("flashmla", "trtllm_mha", "trtllm_mla", "cutedsl_mla", "dsa", "ascend", "fa4", "dsv4"),
    }
)
"""Backends that can draft (`speculative/draft_utils.py`)."""


def resolve_backends(work: Working) -> None:
    """Attention backend, page size and what comes of them, in the server's order."""
    for dest in (*_OPTIONS, "speculative_draft_attention_backend"):
        word = work.text(dest)
        if word is not None:
            work.values[dest] = _RENAMED.get(word, word)
    if work.flag("enable_deterministic_inference"):
        _deterministic(work)
    _default(work)
    if work.values.get("attention_backend") == "intel_amx":
        del work.values["attention_backend"]  # without AMX it becomes torch_native
    if work.text("attention_backend") in {"torch_native", "flex_attention"} and not work.is_cpu:
        work.advise(
            "C40",
            f"{work.text('attention_backend')} turns CUDA graphs off.",
            "Give another --attention-backend to measure a server as it is deployed.",
        )
    if work.text("attention_backend") == "flex_attention" and work.algorithm is not None:
        work.refuse(
            "C32",
            "flex_attention cannot speculate: SGLang stops at start with an AssertionError.",
            "Give another --attention-backend.",
        )
    _page_size(work)


def backends(work: Working) -> tuple[str | None, str | None]:
    """(prefill, decode); None where it is not known."""
    both = work.text("attention_backend")
    return (
        work.text("prefill_attention_backend") or both,
        work.text("decode_attention_backend") or both,
    )


def page_backend(work: Working) -> str | None:
    """The backend that pages are a matter of; None when it is not known."""
    # Unasked on a CPU it is this one, or torch_native without AMX: neither walks trees over pages.
    return work.text("attention_backend") or ("intel_amx" if work.is_cpu else None)


def draft_backend(work: Working) -> str | None:
    """The backend a draft decodes with; None when it is not known."""
    return work.text("speculative_draft_attention_backend") or backends(work)[1]


# --------------------------------------------------------------------------------------- defaults


def _default(work: Working) -> None:
    prefill, decode = (work.text(dest) for dest in _OPTIONS[1:])
    if prefill is not None and prefill == decode:
        work.values["attention_backend"] = prefill
        return
    if work.text("attention_backend") is not None or (prefill and decode):
        return
    backend = default_backend(work, as_asked=True)
    if backend is None:
        return
    work.values["attention_backend"] = backend
    plain = default_backend(work, as_asked=False)
    if backend == plain:
        return
    topk = work.number("speculative_eagle_topk")
    pin = "Give --attention-backend in server.arguments, for every arm alike."
    if work.algorithm is None:
        text = (
            f"--speculative-eagle-topk {topk} moves attention to {backend} from {plain}, though "
            "nothing speculates."
        )
        work.advise("C8", text, "Leave --speculative-eagle-topk out of this arm.")
    elif topk is None:
        text = (
            f"--speculative-eagle-topk is not given, so attention runs on {backend}, without "
            f"speculation on {plain}."
        )
        work.advise("C9", text, f"Give --speculative-eagle-topk, also if it is 1. {pin}")
    else:
        what = f"topk {topk}" if topk != 1 else "a page size above 1"
        text = f"with {what} attention runs on {backend}, without speculation on {plain}."
        work.advise("C8", text, pin)


def topk_moves_backend(work: Working) -> bool:
    """Whether topk may decide the attention backend though nothing speculates."""
    target = work.known.target
    is_pinned = work.given(_OPTIONS[0]) or all(work.given(option) for option in _OPTIONS[1:])
    plain = default_backend(work, as_asked=False)
    if plain is not None:
        return not is_pinned and default_backend(work, as_asked=True) != plain
    is_mla = target is not None and target.attention == "mla"
    return not (is_pinned or is_mla or work.is_cpu or _is_chain(work))


def _is_chain(work: Working) -> bool:
    topk = work.number("speculative_eagle_topk")
    return topk is None or (topk == 1 and work.number("page_size") in {None, 1})


def default_backend(work: Working, *, as_asked: bool) -> str | None:
    """The attention backend that SGLang takes unasked; None when that is not certain.

    Args:
        work: Topk and page size as they were asked, which is what SGLang looks at here, be there
            an algorithm or not.
        as_asked: With these; else as a server that was not asked to speculate.
    """
    target, gpu = work.known.target, work.known.gpu
    if target is None or gpu is None or work.is_cpu:
        return None
    if target.architecture in DEEPSEEK_V3:
        split = work.given("prefill_attention_backend") or work.given("decode_attention_backend")
        sm100 = "flashinfer" if split else "trtllm_mla"
        return {"hopper": "fa3", "sm100": sm100}.get(gpu, "triton")
    if target.architecture not in PLAIN_MHA:
        return None
    topk = work.number("speculative_eagle_topk")
    is_chain = not as_asked or _is_chain(work)
    if gpu == "hopper" and is_chain:
        return "fa3"
    tells = not as_asked or topk is not None or work.algorithm in {None, "DFLASH"}
    if gpu == "sm100" and is_chain and tells:
        return "trtllm_mha"
    return "flashinfer"


def _deterministic(work: Working) -> None:
    why = "inference is to be deterministic"
    target, gpu = work.known.target, work.known.gpu
    if work.text("attention_backend") is None and target is not None and gpu not in {None, "cpu"}:
        if target.architecture in DEEPSEEK_V3:
            backend = {"sm100": default_backend(work, as_asked=False), "sm120": "triton"}.get(
                gpu, "fa3"
            )
        else:
            backend = "flashinfer" if gpu in {"sm100", "sm120"} else "fa3"
        work.settle("C41", "attention_backend", backend, why)
    backend = page_backend(work)
    if backend is not None and backend not in _DETERMINISTIC:
        work.refuse(
            "C41",
            f"--enable-deterministic-inference on {backend}: SGLang stops at start.",
            "Give fa3, fa4, flashinfer or triton.",
        )
    if backend is not None and backend not in _RADIX_DETERMINISTIC:
        work.settle("C41", "disable_radix_cache", value=True, why=f"{why} on {backend}")
    if (work.number("tp_size") or 1) > 1:
        work.settle("C41", "disable_custom_all_reduce", value=True, why=why)
        work.advise(
            "C41",
            "with --enable-deterministic-inference SGLang sets NCCL_ALGO and the number of NCCL "
            "channels itself: values from the environment are lost.",
            "Leave the option out to measure NCCL's settings.",
        )


# -------------------------------------------------------------------------------------- page size


def _page_size(work: Working) -> None:
    """C35, a backend after the other: of several constraints the last counts, as in SGLang."""
    prefill, decode = backends(work)
    target = work.known.target
    decoding = {work.text("attention_backend"), decode}
    anywhere = {*decoding, prefill}
    with_draft = {*anywhere, work.text("speculative_draft_attention_backend")}
    for backend, places, sizes in (
        ("flashmla", decoding, (64,)),
        ("trtllm_mla", decoding, (64, 32)),
        ("cutedsl_mla", anywhere, (64, 32)),
        ("trtllm_mha", with_draft, (64, 16, 32, 128)),
        ("hpc_ops", anywhere, (64,)),
    ):
        if backend in places and work.number("page_size") not in sizes:
            only = " and ".join(map(str, sorted(sizes)))
            work.settle("C35", "page_size", sizes[0], f"{backend} has {only} only")
    if "fa4" in anywhere and work.known.gpu in {None, "sm100"}:
        is_chain = (work.number("speculative_eagle_topk") or 0) <= 1
        if work.known.gpu is None or target is None or target.attention is None:
            return
        if target.attention == "mha" and is_chain:
            work.settle("C35", "page_size", 128, "fa4 has 128 only on SM 10.x")
    is_known = prefill is not None and decode is not None
    if is_known and work.number("page_size") is None and not anywhere & {"dsa", "dsv4"}:
        work.values["page_size"] = 1


# ------------------------------------------------------------------------------------- trees, MLA


def check_tree_pages(work: Working) -> None:
    """C5: a draft tree over pages needs a backend that can follow its branches."""
    topk, page, backend = (
        work.number("speculative_eagle_topk"),
        work.number("page_size"),
        page_backend(work),
    )
    if topk is None or topk <= 1 or page is None or page <= 1 or backend is None:
        return
    if work.known.is_older and backend != "flashinfer":
        work.reject(
            "C5",
            f"topk {topk} with page size {page} on {backend}: SGLang {work.known.version} drafts "
            "trees over pages on flashinfer alone.",
            "Give --page-size 1, --attention-backend flashinfer, or --speculative-eagle-topk 1.",
        )
    if backend not in _PAGE_TREE:
        work.refuse(
            "C5",
            f"topk {topk} with page size {page} on {backend}: only {', '.join(_PAGE_TREE)} draft "
            "trees over pages.",
            "Give --page-size 1 or one of these backends, or --speculative-eagle-topk 1.",
        )


def check_trtllm_mha(work: Working) -> None:
    """C6: trtllm_mha drafts chains only."""
    topk = work.number("speculative_eagle_topk")
    if "trtllm_mha" in backends(work) and topk is not None and topk > 1:
        work.refuse(
            "C6",
            f"topk {topk} with trtllm_mha, which speculates with topk 1 only: SGLang stops at "
            "start.",
            "Give --speculative-eagle-topk 1, or --attention-backend flashinfer.",
        )


def check_draft_backend(work: Working) -> None:
    """C7 and C33: what the draft's attention can run on, once it has been loaded."""
    backend = draft_backend(work)
    steps, topk = (work.number(f"speculative_{name}") for name in ("num_steps", "eagle_topk"))
    if backend is None or steps is None or steps < 2:
        return
    give = option_of("speculative_draft_attention_backend")
    if backend not in DRAFT_BACKENDS:
        work.refuse(
            "C33",
            f"the draft would run on {backend}, which has no draft backend: SGLang fails after "
            "loading.",
            f"Give {give}, for example triton.",
            late=True,
        )
    own = work.text("speculative_draft_model_path") == work.text("model_path")
    draft = work.known.target if own else work.known.draft
    attention = None if draft is None else draft.attention
    if attention == "mha" and backend in {"trtllm_mla", "cutedsl_mla"}:
        work.refuse(
            "C33",
            f"the draft has heads of its own (MHA) and would run on {backend}, which is for MLA: "
            "SGLang fails after loading.",
            f"Give {give} flashinfer (or fa3, triton, trtllm_mha).",
            late=True,
        )
    if attention == "mla" and backend in {"flashmla", "flashinfer"} and topk and topk > 1:
        work.refuse(
            "C7",
            f"topk {topk} for an MLA draft on {backend}, which drafts chains only: SGLang fails "
            "after loading.",
            f"Give --speculative-eagle-topk 1, or another {give}.",
            late=True,
        )
