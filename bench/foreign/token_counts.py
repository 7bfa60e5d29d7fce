"""Whether a result's token counts can be what was generated.

Usage is lost by load balancers and by branches of a backend; the throughput of what was not
counted is then silently wrong. Sources: https://github.com/sgl-project/sglang/issues/7084,
https://github.com/vllm-project/vllm-omni/issues/4459.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

from bench.foreign.json_text import number_in

if TYPE_CHECKING:
    from collections.abc import Mapping

RETOKENIZED_TOLERANCE: Final = 0.05
"""A tokenizer run over the text merges a token here and there, no more."""


class CountDoubt(StrEnum):
    """Why a row's count of output tokens is doubtful; its value is the rule."""

    RETOKENIZED_DIFFERS = "|reported/retokenized-1|>0.05"
    FEWER_THAN_FORCED = "ignore_eos and output<requested"
    GAPS_WITHOUT_TOKENS = "tokens==0 and itl>0"


def count_doubts(row: Mapping[str, Any]) -> tuple[CountDoubt, ...]:
    """Why the token counts of a row are doubtful; empty when nothing speaks against them.

    Args:
        row: A result by the tools' own field names, or one request of it.
    """
    reported = number_in(row, "total_output_tokens", "output_tokens", "output_len")
    if reported is None:
        return ()
    retokenized = number_in(
        row, "total_output_tokens_retokenized", "retokenized", "output_tokens_retokenized"
    )
    requested = number_in(row, "requested_output_tokens", "total_requested_output_tokens")
    gaps_ms = [number_in(row, name) for name in row if name.endswith(_GAPS)]
    doubts = []
    if retokenized is not None and _differ(reported, retokenized):
        doubts.append(CountDoubt.RETOKENIZED_DIFFERS)
    if row.get("ignore_eos") is True and requested is not None and reported < requested:
        doubts.append(CountDoubt.FEWER_THAN_FORCED)
    measured = any(gap is not None and gap > 0 for gap in gaps_ms) or _has_gaps(row.get("itls"))
    if reported == 0 and measured:
        doubts.append(CountDoubt.GAPS_WITHOUT_TOKENS)
    return tuple(doubts)


_GAPS = ("_itl_ms", "_tpot_ms")


def _has_gaps(itls: object) -> bool:
    """Whether a list of gaps, or of lists of them, has one."""
    lists = itls if isinstance(itls, list) else []
    return any(bool(gaps) for gaps in lists)


def _differ(reported: float, retokenized: float) -> bool:
    if not retokenized:
        return reported > 0
    return abs(reported / retokenized - 1) > RETOKENIZED_TOLERANCE
