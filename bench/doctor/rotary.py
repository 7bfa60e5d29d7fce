"""Rotary positions as SGLang 0.5.23 computes them: plain, linear, llama3 and YaRN.

Sources: Su et al. 2021 (arXiv 2104.09864); Peng et al. 2023 (YaRN, arXiv 2309.00071); SGLang
0.5.23 `layers/rotary_embedding`.
"""

from __future__ import annotations

from math import ceil, floor, isfinite, log, pi
from typing import TYPE_CHECKING, Final, Literal

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from bench.draft.rope import Rope

Pairs = Literal["halves", "neighbours"]
"""Which dimensions turn together: i and i + dim/2 (Llama), or 2i and 2i + 1 (DeepSeek)."""

_POSITIVE: Final = (
    *("factor", "original_max_position_embeddings", "beta_fast", "beta_slow"),
    *("low_freq_factor", "high_freq_factor"),
)


def is_computable(rope: Rope) -> bool:
    """Whether a config's numbers can be those of rotary positions."""
    told = _numbers(rope)
    return rope.theta > 1 and all(
        isfinite(value) and (value > 0 or name not in _POSITIVE) for name, value in told.items()
    )


def frequencies(
    rope: Rope | None, *, theta: float, dim: int, positions: int, is_latent: bool = False
) -> tuple[NDArray[np.float64], float]:
    """Angle a position of each pair of dimensions, and what cosine and sine are multiplied by.

    Args:
        rope: Whose scaling is used; None: none.
        theta: The base.
        dim: Rotated dimensions of a head.
        positions: `max_position_embeddings`, where the scaling does not say what it was before.
        is_latent: DeepSeek's class: every scaling is YaRN's, with other defaults.
    """
    plain = theta ** -(np.arange(dim // 2, dtype=np.float64) / (dim // 2))
    if rope is None or not rope.is_scaled:
        return plain, 1.0
    told = _numbers(rope)
    factor = told.get("factor", 1.0)
    original = told.get("original_max_position_embeddings", positions)
    if is_latent or rope.kind in {"yarn", "deepseek_yarn"}:
        slow = _stretched(plain, told, theta=theta, dim=dim, original=original)
        return slow, _magnitude(told, factor, is_latent=is_latent)
    if rope.kind == "linear":
        return plain / factor, 1.0
    if rope.kind == "llama3":
        return _llama3(plain, told, factor=factor, original=original), 1.0
    return plain, 1.0


def score_scale(rope: Rope | None) -> float:
    """What DeepSeek's class multiplies the scores of attention by, for stretched positions."""
    if rope is None or not rope.is_scaled:
        return 1.0
    told = _numbers(rope)
    if not told.get("mscale_all_dim"):
        return 1.0
    return _mscale(told.get("factor", 1.0), told["mscale_all_dim"]) ** 2


def turn(
    x: NDArray[np.float32], angles: NDArray[np.float64], magnitude: float, pairs: Pairs
) -> NDArray[np.float32]:
    """[n, heads, dim] turned by [n, dim / 2]."""
    cos, sin = (
        (function(angles) * magnitude).astype(np.float32)[:, None, :]
        for function in (np.cos, np.sin)
    )
    if pairs == "neighbours":
        first, second = x[..., 0::2], x[..., 1::2]
        both = (first * cos - second * sin, second * cos + first * sin)
        return np.stack(both, axis=-1).reshape(x.shape)
    half = x.shape[-1] // 2
    first, second = x[..., :half], x[..., half:]
    return np.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1)


def _numbers(rope: Rope) -> Mapping[str, float]:
    found = {}
    for key, text in rope.scaling:
        try:
            found[key] = float(text)
        except ValueError:
            continue
    return found


def _stretched(
    plain: NDArray[np.float64],
    told: Mapping[str, float],
    *,
    theta: float,
    dim: int,
    original: float,
) -> NDArray[np.float64]:
    """YaRN: slow turns are stretched by the factor, fast ones are not, with a ramp between."""
    low, high = (
        dim * log(original / (told.get(name, usual) * 2 * pi)) / (2 * log(theta))
        for name, usual in (("beta_fast", 32.0), ("beta_slow", 1.0))
    )
    first, last = max(floor(low), 0), min(ceil(high), dim - 1)
    width = (last - first) or 0.001
    ramp = np.clip((np.arange(dim // 2) - first) / width, 0, 1)
    kept = (1 - ramp) * told.get("extrapolation_factor", 1.0)
    return plain / told.get("factor", 1.0) * (1 - kept) + plain * kept


def _magnitude(told: Mapping[str, float], factor: float, *, is_latent: bool) -> float:
    own, every = told.get("mscale"), told.get("mscale_all_dim")
    if is_latent:
        own, every = (1.0 if own is None else own), (0.0 if every is None else every)
    if own is None or every is None:
        own, every = 1.0, 0.0
    return _mscale(factor, own) / _mscale(factor, every) * told.get("attn_factor", 1.0)


def _mscale(factor: float, mscale: float) -> float:
    return 1.0 if factor <= 1 else 0.1 * mscale * log(factor) + 1.0


def _llama3(
    plain: NDArray[np.float64], told: Mapping[str, float], *, factor: float, original: float
) -> NDArray[np.float64]:
    low, high = told.get("low_freq_factor", 1.0), told.get("high_freq_factor", 4.0)
    turns = original * plain / (2 * pi)
    kept = np.clip((turns - low) / (high - low), 0, 1) if high != low else (turns >= low) * 1.0
    return (1 - kept) * plain / factor + kept * plain
