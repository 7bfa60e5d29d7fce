"""The rules, a row each: what SGLang 0.5.23 does with an argument, where, and what we do.

docs/arguments.md shows this table. Source files lie below `sglang/srt/`; `spec` is
`arg_groups/speculative_hook.py`.
"""

from __future__ import annotations

from typing import Final

from bench.sglang.arguments.rules.named import NAMED
from bench.sglang.arguments.rules.numbered import NUMBERED
from bench.sglang.arguments.rules.rule import Rule

RULES: Final = (*NUMBERED, *NAMED)
"""Every rule there is."""

RULES_BY_ID: Final = {rule.id: rule for rule in RULES}

__all__ = ["RULES", "RULES_BY_ID", "Rule"]
