"""An EAGLE-3 head computed outside any server, in numpy's float32.

Written from the published description (EAGLE-3, arXiv 2503.01840) and SGLang 0.5.23's
`models/llama_eagle3.py` and `models/kimi_k25_eagle3.py`. Row i reads token i + 1 and the target's
state at i, and predicts token i + 2. Steps 2 and on are fed the head's own states at the same row,
with the true tokens: while all earlier drafts are right, that is just what is served.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from bench.doctor.attention import Attention, Cache, LatentAttention, attend, rms_norm

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from bench.doctor.rotary import Pairs
    from bench.draft.rope import Rope


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """A layer's weights, float32, as [out, in]; norms [width].

    `is_misnamed`: its hidden_norm has a name that SGLang's class does not look for.
    """

    attention: Attention | LatentAttention
    gate: NDArray[np.float32]
    up: NDArray[np.float32]
    down: NDArray[np.float32]
    input_norm: NDArray[np.float32]
    hidden_norm: NDArray[np.float32]
    post_norm: NDArray[np.float32]
    is_misnamed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """An EAGLE-3 head.

    Attributes:
        fc: [hidden, states × width]; None: there is none.
        fc_bias: [hidden].
        fc_norms: [width] for each state, or none.
        input_norm: [states × width], over their concatenation; None: there is none.
        layers: Its layers, the first reading twice the width.
        norm: [hidden], before the vocabulary's head.
        head: [rows, hidden].
        heads: Query heads.
        kv_heads: Key and value heads.
        head_dim: Their width.
        eps: Of every norm.
        rope: Its rotary positions; None: plain ones.
        target_rope: Its target's; None: not known.
        max_positions: `max_position_embeddings`.
        pairs: Which dimensions turn together.
        is_latent: Whether its attention is DeepSeek's.
    """

    fc: NDArray[np.float32] | None
    fc_bias: NDArray[np.float32] | None
    fc_norms: tuple[NDArray[np.float32], ...]
    input_norm: NDArray[np.float32] | None
    layers: tuple[Layer, ...]
    norm: NDArray[np.float32]
    head: NDArray[np.float32]
    heads: int
    kv_heads: int
    head_dim: int
    eps: float
    rope: Rope | None = None
    target_rope: Rope | None = None
    max_positions: int = 2048
    pairs: Pairs = "halves"
    is_latent: bool = False

    def scaling(self, way: Forward) -> Rope | None:
        """Whose scaling of the positions is used."""
        return {"own": self.rope, "target": self.target_rope, "none": None}[way.scaling]


@dataclass(frozen=True, slots=True, kw_only=True)
class Forward:
    """How a head is to be run; the defaults are SGLang's.

    Attributes:
        uses_fc: Whether the states go through fc.
        norms_hidden: Whether the hidden state is normalised before attention.
        norms_embedding: Whether the embedding is.
        norms_fc: Whether the norms around fc are used, where there are any.
        residual: Whether the residual is the hidden state before its norm, or after.
        output: Whether the next step is fed the state before the final norm, or after.
        theta: Base of the rotary positions; 0: none.
        scaling: Whose config says how positions are stretched.
        scale: Frequencies are divided by this as well (linear scaling).
        uses_extras: Whether norms of queries and keys, and biases, are used where there are any.
        finds_misnamed: Whether a later layer's norm is used though its name is another; SGLang
            leaves it at 1.
    """

    uses_fc: bool = True
    norms_hidden: bool = True
    norms_embedding: bool = True
    norms_fc: bool = True
    residual: Literal["before", "after"] = "before"
    output: Literal["before", "after"] = "before"
    theta: float = 10000.0
    scaling: Literal["own", "target", "none"] = "own"
    scale: float = 1.0
    uses_extras: bool = False
    finds_misnamed: bool = False


def project(head: Head, states: NDArray[np.float32], way: Forward) -> NDArray[np.float32]:
    """The target's states [n, slots, width], in order, made the head's own [n, hidden].

    What does not fit fc is given back as it is: the head cannot read it.
    """
    rows, slots, width = states.shape
    if way.norms_fc and head.fc_norms:
        norms = head.fc_norms
        parts = [rms_norm(states[:, s], norms[s % len(norms)], head.eps) for s in range(slots)]
        states = np.stack(parts, axis=1)
    flat = states.reshape(rows, slots * width)
    if way.norms_fc and head.input_norm is not None and head.input_norm.size == flat.shape[1]:
        flat = rms_norm(flat, head.input_norm, head.eps)
    if head.fc is None or not way.uses_fc or head.fc.shape[1] != flat.shape[1]:
        return flat
    hidden: NDArray[np.float32] = flat @ head.fc.T
    return hidden if head.fc_bias is None else hidden + head.fc_bias


def run(
    head: Head,
    hidden: NDArray[np.float32],
    embeddings: NDArray[np.float32],
    way: Forward,
    *,
    steps: int,
) -> list[NDArray[np.float32]]:
    """States before the vocabulary's head, of each step: [rows, hidden], after the final norm.

    Args:
        head: The head.
        hidden: [n, hidden]: row i's state at step 1.
        embeddings: [n + steps, width]: of token i + 1 at row i and step 1; later steps read on.
        way: How it is run.
        steps: How many.
    """
    rows, found = len(hidden), []
    caches: list[Cache | None] = [None] * len(head.layers)
    for step in range(steps):
        state = hidden
        embedded = embeddings[step : step + rows]
        positions = np.arange(step, step + rows, dtype=np.float32)
        for place, layer in enumerate(head.layers):
            state, caches[place] = _layer(
                head, layer, state, embedded if place == 0 else None, positions, way, caches[place]
            )
        normed = rms_norm(state, head.norm, head.eps)
        found.append(normed)
        hidden = normed if way.output == "after" else state
    return found


def _layer(
    head: Head,
    layer: Layer,
    hidden: NDArray[np.float32],
    embedded: NDArray[np.float32] | None,
    positions: NDArray[np.float32],
    way: Forward,
    cache: Cache | None,
) -> tuple[NDArray[np.float32], Cache]:
    norm = layer.hidden_norm
    if layer.is_misnamed and not way.finds_misnamed:
        norm = np.ones_like(norm)
    normed = rms_norm(hidden, norm, head.eps) if way.norms_hidden else hidden
    residual = normed if way.residual == "after" and embedded is not None else hidden
    entry = normed
    if embedded is not None:
        own = rms_norm(embedded, layer.input_norm, head.eps) if way.norms_embedding else embedded
        entry = np.concatenate([own, normed], axis=-1)
    attended, cache = attend(head, layer.attention, entry, positions, way, cache)
    hidden = residual + attended
    normed = rms_norm(hidden, layer.post_norm, head.eps)
    gate = normed @ layer.gate.T
    gated = gate / (1 + np.exp(-np.clip(gate, -80, 80))) * (normed @ layer.up.T)
    return hidden + gated @ layer.down.T, cache
