"""M6, M19, M24, arguments: is the draft served by arguments that fit it?"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from bench.draft.config_values import whole
from bench.draft.findings import DraftFinding, fault, note, suspect
from bench.sglang.arguments import (
    SUPPORTED,
    Known,
    Rejection,
    by_rule,
    effective_speculative,
    model_facts,
    whole_number,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.draft.case import Case, LaunchArguments

_ALGORITHM: Final = "speculative_algorithm"
_DRAFT_QUANTIZATION: Final = "speculative_draft_model_quantization"
_NONE: Final = frozenset({None, "", "unquant", "none", "null"})


def check_serving(case: Case) -> Iterator[DraftFinding]:
    """The command line, where it is given."""
    launch = case.launch
    if launch is None or case.draft.form == "other":
        return
    yield from _algorithm(case, launch)
    yield from _quantisation(case, launch)
    yield from _window(case, launch)
    yield from _arguments(case, launch)


def _algorithm(case: Case, launch: LaunchArguments) -> Iterator[DraftFinding]:
    asked = (launch.text(_ALGORITHM) or "").upper()
    if not asked:
        yield note(
            "M6",
            "The arguments ask for no speculation.",
            "no --speculative-algorithm",
            consequence="The draft is not loaded.",
            fix=f"Give --speculative-algorithm {_fitting(case)}.",
        )
    elif case.draft.is_eagle3 and asked != "EAGLE3":
        yield fault(
            "M6",
            f"The draft is an EAGLE-3 head, and the arguments ask for {asked}.",
            f"--speculative-algorithm {asked}; architectures {case.draft.architecture}",
            consequence="SGLang skips fc, puts the target's head in place of the draft's and does "
            "not map its ids: it starts, and nearly nothing is accepted."
            if asked in {"EAGLE", "NEXTN"}
            else f"{asked} makes its drafts in another way: this draft is not used as it was "
            "trained.",
            fix="Give --speculative-algorithm EAGLE3.",
        )
    elif case.draft.form == "mtp" and asked not in {"EAGLE", "NEXTN"}:
        yield fault(
            "M6",
            f"The draft is a multi-token layer, and the arguments ask for {asked}.",
            f"--speculative-algorithm {asked}",
            consequence="A multi-token layer reads the last hidden state alone and has no head or "
            "fc of EAGLE-3.",
            fix="Give --speculative-algorithm NEXTN.",
        )


def _fitting(case: Case) -> str:
    return "EAGLE3" if case.draft.is_eagle3 else "NEXTN"


def _quantisation(case: Case, launch: LaunchArguments) -> Iterator[DraftFinding]:
    asked = launch.text("quantization")
    own = "quantization_config" in case.draft.settings
    if asked in _NONE or launch.text(_DRAFT_QUANTIZATION) is not None or own:
        return
    yield suspect(
        "M19",
        "The draft is quantised because its target is.",
        f"--quantization {asked}, no --speculative-draft-model-quantization",
        consequence="SGLang quantises the draft in the same way: a small head loses more by it.",
        fix="Give --speculative-draft-model-quantization unquant, and compare.",
    )


def _window(case: Case, launch: LaunchArguments) -> Iterator[DraftFinding]:
    asked = whole_number(launch.text("speculative_draft_window_size") or "")
    trained = whole(case.draft.settings, "sliding_window")
    if asked is None or asked == trained:
        return
    yield suspect(
        "M24",
        "The draft is served with an attention window that its config does not have.",
        f"--speculative-draft-window-size {asked}; sliding_window {trained}",
        consequence="What lies further back than the window is lost to the draft: acceptance "
        "falls with the context's length.",
        fix="Leave the option out, or train with that window.",
    )


def _arguments(case: Case, launch: LaunchArguments) -> Iterator[DraftFinding]:
    """What SGLang's own rules make of the speculative arguments."""
    known = Known(
        version=SUPPORTED,
        target=None if case.target is None else case.target.facts,
        draft=replace(model_facts(case.draft.settings), context_len_tok=None),  # M22 tells of it
        environment=launch.environment,
    )
    outcome = effective_speculative(launch.asked, known)
    if isinstance(outcome, Rejection):
        yield fault(
            "arguments",
            "SGLang does not start with these arguments.",
            f"{outcome.reason} {by_rule(outcome.rule)}",
            consequence="There is no server.",
            fix=outcome.fix,
        )
        return
    for change in outcome.changes:
        if change.asked is not None:
            yield note(
                "arguments",
                "SGLang makes another thing of an argument.",
                f"{change.sentence} {by_rule(change.rule)}",
                consequence="What runs is not what was asked.",
                fix="Ask for what will be (docs/arguments.md).",
            )
