"""M7, M11 to M14, M16, M18: does SGLang compute what the draft was trained to compute?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bench.draft.findings import DraftFinding, fault, suspect
from bench.draft.loading import MOST_LAYERS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.draft.case import Case
    from bench.draft.draft import Draft
    from bench.draft.headers import Tensor

_HEAD_NORMS = ("q_norm.weight", "k_norm.weight")
_BIASES = ("q_proj.bias", "k_proj.bias", "v_proj.bias")


def check_forward(case: Case) -> Iterator[DraftFinding]:
    """The forward pass of an EAGLE-3 draft."""
    draft = case.draft
    if not draft.is_eagle3:
        return
    yield from _projection(case)
    yield from _residual(draft)
    yield from _attention(draft)
    yield from _later_layers(draft)
    yield from _norms(draft)
    yield from _recurrence(draft)
    yield from _tied(draft)
    yield from _sizes(case)


def fc_weight(draft: Draft) -> Tensor | None:
    """The projection of the target's states; None where there is none."""
    tensors = draft.checkpoint.tensors
    return next((tensors[n] for n in ("fc.weight", "model.fc.weight") if n in tensors), None)


def _projection(case: Case) -> Iterator[DraftFinding]:
    """M7: is fc applied, and to as many states as it was trained for?"""
    draft, fc = case.draft, fc_weight(case.draft)
    if not draft.uses_aux:
        yield fault(
            "M7",
            "The config turns the target's hidden states off.",
            "eagle_config.use_aux_hidden_state is false",
            consequence="SGLang feeds the last hidden state alone and skips fc: nearly nothing is "
            "accepted.",
            fix='In config.json, write "eagle_config": {"use_aux_hidden_state": true, …}.',
        )
    if fc is None or len(fc.shape) != 2 or not draft.input_width or draft.form == "speculators":
        return
    states = fc.shape[1] / draft.input_width
    fed = case.fed_width
    evidence = [
        f"{fc.text}: {states:g} states of {draft.input_width}",
        f"the config asks for {_asked(draft)}",
    ]
    if fed is not None:
        evidence.append(f"fed at the first step: [n, {fed}]")
    if fed is not None and fed == draft.hidden and draft.uses_aux:
        yield fault(
            "M7",
            "What the draft is fed is as wide as its own states, so SGLang skips fc.",
            *evidence,
            consequence="The states go into the layer without fc: nearly nothing is accepted.",
            fix="Capture at least two layers, or fold fc into the layer's weights.",
        )
    elif states != draft.num_aux:
        yield fault(
            "M7",
            "fc was trained on another number of states than the config asks for.",
            *evidence,
            consequence="SGLang stops at start or at its first request: the widths do not fit.",
            fix=f"Give as many layer ids as fc reads states ({states:g}), in the order of the "
            "layers. A training that held one state more and cut it off ([:-1]) read all but the "
            "last.",
        )


def _asked(draft: Draft) -> str:
    if draft.settings.get("num_aux_hidden_states"):
        return f"{draft.num_aux} (num_aux_hidden_states)"
    if draft.nested_ids is not None:
        return f"{draft.num_aux} (eagle_config's layer ids {list(draft.nested_ids)})"
    if draft.form == "mla-eagle3" and draft.top_ids is not None:
        return f"{draft.num_aux} (layer ids {list(draft.top_ids)})"
    return f"{draft.num_aux} (the default)"


def _residual(draft: Draft) -> Iterator[DraftFinding]:
    if draft.settings.get("norm_before_residual") is not True:
        return
    yield fault(
        "M11",
        "The draft adds the normalised state back after attention; SGLang adds the one before "
        "hidden_norm.",
        "norm_before_residual is true",
        consequence="SGLang 0.5.23 does not know that setting: acceptance drops strongly.",
        fix="Train with norm_before_residual: false, or serve it with vLLM.",
    )


def _attention(draft: Draft) -> Iterator[DraftFinding]:
    """M12: weights of attention that SGLang's class does not have."""
    names = draft.checkpoint.tensors
    norms = [name for name in names if name.endswith(_HEAD_NORMS)]
    biases = [name for name in names if name.endswith(_BIASES)]
    if draft.form == "mla-eagle3" or not norms + biases:
        return
    what = " and ".join(
        ["norms of queries and keys"] * bool(norms) + ["biases of q, k or v"] * bool(biases)
    )
    yield fault(
        "M12",
        f"The draft's attention has {what}, and SGLang's class has none.",
        *(names[name].text for name in (norms + biases)[:6]),
        consequence="SGLang drops them without a message: acceptance drops.",
        fix="Train a draft whose layer is Llama's (transformer_layer_config.model_type llama, "
        "attention_bias false).",
    )


