"""NGRAM: drafts from the text itself.

Source: SGLang 0.5.23, `arg_groups/speculative_hook.py`, `_handle_ngram`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from bench.sglang.arguments.backends import page_backend
from bench.sglang.arguments.parsing import asked_text, whole_number
from bench.sglang.arguments.schedule import (
    check_least,
    limit_running,
    no_mixed_chunk,
    no_overlap_on_cpu,
)

if TYPE_CHECKING:
    from bench.sglang.arguments.working import Working

_BREADTH: Final = 10
_LEAST_BREADTH: Final = 1
_DRAFT_TOKENS: Final = 12


def resolve_ngram(work: Working) -> None:
    """Its rules in the server's order."""
    device = work.text("device")
    if device not in {None, "cuda", "cpu", "xpu"}:
        work.refuse(
            "C16",
            f"NGRAM on --device {device}: SGLang stops at start.",
            "Use CUDA, a CPU or XPU.",
        )
    no_overlap_on_cpu(work)
    limit_running(work)
    no_mixed_chunk(work)
    given = _own_number(work, "max_bfs_breadth")
    breadth = _BREADTH if given is None else given
    if breadth == 0 and work.number("speculative_num_steps") is None:
        work.refuse(
            "C17",
            "NGRAM of breadth 0: SGLang stops at start with a ZeroDivisionError.",
            "Give --speculative-ngram-max-bfs-breadth 1 or more.",
        )
    work.settle(
        "C17", "speculative_eagle_topk", breadth, "NGRAM takes --speculative-ngram-max-bfs-breadth"
    )
    if work.number("speculative_num_draft_tokens") is None:
        work.settle(
            "C17", "speculative_num_draft_tokens", _DRAFT_TOKENS, "that is NGRAM's default"
        )
    drafts = work.number("speculative_num_draft_tokens")
    assert drafts is not None
    if work.number("speculative_num_steps") is None and breadth:
        work.settle(
            "C17", "speculative_num_steps", drafts // breadth, "NGRAM divides drafts by breadth"
        )
    work.keep("speculative_num_steps", "speculative_num_draft_tokens")
    check_least(work, "speculative_num_draft_tokens", drafts, 1)
    _breadths(work, breadth)
    _corpus(work, drafts)
    _pages(work, breadth)
    if work.attention_dp > 1:
        work.refuse(
            "C16",
            "NGRAM does not go with attention data parallelism: SGLang stops at start.",
            "Leave --enable-dp-attention and --attn-dp-size out.",
        )


def _breadths(work: Working, most: int) -> None:
    """C17: the tree of n-grams that SGLang builds after loading."""
    least = _own_number(work, "min_bfs_breadth")
    least = _LEAST_BREADTH if least is None else least
    depth = _own_number(work, "max_trie_depth")
    broken = (
        (least < 1, f"--speculative-ngram-min-bfs-breadth {least}"),
        (least > most, f"--speculative-ngram-max-bfs-breadth {most} below the least, {least},"),
        (depth is not None and depth < 2, f"--speculative-ngram-max-trie-depth {depth}"),
    )
    for is_broken, what in broken:
        if is_broken:
            work.refuse(
                "C17",
                f"NGRAM with {what}: SGLang fails after loading.",
                "Give breadths from 1 on, the largest not below the least, and a depth from 2 on.",
                late=True,
            )


def _own_number(work: Working, name: str) -> int | None:
    word = asked_text(work.asked, f"speculative_ngram_{name}")
    return None if word is None else whole_number(word)


def _corpus(work: Working, drafts: int) -> None:
    if not work.given("speculative_ngram_external_corpus_path"):
        work.ignore("idle", "speculative_ngram_external_sam_budget", "there is no corpus")
        return
    budget = _own_number(work, "external_sam_budget") or 0
    if not 1 <= budget <= drafts - 1:
        work.refuse(
            "C19",
            f"NGRAM's corpus with a budget of {budget} of {drafts} draft tokens: SGLang stops at "
            "start.",
            f"Give --speculative-ngram-external-sam-budget from 1 to {drafts - 1}.",
        )


def _pages(work: Working, breadth: int) -> None:
    page, backend = work.number("page_size"), page_backend(work)
    if breadth > 1 and page is not None and page > 1 and backend not in {None, "flashinfer"}:
        work.refuse(
            "C18",
            f"NGRAM of breadth {breadth} with page size {page} on {backend}: only flashinfer can.",
            "Give --page-size 1, --speculative-ngram-max-bfs-breadth 1, or flashinfer.",
        )
