"""M1 to M5, M25, E1: is the draft fed the states of the layers that it was trained on?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bench.draft.capture import (
    REFUSING,
    SHIFTS,
    Captured,
    default_states,
    ids_for,
    trainer_default,
)
from bench.draft.findings import DraftFinding, fault, note, suspect

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.draft.case import Case
    from bench.draft.draft import Draft

_NESTED = "eagle_config.eagle_aux_hidden_state_layer_ids"


def check_layers(case: Case) -> Iterator[DraftFinding]:
    """The layers captured, for EAGLE-3 drafts that SGLang can read."""
    draft, captured = case.draft, case.captured
    if not draft.is_eagle3 or draft.form == "speculators" or not draft.uses_aux:
        return
    if captured is None:
        yield from _unknown(case)
        yield from _order(draft)
        return
    layers = case.target.layers if case.target else None
    if layers is None:
        return
    yield from _lost(captured, layers)
    if draft.declared is not None:
        yield from _declared(draft, captured, layers)
        return
    yield from _top_only(draft, captured, layers)
    yield from _order(draft)
    yield from _convention(case, captured, layers)
    yield from _embedding(captured)


def _unknown(case: Case) -> Iterator[DraftFinding]:
    if case.target is None:
        return
    architecture = case.target.architecture
    if architecture in REFUSING:
        yield fault(
            "capture",
            f"{architecture} gives no hidden states of its layers.",
            f"target's architectures[0] is {architecture}",
            consequence="SGLang 0.5.23 stops at start with EAGLE3.",
            fix="Draft with NGRAM or a small model (STANDALONE).",
        )
    elif architecture not in SHIFTS:
        yield note(
            "capture",
            f"What SGLang captures of {architecture} is not known here.",
            f"target's architectures[0] is {architecture}",
            consequence="Which layers feed the draft was not checked; SGLang stops at start if "
            "the class has no hook for it.",
            fix="bench doctor wiring compares what the server feeds with the training's captures.",
        )


def _lost(captured: Captured, layers: int) -> Iterator[DraftFinding]:
    if not captured.lost:
        return
    yield fault(
        "M25",
        "The draft asks for hidden states that the target never gives.",
        f"asked {_ids(captured)}: states {list(captured.lost)} of a target of {layers} layers, "
        f"which gives 0 to {layers - 1}",
        consequence="SGLang stops at its first request: the states are fewer than fc is built "
        "for. The output of the last layer, after the final norm, cannot be captured.",
        fix="Train on layers below the last, and give their ids.",
    )


def _declared(draft: Draft, captured: Captured, layers: int) -> Iterator[DraftFinding]:
    if draft.declared is None or tuple(sorted(draft.declared)) == captured.states:
        return
    yield fault(
        "M1" if draft.nested_ids is None else "M2",
        f"The draft was trained on states {list(draft.declared)}, and is fed others.",
        f"eagle_config.trained_before_layers {list(draft.declared)}",
        f"{_NESTED} {_ids(captured)} makes SGLang take {captured.text}",
        consequence="The first step reads states that mean something else.",
        fix=_write(draft.declared, captured, layers),
    )


def _top_only(draft: Draft, captured: Captured, layers: int) -> Iterator[DraftFinding]:
    top = draft.top_ids
    if draft.nested_ids is not None or top is None:
        return
    evidence = (
        f"eagle_aux_hidden_state_layer_ids {list(top)} beside eagle_config, none in it",
        f"captured instead, by default: {captured.text}",
    )
    as_outputs = tuple(layer + 1 for layer in top)
    # By either way of counting these are the very layers of the default.
    if captured.states in {tuple(sorted(top)), tuple(sorted(as_outputs))}:
        yield note(
            "M1",
            "The layer ids are where SGLang does not read them; its default is the same layers.",
            *evidence,
            consequence="None, as long as the default stays what it is.",
            fix=f'Write them into config.json as "eagle_config": {{"{_NESTED.partition(".")[2]}": '
            "[…]}.",
        )
        return
    states = top if draft.from_speculators else as_outputs
    yield suspect(
        "M1",
        "The layer ids are where SGLang does not read them.",
        *evidence,
        consequence="The draft is fed other layers than it was trained on, without a message.",
        fix=_write(states, captured, layers),
    )


def _order(draft: Draft) -> Iterator[DraftFinding]:
    ids = draft.nested_ids
    if ids is None or draft.declared is not None:
        return
    if len(set(ids)) < len(ids):
        yield fault(
            "M5",
            "The layer ids repeat.",
            f"{_NESTED} {list(ids)}",
            consequence="Each layer is captured once: the states are fewer than fc is built for, "
            "and SGLang stops at its first request.",
            fix="Give each layer once.",
        )
    elif list(ids) != sorted(ids):
        yield suspect(
            "M5",
            "The layer ids do not ascend.",
            f"{_NESTED} {list(ids)}",
            consequence="SGLang concatenates the states in the order of the layers, whatever the "
            "order of the ids: if the training kept theirs, fc's columns meet the wrong states.",
            fix="Put fc.weight's blocks of columns into the order of the layers. Sorting the ids "
            "alone changes nothing.",
        )


def _convention(case: Case, captured: Captured, layers: int) -> Iterator[DraftFinding]:
    """M2, M3, M4: ids that look as if they were counted another way than this class counts."""
    draft, ids = case.draft, captured.asked
    if ids is None or len(ids) < 2 or layers < 6:
        return
    before, outputs = set(default_states(layers)[1:]), set(trainer_default(layers)[1:])
    alike = len(before & set(ids[1:])) - len(outputs & set(ids[1:]))
    as_before, as_outputs = alike > 0, alike < 0
    speculators = draft.from_speculators and draft.top_ids in {None, ids}
    seen = f"{_NESTED} {list(ids)} on {case.target.architecture if case.target else '?'}"
    wanted = tuple(sorted(ids))
    if captured.shift == "plus-one" and (speculators or (as_before and ids[0] == 2)):
        yield suspect(
            "M2",
            "The ids look like states' numbers, and this target's class adds 1 to them.",
            seen,
            _trained(draft, default_states(layers)),
            f"captured: {captured.text}",
            consequence="Every state is that of one layer too late.",
            fix=_write(wanted, captured, layers),
        )
    elif captured.shift != "plus-one-from-1":
        return
    elif ids[0] == 1 and (speculators or as_before):
        yield suspect(
            "M4",
            "The ids look like states' numbers, and this target's class adds 1 since the first "
            "is 1.",
            seen,
            _trained(draft, default_states(layers)),
            f"captured: {captured.text}",
            consequence="Every state is that of one layer too late.",
            fix=_write(wanted, captured, layers),
        )
    elif ids[0] != 1 and as_outputs:
        yield suspect(
            "M3",
            "The ids look like layers' numbers, and this target's class adds 1 only when the "
            "first is 1.",
            seen,
            f"layers {list(trainer_default(layers))} are what trainers take by default",
            f"captured: {captured.text}",
            consequence="Every state is that of one layer too early.",
            fix=_write(tuple(layer + 1 for layer in wanted), captured, layers),
        )


def _trained(draft: Draft, default: tuple[int, int, int]) -> str:
    if draft.from_speculators:
        return "the config has keys of speculators, which counts states"
    return f"states {list(default)} are what vLLM and speculators take by default"


def _embedding(captured: Captured) -> Iterator[DraftFinding]:
    """E1: is 0 the embedding's output, or the first layer's?"""
    ids = captured.asked
    if ids is None or 0 not in ids:
        return
    fed = "the embedding's output" if 0 in captured.states else "the output of layer 0"
    other = "the output of layer 0" if 0 in captured.states else "the embedding's output"
    yield suspect(
        "E1",
        f"Id 0 is {fed} here; some trainers mean {other} by it.",
        f"{_NESTED} {list(ids)}",
        f"captured: {captured.text}",
        "transformers' hidden_states[0], speculators and vLLM: the embedding; SpecForge: what "
        "SGLang's own class makes of it",
        consequence="If the training took the other, one slot of fc reads states that mean "
        "something else.",
        fix="Find out what the first tensor of the training's captures is: bench doctor wiring "
        "compares it with what the server feeds"
        + ("; -1 is the embedding on this class." if captured.is_shifted else "."),
    )


def _ids(captured: Captured) -> str:
    return "(none)" if captured.asked is None else str(list(captured.asked))


def _write(states: tuple[int, ...], captured: Captured, layers: int) -> str:
    ids = ids_for(tuple(sorted(states)), shift=captured.shift, layers=layers)
    if ids is None:
        return f"SGLang 0.5.23 cannot capture states {list(states)} of this class."
    return f'In config.json, write "eagle_config": {{"{_NESTED.partition(".")[2]}": {list(ids)}}}.'
