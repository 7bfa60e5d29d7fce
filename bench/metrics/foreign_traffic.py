"""Whether a server that others can reach ran requests of others while ours were measured."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from bench.metrics.cache import cell_span_ns
from bench.model import FindingKind, RequestStatus, Severity

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from bench.metrics.facts import CellFacts
    from bench.model import Finding, RequestSample

RUNNING: Final = "sglang:num_running_reqs"
# The gauge is set at log ticks: for a tick after our first request it may still tell of the cell
# before, and somebody's health check may be in one reading.
LEAST_READINGS: Final = 2
LEAST_SHARE: Final = 0.1
# A server notices after some 2 s that a client has gone: until then its request still runs.
LINGERS_NS: Final = 5_000_000_000
_GIVEN_UP: Final = frozenset(
    {RequestStatus.TIMEOUT, RequestStatus.CANCELLED, RequestStatus.DISCONNECTED}
)


def more_running_than_ours(facts: CellFacts) -> Iterator[Finding]:
    """The server's own count of running requests against the most that we had in flight."""
    span = cell_span_ns(facts.samples)
    if span is None:
        return
    most = most_in_flight(facts.samples)
    running: dict[int, float] = {}
    for readings in facts.series.ranks(RUNNING).values():
        inside = (readings.t_ns >= span[0]) & (readings.t_ns <= span[1])
        for t_ns, value in zip(readings.t_ns[inside], readings.value[inside], strict=True):
            running[int(t_ns)] = running.get(int(t_ns), 0.0) + float(value)
    beyond = [value for value in running.values() if value > most]
    if len(beyond) >= max(LEAST_READINGS, LEAST_SHARE * len(running)):
        yield facts.finding(
            FindingKind.FOREIGN_TRAFFIC,
            Severity.SUSPECT,
            f"the server ran up to {max(beyond):.0f} requests at once, of which at most {most} "
            f"were ours ({len(beyond)} of {len(running)} readings).",
        )


def most_in_flight(samples: Sequence[RequestSample]) -> int:
    """The most requests of ours that the server can have had at once."""
    sent = [(s.sent_ns, s) for s in samples if s.sent_ns is not None]
    begins = np.sort(np.array([sent_ns for sent_ns, _ in sent], dtype=np.int64))
    ends = np.sort(
        np.array(
            [s.ended_ns + (LINGERS_NS if s.status in _GIVEN_UP else 0) for _, s in sent],
            dtype=np.int64,
        )
    )
    ended = np.searchsorted(ends, begins, side="left")
    return int(np.max(np.arange(1, begins.size + 1) - ended, initial=0))
