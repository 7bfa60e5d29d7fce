"""What SGLang's printed `accept rate` means, which changed between versions.

Until late 2025 it was accept length / draft tokens, with the bonus token in both; by mid-2026 it
is accepted drafts / proposed drafts, (accept length - 1) / (draft tokens - 1). Which of them a
line follows is told by its own numbers. Both describe chains (topk 1): for a tree the denominator
is its number of nodes, and no rate of the depth can be had from it.

Sources: SGLang 0.5.3 `managers/scheduler_metrics_mixin.py` and 0.5.23
`scheduler_components/metrics_reporter.py`; https://github.com/sgl-project/sglang/issues/11948.
"""

from __future__ import annotations

from enum import StrEnum

# Both numbers are printed with two decimals, and not always of the same moment.
_ROUNDING = 0.005 + 1e-9
_TOLERANCE = 2 * _ROUNDING


class AcceptRate(StrEnum):
    """What an accept rate divides."""

    WITH_BONUS = "old"  # accept length / draft tokens
    DRAFTS_ONLY = "new"  # (accept length - 1) / (draft tokens - 1)


def accept_rate_meaning(
    accept_len_tok: float, accept_rate: float, num_draft_tokens: int
) -> AcceptRate | None:
    """Which definition a chain's printed rate follows; None when neither or both fit.

    Args:
        accept_len_tok: Printed beside it, bonus token included.
        accept_rate: As printed.
        num_draft_tokens: The server's `speculative_num_draft_tokens`: steps + 1 in a chain.
    """
    if num_draft_tokens < 2:
        return None
    drafts = num_draft_tokens - 1
    off = {
        AcceptRate.WITH_BONUS: abs(accept_rate - accept_len_tok / num_draft_tokens),
        AcceptRate.DRAFTS_ONLY: abs(accept_rate - (accept_len_tok - 1) / drafts),
    }
    fitting = [meaning for meaning in off if off[meaning] <= _TOLERANCE]
    if len(fitting) > 1:  # long drafts, nearly all accepted: only exact rounding may tell
        fitting = [meaning for meaning in fitting if off[meaning] <= _ROUNDING * (1 + 1 / drafts)]
    return fitting[0] if len(fitting) == 1 else None


def accept_rate_of_depth(accept_len_tok: float, num_draft_tokens: int) -> float | None:
    """Accepted drafts / (steps × verifies) of a chain: the one definition used here.

    Returns:
        None for a chain without drafts.
    """
    if num_draft_tokens < 2:
        return None
    return (accept_len_tok - 1) / (num_draft_tokens - 1)
