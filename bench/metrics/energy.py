"""Energy of the server's GPUs over a window, from NVML's energy counter or sampled power."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

    from bench.metrics.series import Readings, Series
    from bench.metrics.window import Window

ENERGY_COUNTER: Final = "total_energy_j"
POWER: Final = "power_w"
MAX_GAP_PERIODS: Final = (
    3.0  # of the sampling period: a longer gap is a stall of the sampler, not a reading
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Energy:
    """Joules of all GPUs over the window.

    Attributes:
        energy_j: Their sum. With a coverage below 1 the time not covered is left out of it, not
            estimated.
        coverage: Share of GPU time in the window that the sum covers; 1 where readings enclose the
            window.
    """

    energy_j: float
    coverage: float


def window_energy(series: Series, window: Window, *, gpus: int) -> Energy | None:
    """Energy over the window, summed over the server's GPUs.

    Returns:
        None when there is no GPU, or when one of them gave neither counter nor power: a sum with a
        missing part is none.
    """
    counters, powers = series.ranks(ENERGY_COUNTER), series.ranks(POWER)
    gpu_ids = set(counters) | set(powers)
    if gpus < 1 or len(gpu_ids) < gpus:
        return None
    parts: list[Energy] = []
    for gpu in gpu_ids:
        part = _from_counter(counters.get(gpu), window) or _from_power(powers.get(gpu), window)
        if part is None:
            return None
        parts.append(part)
    return Energy(
        energy_j=sum(p.energy_j for p in parts),
        coverage=sum(p.coverage for p in parts) / len(parts),
    )


def _from_counter(readings: Readings | None, window: Window) -> Energy | None:
    """The counter's difference between the window's edges, interpolated between readings.

    None for one that fell, as when the driver was loaded anew, or that stands still: some GPUs
    have one that never counts.
    """
    if readings is None or np.any(np.diff(readings.value) < 0):
        return None
    t_s = _seconds(window, readings.t_ns)
    # The last reading may be a sampling period before the last response.
    low_s, high_s = max(0.0, float(t_s[0])), min(window.length_s, float(t_s[-1]))
    if high_s <= low_s:
        return None
    low_j, high_j = np.interp([low_s, high_s], t_s, readings.value)
    if high_j <= low_j:
        return None
    return Energy(energy_j=float(high_j - low_j), coverage=(high_s - low_s) / window.length_s)


def _from_power(readings: Readings | None, window: Window) -> Energy | None:
    """The trapezoid under the sampled power, without gaps longer than three sampling periods."""
    if readings is None or readings.t_ns.size < 2:
        return None
    t_s, power_w = _seconds(window, readings.t_ns), readings.value
    # The window's edges become readings of their own, so that the trapezoids end there.
    edges_s = np.array(
        [e for e in (0.0, window.length_s) if t_s[0] < e < t_s[-1] and e not in t_s]
    )
    at_s = np.sort(np.concatenate([t_s, edges_s]))
    at_w = np.interp(at_s, t_s, power_w)
    gaps_s = np.diff(t_s)
    around = np.clip(np.searchsorted(t_s, at_s[:-1], side="right") - 1, 0, gaps_s.size - 1)
    kept = (
        (gaps_s[around] <= MAX_GAP_PERIODS * float(np.median(gaps_s)))
        & (at_s[:-1] >= 0)
        & (at_s[1:] <= window.length_s)
    )
    widths_s = np.diff(at_s)
    covered_s = float(widths_s[kept].sum())
    if covered_s <= 0:
        return None
    means_w = (at_w[:-1] + at_w[1:]) / 2
    return Energy(
        energy_j=float((widths_s * means_w)[kept].sum()), coverage=covered_s / window.length_s
    )


def _seconds(window: Window, t_ns: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """Seconds since the window's start."""
    return (np.asarray(t_ns, dtype=np.int64) - window.start_ns) / 1e9
