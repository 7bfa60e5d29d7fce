"""An EAGLE-3 head computed outside any server, in numpy's float32.

Written from the published description (EAGLE-3, arXiv 2503.01840) and SGLang 0.5.23's
`models/llama_eagle3.py`. Row i reads token i + 1 and the target's state at i, and predicts
token i + 2. Steps 2 and on are fed the head's own states at the same row, with the
true tokens: while all earlier drafts are right, that is just what is served.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

_LEAST: Final = np.float32(-1e30)


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """A layer's weights, float32, as [out, in]; norms [width]."""

    q: NDArray[np.float32]
    k: NDArray[np.float32]
    v: NDArray[np.float32]
    o: NDArray[np.float32]
    gate: NDArray[np.float32]
    up: NDArray[np.float32]
    down: NDArray[np.float32]
    input_norm: NDArray[np.float32]
    hidden_norm: NDArray[np.float32]
    post_norm: NDArray[np.float32]
    q_norm: NDArray[np.float32] | None = None
    k_norm: NDArray[np.float32] | None = None
    biases: Mapping[str, NDArray[np.float32]] | None = None


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
        scale: Frequencies are divided by this (linear scaling).
        uses_extras: Whether norms of queries and keys, and biases, are used where there are any.
    """

    uses_fc: bool = True
    norms_hidden: bool = True
    norms_embedding: bool = True
    norms_fc: bool = True
    residual: Literal["before", "after"] = "before"
    output: Literal["before", "after"] = "before"
    theta: float = 10000.0
    scale: float = 1.0
    uses_extras: bool = False


@dataclass(slots=True)
class _Cache:
    """Keys and values of one layer: step 1's rows, and each later step's own row."""

    keys: NDArray[np.float32]
    values: NDArray[np.float32]
    later: list[tuple[NDArray[np.float32], NDArray[np.float32]]]


def rms_norm(
    x: NDArray[np.float32], weight: NDArray[np.float32], eps: float
) -> NDArray[np.float32]:
    """Of the last dimension: x / sqrt(mean(x²) + eps) · weight."""
    mean = np.mean(np.square(x), axis=-1, keepdims=True)
    scaled: NDArray[np.float32] = x / np.sqrt(mean + np.float32(eps)) * weight
    return scaled


def rotate(
    x: NDArray[np.float32], positions: NDArray[np.float32], theta: float, scale: float
) -> NDArray[np.float32]:
    """Rotary positions on [n, heads, head_dim], halves paired as Llama pairs them."""
    if not theta:
        return x
    half = x.shape[-1] // 2
    frequencies = 1.0 / theta ** (np.arange(half, dtype=np.float64) / half) / scale
    angles = positions[:, None] * frequencies
    cos, sin = (f(angles).astype(np.float32)[:, None, :] for f in (np.cos, np.sin))
    first, second = x[..., :half], x[..., half:]
    return np.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1)


def project(head: Head, states: NDArray[np.float32], way: Forward) -> NDArray[np.float32]:
    """The target's states [n, slots, width], in order, made the head's own [n, hidden]."""
    rows, slots, width = states.shape
    if way.norms_fc and head.fc_norms:
        norms = head.fc_norms
        parts = [rms_norm(states[:, s], norms[s % len(norms)], head.eps) for s in range(slots)]
        states = np.stack(parts, axis=1)
    flat = states.reshape(rows, slots * width)
    if way.norms_fc and head.input_norm is not None:
        flat = rms_norm(flat, head.input_norm, head.eps)
    if head.fc is None or not way.uses_fc:
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
    caches: list[_Cache | None] = [None] * len(head.layers)
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
    cache: _Cache | None,
) -> tuple[NDArray[np.float32], _Cache]:
    normed = rms_norm(hidden, layer.hidden_norm, head.eps) if way.norms_hidden else hidden
    residual = normed if way.residual == "after" and embedded is not None else hidden
    entry = normed
    if embedded is not None:
        own = rms_norm(embedded, layer.input_norm, head.eps) if way.norms_embedding else embedded
        entry = np.concatenate([own, normed], axis=-1)
    attended, cache = _attend(head, layer, entry, positions, way, cache)
    hidden = residual + attended
    normed = rms_norm(hidden, layer.post_norm, head.eps)
    gate = normed @ layer.gate.T
    gated = gate / (1 + np.exp(-np.clip(gate, -80, 80))) * (normed @ layer.up.T)
    return hidden + gated @ layer.down.T, cache


def _attend(
    head: Head,
    layer: Layer,
    entry: NDArray[np.float32],
    positions: NDArray[np.float32],
    way: Forward,
    cache: _Cache | None,
) -> tuple[NDArray[np.float32], _Cache]:
    rows = len(entry)
    parts = {}
    for name, weight, heads in (
        ("q", layer.q, head.heads),
        ("k", layer.k, head.kv_heads),
        ("v", layer.v, head.kv_heads),
    ):
        made = entry @ weight.T
        if way.uses_extras and layer.biases is not None and name in layer.biases:
            made = made + layer.biases[name]
        parts[name] = made.reshape(rows, heads, head.head_dim)
    if way.uses_extras and layer.q_norm is not None and layer.k_norm is not None:
        parts["q"] = rms_norm(parts["q"], layer.q_norm, head.eps)
        parts["k"] = rms_norm(parts["k"], layer.k_norm, head.eps)
    group = head.heads // head.kv_heads
    queries = rotate(parts["q"], positions, way.theta, way.scale)
    keys = np.repeat(rotate(parts["k"], positions, way.theta, way.scale), group, axis=1)
    values = np.repeat(parts["v"], group, axis=1)
    if cache is None:
        cache = _Cache(keys, values, [])
    else:
        cache.later.append((keys, values))
    # Step 1's rows up to this one, then this row of each later step.
    scale = np.float32(head.head_dim**-0.5)
    scores = queries.transpose(1, 0, 2) @ cache.keys.transpose(1, 2, 0) * scale
    scores = np.where(np.tri(rows, dtype=bool), scores, _LEAST)
    own = [np.einsum("ihd,ihd->hi", queries, k)[..., None] * scale for k, _ in cache.later]
    every = np.concatenate([scores, *own], axis=-1)
    weights = np.exp(every - every.max(axis=-1, keepdims=True))
    weights /= weights.sum(axis=-1, keepdims=True)
    mixed = (weights[..., :rows] @ cache.values.transpose(1, 0, 2)).transpose(1, 0, 2)
    for place, (_, later) in enumerate(cache.later):
        mixed = mixed + weights[..., rows + place].T[..., None] * later
    return mixed.reshape(rows, -1).astype(np.float32) @ layer.o.T, cache