def _later_layers(draft: Draft) -> Iterator[DraftFinding]:
    """M13: the norm before the attention of the layers behind the first."""
    names = draft.checkpoint.tensors
    if draft.form == "speculators":
        return  # the conversion renames them
    for layer in range(1, min(draft.layers, MOST_LAYERS)):
        ours = [n for n in names if n.endswith(f"layers.{layer}.input_layernorm.weight")]
        if ours and not any(n.endswith(f"layers.{layer}.hidden_norm.weight") for n in names):
            yield fault(
                "M13",
                f"Layer {layer} has its norm under a name that SGLang does not use there.",
                f"{ours[0]} is there, layers.{layer}.hidden_norm.weight is not",
                consequence="SGLang normalises this layer's input by hidden_norm, which stays at "
                "1: acceptance drops.",
                fix=f"Rename {ours[0]} to layers.{layer}.hidden_norm.weight (bench doctor convert "
                "does so).",
            )


def _norms(draft: Draft) -> Iterator[DraftFinding]:
    """M14: norms around fc, in the weights and in the config."""
    names = draft.checkpoint.tensors
    fc_norms = [n for n in names if "fc_norm." in n or "aux_norm_" in n]
    input_norms = [n for n in names if n.endswith("input_norm.weight")]
    for found, flag, key in (
        (fc_norms, draft.fc_norm, "fc_norm"),
        (input_norms, draft.norm_before_fc, "norm_before_fc"),
    ):
        if found and not flag:
            yield fault(
                "M14",
                f"The weights have {key}'s norms, and the config does not turn them on.",
                names[found[0]].text,
                f"{key} is {draft.settings.get(key)!r}",
                consequence="SGLang drops them without a message: fc reads states "
                "of another size.",
                fix=f'In config.json, write "{key}": true'
                if draft.form != "mla-eagle3" or key == "fc_norm"
                else "SGLang's MLA class has no such norm.",
            )
        elif flag and not found:
            yield fault(
                "M14",
                f"The config turns {key} on, and the weights have no such norm.",
                f"{key} is true; no tensor is called so",
                consequence="SGLang normalises the states by 1, which the training did not.",
                fix=f"Take {key} out of config.json, or find the norms' weights.",
            )


def _recurrence(draft: Draft) -> Iterator[DraftFinding]:
    """M14b: norm_output means another thing in SpecForge before its EAGLE-3.1."""
    given = draft.settings.get("norm_output")
    by_specforge = any("midlayer." in name for name in draft.checkpoint.tensors)
    if given is None or draft.from_speculators or not by_specforge or draft.fc_norm:
        return
    yield suspect(
        "M14b",
        "norm_output means one thing in SGLang and another in SpecForge.",
        f"norm_output is {given!r}, and the weights are named as SpecForge names them (midlayer)",
        "SGLang: whether steps 2 and on are fed the state after the final norm. SpecForge 0.2: "
        "whether the head reads it after the final norm, which SGLang always does",
        consequence="Step 1 is right, steps 2 and on read states of another size."
        if given
        else "The head reads normalised states, which the training did not.",
        fix="Take norm_output out of config.json unless the draft is an EAGLE-3.1 one.",
    )


def _tied(draft: Draft) -> Iterator[DraftFinding]:
    if not draft.is_tied:
        return
    head = draft.checkpoint.tensors.get("lm_head.weight")
    yield fault(
        "M16",
        "The config ties the head to the embedding.",
        "tie_word_embeddings is true",
        f"{head.text} is there and is not used" if head else "there is no lm_head.weight",
        consequence="SGLang takes the target's embedding for the draft's head: nearly nothing is "
        "accepted.",
        fix='In config.json, write "tie_word_embeddings": false.',
    )


def _sizes(case: Case) -> Iterator[DraftFinding]:
    """M18: another width than the target's."""
    draft, target = case.draft, case.target
    names = draft.checkpoint.tensors
    if "target_hidden_size" in draft.settings and draft.target_hidden is None:
        if draft.form == "llama-eagle3":
            yield fault(
                "M18",
                "target_hidden_size is there and empty.",
                f"target_hidden_size is {draft.settings['target_hidden_size']!r}",
                consequence="SGLang stops at start: it multiplies it.",
                fix="Take the key out of config.json, or give the target's hidden_size.",
            )
        return
    has_embedding = any(name.endswith("embed_tokens.weight") for name in names)
    if draft.form != "speculators" and not draft.shares_embedding and not has_embedding:
        yield fault(
            "M18",
            "The draft is of another width than its target and brings no embedding.",
            f"target_hidden_size {draft.target_hidden}, hidden_size {draft.hidden}; no tensor is "
            "called embed_tokens.weight",
            consequence="SGLang cannot share the target's embedding and leaves the draft's as it "
            "was made: nearly nothing is accepted.",
            fix="Save the draft's embedding with it. If the widths are equal, correct "
            "target_hidden_size.",
        )
    known = None if target is None else target.hidden
    if known is not None and draft.input_width is not None and known != draft.input_width:
        yield fault(
            "M18",
            "The draft was made for a target of another width.",
            f"target's hidden_size {known}; the draft expects {draft.input_width} "
            + ("(target_hidden_size)" if draft.target_hidden else "(its hidden_size)"),
            consequence="SGLang stops at its first request: fc does not fit what it is fed.",
            fix="Is this the target that the draft was trained for? If so, write its hidden_size "
            "as target_hidden_size.",
        )
