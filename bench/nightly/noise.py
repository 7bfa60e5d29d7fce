"""The noise of a series from one night to the next, whatever its levels do.

Differences between nights near one another hardly see a level: a step is in a few of them alone, a
drift next to nothing in each. Their size gives the standard deviation of a night (von Neumann
1941; the median of it first, as in Hampel 1974, so that odd nights can be left out).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

LAGS: Final = (1, 2, 3)
FLOOR: Final = 1e-4
"""0.01 %: figures that repeat to the last digit (counts, simulations) have no less noise."""

_MEDIAN_OF_NORMAL: Final = 0.6744897501960817
_MEDIAN_WINDOW: Final = 5
_ODD: Final = 4.5  # standard deviations beyond which a difference is a step or an odd night


def noise_of(y: NDArray[np.float64]) -> NDArray[np.float64]:
    """Standard deviation of a night, for each series.

    Args:
        y: Logarithms, NaN behind a series' end; shape (series, nights).

    Returns:
        Shape (series,); at least `FLOOR`.
    """
    rough = rough_noise_of(y)
    squares = np.zeros(len(y))
    count = np.zeros(len(y))
    limit = (_ODD * np.sqrt(2) * rough)[:, None]
    for lag in LAGS:
        d = np.abs(y[:, lag:] - y[:, :-lag])
        kept = d <= limit  # NaN is not
        squares += np.where(kept, d, 0.0) ** 2 @ np.ones(d.shape[1])
        count += kept.sum(axis=1)
    sd = np.sqrt(squares / np.maximum(count, 1) / 2)
    return np.maximum(np.where(count > 0, sd, rough), FLOOR)


def rough_noise_of(y: NDArray[np.float64]) -> NDArray[np.float64]:
    """The same from the median difference: half of all nights may be odd."""
    if y.shape[1] < 2:
        return np.full(len(y), FLOOR)
    d = np.sort(np.abs(np.diff(y, axis=1)), axis=1)  # NaN goes last
    count = np.isfinite(d).sum(axis=1)
    rows = np.arange(len(y))
    middle = np.maximum(count - 1, 0)
    median = (d[rows, middle // 2] + d[rows, (middle + 1) // 2]) / 2
    sd = median / _MEDIAN_OF_NORMAL / np.sqrt(2)
    return np.maximum(np.where(count > 0, sd, FLOOR), FLOOR)
