"""An EAGLE-3 head's weights read into `reference.Head`, and the embedding of tokens."""

from __future__ import annotations

from itertools import zip_longest
from typing import TYPE_CHECKING, Any

import numpy as np

from bench.doctor.attention import Attention, LatentAttention
from bench.doctor.reference import Head, Layer
from bench.doctor.rotary import is_computable
from bench.draft.checkpoint import values_of, whole_values
from bench.draft.config_values import number, shown, whole
from bench.draft.loading import MOST_LAYERS, load
from bench.errors import InputError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from bench.draft.checkpoint import Checkpoint
    from bench.draft.draft import Draft
    from bench.draft.headers import Tensor
    from bench.draft.target import Target


def read_head(draft: Draft, target: Target | None = None) -> Head:
    """The head of a draft in Llama's, DeepSeek's or speculators' form.

    Raises:
        InputError: It is of another form, or a weight is missing.
    """
    require_eagle3(draft)
    _require_sizes(draft)
    heads = whole(draft.settings, "num_attention_heads") or 1
    hidden = draft.hidden or 0
    found = _Weights(draft.checkpoint)
    is_latent = draft.form == "mla-eagle3"
    fc_norms = [f"fc_norm.{place}.weight" for place in range(draft.num_aux)]
    old = ["aux_norm_low.weight", "aux_norm_mid.weight", "aux_norm_high.weight"]
    norms = [found.first(new, was) for new, was in zip_longest(fc_norms, old[: len(fc_norms)])]
    interleaved = is_latent and draft.settings.get("rope_interleave", True)
    return Head(
        fc=found.first("fc.weight"),
        fc_bias=found.first("fc.bias"),
        fc_norms=tuple(n for n in norms if n is not None),
        input_norm=found.first("input_norm.weight"),
        layers=tuple(_layer(found, draft, place) for place in range(draft.layers)),
        norm=found.need("norm.weight"),
        head=found.need("lm_head.weight"),
        heads=heads,
        kv_heads=whole(draft.settings, "num_key_value_heads") or heads,
        head_dim=whole(draft.settings, "head_dim") or hidden // heads,
        eps=number(draft.settings, "rms_norm_eps") or 1e-6,
        rope=draft.rope,
        target_rope=target.rope if target is not None and is_computable(target.rope) else None,
        max_positions=max(draft.max_positions or 2048, 1),
        pairs="neighbours" if interleaved else "halves",
        is_latent=is_latent,
    )


def require_eagle3(draft: Draft) -> None:
    """Refuse what is no EAGLE-3 head.

    Raises:
        InputError: It is none.
    """
    if not draft.is_eagle3:
        raise InputError(
            f"{draft.name}: wanted an EAGLE-3 head, found {draft.architecture} ({draft.form}).",
            hint="bench doctor draft examines its files; bench doctor server probes it.",
        )


