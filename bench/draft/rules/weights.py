"""M10, M17, M23: is every weight loaded, from the right tensor?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from bench.draft.checkpoint import values_of
from bench.draft.findings import DraftFinding, fault, note

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.draft.case import Case
    from bench.draft.draft import Draft
    from bench.draft.loading import Loaded

# Not used by serving, and no loss: tables that are computed, copies of the target's weights.
_IDLE: Final = ("rotary_emb.inv_freq", "verifier_lm_head.weight", "verifier_norm.weight")
# Reported by rules of their own.
_TOLD: Final = (
    *("q_norm.weight", "k_norm.weight", "q_proj.bias", "k_proj.bias", "v_proj.bias"),
    "input_norm.weight",
)
_ROWS: Final = 64
_BF16_STEP: Final = 2.0**-7
_SHOWN: Final = 6


def check_weights(case: Case) -> Iterator[DraftFinding]:
    """Each parameter of SGLang's class is to be hit by exactly one tensor."""
    draft, loaded = case.draft, case.loaded
    if loaded is None:
        return
    if draft.form != "speculators":
        yield from _missing(draft, loaded)
        yield from _dropped(draft, loaded)
        yield from _twice(draft, loaded)
        yield from _clashing(loaded)
    yield from _embedding(case)
    if loaded.is_quantised:
        yield note(
            "quantised",
            "The draft is quantised.",
            "its config has a quantization_config, or its weights are packed",
            consequence="Its shapes were not checked.",
            fix="Hold its accept length against the unquantised draft's.",
        )


def _missing(draft: Draft, loaded: Loaded) -> Iterator[DraftFinding]:
    missing = [slot for slot in loaded.missing if not _comes_from_target(draft, slot)]
    if not missing:
        return
    yield fault(
        "M23",
        f"No tensor goes into {len(missing)} of SGLang's {len(loaded.wanted)} parameters.",
        *missing[:_SHOWN],
        *_dropped_names(loaded),
        consequence="They stay as they were made, norms at 1 and matrices random or not set at "
        "all" + (", without a message." if draft.form == "llama-eagle3" else "."),
        fix="Name the tensors as SGLang does, or save those that are missing.",
    )


def _comes_from_target(draft: Draft, slot: str) -> bool:
    if slot.endswith("embed_tokens.weight"):
        return True  # or M18 tells of it
    if slot == "lm_head.weight":
        return draft.has_draft_vocab and draft.draft_vocab_size is None
    # Told by rules of their own: M14, M13, and layers' norms that SGLang never reads.
    later_norm = "layers.0." not in slot and slot.endswith(
        ("input_layernorm.weight", "hidden_norm.weight")
    )
    return (
        "fc_norm." in slot
        or slot.endswith("input_norm.weight")
        or (later_norm and "layers." in slot)
    )


def _dropped_names(loaded: Loaded) -> list[str]:
    dropped = [tensor.text for tensor in loaded.dropped if not tensor.name.endswith(_IDLE)]
    return [f"dropped: {text}" for text in dropped[:_SHOWN]]


def _dropped(draft: Draft, loaded: Loaded) -> Iterator[DraftFinding]:
    told = (*_IDLE, *_TOLD)
    dropped = [
        tensor
        for tensor in loaded.dropped
        if not tensor.name.endswith(told)
        and "fc_norm." not in tensor.name
        and "aux_norm_" not in tensor.name
    ]
    untied = [tensor for tensor in dropped if not (draft.is_tied and "lm_head" in tensor.name)]
    if not untied or any(not _comes_from_target(draft, slot) for slot in loaded.missing):
        return
    yield fault(
        "M23",
        f"{len(untied)} of the draft's tensors go nowhere.",
        *(tensor.text for tensor in untied[:_SHOWN]),
        consequence="SGLang drops names that it does not know"
        + (" without a message" if draft.form == "llama-eagle3" else "")
        + ": what they were trained for is lost.",
        fix="Name them as SGLang does; if SGLang's class has no such part, train without it.",
    )


def _twice(draft: Draft, loaded: Loaded) -> Iterator[DraftFinding]:
    for slot in loaded.twice:
        yield fault(
            "M23",
            f"Several tensors go into {slot}.",
            *loaded.filled[slot],
            consequence="The last one that is read stays.",
            fix="Keep the right one.",
        )
    for name in draft.checkpoint.twice:
        yield fault(
            "M23",
            f"{name} is in two files.",
            f"no index says which; {draft.checkpoint.tensors[name].file} is one",
            consequence="The last one that is read stays.",
            fix="Keep the right file.",
        )


def _clashing(loaded: Loaded) -> Iterator[DraftFinding]:
    for tensor, slot in loaded.clashing[:_SHOWN]:
        if slot in {"lm_head.weight", "model.fc.weight"}:
            continue  # M10 and M7 tell more
        wanted = ["?" if dim is None else dim for dim in loaded.wanted[slot]]
        is_embedding = slot.endswith("embed_tokens.weight")
        yield fault(
            "M10" if is_embedding else "M23",
            f"{tensor.name} is not of the shape that the config makes.",
            f"{tensor.text}; {slot} is {wanted}",
            consequence="SGLang stops at start.",
            fix="Correct the sizes in config.json, or take the weights that belong to it.",
        )


def _embedding(case: Case) -> Iterator[DraftFinding]:
    """M17: an embedding that was trained with the draft, and is replaced by the target's."""
    draft, target = case.draft, case.target
    own = next(
        (t for n, t in draft.checkpoint.tensors.items() if n.endswith("embed_tokens.weight")), None
    )
    theirs = None if target is None else target.embedding
    if own is None or theirs is None or not draft.shares_embedding or len(own.shape) != 2:
        return
    files, tensor = theirs
    if tensor.shape[1:] != own.shape[1:] or own.shape[0] > tensor.shape[0]:
        return
    largest, rows, compared = 0.0, 0, 0
    step = max(1, own.shape[0] // _ROWS)
    for row in range(0, own.shape[0], step):
        ours = values_of(draft.checkpoint, own, first_row=row, rows=1)
        other = values_of(files, tensor, first_row=row, rows=1)
        if ours is None or other is None:
            return
        difference = np.abs(ours - other)
        compared += 1
        # The two may be stored in types of different precision.
        if np.any(difference > _BF16_STEP * np.abs(other) + 1e-6):
            rows += 1
            largest = max(largest, float(difference.max()))
    if rows:
        yield fault(
            "M17",
            "The draft's embedding is not the target's, which SGLang puts in its place.",
            f"{own.text}: {rows} of {compared} rows compared differ, by up to {largest:.3g}",
            consequence="What the training changed in it is lost without a message.",
            fix="Train with the embedding frozen (speculators: embed_requires_grad false).",
        )
