"""EAGLE, EAGLE3, NEXTN, STANDALONE: steps, topk, draft tokens, and the draft itself.

Source: SGLang 0.5.23, `arg_groups/speculative_hook.py`, `_handle_eagle_family`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from bench.sglang.arguments.adaptive import is_adaptive
from bench.sglang.arguments.backends import check_draft_backend, check_tree_pages, check_trtllm_mha
from bench.sglang.arguments.sampling import check_rejection_sampling
from bench.sglang.arguments.schedule import (
    check_least,
    limit_running,
    no_mixed_chunk,
    no_overlap_on_cpu,
)

if TYPE_CHECKING:
    from bench.sglang.arguments.working import Working

STEPS: Final = "speculative_num_steps"
TOPK: Final = "speculative_eagle_topk"
DRAFT_TOKENS: Final = "speculative_num_draft_tokens"
TRIPLE: Final = (STEPS, TOPK, DRAFT_TOKENS)
DRAFT: Final = "speculative_draft_model_path"

# Targets whose checkpoint has a multi-token layer that SGLang takes when no draft is named.
_NAMED_ITSELF: Final = frozenset(
    {
        "BailingMoeForCausalLM",
        "BailingMoeV2ForCausalLM",
        "BailingMoeV2_5ForCausalLM",
        "DeepseekV32ForCausalLM",
        "DeepseekV3ForCausalLM",
        "DeepseekV4ForCausalLM",
        "Glm4MoeForCausalLM",
        "Glm4MoeLiteForCausalLM",
        "GlmMoeDsaForCausalLM",
        "HYV3ForCausalLM",
        "HYV4ForCausalLM",
        "MistralLarge3ForCausalLM",
        "PixtralForConditionalGeneration",
        "Qwen4ExpForConditionalGeneration",
    }
)
# Architectures that are certain to have none: dense decoders, whose drafts are other checkpoints.
_WITHOUT_OWN: Final = frozenset(
    {
        "Gemma2ForCausalLM",
        "Gemma3ForCausalLM",
        "GptOssForCausalLM",
        "LlamaForCausalLM",
        "MistralForCausalLM",
        "MixtralForCausalLM",
        "Phi3ForCausalLM",
        "Qwen2ForCausalLM",
        "Qwen2MoeForCausalLM",
        "Qwen3ForCausalLM",
    }
)
# Further ones whose own layer SGLang finds once it loads the target as the draft.
_REWRITTEN: Final = frozenset(
    {
        "BailingMoeV3ForCausalLM",
        "Ernie4_5_MoeForCausalLM",
        "ExaoneMoEForCausalLM",
        "ExaoneMoeForCausalLM",
        "GigaChat35ForCausalLM",
        "Glm5NextForConditionalGeneration",
        "GlmOcrForConditionalGeneration",
        "InklingForConditionalGeneration",
        "LongcatFlashForCausalLM",
        "MiMoForCausalLM",
        "MiMoV2FlashForCausalLM",
        "MiMoV2ForCausalLM",
        "NemotronHForCausalLM",
        "Qwen3MoeForCausalLM",
        "Qwen3NextForCausalLM",
        "Qwen3_5ForCausalLM",
        "Qwen3_5ForConditionalGeneration",
        "Qwen3_5MoeForCausalLM",
        "Qwen3_5MoeForConditionalGeneration",
        "Step3p5ForCausalLM",
        "Step3p7ForConditionalGeneration",
    }
)
_FIVE_FOUR_EIGHT: Final = frozenset({"LlamaForCausalLM", "Grok1ForCausalLM", "Grok1VForCausalLM"})


def resolve_eagle(work: Working) -> None:
    """The family's rules in the server's order."""
    algorithm = work.algorithm or ""
    if algorithm == "STANDALONE" and work.attention_dp > 1:
        work.refuse(
            "C14",
            "STANDALONE does not go with attention data parallelism: SGLang stops at start.",
            "Leave --enable-dp-attention and --attn-dp-size out, or draft with EAGLE.",
        )
    limit_running(work)
    no_overlap_on_cpu(work)
    if algorithm not in {"EAGLE", "EAGLE3"}:
        no_mixed_chunk(work)
    _draft(work)
    _no_steps(work)
    if work.number(STEPS) is not None:
        _topk_given(work)
    check_trtllm_mha(work)
    check_rejection_sampling(work)
    _draft_tokens(work)
    check_tree_pages(work)
    check_draft_backend(work)
    _vocabulary(work)


def _draft(work: Working) -> None:
    """C34: without a draft path the target itself is loaded as the draft."""
    if work.text(DRAFT) is not None:
        return
    target = work.known.target
    architecture = None if target is None else target.architecture
    if architecture is None:
        return
    path = work.text("model_path")
    if architecture in _NAMED_ITSELF and path is not None:
        work.settle("C34", DRAFT, path, f"{architecture} has a draft layer of its own")
    elif architecture in _WITHOUT_OWN:
        work.refuse(
            "C34",
            f"no draft model is named, and {architecture} has no draft layer of its own: SGLang "
            "loads the target as its draft and fails.",
            "Give --speculative-draft-model-path (a scenario's draft); NGRAM needs none.",
            late=True,
        )
    elif architecture not in _REWRITTEN:
        work.advise(
            "C34",
            f"no draft model is named: SGLang loads the target as its draft, and that "
            f"{architecture} has a draft layer of its own is not known.",
            "Give --speculative-draft-model-path (a scenario's draft).",
        )


def _no_steps(work: Working) -> None:
    """C2, and the automatic parameters."""
    if is_adaptive(work) or work.number(STEPS) is not None:
        return
    if work.given(TOPK) or work.given(DRAFT_TOKENS):
        work.refuse(
            "C2",
            "--speculative-eagle-topk or --speculative-num-draft-tokens is given without "
            "--speculative-num-steps: SGLang stops at start with a bare AssertionError.",
            "Give --speculative-num-steps as well, or none of the three.",
        )
    target = work.known.target
    architecture = None if target is None else target.architecture
    if work.algorithm != "STANDALONE" and (
        architecture is None or architecture == "IQuestQ1ForCausalLM"
    ):
        return  # the server decides from what is not known here
    tree = work.algorithm != "STANDALONE" and architecture in _FIVE_FOUR_EIGHT
    for dest, value in zip(TRIPLE, (5, 4, 8) if tree else (3, 1, 4), strict=True):
        work.settle("auto", dest, value, "none of steps, topk and draft tokens was given")


def _topk_given(work: Working) -> None:
    if work.number(TOPK) is None:
        work.refuse(
            "C1",
            "--speculative-num-steps is given without --speculative-eagle-topk: SGLang stops at "
            "start with a TypeError about NoneType and int.",
            "Give --speculative-eagle-topk as well (1 for a chain), or none of the three.",
        )


def _draft_tokens(work: Working) -> None:
    """C3, C4 and the capacity of the draft tree."""
    steps, topk, drafts = (work.number(dest) for dest in TRIPLE)
    work.keep(*TRIPLE)
    if steps is None or topk is None:
        return
    counts = ((STEPS, steps, 0), (TOPK, topk, 1), (DRAFT_TOKENS, 1 if topk == 1 else drafts, 1))
    for dest, number, least in counts:
        check_least(work, dest, number, least)
    if topk == 1:
        work.settle(
            "C3", DRAFT_TOKENS, steps + 1, f"topk is 1, which makes it num_steps + 1 = {steps + 1}"
        )
        return
    if drafts is None:
        work.refuse(
            "C4",
            f"--speculative-eagle-topk {topk} is given without --speculative-num-draft-tokens: "
            "SGLang fails with a TypeError, after loading.",
            "Give --speculative-num-draft-tokens as well.",
            late=True,
        )
        return
    capacity = tree_capacity_tok(steps, topk)
    if drafts > capacity:
        work.refuse(
            "tree",
            f"--speculative-num-draft-tokens {drafts} is more than a draft tree of {steps} steps "
            f"and topk {topk} has: 1 + topk + (steps - 1) * topk^2 = {capacity}. SGLang fails at "
            "its first draft, after loading.",
            f"Give at most {capacity}, or more steps or a larger topk.",
            late=True,
        )


def tree_capacity_tok(num_steps: int, eagle_topk: int) -> int:
    """The most tokens one verify step can hold: root, topk first drafts, topk² a further step.

    Source: SGLang 0.5.23 `eagle_utils.py`, `organize_draft_results`.
    """
    return 1 + eagle_topk + (num_steps - 1) * eagle_topk**2


def _vocabulary(work: Working) -> None:
    """C15: a STANDALONE draft must speak the target's vocabulary."""
    target, draft = work.known.target, work.known.draft
    if work.algorithm != "STANDALONE" or target is None or draft is None:
        return
    if target.vocab_size and draft.vocab_size and target.vocab_size != draft.vocab_size:
        work.refuse(
            "C15",
            f"the draft has {draft.vocab_size} tokens, the target {target.vocab_size}: SGLang "
            "fails after loading.",
            "Take a draft of the target's family with the same vocabulary.",
            late=True,
        )
