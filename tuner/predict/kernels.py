"""The ways in which a step may cost something else than the physics say, as kernels."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tuner.predict.cost import Points

    Array = NDArray[np.float64]

OFFSET_SD: Final = 2.0  # of each cell's constant


def cell_constants(points: Points) -> Array:
    """Of each cell's constant, (configurations, cells, configurations, cells)."""
    cells = len(points.batch)
    same = np.eye(cells) * OFFSET_SD**2
    many = len(points.steps)
    return np.broadcast_to(same[None, :, None, :], (many, cells, many, cells)).copy()


def unit_kernels(points: Points) -> dict[str, Array]:
    """Each kernel with unit scale, (configurations, cells, configurations, cells)."""
    many, cells = len(points.steps), len(points.batch)
    log_n = np.log2(points.batch[None, :] * points.tokens[:, None])
    log_b = np.broadcast_to(np.log2(points.batch)[None, :], (many, cells))
    steps = np.broadcast_to(points.steps[:, None].astype(float), (many, cells))
    on = np.broadcast_to((points.family > 0)[:, None].astype(float), (many, cells))
    tree = np.broadcast_to((points.topk > 1)[:, None], (many, cells))
    setting = np.broadcast_to(points.setting[:, None], (many, cells))
    near = _rbf(log_n, 2.5) * _rbf(log_b, 4.0) * _rbf(steps, 4.0) * _rbf(on, 1.5)
    if points.shares is not None:
        components = np.einsum("aic,bjc->aibj", points.shares, points.shares)
    else:
        components = _plain_trends(log_n, steps, points)
    # The step of a setting: an effect everywhere, and one that depends on the message.
    other = (setting[:, :, None, None] == setting) & (setting[:, :, None, None] > 0)
    if points.shares is not None:
        messages = points.shares[:, :, _ALLREDUCE]
        by_message = messages[:, :, None, None] * messages
        effect = other * (0.1 + 4.0 * by_message * _rbf(log_n, 2.5))
    else:
        effect = other * (0.3 + 0.7 * _rbf(log_n, 2.5))
    both_trees = tree[:, :, None, None] & tree
    log_k = np.broadcast_to(np.log2(np.maximum(points.topk, 1))[:, None], (many, cells))
    same = np.eye(many)[:, None, :, None]
    return {
        "components": components,
        "smooth": near,
        "speculating": (on[:, :, None, None] * on) * (0.5 + 0.5 * _rbf(log_b, 2.0)),
        "tree": both_trees * _rbf(log_n, 4.0) * _rbf(log_k, 2.0),
        "setting": effect,
        "quirk": np.broadcast_to(same, (many, cells, many, cells)).copy(),
        "cell_quirk": same * np.eye(cells)[None, :, None, :],
    }


_ALLREDUCE: Final = 3  # its place among the components


def _plain_trends(log_n: Array, steps: Array, points: Points) -> Array:
    """Without physics: the log cost moves with steps and with tokens beyond one a request."""
    tokens = np.broadcast_to(np.log2(points.tokens)[:, None].astype(float), log_n.shape)
    columns = [steps / 8.0, tokens / 4.0, tokens * log_n / 40.0]
    total: Array = sum(column[:, :, None, None] * column for column in columns)  # type: ignore[assignment]
    return total


def _rbf(values: Array, length: float) -> Array:
    kernel: Array = np.exp(-0.5 * ((values[:, :, None, None] - values) / length) ** 2)
    return kernel
