"""An EAGLE-3 head's weights read into `reference.Head`, and the embedding of tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from bench.doctor.reference import Head, Layer
from bench.draft.checkpoint import values_of, whole_values
from bench.draft.config_values import number, whole
from bench.errors import InputError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from bench.draft.checkpoint import Checkpoint
    from bench.draft.draft import Draft
    from bench.draft.headers import Tensor
    from bench.draft.target import Target


def read_head(draft: Draft) -> Head:
    """The head of a draft in Llama's or speculators' form.

    Raises:
        InputError: It is of another form, or a weight is missing.
    """
    if draft.form not in {"llama-eagle3", "speculators"}:
        raise InputError(
            f"{draft.name}: the reference forward knows heads of Llama's layer alone, and this is "
            f"{draft.architecture}.",
            hint="bench doctor draft examines its files; bench doctor server probes it.",
        )
    heads = whole(draft.settings, "num_attention_heads") or 1
    hidden = draft.hidden or 0
    found = _Weights(draft.checkpoint)
    fc_norms = [f"fc_norm.{place}.weight" for place in range(draft.num_aux)]
    old = ["aux_norm_low.weight", "aux_norm_mid.weight", "aux_norm_high.weight"]
    norms = [found.first(new, was) for new, was in zip(fc_norms, old, strict=False)]
    return Head(
        fc=found.first("fc.weight"),
        fc_bias=found.first("fc.bias"),
        fc_norms=tuple(n for n in norms if n is not None),
        input_norm=found.first("input_norm.weight"),
        layers=tuple(_layer(found, place) for place in range(draft.layers)),
        norm=found.need("norm.weight"),
        head=found.need("lm_head.weight"),
        heads=heads,
        kv_heads=whole(draft.settings, "num_key_value_heads") or heads,
        head_dim=whole(draft.settings, "head_dim") or hidden // heads,
        eps=number(draft.settings, "rms_norm_eps") or 1e-6,
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
    for name, tensor in draft.checkpoint.tensors.items():
        if name.endswith("embed_tokens.weight"):
            return draft.checkpoint, tensor
    raise InputError(
        f"{draft.name} brings no embedding, and SGLang takes its target's.",
        hint="Give --target TARGET, with its weights.",
    )


class _Weights:
    """A draft's tensors by their plain names."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        self._files = checkpoint
        self._plain = {_plain(name): tensor for name, tensor in checkpoint.tensors.items()}

    def first(self, *names: str) -> NDArray[np.float32] | None:
        for name in names:
            if name in self._plain:
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


def _layer(found: _Weights, place: int) -> Layer:
    at = f"layers.{place}."
    biases = {
        key: bias
        for key in "qkv"
        if (bias := found.first(f"{at}self_attn.{key}_proj.bias")) is not None
    }
    own = found.first(f"{at}input_layernorm.weight")
    hidden_norm = found.first(f"{at}hidden_norm.weight")
    if hidden_norm is None:
        hidden_norm = own if place and own is not None else found.need(f"{at}hidden_norm.weight")
    return Layer(
        q=found.need(f"{at}self_attn.q_proj.weight"),
        k=found.need(f"{at}self_attn.k_proj.weight"),
        v=found.need(f"{at}self_attn.v_proj.weight"),
        o=found.need(f"{at}self_attn.o_proj.weight"),
        gate=found.need(f"{at}mlp.gate_proj.weight"),
        up=found.need(f"{at}mlp.up_proj.weight"),
        down=found.need(f"{at}mlp.down_proj.weight"),
        input_norm=hidden_norm if own is None else own,
        hidden_norm=hidden_norm,
        post_norm=found.need(f"{at}post_attention_layernorm.weight"),
        q_norm=found.first(f"{at}self_attn.q_norm.weight"),
        k_norm=found.first(f"{at}self_attn.k_norm.weight"),
        biases=biases or None,
    )