def _require_sizes(draft: Draft) -> None:
    """Refuse layers of other sizes than the config's; fc may read any number of states."""
    heads = whole(draft.settings, "num_attention_heads") or 0
    kv_heads = whole(draft.settings, "num_key_value_heads") or heads
    hidden = draft.hidden or 0
    head_dim = whole(draft.settings, "head_dim") or (hidden // heads if heads > 0 else 0)
    asked = {
        "num_attention_heads": heads > 0,
        "num_key_value_heads": kv_heads > 0 and heads % kv_heads == 0,
        "hidden_size": hidden > 0,
        "head_dim": head_dim > 0 and head_dim % 2 == 0,
        "num_hidden_layers": 0 < draft.layers <= MOST_LAYERS,
        "rms_norm_eps": 0 <= (number(draft.settings, "rms_norm_eps") or 0.0) < 1,
        "rope_theta": draft.rope.theta > 1,
        "rope_parameters": is_computable(draft.rope),
    }
    for key, is_usable in asked.items():
        if not is_usable:
            raise InputError(
                f"{draft.name}: its config has no usable {key}: {shown(draft.settings.get(key))}.",
                hint="Take it from the training's config.",
            )
    head = draft.checkpoint.tensors.get("lm_head.weight")
    if head is not None and head.shape[1:] != (hidden,):
        raise InputError(
            f"{draft.name}: {head.text} does not read states of {hidden}.",
            hint="bench doctor draft tells which sizes do not fit (M10).",
        )
    for tensor, slot in load(draft).clashing:
        if "layer" in slot or "norm" in slot:
            raise InputError(
                f"{draft.name}: {tensor.text} is not as large as its config says.",
                hint="bench doctor draft tells which sizes do not fit (M10).",
            )


def embeddings_of(
    ids: NDArray[np.int64], files: Checkpoint, tensor: Tensor
) -> NDArray[np.float32]:
    """Rows of an embedding, read one by one: of all its rows few are needed.

    Raises:
        InputError: A token is not in it.
    """
    distinct, places = np.unique(ids, return_inverse=True)
    if distinct[0] < 0 or distinct[-1] >= tensor.shape[0]:
        raise InputError(
            f"token {int(distinct[-1])} is not in {tensor.text} of {files.name}.",
            hint="Are captures, draft and target of one model?",
        )
    rows = [values_of(files, tensor, first_row=int(token), rows=1) for token in distinct]
    if any(row is None for row in rows):
        raise InputError(f"{tensor.text} of {files.name} is of a type that is not read here.")
    table = np.concatenate([row for row in rows if row is not None])
    return table[places].astype(np.float32)


def embedding_tensor(draft: Draft, target: Target | None) -> tuple[Checkpoint, Tensor]:
    """The embedding that SGLang uses: the target's, unless it is not shared.

    Raises:
        InputError: Neither brings one.
    """
    if target is not None and target.embedding is not None and draft.shares_embedding:
        return target.embedding
    own = _own_embedding(draft)
    if own is not None:
        return draft.checkpoint, own
    raise InputError(
        f"{draft.name} brings no embedding, and SGLang takes its target's.",
        hint="Give --target TARGET, with its weights.",
    )


def unserved_embedding(draft: Draft, target: Target | None) -> Tensor | None:
    """The draft's own embedding, where SGLang puts its target's in that place; None: no such."""
    files, _ = embedding_tensor(draft, target)
    return None if files is draft.checkpoint else _own_embedding(draft)


def _own_embedding(draft: Draft) -> Tensor | None:
    tensors = draft.checkpoint.tensors
    return next((t for name, t in tensors.items() if name.endswith("embed_tokens.weight")), None)


class _Weights:
    """A draft's tensors by their plain names."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        self._files = checkpoint
        self._plain = {_plain(name): tensor for name, tensor in checkpoint.tensors.items()}

    def first(self, *names: str | None) -> NDArray[np.float32] | None:
        for name in names:
            if name is not None and name in self._plain:
                found: NDArray[Any] = whole_values(self._files, self._plain[name])
                return found.astype(np.float32, copy=False)
        return None

    def need(self, *names: str) -> NDArray[np.float32]:
        found = self.first(*names)
        if found is None:
            raise InputError(
                f"{self._files.name} has no {names[0]}.",
                hint="bench doctor draft tells what else is missing.",
            )
        return found


def _plain(name: str) -> str:
    name = name.removeprefix("model.")
    return name.replace("midlayer.", "layers.0.", 1) if name.startswith("midlayer.") else name


def _layer(found: _Weights, draft: Draft, place: int) -> Layer:
    at = f"layers.{place}."
    own = found.first(f"{at}input_layernorm.weight")
    named = found.first(f"{at}hidden_norm.weight")
    is_misnamed = named is None and place > 0 and own is not None
    hidden_norm = own if is_misnamed else named
    if hidden_norm is None:
        hidden_norm = found.need(f"{at}hidden_norm.weight")
    is_latent = draft.form == "mla-eagle3"
    return Layer(
        attention=_latent(found, draft, at) if is_latent else _attention(found, at),
        gate=found.need(f"{at}mlp.gate_proj.weight"),
        up=found.need(f"{at}mlp.up_proj.weight"),
        down=found.need(f"{at}mlp.down_proj.weight"),
        input_norm=hidden_norm if own is None else own,
        hidden_norm=hidden_norm,
        post_norm=found.need(f"{at}post_attention_layernorm.weight"),
        is_misnamed=is_misnamed,
    )


def _attention(found: _Weights, at: str) -> Attention:
    biases = {
        key: bias
        for key in "qkv"
        if (bias := found.first(f"{at}self_attn.{key}_proj.bias")) is not None
    }
    return Attention(
        q=found.need(f"{at}self_attn.q_proj.weight"),
        k=found.need(f"{at}self_attn.k_proj.weight"),
        v=found.need(f"{at}self_attn.v_proj.weight"),
        o=found.need(f"{at}self_attn.o_proj.weight"),
        q_norm=found.first(f"{at}self_attn.q_norm.weight"),
        k_norm=found.first(f"{at}self_attn.k_norm.weight"),
        biases=biases or None,
    )


def _latent(found: _Weights, draft: Draft, at: str) -> LatentAttention:
    nope = whole(draft.settings, "qk_nope_head_dim")
    if nope is None:
        raise InputError(
            f"{draft.name}: its config has no qk_nope_head_dim, and its attention is DeepSeek's.",
            hint="bench doctor draft tells what else is missing.",
        )
    names = ("q_a_proj", "q_a_layernorm", "q_b_proj", "kv_a_proj_with_mqa", "kv_a_layernorm")
    q_a, q_a_norm, q_b, kv_a, kv_a_norm, kv_b, o = (
        found.need(f"{at}self_attn.{name}.weight") for name in (*names, "kv_b_proj", "o_proj")
    )
    return LatentAttention(
        q_a=q_a,
        q_a_norm=q_a_norm,
        q_b=q_b,
        kv_a=kv_a,
        kv_a_norm=kv_a_norm,
        kv_b=kv_b,
        o=o,
        nope=nope,
    )
