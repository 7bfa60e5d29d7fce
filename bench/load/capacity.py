"""The search for the highest rate of arrivals that a server carries, within one launch.

A rate is carried when 99 % of its measured requests meet every stated limit (`slo`); a request
that failed meets none. The lowest rate is tried first: if it is not carried, there is no capacity
in the range. Then the highest: if it is carried, the range was too low. Then each probe halves
what is left of the range, in ratio.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from bench.metrics.capacity import PROBE_MET, PROBE_RATE, carried_rate
from bench.metrics.throughput import meets_limits
from bench.model import TelemetryPoint

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from bench.load.generator import CellLoad
    from bench.model import Cell, Load

WARMUP_SHARE: Final = 0.25
"""A probe's warm-up, as a share of its measured time."""

Tried = tuple[float, bool]
"""(rate a second, whether it was carried)."""


def next_rate(load: Load, tried: Sequence[Tried]) -> float | None:
    """The rate to try next, or None when the search is over.

    Args:
        load: A capacity load: its range and number of probes.
        tried: The probes made so far, in order.
    """
    low, high = load.min_rate_per_s, load.max_rate_per_s
    if low is None or high is None or len(tried) >= load.probes:
        return None
    if not tried:
        return low
    carried = carried_rate(tried)
    if carried is None or carried >= high:
        return None
    refused = min((rate for rate, met in tried if not met), default=None)
    return high if refused is None else math.sqrt(carried * refused)


def probe_cell(cell: Cell, rate_per_s: float) -> Cell:
    """The cell of one probe: an open load at one rate, for `steady_s`."""
    requests = math.ceil(rate_per_s * cell.steady_s)
    return replace(
        cell,
        load=replace(cell.load, kind="open", rate_per_s=rate_per_s),
        requests=max(requests, 2),
        warmup_requests=max(math.ceil(requests * WARMUP_SHARE), 1),
    )


async def search_capacity(
    cell: Cell,
    run_probe: Callable[[Cell, int], Awaitable[CellLoad]],
    *,
    is_stopped: Callable[[], bool],
) -> CellLoad:
    """Probe one rate after another.

    Args:
        cell: Of a capacity load.
        run_probe: Runs the load of (probe's cell, index of its first request).
        is_stopped: Whether the search is to be given up.

    Returns:
        The samples of all probes, each with indices of its own; telemetry tells when each probe
        began and with which rate (`probe_rate_per_s`), and when it ended and whether it was
        carried (`probe_met`); the client's account is that of the last probe.
    """
    tried: list[Tried] = []
    loads: list[CellLoad] = []
    telemetry: list[TelemetryPoint] = []
    while (rate := next_rate(cell.load, tried)) is not None:
        first_index = sum(len(load.samples) for load in loads)
        load = await run_probe(probe_cell(cell, rate), first_index)
        loads.append(load)
        met = meets_limits(load.samples, cell.slo)
        tried.append((rate, met))
        began_ns = min(sample.due_ns for sample in load.samples)
        ended_ns = max(sample.ended_ns for sample in load.samples)
        telemetry += load.telemetry
        telemetry += [_point(began_ns, PROBE_RATE, rate), _point(ended_ns, PROBE_MET, float(met))]
        if is_stopped():
            break
    samples = [sample for load in loads for sample in load.samples]
    return replace(loads[-1], samples=samples, telemetry=telemetry)


def _point(t_ns: int, name: str, value: float) -> TelemetryPoint:
    return TelemetryPoint(t_ns=t_ns, source="client", name=name, value=value)
