"""DFLASH and DSPARK: drafts that propose a whole block at once.

Source: SGLang 0.5.23, `arg_groups/speculative_hook.py`, `_handle_dflash` and `_handle_dspark`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from bench.sglang.arguments.backends import backends
from bench.sglang.arguments.schedule import limit_running

if TYPE_CHECKING:
    from bench.sglang.arguments.working import Working

_DFLASH_TOKENS: Final = 16
_DSPARK_GAMMA: Final = 7
_DFLASH_BACKENDS: Final = (
    *("flashinfer", "fa3", "fa4", "triton", "ascend", "trtllm_mha", "intel_xpu"),
)
_DRAFT_TOKENS: Final = "speculative_num_draft_tokens"
_BACKEND: Final = "speculative_draft_attention_backend"


def resolve_dflash(work: Working) -> None:
    """DFLASH's rules in the server's order."""
    _ground(work, "C22", "DFLASH")
    if (work.number("pp_size") or 1) > 1:
        work.refuse(
            "C22", "DFLASH with --pp-size above 1: SGLang stops at start.", "Give --pp-size 1."
        )
    if work.text("speculative_draft_model_path") is None:
        work.refuse(
            "C22",
            "DFLASH without a draft: SGLang stops at start.",
            "Give --speculative-draft-model-path (a scenario's draft).",
        )
    _one_step(work, "C20", "DFLASH")
    _dflash_block(work)
    _dflash_backend(work)
    limit_running(work)


def resolve_dspark(work: Working) -> None:
    """DSPARK's rules in the server's order."""
    _ground(work, "C24", "DSPARK")
    if work.text("speculative_draft_model_path") is None:
        _own_dspark(work)
    _one_step(work, "C24", "DSPARK")
    _dspark_block(work)
    limit_running(work)


def _own_dspark(work: Working) -> None:
    """C24: without a draft the target must have one of its own."""
    target = work.known.target
    give = "Give --speculative-draft-model-path (a scenario's draft)."
    if target is None or target.has_dspark is None:
        work.advise(
            "C24",
            "DSPARK without a draft: SGLang stops at start unless the target has one beside it.",
            give,
        )
    elif not target.has_dspark:
        work.refuse(
            "C24",
            "DSPARK without a draft, and the target has none of its own: SGLang stops at start.",
            give,
        )


def _ground(work: Working, rule: str, algorithm: str) -> None:
    if work.is_cpu:
        work.refuse(
            rule,
            f"{algorithm} on a CPU: SGLang stops at start.",
            "Use a GPU; on a CPU NGRAM speculates.",
        )
    if work.attention_dp > 1 and not work.flag("enable_dp_lm_head"):
        work.refuse(
            rule,
            f"{algorithm} with attention data parallelism and without --enable-dp-lm-head: SGLang "
            "stops at start.",
            "Give --enable-dp-lm-head.",
        )
    if work.attention_dp > 1 and (work.number("attn_cp_size") or 1) > 1:
        work.refuse(
            rule,
            f"{algorithm} with attention data and context parallelism: SGLang stops at start.",
            "Give --attn-cp-size 1.",
        )


def _one_step(work: Working, rule: str, algorithm: str) -> None:
    for dest in ("speculative_num_steps", "speculative_eagle_topk"):
        work.settle(rule, dest, 1, f"{algorithm} drafts a block in one step")


def _dflash_block(work: Working) -> None:
    """C21: block size and draft tokens are two names of one number."""
    block, drafts = work.number("speculative_dflash_block_size"), work.number(_DRAFT_TOKENS)
    if block is not None:
        if block < 1 or drafts not in {None, block}:
            work.refuse(
                "C21",
                f"DFLASH's block size {block} and --speculative-num-draft-tokens "
                f"{drafts if drafts is not None else 'not given'}: they must be equal and "
                "positive, SGLang stops at start.",
                "Give one of them alone.",
            )
        work.settle("C21", _DRAFT_TOKENS, block, "it is DFLASH's block size")
    elif drafts is None:
        draft = work.known.draft
        if draft is None:
            return  # the server reads it from the draft
        why = "the draft was trained for it" if draft.block_size else "that is DFLASH's default"
        work.settle("C21", _DRAFT_TOKENS, draft.block_size or _DFLASH_TOKENS, why)
    work.keep(_DRAFT_TOKENS)
    window, drafts = work.number("speculative_draft_window_size"), work.number(_DRAFT_TOKENS)
    if window is not None and drafts is not None and window < drafts:
        work.refuse(
            "C27",
            f"--speculative-draft-window-size {window} is less than DFLASH's {drafts} draft "
            "tokens: SGLang stops at start.",
            f"Give {drafts} or more.",
        )


def _dflash_backend(work: Working) -> None:
    """C23: a draft backend that DFLASH has not becomes flashinfer."""
    backend = work.text(_BACKEND) or backends(work)[0]
    if backend is None:
        return
    if backend not in _DFLASH_BACKENDS:
        work.settle("C23", _BACKEND, "flashinfer", f"DFLASH has no {backend}")
    elif backend == "trtllm_mha":
        work.advise(
            "C23",
            "DFLASH drafts on trtllm_mha only when all of its layers are sliding or causal, else "
            "on flashinfer (fa4 on SM 10.x).",
            "Give --speculative-draft-attention-backend flashinfer to be sure.",
        )
    else:
        work.settle("C23", _BACKEND, backend, "the draft runs on the target's")


def _dspark_block(work: Working) -> None:
    """C24: draft tokens are gamma + 1."""
    drafts, gamma = work.number(_DRAFT_TOKENS), work.number("speculative_dspark_block_size")
    draft, target = work.known.draft, work.known.target
    if draft is None and target is not None and target.block_size and target.has_dspark:
        draft = target  # it brings its draft along
    if gamma is not None and gamma < 1:
        work.refuse(
            "C24",
            f"--speculative-dspark-block-size {gamma}: SGLang stops at start.",
            "Give a positive number.",
        )
    if gamma is None:
        if draft is None:
            work.keep(_DRAFT_TOKENS)
            return  # the server reads it from the draft
        gamma = draft.block_size or (_DSPARK_GAMMA if drafts is None else None)
    if gamma is not None:
        if drafts not in {None, gamma + 1}:
            work.refuse(
                "C24",
                f"DSPARK with {drafts} draft tokens and a block of {gamma}: it wants "
                f"{gamma + 1}, SGLang stops at start.",
                "Give --speculative-dspark-block-size alone.",
            )
        work.settle("C24", _DRAFT_TOKENS, gamma + 1, f"DSPARK's block is {gamma}")
    work.keep(_DRAFT_TOKENS)
    drafts = work.number(_DRAFT_TOKENS)
    if drafts is not None and drafts < 2:
        work.refuse(
            "C24",
            f"DSPARK with {drafts} draft tokens: SGLang stops at start.",
            "Give 2 or more.",
        )
