"""The cost of a step: measured times with physics as the prior.

What is modelled is the log cost of a token-step of every (configuration, cell): log accept length
minus the log of what was measured, so that it is the cycle time up to a constant of the cell. It
is a Gaussian process with a sum of kernels, each a way in which the prior may be wrong:

- each component of the physics (weights, compute, KV, all-reduces, host, drafting) is off by a
  factor of its own, everywhere: the kernel is the outer product of its shares of the step;
- something smooth in tokens verified, load and steps is missing;
- trees run otherwise than chains (another attention backend);
- a setting (arguments, environment) has an effect of its own, which may depend on message size;
- a configuration has a quirk, in all cells alike or in one;

and a launch has noise that all its cells share, on a machine that drifts. How large each is, the
measurements decide (type-II likelihood under broad priors); the two that matter most, noise and
quirks, are averaged over instead of chosen.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from tuner.predict.kernels import cell_constants, unit_kernels

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """A standard deviation that is learnt: its middle and how far it may be, in log units."""

    middle: float
    spread: float


# With and without physics; log-normal priors of the standard deviations of each kernel.
WITH_PRIOR: Final = {
    "components": Scale(middle=0.35, spread=0.4),
    "smooth": Scale(middle=0.04, spread=0.7),
    "speculating": Scale(middle=0.03, spread=0.7),
    "tree": Scale(middle=0.10, spread=0.7),
    "setting": Scale(middle=0.04, spread=0.7),
    "quirk": Scale(middle=0.008, spread=1.2),
    "cell_quirk": Scale(middle=0.008, spread=1.2),
}
WITHOUT_PRIOR: Final = {
    **WITH_PRIOR,
    "components": Scale(middle=0.4, spread=0.4),
    "smooth": Scale(middle=0.06, spread=0.7),
    "speculating": Scale(middle=0.3, spread=0.5),
    "tree": Scale(middle=0.10, spread=0.7),
}
LAUNCH: Final = Scale(middle=0.015, spread=0.5)
CELL: Final = Scale(middle=0.004, spread=0.4)
DRIFT: Final = Scale(middle=0.006, spread=0.8)
DRIFT_LAUNCHES: Final = 12.0  # over which drift forgets
LEVEL_SD: Final = 1.0  # of what two rows have in common whose difference alone was measured


@dataclass(frozen=True, slots=True, kw_only=True)
class Points:
    """Configurations × cells as arrays.

    Attributes:
        steps: (configurations,) draft steps; 0 is off.
        topk: (configurations,).
        tokens: (configurations,) verified a request; 1 is off.
        family: (configurations,) 0 is off; each algorithm has its number.
        eagle: (configurations,) whether steps, topk and tokens mean what they mean to EAGLE.
        setting: (configurations,) which arguments and environment; 0 is the baseline's.
        batch: (cells,) requests running.
        weights: (cells,) of the objective, summing to 1.
        log_ms: (configurations, cells) by physics; None without.
        shares: (configurations, cells, components) of the step; None without.
    """

    steps: NDArray[np.int64]
    topk: NDArray[np.int64]
    tokens: NDArray[np.int64]
    family: NDArray[np.int64]
    eagle: NDArray[np.bool_]
    setting: NDArray[np.int64]
    batch: Array
    weights: Array
    log_ms: Array | None = None
    shares: Array | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """Costs measured so far, a row a launch; NaN where a cell was not.

    Attributes:
        configuration: (launches,).
        at: (launches,) when, in launches.
        log_cost: (launches, cells).
        gain_sd: (launches, cells); NaN, or where only the difference to the other row of the same
            launch means something, its standard deviation.
    """

    configuration: NDArray[np.int64]
    at: Array
    log_cost: Array
    gain_sd: Array


@dataclass(frozen=True, slots=True, kw_only=True)
class CostPosterior:
    """What is known of the costs.

    Attributes:
        mean: (configurations, cells).
        objective_mean: (configurations,) the weighted sum over cells.
        objective_cov: (configurations, configurations).
        launch_sd: Of one more launch's objective, noise alone.
        quirk_sd: Of a configuration's objective, beyond all laws.
    """

    mean: Array
    objective_mean: Array
    objective_cov: Array
    launch_sd: float
    quirk_sd: float


@dataclass(frozen=True, slots=True, kw_only=True)
class FittedScales:
    """The standard deviations of a sum of kernels, fitted to measurements.

    Attributes:
        log_scales: Their logarithms, (kernels,).
        log_density: Of the measurements and the scales' priors, up to a constant.
        factor: Cholesky factor of the measurements' covariance.
        solved: Its inverse times the measurements.
    """

    log_scales: Array
    log_density: float
    factor: Array
    solved: Array


class CostModel:
    """The process over one space; keeps its kernels and the last fit to start from."""

    def __init__(self, points: Points) -> None:
        self.points = points
        scales = WITHOUT_PRIOR if points.log_ms is None else WITH_PRIOR
        self._names = tuple(scales)
        everything = [*scales.values(), LAUNCH, CELL, DRIFT]
        self._middle = np.log([scale.middle for scale in everything])
        self._spread = np.array([scale.spread for scale in everything])
        kernels = unit_kernels(points)
        count = len(points.steps) * len(points.batch)
        self._kernels = np.stack([kernels[name].reshape(count, count) for name in self._names])
        self._offset = cell_constants(points).reshape(count, count)
        self._prior_mean = (
            np.zeros(count) if points.log_ms is None else points.log_ms.reshape(count)
        )
        self._to_points = np.stack([self._weighted(kernel) for kernel in self._kernels])
        self._to_offset = self._weighted(self._offset)
        self._among = np.stack([self._weighted(half.T) for half in self._to_points])
        self._among_offset = self._weighted(self._to_offset.T)
        self._last = self._middle

    def _weighted(self, over_points: Array) -> Array:
        """The rows of points summed into configurations by the cells' weights."""
        many, cells = len(self.points.steps), len(self.points.batch)
        by_cell = over_points.reshape(many, cells, -1)
        summed: Array = np.einsum("acp,c->ap", by_cell, self.points.weights)
        return summed

    def posterior(self, measured: Measured) -> CostPosterior:
        """Costs given the launches so far."""
        rows, launch, cell = self._rows(measured)
        values, at = measured.log_cost[launch, cell], measured.at[launch]
        same_launch = (at[:, None] == at).astype(float)
        drift = np.exp(-np.abs(at[:, None] - at) / DRIFT_LAUNCHES)
        stack = np.concatenate(
            [
                self._kernels[:, rows][:, :, rows],
                np.stack([same_launch, np.eye(len(rows)), drift]),
            ]
        )
        offset = self._offset[np.ix_(rows, rows)]
        offset += _unknown_levels(measured.gain_sd[launch, cell], at, cell)
        residual = values - self._prior_mean[rows]
        best = fit_scales(stack, offset, residual, self._last, self._middle, self._spread)
        self._last = best.log_scales
        nodes = _around(
            best, stack, offset, residual, self._middle, self._spread, self._averaged_over()
        )
        return self._mix(nodes, rows)

    def _averaged_over(self) -> tuple[int, int]:
        return self._names.index("quirk"), len(self._names)

    def _rows(
        self, measured: Measured
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        launch, cell = np.nonzero(np.isfinite(measured.log_cost))
        return measured.configuration[launch] * len(self.points.batch) + cell, launch, cell

    def _mix(self, nodes: Sequence[FittedScales], rows: NDArray[np.int64]) -> CostPosterior:
        density = np.array([node.log_density for node in nodes])
        weights = np.exp(density - density.max())
        weights /= weights.sum()
        objective_means = []
        pulls = np.zeros((len(self._names), len(rows)))
        pull = np.zeros(len(rows))
        cov = np.zeros_like(self._among_offset)
        noise = quirk = 0.0
        parts = len(self._names)
        prior_objective = self._weighted(self._prior_mean)[:, 0]
        for weight, node in zip(weights, nodes, strict=True):
            variances = np.exp(2 * node.log_scales)
            cross = np.tensordot(variances[:parts], self._to_points[:, :, rows], axes=1)
            cross += self._to_offset[:, rows]
            shift = cross @ node.solved
            objective_means.append(prior_objective + shift)
            pulls += weight * variances[:parts, None] * node.solved
            pull += weight * node.solved
            among = np.tensordot(variances[:parts], self._among, axes=1) + self._among_offset
            half = np.linalg.solve(node.factor, cross.T)
            cov += weight * (among - half.T @ half)
            own = float(np.sum(self.points.weights**2))
            noise += weight * (variances[parts] + own * variances[parts + 1])
            quirk += weight * float(
                variances[self._names.index("quirk")]
                + own * variances[self._names.index("cell_quirk")]
            )
        centre = np.tensordot(weights, np.stack(objective_means), axes=1)
        for weight, own_mean in zip(weights, objective_means, strict=True):
            cov += weight * np.outer(own_mean - centre, own_mean - centre)
        mean = self._prior_mean + self._offset[:, rows] @ pull
        for kernel, by in zip(self._kernels, pulls, strict=True):
            mean = mean + kernel[:, rows] @ by
        shape = (len(self.points.steps), len(self.points.batch))
        return CostPosterior(
            mean=mean.reshape(shape),
            objective_mean=centre,
            objective_cov=cov,
            launch_sd=float(np.sqrt(noise)),
            quirk_sd=float(np.sqrt(quirk)),
        )


def _unknown_levels(gain_sd: Array, at: Array, cell: NDArray[np.int64]) -> Array:
    """Covariance of what is not known of rows whose difference alone was measured."""
    relative = np.isfinite(gain_sd)
    pair = relative[:, None] & relative & (at[:, None] == at) & (cell[:, None] == cell)
    own = np.where(relative, gain_sd, 0.0) ** 2 / 2
    unknown: Array = LEVEL_SD**2 * pair + np.diag(own)
    return unknown


def fit_scales(
    stack: Array,
    offset: Array,
    residual: Array,
    start: Array,
    middle: Array,
    spread: Array,
    *,
    iterations: int = 12,
) -> FittedScales:
    """The likeliest scales of kernels.

    Args:
        stack: The kernels with unit scale, (kernels, rows, rows).
        offset: A covariance with a scale that is known.
        residual: What was measured, less its mean, (rows,).
        start: Log scales to begin at.
        middle: Of the log scales' normal priors.
        spread: Likewise their standard deviations.
        iterations: At most.
    """
    from scipy.optimize import minimize  # noqa: PLC0415  # only where a study runs

    def loss(log_scales: Array) -> tuple[float, Array]:
        fitted = _density(stack, offset, residual, log_scales, middle, spread)
        inverse = np.linalg.inv(fitted.factor)
        precision = inverse.T @ inverse
        inner = np.outer(fitted.solved, fitted.solved) - precision
        gradient = np.exp(2 * log_scales) * np.tensordot(stack, inner, axes=2)
        gradient -= (log_scales - middle) / spread**2
        return -fitted.log_density, -gradient

    found = minimize(
        loss,
        start,
        jac=True,
        method="L-BFGS-B",
        bounds=list(zip(middle - 3 * spread, middle + 3 * spread, strict=True)),
        options={"maxiter": iterations},
    )
    return _density(stack, offset, residual, found.x, middle, spread)


def _density(
    stack: Array, offset: Array, residual: Array, log_scales: Array, middle: Array, spread: Array
) -> FittedScales:
    covariance = np.tensordot(np.exp(2 * log_scales), stack, axes=1) + offset
    covariance[np.diag_indices_from(covariance)] += 1e-8
    factor = np.linalg.cholesky(covariance).astype(np.float64, copy=False)
    white = np.linalg.solve(factor, residual)
    log_density = -0.5 * white @ white - np.log(np.diag(factor)).sum()
    log_density -= 0.5 * (((log_scales - middle) / spread) ** 2).sum()
    return FittedScales(
        log_scales=log_scales,
        log_density=float(log_density),
        factor=factor,
        solved=np.linalg.solve(factor.T, white),
    )


def _around(
    best: FittedScales,
    stack: Array,
    offset: Array,
    residual: Array,
    middle: Array,
    spread: Array,
    averaged_over: Sequence[int],
) -> list[FittedScales]:
    """The fit, and others with the given scales smaller and larger."""
    nodes = [best]
    for scale, move in itertools.product(averaged_over, (-0.6, 0.6)):
        log_scales = best.log_scales.copy()
        log_scales[scale] += move
        nodes.append(_density(stack, offset, residual, log_scales, middle, spread))
    return nodes
