"""What SGLang makes of a draft's tensors: loaded, renamed, dropped or left as they were made.

The Llama class drops names that it does not know without a word and checks for none that is
missing; the MLA class warns of the first (SGLang 0.5.23, `load_weights` of both).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from bench.draft.config_values import whole

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bench.draft.draft import Draft
    from bench.draft.headers import Tensor

Dims = tuple[int | None, ...]
"""A shape; None is a dimension that the config does not tell."""

MOST_LAYERS: Final = 64
"""A draft has a layer or a few; what its config says of more is not followed."""

_LEGACY: Final = {
    "midlayer": "layers.0",
    "aux_norm_low": "fc_norm.0",
    "aux_norm_mid": "fc_norm.1",
    "aux_norm_high": "fc_norm.2",
}
_QKV: Final = {".q_proj": "q", ".k_proj": "k", ".v_proj": "v"}
_GATE_UP: Final = {".gate_proj": "gate", ".up_proj": "up"}
_QUANTISED: Final = re.compile(
    r"\.(?:q?weight_packed|qweight|weight_scale(?:_inv|_2)?|weight_shape|weight_zero_point|scales|"
    r"qzeros|g_idx|input_scale|weight_g_idx)$"
)
_QUANTISED_WEIGHT: Final = (".weight_packed", ".qweight")


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """What becomes of each tensor and parameter.

    Attributes:
        wanted: The parameters of SGLang's class, by name (`…qkv_proj.weight[q]` is one of several
            that are fused), with their shapes.
        filled: The tensors that went into each, by name.
        renamed: Tensors that go under another name: (in the file, in SGLang), where not fused.
        dropped: Tensors that go nowhere.
        missing: Parameters that no tensor goes into.
        clashing: (tensor, parameter) whose shapes differ: SGLang stops at start.
        is_quantised: Whether shapes could not be held against each other.
    """

    wanted: Mapping[str, Dims]
    filled: Mapping[str, tuple[str, ...]]
    renamed: tuple[tuple[str, str], ...]
    dropped: tuple[Tensor, ...]
    missing: tuple[str, ...]
    clashing: tuple[tuple[Tensor, str], ...]
    is_quantised: bool

    @property
    def twice(self) -> tuple[str, ...]:
        """Parameters that more than one tensor goes into: the last one stays."""
        return tuple(name for name, found in self.filled.items() if len(found) > 1)


def is_vocabulary_map(name: str, draft: Draft) -> bool:
    """Whether a tensor is one of the maps between the vocabularies, and no parameter."""
    if draft.form == "mla-eagle3":
        return name in {"d2t", "t2d"} or name.endswith((".d2t", ".t2d"))
    return "d2t" in name or "t2d" in name


def load(draft: Draft) -> Loaded:
    """SGLang's loading of an EAGLE-3 draft, done on names and shapes alone."""
    wanted = _parameters(draft)
    is_quantised = "quantization_config" in draft.settings or any(
        name.endswith(_QUANTISED_WEIGHT) for name in draft.checkpoint.tensors
    )
    filled: dict[str, tuple[str, ...]] = {}
    renamed, dropped, clashing = [], [], []
    for name, tensor in draft.checkpoint.tensors.items():
        if is_vocabulary_map(name, draft):
            continue
        slot = _slot(name, draft, wanted)
        if slot is None and _QUANTISED.search(name):
            plain = _QUANTISED.sub(".weight", name)
            slot = _slot(plain, draft, wanted)
            if slot is not None and not name.endswith(_QUANTISED_WEIGHT):
                continue  # a scale of a weight that is counted itself
        if slot is None:
            dropped.append(tensor)
            continue
        filled[slot] = (*filled.get(slot, ()), name)
        if slot != name and not slot.endswith("]"):
            renamed.append((name, slot))
        if not is_quantised and not _fits(tensor.shape, wanted[slot]):
            clashing.append((tensor, slot))
    return Loaded(
        wanted=wanted,
        filled=filled,
        renamed=tuple(renamed),
        dropped=tuple(dropped),
        missing=tuple(slot for slot in wanted if slot not in filled),
        clashing=tuple(clashing),
        is_quantised=is_quantised,
    )


def _fits(shape: tuple[int, ...], wanted: Dims) -> bool:
    return len(shape) == len(wanted) and all(
        want in {None, found} for found, want in zip(shape, wanted, strict=True)
    )


# ------------------------------------------------------------------------------ the tensors' names


def _slot(name: str, draft: Draft, wanted: Mapping[str, Dims]) -> str | None:
    """The parameter that a tensor goes into; None: it is dropped."""
    return _mla_slot(name, wanted) if draft.form == "mla-eagle3" else _llama_slot(name, wanted)


def _llama_slot(name: str, wanted: Mapping[str, Dims]) -> str | None:
    for old, new in _LEGACY.items():
        name = name.replace(old, new)
    for pieces, fused in ((_QKV, ".qkv_proj"), (_GATE_UP, ".gate_up_proj")):
        for piece, shard in pieces.items():
            if piece in name:
                return _named(f"{name.replace(piece, fused)}[{shard}]", wanted)
    return _named(name, wanted)


