"""M8 to M10, M21: does a draft's token id mean the token that it was trained to mean?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bench.draft.findings import DraftFinding, fault, note, suspect
from bench.draft.target import TEMPLATE, TOKENIZER, hashes_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.draft.case import Case

_LOW = "Nearly nothing is accepted, or CUDA stops at an index out of range."


def check_vocabulary(case: Case) -> Iterator[DraftFinding]:
    """The head, the maps, and the tokenizer."""
    if case.draft.is_eagle3:
        yield from _sizes(case)
        yield from _map(case)
    yield from _target_vocabulary(case)
    yield from _tokenizer(case)


def _sizes(case: Case) -> Iterator[DraftFinding]:
    """M10: the head's rows, the config's sizes, the map's length."""
    draft, d2t = case.draft, case.vocabulary.d2t
    head = draft.checkpoint.tensors.get("lm_head.weight")
    if not draft.has_draft_vocab and draft.form == "llama-eagle3" and not draft.is_tied:
        yield fault(
            "M10",
            "The config does not say how large the draft's vocabulary is.",
            "draft_vocab_size is not in config.json" + (f"; {head.text}" if head else ""),
            consequence="SGLang stops at start with an AttributeError.",
            fix=f'In config.json, write "draft_vocab_size": '
            f"{head.shape[0] if head and head.shape else 'ROWS-OF-LM_HEAD'}.",
        )
        return
    if head is not None and len(head.shape) == 2 and head.shape[0] != draft.head_rows:
        yield fault(
            "M10",
            "The head has another number of rows than the config says.",
            f"{head.text}; draft_vocab_size {draft.settings.get('draft_vocab_size')}, vocab_size "
            f"{draft.vocab_size}",
            consequence="SGLang stops at start.",
            fix="Correct draft_vocab_size, or take the head that belongs to it.",
        )
    if d2t is not None and d2t.shape != (draft.head_rows,):
        yield fault(
            "M10",
            "The map has another number of entries than the draft's vocabulary.",
            f"{d2t.text}; draft_vocab_size {draft.settings.get('draft_vocab_size')}",
            consequence=_LOW,
            fix="Take the map that belongs to this head.",
        )


def _map(case: Case) -> Iterator[DraftFinding]:
    """M8, M9: the map from draft ids to tokens."""
    draft, found = case.draft, case.vocabulary
    head, vocab = draft.checkpoint.tensors.get("lm_head.weight"), case.vocab_size
    rows = head.shape[0] if head is not None and head.shape else draft.head_rows
    is_smaller = rows is not None and vocab is not None and rows < vocab
    if found.d2t is None:
        if is_smaller:
            yield fault(
                "M9",
                "The draft has a vocabulary of its own, and no map from it to the target's.",
                f"draft_vocab_size {rows}, the target's {vocab}; no tensor is called d2t",
                consequence=f"Draft ids are taken for the target's first {rows:,} tokens. {_LOW}",
                fix="Save d2t (token - id, whole numbers) with the draft.",
            )
        return
    if found.convention == "zero" and is_smaller and not found.is_proved:
        yield fault(
            "M9",
            "The map is 0 everywhere, and the draft's vocabulary is smaller than the target's.",
            *found.facts,
            f"draft_vocab_size {rows}, the target's {vocab}",
            consequence=f"Draft ids are taken for the target's first {rows:,} tokens. {_LOW}",
            fix="Save the map of the tokens that the draft was trained on.",
        )
    elif found.convention == "absolute":
        yield fault(
            "M8",
            "The map holds tokens, and SGLang adds it to the draft's ids.",
            *found.facts,
            consequence=_LOW,
            fix="Write d2t[i] - i in the place of d2t[i].",
        )
    elif found.convention == "neither":
        yield fault(
            "M8",
            "The map leads to no choice of the target's tokens.",
            *found.facts,
            f"the target's vocabulary has {vocab} tokens",
            consequence=_LOW,
            fix="Make it again from the tokens the draft was trained on: d2t[i] = token - i.",
        )
    elif found.convention == "open" and is_smaller:
        yield suspect(
            "M8",
            "The map could hold offsets or tokens.",
            *found.facts,
            "no t2d proves it; no two neighbouring tokens are both in it, if it holds offsets",
            consequence=f"SGLang takes offsets. If it holds tokens: {_LOW[0].lower()}{_LOW[1:]}",
            fix="Write d2t[i] - i in the place of d2t[i] if it holds tokens.",
        )


def _target_vocabulary(case: Case) -> Iterator[DraftFinding]:
    draft, target = case.draft, case.target
    if target is None or draft.vocab_size is None or target.vocab_size is None:
        return
    if draft.vocab_size != target.vocab_size:
        yield fault(
            "M10",
            "The draft was made for a target of another vocabulary.",
            f"vocab_size {draft.vocab_size}; the target's {target.vocab_size}",
            consequence="The embedding that SGLang shares is the target's; ids beyond either mean "
            "nothing.",
            fix="Is this the target, and the revision of it, that the draft was trained for?",
        )


def _tokenizer(case: Case) -> Iterator[DraftFinding]:
    """M21 and M20: files of the tokenizer that came with the draft."""
    target = case.target
    if target is None:
        return
    source = case.draft.checkpoint.source
    for name, own in hashes_of(source, source.names()).items():
        theirs = target.tokenizer_hashes.get(name)
        if theirs is None or theirs == own:
            continue
        evidence = f"{name}: SHA-256 {own[:12]}… with the draft, {theirs[:12]}… with the target"
        if name == TOKENIZER:
            yield suspect(
                "M21",
                "The draft came with another tokenizer than its target's.",
                evidence,
                consequence="Ids may mean other tokens than in its training.",
                fix="Compare their vocabularies; train on the served revision's ids.",
            )
        elif name == TEMPLATE:
            yield note(
                "M20",
                "The draft came with another chat template than its target's.",
                evidence,
                consequence="Prompts may look otherwise than in its training.",
                fix="Serve with the template that the training used, or train on the served one.",
            )
