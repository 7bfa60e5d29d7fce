"""The adaptive forms held against the rules of SGLang's arguments, key by key."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from bench.sglang.arguments import Rejection, by_rule, effective_speculative, parse_arguments
from tuner.export.adaptive import CONFIG, padded, steps_text, without_triple

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bench.sglang.arguments import AskedValue
    from tuner.export.adaptive import Adaptive, Tier
    from tuner.export.ground import Ground


def refusal(ground: Ground, adaptive: Adaptive, words: Mapping[str, Sequence[str]]) -> str | None:
    """Why SGLang would not start with the forms, or not keep to them; None: it would.

    Every key's step counts are held against the rules as servers of their own, and every measured
    batch and every threshold must come to the key that is meant for it.

    Args:
        ground: The study.
        adaptive: From `choose`, its files written.
        words: Each form's arguments, by its name.
    """
    for steps in sorted({steps for tier in adaptive.responsive for steps in tier.steps} - {0}):
        reason = _static_refusal(ground, adaptive, steps)
        if reason is not None:
            return reason
    for name, tiers in adaptive.forms.items():
        reason = _form_refusal(ground, tiers, parse_arguments(words[name]))
        if reason is not None:
            return f"{name}: {reason}"
    return _routing_refusal(adaptive)


def _static_refusal(ground: Ground, adaptive: Adaptive, steps: int) -> str | None:
    assert adaptive.base is not None
    words = without_triple(ground.words(adaptive.base))
    chain = ("--speculative-num-steps", str(steps), "--speculative-eagle-topk", "1")
    outcome = effective_speculative(parse_arguments([*words, *chain]), ground.known)
    if isinstance(outcome, Rejection):
        return f"{steps_text(steps)}: {outcome.reason} {by_rule(outcome.rule)}"
    refused = next((advice for advice in outcome.advice if advice.refused), None)
    if refused is not None:
        return f"{steps_text(steps)}: {refused.text} {by_rule(refused.rule)}"
    if outcome.num_steps != steps:
        return f"{steps_text(steps)} would become {steps_text(outcome.num_steps or 0)}."
    return None


def _form_refusal(
    ground: Ground, tiers: Sequence[Tier], asked: Mapping[str, AskedValue]
) -> str | None:
    outcome = effective_speculative(asked, ground.known)
    if isinstance(outcome, Rejection):
        return f"{outcome.reason} {by_rule(outcome.rule)}"
    refused = next((advice for advice in outcome.advice if advice.refused), None)
    if refused is not None:
        return f"{refused.text} {by_rule(refused.rule)}"
    values = dict(outcome.values)
    if values.get("speculative_adaptive") is not True:
        why = [c.why for c in outcome.changes if c.dest == "speculative_adaptive"]
        return f"SGLang would turn adaptive mode off: {''.join(why)} {by_rule('C28')}."
    if "speculative_adaptive_config" in outcome.without_effect:
        return f"SGLang would not read {CONFIG}."
    most = max(steps for tier in tiers for steps in tier.steps) + 1
    if outcome.most_draft_tokens != most:
        return f"SGLang would verify up to {outcome.most_draft_tokens} tokens, not {most}."
    return None


def _routing_refusal(adaptive: Adaptive) -> str | None:
    """Whether measured batches and those at the thresholds come to the keys meant for them."""
    wanted = {level.batch: level.steps for level in adaptive.levels}
    for before, after in pairwise(adaptive.pinned):
        wanted |= {after.batch: after.steps[0], adaptive.below(after.batch): before.steps[0]}
    for batch, steps in sorted(wanted.items()):
        for name, tiers in adaptive.forms.items():
            got = _tier_of(batch, tiers, adaptive.graph_sizes)
            if steps not in got.steps or (name == "pinned" and got.steps != (steps,)):
                return (
                    f"{name}: a batch of {batch} is meant to take {steps_text(steps)} and counts "
                    f"to the key {got.batch}, which has {', '.join(map(str, got.steps))}."
                )
    return None


def _tier_of(batch: int, tiers: Sequence[Tier], sizes: Sequence[int] | None) -> Tier:
    runs_as = padded(batch, sizes)
    return [tiers[0], *(tier for tier in tiers[1:] if tier.batch <= runs_as)][-1]
