"""Whether SGLang has a class that reads the draft at all."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bench.draft.draft import LLAMA_EAGLE3, MLA_EAGLE3
from bench.draft.findings import DraftFinding, fault, note, suspect

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.draft.case import Case
    from bench.draft.draft import Draft

# The names under which SGLang loads a target's own multi-token layer are many: see
# `_config_draft_model` of its configs/model_config.py. These are their checkpoints' weights.
MTP_PARTS = ("eh_proj.weight", "enorm.weight", "hnorm.weight")
_MTP_NORM = "shared_head.norm.weight"


def check_form(case: Case) -> Iterator[DraftFinding]:
    """form, and M23 for a multi-token layer."""
    draft = case.draft
    if draft.form == "speculators":
        yield _speculators(draft)
    elif draft.form == "other":
        plain = case.launch is not None and not _is_eagle(
            case.launch.text("speculative_algorithm")
        )
        yield (note if plain else suspect)(
            "form",
            f"{draft.architecture or 'this checkpoint'} is no EAGLE-3 draft and no multi-token "
            "layer.",
            f"architectures {draft.settings.get('architectures')}",
            consequence="EAGLE3 cannot read it, and no rule here speaks of it. A whole model "
            "drafts with --speculative-algorithm STANDALONE.",
            fix="Give an EAGLE-3 draft in SGLang's or speculators' form, or a model with a "
            "multi-token layer.",
        )
    elif draft.form == "llama-eagle3" and draft.architecture != LLAMA_EAGLE3:
        yield _misnamed(draft)
    elif draft.form == "mtp":
        yield from _mtp(draft)


def _is_eagle(algorithm: str | None) -> bool:
    return algorithm is not None and algorithm.upper() in {"EAGLE", "EAGLE3", "NEXTN"}


def _speculators(draft: Draft) -> DraftFinding:
    return fault(
        "form",
        "The draft is in the form of speculators, which SGLang cannot read.",
        f"architectures {draft.settings.get('architectures')}, speculators_model_type "
        f"{draft.settings.get('speculators_model_type')!r}",
        consequence="SGLang 0.5.23 stops at start: it has no class of that name, and reads "
        "neither transformer_layer_config nor the layer ids.",
        fix=f"bench doctor convert {draft.name} NEW-FOLDER",
    )


def _misnamed(draft: Draft) -> DraftFinding:
    plain = draft.architecture == "LlamaForCausalLM"
    return fault(
        "form",
        "The weights are an EAGLE-3 head's, and the config names another class.",
        f"architectures {draft.settings.get('architectures')}",
        consequence="SGLang loads a plain Llama of these sizes, whose weights do not fit."
        if plain
        else "SGLang stops at start: it has no class of that name.",
        fix=f'In config.json, write "architectures": ["{LLAMA_EAGLE3}"] (of an MLA draft: '
        f'"{MLA_EAGLE3}").',
    )


def _mtp(draft: Draft) -> Iterator[DraftFinding]:
    names = draft.checkpoint.tensors
    count = draft.settings.get("num_nextn_predict_layers")
    missing = [part for part in MTP_PARTS if not any(name.endswith(part) for name in names)]
    of_deepseek = any(name.endswith("eh_proj.weight") for name in names)
    if of_deepseek and not any(name.endswith(_MTP_NORM) for name in names):
        missing.append(_MTP_NORM)
    if of_deepseek and missing:
        yield fault(
            "M23",
            "The multi-token layer lacks weights.",
            *(f"no tensor ends in {part}" for part in missing),
            consequence="SGLang leaves them as they were made: nearly nothing is accepted.",
            fix="Take the layer from the published checkpoint again, all of its tensors.",
        )
    if of_deepseek and count != 1:
        yield fault(
            "form",
            "The checkpoint has a multi-token layer, and its config does not say that it has one.",
            f"num_nextn_predict_layers {count!r}",
            consequence="SGLang 0.5.23 stops at start: it takes exactly one such layer.",
            fix='In config.json, write "num_nextn_predict_layers": 1.',
        )
