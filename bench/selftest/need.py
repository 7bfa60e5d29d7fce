"""The load that a plan asks of the client; pure."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from bench.plan.throughput import expected

if TYPE_CHECKING:
    from collections.abc import Iterable

    from bench.model import Cell, Launch, ServerConfig

UNKNOWN_STEP_S: Final = 0.004
"""A decode step of one request without cards to tell it from: short, since too high a need costs
a harder proof and too low a one an unproven cell."""
UNKNOWN_BATCH: Final = 64
"""A batch of so many takes twice as long."""
RESERVE: Final = 1.5
"""Above what is expected: servers may be faster than cards say."""
OPEN_STREAMS_S: Final = 4.0
"""An open load without cards has as many streams as arrive in this time."""
CPU_US_PER_EVENT: Final = 15.0
"""Of the client, before it was measured here."""
BUSIEST_SHARE: Final = 0.5
"""Of a core, that a worker is to be loaded to: what is above waits when events come in bursts."""
MOST_WORKERS: Final = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """What the client must be good for.

    Attributes:
        streams: At once.
        event_per_s: Of all of them together, a reserve included.
        rate_per_s: The highest rate of an open load; None: there is none.
    """

    streams: int
    event_per_s: float
    rate_per_s: float | None = None


DEFAULT: Final = Need(streams=64, event_per_s=5000.0, rate_per_s=50.0)
"""Where no scenario says more: 64 users of a server that steps in 13 ms."""


def need_of(launches: Iterable[Launch]) -> Need:
    """The highest load of any cell of these launches."""
    needs = [_cell_need(cell, launch.server) for launch in launches for cell in launch.cells] or [
        DEFAULT
    ]
    return Need(
        streams=max(need.streams for need in needs),
        event_per_s=max(need.event_per_s for need in needs),
        rate_per_s=max((n.rate_per_s for n in needs if n.rate_per_s is not None), default=None),
    )


def _cell_need(cell: Cell, server: ServerConfig) -> Need:
    load = cell.load
    rate = load.max_rate_per_s or load.rate_per_s
    expectation = expected(server, load, cell.workload)
    if expectation is not None:
        streams = load.concurrency or math.ceil(expectation.batch)
        event_per_s = expectation.event_per_s
    else:
        streams = load.concurrency or math.ceil((rate or 1.0) * OPEN_STREAMS_S)
        event_per_s = streams / (UNKNOWN_STEP_S * (1 + streams / UNKNOWN_BATCH))
        if rate is not None:  # no more than all that arrives can bring
            event_per_s = min(event_per_s, rate * cell.workload.max_output_tok)
    return Need(streams=streams, event_per_s=RESERVE * event_per_s, rate_per_s=rate)


def workers_for(event_per_s: float, *, cpu_us_per_event: float | None = None) -> int:
    """How many load workers share such a load.

    As few as are not loaded beyond half a core each: an event costs more where fewer come at
    once. At most half of the processors that this process may use, for the server needs some too.

    Args:
        event_per_s: Of all streams together.
        cpu_us_per_event: Of the client, from a self-test on this machine.
    """
    cores = event_per_s * (cpu_us_per_event or CPU_US_PER_EVENT) / 1e6
    most = max(min(len(os.sched_getaffinity(0)) // 2, MOST_WORKERS), 1)
    return min(max(math.ceil(cores / BUSIEST_SHARE), 1), most)
