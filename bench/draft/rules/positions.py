"""M15, M22: are positions what they were in training, as far out as they are served?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bench.draft.case import ALLOW_LONGER
from bench.draft.findings import DraftFinding, fault, note, suspect
from bench.draft.rope import DEFAULT_THETA
from bench.sglang.arguments import model_facts, whole_number

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.draft.case import Case

_TRUE = frozenset({"1", "true", "yes", "y"})


def check_positions(case: Case) -> Iterator[DraftFinding]:
    """Rotary positions and their reach."""
    if not case.draft.is_eagle3:
        return
    yield from _rope(case)
    yield from _reach(case)


def _rope(case: Case) -> Iterator[DraftFinding]:
    draft, target = case.draft, case.target
    rope = draft.rope
    if rope.conflict is not None:
        yield suspect(
            "M15",
            "The config gives two bases of the rotary positions.",
            f"rope_parameters.rope_theta {rope.theta:g}, rope_theta {rope.conflict:g}",
            consequence=f"SGLang takes {rope.theta:g}. If the training took the other, acceptance "
            "falls with the context's length.",
            fix="Keep the one of the training.",
        )
    if target is None:
        return
    if not rope.is_given and target.rope.theta != DEFAULT_THETA:
        yield suspect(
            "M15",
            "The config does not give the base of the rotary positions.",
            f"no rope_theta and no rope_parameters; the target has {target.rope.text}",
            consequence=f"SGLang takes {DEFAULT_THETA:g}. If the training took another, "
            "acceptance falls with the context's length.",
            fix="In config.json, write the training's rope_theta.",
        )
    original = dict(rope.scaling).get("original_max_position_embeddings", "")
    trained_tok = draft.max_positions
    inherited = rope.is_scaled and (rope.kind, rope.scaling) == (
        target.rope.kind,
        target.rope.scaling,
    )
    short = original.isdecimal() and trained_tok is not None and trained_tok <= int(original)
    if inherited and short:
        yield suspect(
            "M15",
            "The draft has its target's stretched positions, and was made for contexts that need "
            "none.",
            f"draft and target: {rope.text}; the draft's max_position_embeddings {trained_tok}",
            consequence="If the training did not stretch them, acceptance is low, and falls with "
            "the context's length.",
            fix="Take the scaling out of config.json if the training had none.",
        )


def _reach(case: Case) -> Iterator[DraftFinding]:
    """M22: SGLang gives the draft its target's context."""
    draft, target, launch = case.draft, case.target, case.launch
    reach = model_facts(draft.settings).context_len_tok
    given = None if launch is None else launch.text("context_length")
    asked = whole_number(given or "")
    context = asked or (None if target is None else target.facts.context_len_tok)
    if reach is None or context is None or context <= reach or draft.form == "speculators":
        return
    evidence = (
        f"max_position_embeddings {draft.max_positions}: {reach:,} positions",
        f"the server's context: {context:,}"
        + (" (--context-length)" if asked else " (the target's own)"),
    )
    what = "The server's context is longer than the draft's positions reach."
    stops = f"SGLang stops at start, unless {ALLOW_LONGER}=1 is set."
    fix = f"Give --context-length {reach}, or a draft trained on longer contexts."
    if launch is None:
        yield note("M22", what, *evidence, consequence=stops, fix=fix)
    elif launch.environment.get(ALLOW_LONGER, "").lower() in _TRUE:
        yield suspect(
            "M22",
            what,
            *evidence,
            f"{ALLOW_LONGER} is set",
            consequence=f"Beyond {reach:,} tokens the draft meets positions it never saw: "
            "acceptance falls there.",
            fix=fix,
        )
    else:
        yield fault("M22", what, *evidence, consequence=stops, fix=fix)
