"""UNO: the target drafts for itself through an adapter.

Source: SGLang 0.5.23, `arg_groups/speculative_hook.py`, `_handle_uno`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from bench.sglang.arguments.backends import backends
from bench.sglang.arguments.options import option_of
from bench.sglang.arguments.sampling import REJECTION, has_thresholds
from bench.sglang.arguments.schedule import no_mixed_chunk

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.sglang.arguments.working import Working

_MOST_NODES: Final = 128
_MOST_SLOTS: Final = 2048


def resolve_uno(work: Working) -> None:
    """C25: everything UNO will not go with, then its width."""
    for reason, fix in _obstacles(work):
        work.refuse("C25", f"UNO {reason}: SGLang stops at start.", fix)
    width = work.number("speculative_num_draft_tokens") or 0
    topk = work.number("speculative_eagle_topk")
    if topk is not None and topk < 1:
        work.refuse(
            "C25",
            f"UNO with topk {topk}: SGLang stops at start.",
            "Give --speculative-eagle-topk 1 or more, or leave it out.",
        )
    if topk is not None and topk > 1:
        _tree(work, width, topk)
    else:
        for dest in ("speculative_num_steps", "speculative_eagle_topk"):
            work.settle("C25", dest, 1, "UNO drafts a line in one step")
    work.keep("speculative_num_steps", "speculative_eagle_topk", "speculative_num_draft_tokens")
    no_mixed_chunk(work)
    for name, backend in zip(("prefill", "decode"), backends(work), strict=True):
        if backend not in {None, "fa3"}:
            work.refuse(
                "C25",
                f"UNO needs fa3, and {name} runs on {backend}: SGLang stops at start.",
                "Give --attention-backend fa3.",
            )


def _capacity(steps: int, topk: int) -> int:
    """Nodes of a full tree of more branches than one, as far as it can matter."""
    nodes = widest = 1
    for _ in range(steps):
        widest *= topk
        nodes += widest
        if nodes > _MOST_NODES:
            break
    return nodes


def _obstacles(work: Working) -> Iterator[tuple[str, str]]:
    """(what is in the way, what to do)."""
    sizes = {name: work.number(f"{name}_size") or 1 for name in ("tp", "pp", "attn_cp")}
    rows = (
        (work.is_cpu, "needs CUDA", "Use a GPU."),
        (
            work.given("speculative_draft_model_path"),
            "takes no draft model",
            "Write draft: null for this arm.",
        ),
        (not work.given("uno_lora_path"), "needs an adapter", "Give --uno-lora-path."),
        (
            (work.number("speculative_num_draft_tokens") or 0) < 1,
            "needs its width",
            "Give --speculative-num-draft-tokens.",
        ),
        (
            sizes["tp"] * sizes["pp"] > 1,
            "runs on one GPU only",
            "Give --tp-size 1 and --pp-size 1.",
        ),
        (
            work.attention_dp > 1 or sizes["attn_cp"] > 1,
            "does not go with data or context parallelism of attention",
            "Leave it out.",
        ),
    )
    yield from ((reason, fix) for holds, reason, fix in rows if holds)
    for dest in (
        "enable_deterministic_inference",
        "enable_strict_thinking",
        "enable_lora",
        "lora_paths",
        REJECTION,
    ):
        if work.flag(dest) or (dest == "lora_paths" and work.given(dest)):
            yield f"does not go with {option_of(dest)}", f"Leave {option_of(dest)} out."


def _tree(work: Working, width: int, topk: int) -> None:
    """What a tree of UNO's must fit into."""
    steps = work.number("speculative_num_steps")
    give = "Give fewer draft tokens, or more steps."
    if steps is None or steps < 1:
        work.refuse(
            "C25",
            f"UNO with topk {topk} and no steps: SGLang stops at start.",
            "Give --speculative-num-steps.",
        )
        return
    capacity = _capacity(steps, topk)
    limits = (
        (width < steps + 1, f"needs at least {steps + 1}", "Give more draft tokens."),
        (width > _MOST_NODES, f"holds at most {_MOST_NODES}", give),
        (width * topk > _MOST_SLOTS, f"holds at most {_MOST_SLOTS // topk}", give),
        (width > capacity, f"of {steps} steps holds at most {capacity}", give),
        (
            width - 1 > topk * (steps - 1) + 1,
            f"of {steps} steps has parents for at most {topk * (steps - 1) + 2}",
            give,
        ),
    )
    for broken, text, fix in limits:
        if broken:
            work.refuse(
                "C25",
                f"UNO with {width} draft tokens: its tree with topk {topk} {text}; SGLang stops "
                "at start.",
                fix,
            )
    for dest in ("enable_pdmux", "enable_two_batch_overlap"):
        if work.flag(dest):
            option = option_of(dest)
            work.refuse("C25", f"UNO's tree does not go with {option}.", f"Leave {option} out.")
    if has_thresholds(work):
        work.refuse(
            "C25", "UNO's tree does not go with accept thresholds.", "Leave the thresholds out."
        )
