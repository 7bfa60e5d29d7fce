"""Attention of an EAGLE-3 head's layer, Llama's and DeepSeek's, in numpy's float32."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from bench.doctor.rotary import frequencies, score_scale, turn

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from bench.doctor.reference import Forward, Head

_LEAST: Final = np.float32(-1e30)


@dataclass(frozen=True, slots=True, kw_only=True)
class Attention:
    """Llama's: weights as [out, in], norms and biases None where there are none."""

    q: NDArray[np.float32]
    k: NDArray[np.float32]
    v: NDArray[np.float32]
    o: NDArray[np.float32]
    q_norm: NDArray[np.float32] | None = None
    k_norm: NDArray[np.float32] | None = None
    biases: Mapping[str, NDArray[np.float32]] | None = None

    @property
    def has_extras(self) -> bool:
        """Whether it has parts that SGLang's class of draft has not."""
        return self.q_norm is not None or bool(self.biases)


@dataclass(frozen=True, slots=True, kw_only=True)
class LatentAttention:
    """DeepSeek's (MLA): queries, keys and values through narrow latent states.

    Attributes:
        q_a: [q rank, in].
        q_a_norm: [q rank].
        q_b: [heads × (nope + rope), q rank].
        kv_a: [kv rank + rope, in]; the last rows are the key that all heads share.
        kv_a_norm: [kv rank].
        kv_b: [heads × (nope + value), kv rank].
        o: [hidden, heads × value].
        nope: Dimensions of a key that are not rotated.
    """

    q_a: NDArray[np.float32]
    q_a_norm: NDArray[np.float32]
    q_b: NDArray[np.float32]
    kv_a: NDArray[np.float32]
    kv_a_norm: NDArray[np.float32]
    kv_b: NDArray[np.float32]
    o: NDArray[np.float32]
    nope: int

    @property
    def has_extras(self) -> bool:
        """Whether it has parts that SGLang's class of draft has not."""
        return False


@dataclass(slots=True)
class Cache:
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


def attend(
    head: Head,
    attention: Attention | LatentAttention,
    entry: NDArray[np.float32],
    positions: NDArray[np.float32],
    way: Forward,
    cache: Cache | None,
) -> tuple[NDArray[np.float32], Cache]:
    """What attention adds to each row, and the keys and values that later steps look back at.

    Args:
        head: Its sizes.
        attention: The layer's weights.
        entry: [n, in].
        positions: [n].
        way: How it is run.
        cache: Of the steps before; None: this is step 1.
    """
    rows = len(entry)
    if isinstance(attention, LatentAttention):
        queries, keys, values = _latent(head, attention, entry, positions, way)
    else:
        queries, keys, values = _plain(head, attention, entry, positions, way)
    if cache is None:
        cache = Cache(keys, values, [])
    else:
        cache.later.append((keys, values))
    scale = np.float32(queries.shape[-1] ** -0.5)
    if isinstance(attention, LatentAttention) and way.theta:
        scale = np.float32(scale * score_scale(head.scaling(way)))
    # Step 1's rows up to this one, then this row of each later step.
    scores = queries.transpose(1, 0, 2) @ cache.keys.transpose(1, 2, 0) * scale
    scores = np.where(np.tri(rows, dtype=bool), scores, _LEAST)
    own = [np.einsum("ihd,ihd->hi", queries, k)[..., None] * scale for k, _ in cache.later]
    every = np.concatenate([scores, *own], axis=-1) if own else scores
    weights = np.exp(every - every.max(axis=-1, keepdims=True))
    weights /= weights.sum(axis=-1, keepdims=True)
    mixed = (weights[..., :rows] @ cache.values.transpose(1, 0, 2)).transpose(1, 0, 2)
    for place, (_, later) in enumerate(cache.later):
        mixed = mixed + weights[..., rows + place].T[..., None] * later
    return mixed.reshape(rows, -1).astype(np.float32, copy=False) @ attention.o.T, cache


def _plain(
    head: Head,
    attention: Attention,
    entry: NDArray[np.float32],
    positions: NDArray[np.float32],
    way: Forward,
) -> tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.float32]]:
    rows, parts = len(entry), {}
    for name, weight, heads in (
        ("q", attention.q, head.heads),
        ("k", attention.k, head.kv_heads),
        ("v", attention.v, head.kv_heads),
    ):
        made = entry @ weight.T
        if way.uses_extras and attention.biases is not None and name in attention.biases:
            made = made + attention.biases[name]
        parts[name] = made.reshape(rows, heads, head.head_dim)
    if way.uses_extras and attention.q_norm is not None and attention.k_norm is not None:
        parts["q"] = rms_norm(parts["q"], attention.q_norm, head.eps)
        parts["k"] = rms_norm(parts["k"], attention.k_norm, head.eps)
    queries = _turned(head, parts["q"], positions, way)
    keys, values = _turned(head, parts["k"], positions, way), parts["v"]
    group = head.heads // head.kv_heads
    if group > 1:
        keys, values = np.repeat(keys, group, axis=1), np.repeat(values, group, axis=1)
    return queries, keys, values


def _latent(
    head: Head,
    attention: LatentAttention,
    entry: NDArray[np.float32],
    positions: NDArray[np.float32],
    way: Forward,
) -> tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.float32]]:
    rows, nope, rank = len(entry), attention.nope, len(attention.kv_a_norm)
    queries = rms_norm(entry @ attention.q_a.T, attention.q_a_norm, head.eps) @ attention.q_b.T
    queries = queries.reshape(rows, head.heads, -1)
    latent = entry @ attention.kv_a.T
    shared = _turned(head, latent[:, None, rank:], positions, way)
    wide = rms_norm(latent[:, :rank], attention.kv_a_norm, head.eps) @ attention.kv_b.T
    wide = wide.reshape(rows, head.heads, -1)
    turned = _turned(head, queries[..., nope:], positions, way)
    keys = [wide[..., :nope], np.broadcast_to(shared, (rows, head.heads, shared.shape[-1]))]
    return (
        np.concatenate([queries[..., :nope], turned], axis=-1),
        np.concatenate(keys, axis=-1),
        wide[..., nope:],
    )


def _turned(
    head: Head, x: NDArray[np.float32], positions: NDArray[np.float32], way: Forward
) -> NDArray[np.float32]:
    """Rotary positions on [n, heads, dim]."""
    if not way.theta or not x.shape[-1]:
        return x
    each, magnitude = frequencies(
        head.scaling(way),
        theta=way.theta,
        dim=x.shape[-1],
        positions=head.max_positions,
        is_latent=head.is_latent,
    )
    return turn(x, positions[:, None] * each / way.scale, magnitude, head.pairs)
