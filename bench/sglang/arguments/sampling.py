"""How drafts are accepted, and what of it does nothing at the temperatures asked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from bench.sglang.arguments.working import Working

REJECTION: Final = "speculative_use_rejection_sampling"
BLOCK: Final = "speculative_use_block_verification"
THRESHOLDS: Final = ("speculative_accept_threshold_single", "speculative_accept_threshold_acc")


def resolve_block_verification(work: Working) -> None:
    """C26: block verification, which turns rejection sampling on for EAGLE."""
    if not work.flag(BLOCK):
        return
    if work.algorithm not in {"EAGLE", "EAGLE3", "DFLASH", "DSPARK"}:
        work.refuse(
            "C26",
            f"block verification does not go with {_named(work)}: SGLang stops at start.",
            "Leave --speculative-use-block-verification out.",
        )
    if work.is_cpu:
        work.refuse(
            "C26",
            "block verification needs a GPU: SGLang stops at start.",
            "Leave --speculative-use-block-verification out.",
        )
    if work.algorithm in {"EAGLE", "EAGLE3"}:
        work.settle("C26", REJECTION, value=True, why="block verification needs it")


def _named(work: Working) -> str:
    return work.algorithm or "a server that does not speculate"


def has_thresholds(work: Working) -> bool:
    """Whether an accept threshold below 1 makes verification lossy."""
    return any(_threshold(work, dest) != 1.0 for dest in THRESHOLDS)


def _threshold(work: Working, dest: str) -> float:
    return float(work.text(dest) or 1.0)


def check_rejection_sampling(work: Working) -> None:
    """C26: what rejection sampling does not go with."""
    if not work.flag(REJECTION):
        return
    leave_out = "Leave --speculative-use-rejection-sampling out."
    topk = work.number("speculative_eagle_topk")
    if work.algorithm not in {"EAGLE", "EAGLE3"}:
        work.refuse(
            "C26",
            f"rejection sampling does not go with {work.algorithm}: SGLang stops at start.",
            leave_out,
        )
    if topk is not None and topk != 1:
        work.refuse(
            "C26",
            f"rejection sampling with topk {topk}: SGLang stops at start, it takes chains only.",
            f"Give --speculative-eagle-topk 1. {leave_out}",
        )
    if has_thresholds(work):
        work.refuse(
            "C26",
            "rejection sampling with an accept threshold: SGLang stops at start.",
            f"Leave one of them out. {leave_out}",
        )
    target, draft = work.known.target, work.known.draft
    own = None if draft is None else draft.draft_vocab_size
    if own is not None and target is not None and target.vocab_size not in {None, own}:
        work.refuse(
            "C26",
            f"rejection sampling with a draft that has {own} tokens of the target's "
            f"{target.vocab_size}: SGLang fails after loading.",
            leave_out,
            late=True,
        )
    elif work.algorithm == "EAGLE" and work.given("speculative_token_map"):
        work.refuse(
            "C26",
            "rejection sampling with a token map, which shortens the draft's vocabulary: SGLang "
            "fails after loading.",
            f"Leave --speculative-token-map out. {leave_out}",
            late=True,
        )


def check_window(work: Working) -> None:
    """C27: the draft's window and sink."""
    window, sink = (work.number(f"speculative_draft_{name}_size") for name in ("window", "sink"))
    if window is not None and window <= 0:
        work.refuse(
            "C27",
            f"--speculative-draft-window-size {window}: SGLang stops at start.",
            "Give a positive number, or leave it out for the whole context.",
        )
    if sink is not None and (sink < 0 or window is None):
        work.refuse(
            "C27",
            "--speculative-draft-sink-size must not be negative and needs "
            "--speculative-draft-window-size: SGLang stops at start.",
            "Give both, or neither.",
        )
    if work.algorithm not in {None, "EAGLE", "EAGLE3", "DFLASH"}:
        for name in ("window", "sink"):
            work.ignore("C27", f"speculative_draft_{name}_size", f"{work.algorithm} has no window")
    draft = work.known.draft
    if work.algorithm == "EAGLE3" and draft is not None and draft.attention == "mla":
        for name in ("window", "sink"):
            work.ignore("C27", f"speculative_draft_{name}_size", "MLA drafts have no window")


def check_temperature(work: Working) -> None:
    """C43: what greedy verification makes of settings for sampling, and of temperatures."""
    temperatures = work.known.temperatures
    if work.algorithm is None or not temperatures:
        return
    if max(temperatures) == 0:
        for dest in (REJECTION, BLOCK, *THRESHOLDS):
            work.ignore(
                "C43",
                dest,
                "every workload has temperature 0, where the likeliest token is taken",
                "Leave it out, or give a workload a temperature above 0.",
            )
    elif work.is_cpu:
        work.advise(
            "C43",
            "on a CPU SGLang verifies greedily and ignores the temperature, so this arm samples "
            "otherwise than the baseline.",
            "Give every workload temperature 0.",
        )