def _named(name: str, wanted: Mapping[str, Dims]) -> str | None:
    return next((slot for slot in (name, f"model.{name}") if slot in wanted), None)


def _mla_slot(name: str, wanted: Mapping[str, Dims]) -> str | None:
    name = re.sub(r"^layers\.0\.", "midlayer.", name)
    name = name if name.startswith("lm_head.") else f"model.{name}"
    for piece, shard in _GATE_UP.items():
        name = name.replace(piece + ".weight", f".gate_up_proj.weight[{shard}]")
    for piece in ("q_a_proj", "kv_a_proj_with_mqa"):
        name = name.replace(f".{piece}.weight", f".fused_qkv_a_proj_with_mqa.weight[{piece}]")
    return name if name in wanted else None


# ------------------------------------------------------------------------ the classes' parameters


def _parameters(draft: Draft) -> dict[str, Dims]:
    hidden = draft.hidden
    fc_in = None if draft.input_width is None else draft.input_width * draft.num_aux
    found: dict[str, Dims] = {
        "model.embed_tokens.weight": (draft.vocab_size, hidden),
        "model.fc.weight": (hidden, fc_in),
        "model.norm.weight": (hidden,),
    }
    if draft.settings.get("bias"):
        found["model.fc.bias"] = (hidden,)
    if draft.norm_before_fc:
        found["model.input_norm.weight"] = (fc_in,)
    if draft.fc_norm:
        for place in range(min(draft.num_aux, MOST_LAYERS)):
            found[f"model.fc_norm.{place}.weight"] = (draft.input_width,)
    if not draft.is_tied:
        found["lm_head.weight"] = (draft.head_rows, hidden)
    if draft.form == "mla-eagle3":
        return found | _mla_layer(draft)
    for layer in range(min(draft.layers, MOST_LAYERS)):
        found |= _llama_layer(draft, layer)
    return found


def _llama_layer(draft: Draft, layer: int) -> dict[str, Dims]:
    hidden, settings = draft.hidden, draft.settings
    heads = whole(settings, "num_attention_heads")
    kv_heads = whole(settings, "num_key_value_heads") or heads
    head_dim = whole(settings, "head_dim") or (hidden // heads if hidden and heads else None)
    width = None if hidden is None else hidden * (2 if layer == 0 else 1)
    queries = heads * head_dim if heads and head_dim else None
    keys = kv_heads * head_dim if kv_heads and head_dim else None
    at = f"model.layers.{layer}."
    found: dict[str, Dims] = {
        f"{at}self_attn.qkv_proj.weight[q]": (queries, width),
        f"{at}self_attn.qkv_proj.weight[k]": (keys, width),
        f"{at}self_attn.qkv_proj.weight[v]": (keys, width),
        f"{at}self_attn.o_proj.weight": (hidden, queries),
    }
    if settings.get("attention_bias") or settings.get("bias"):
        found[f"{at}self_attn.o_proj.bias"] = (hidden,)
    return found | _mlp(at, draft) | _norms(at, hidden)


def _mla_layer(draft: Draft) -> dict[str, Dims]:
    hidden, settings = draft.hidden, draft.settings
    heads, q_rank, kv_rank, nope, rope, value = (
        whole(settings, key)
        for key in (
            *("num_attention_heads", "q_lora_rank", "kv_lora_rank"),
            *("qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim"),
        )
    )
    width = None if hidden is None else 2 * hidden
    queries = heads * (nope + rope) if heads and nope and rope else None
    keys = heads * (nope + value) if heads and nope and value else None
    values = heads * value if heads and value else None
    at = "model.midlayer."
    latent = kv_rank + rope if kv_rank and rope else None
    found: dict[str, Dims] = {
        f"{at}self_attn.fused_qkv_a_proj_with_mqa.weight[q_a_proj]": (q_rank, width),
        f"{at}self_attn.fused_qkv_a_proj_with_mqa.weight[kv_a_proj_with_mqa]": (latent, width),
        f"{at}self_attn.q_a_layernorm.weight": (q_rank,),
        f"{at}self_attn.q_b_proj.weight": (queries, q_rank),
        f"{at}self_attn.kv_a_layernorm.weight": (kv_rank,),
        f"{at}self_attn.kv_b_proj.weight": (keys, kv_rank),
        f"{at}self_attn.o_proj.weight": (hidden, values),
    }
    return found | _mlp(at, draft) | _norms(at, hidden)


def _mlp(at: str, draft: Draft) -> dict[str, Dims]:
    wide = whole(draft.settings, "intermediate_size")
    return {
        f"{at}mlp.gate_up_proj.weight[gate]": (wide, draft.hidden),
        f"{at}mlp.gate_up_proj.weight[up]": (wide, draft.hidden),
        f"{at}mlp.down_proj.weight": (draft.hidden, wide),
    }


def _norms(at: str, hidden: int | None) -> dict[str, Dims]:
    names = ("input_layernorm", "hidden_norm", "post_attention_layernorm")
    return {f"{at}{name}.weight": (hidden,) for name in names}
