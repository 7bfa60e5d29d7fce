"""Whether two command lines make the same server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from bench.sglang.arguments.outcome import as_text
from bench.sglang.arguments.parsing import whole_number

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bench.sglang.arguments.outcome import EffectiveSpeculative
    from bench.sglang.arguments.parsing import AskedValue

# What these options are when they are not given.
_DEFAULTS: Final = {
    "speculative_accept_threshold_acc": "1.0",
    "speculative_accept_threshold_single": "1.0",
    "speculative_attention_mode": "prefill",
    "speculative_draft_model_revision": "main",
    "speculative_dsa_topk_backend": "sgl-kernel",
    "speculative_ngram_capacity": "10000000",
    "speculative_ngram_match_type": "BFS",
    "speculative_ngram_max_bfs_breadth": "10",
    "speculative_ngram_max_trie_depth": "18",
    "speculative_ngram_min_bfs_breadth": "1",
    "speculative_adaptive": "false",
    "enable_mixed_chunk": "false",
}


def likeness(
    asked: Mapping[str, AskedValue], effective: EffectiveSpeculative
) -> tuple[tuple[str, str], ...]:
    """All that makes a server, as text: equal for command lines that make the same one.

    What the server changes counts as what it becomes, what has no effect does not count.

    Args:
        asked: The record of `parse_arguments`.
        effective: What became of it.
    """
    idle = set(effective.without_effect)
    texts = {dest: _text(value) for dest, value in asked.items() if dest not in idle}
    texts |= {dest: as_text(value) for dest, value in effective.values if dest not in idle}
    return tuple(
        sorted((dest, text) for dest, text in texts.items() if _DEFAULTS.get(dest) != text)
    )


def _text(value: AskedValue) -> str:
    if value is True:
        return "true"
    if isinstance(value, list):
        return " ".join(value)
    number = whole_number(value)
    return value if number is None else str(number)
