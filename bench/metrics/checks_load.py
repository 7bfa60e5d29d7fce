"""Checks on client and load: did it come as asked, long enough, and end well."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from bench.metrics.window import NoWindow, in_flight_mean
from bench.model import FindingKind, RequestStatus, Severity

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.metrics.facts import CellFacts
    from bench.model import Finding

# A good asyncio client is late by under 3 ms at the 99th percentile; 5 ms leaves room for a busy
# machine.
LATE_P99_MS: Final = 5.0
# A median lateness shifts every latency: a twentieth of the shortest of them begins to show.
LATE_P50_TTFT_SHARE: Final = 0.05
# Closed loop: a slot idle for a hundredth of a request's time lowers tok/s by as much, which is
# half of the usual practical margin. Single waits cost less: ten times as long, one in a hundred.
LATE_P50_E2E_SHARE: Final = 0.01
LATE_P99_E2E_SHARE: Final = 0.10
# A single-threaded client with 10 % of its core left has a queue in front of it: stamps are late.
CPU_SHARE_FULL: Final = 0.90
# A loop that lags though its worker uses less than half of a core was waiting for a processor.
CPU_SHARE_STARVED: Final = 0.50
# An event loop this late stamps events by a step or more too late: 20 ms is a decode step of a
# large model.
LOOP_LAG_P99_MS: Final = 20.0
LOOP_LAG_HOPELESS_MS: Final = 100.0
# A proof is made at one load: what is a tenth beyond it is hardly another.
PROVEN_RESERVE: Final = 1.1
# A fifth of the gaps between events read together are zero, and as many others too long: p95 and
# p99 of gaps no longer mean steps. From two a read on, not even the median does.
EVENTS_PER_READ_MANY: Final = 1.25
EVENTS_PER_READ_MOST: Final = 2.0
# A slot idle for a twentieth of the time is a load of 95 %: more than the margin that speedups are
# judged by.
CONCURRENCY_SHARE: Final = 0.95
# Failed requests load the server less: one in a hundred hides in the noise, one in twenty does
# not.
ERROR_SHARE_SUSPECT: Final = 0.01
ERROR_SHARE_INVALID: Final = 0.05


def client_late(facts: CellFacts) -> Iterator[Finding]:
    """Sends against when they were due.

    In a closed loop a late send leaves a slot idle: it counts beside the time of a request. In an
    open loop it moves the arrivals and, as latencies run from the due time, the time to the first
    token.
    """
    client = facts.client
    if client is None or client.send_late_p99_ms is None or client.send_late_p50_ms is None:
        return
    measurement = facts.measurement
    if facts.cell.load.kind == "closed":
        e2e = measurement.e2e_ms
        if e2e is not None and (
            client.send_late_p50_ms > LATE_P50_E2E_SHARE * e2e.p50
            or client.send_late_p99_ms > LATE_P99_E2E_SHARE * e2e.p50
        ):
            yield facts.finding(
                FindingKind.CLIENT_LATE,
                Severity.SUSPECT,
                f"slots waited {client.send_late_p50_ms:.1f} ms (median; 99th percentile "
                f"{client.send_late_p99_ms:.1f} ms) between requests of {e2e.p50:.0f} ms.",
            )
        return
    p99_ms = client.send_late_p99_ms / facts.speed
    if p99_ms > LATE_P99_MS:
        yield facts.finding(
            FindingKind.CLIENT_LATE,
            Severity.SUSPECT,
            f"sends were {p99_ms:.1f} ms late at the 99th percentile (limit {LATE_P99_MS:g} ms).",
        )
        return
    ttft = measurement.ttft_ms
    if ttft is not None and client.send_late_p50_ms > LATE_P50_TTFT_SHARE * ttft.p50:
        yield facts.finding(
            FindingKind.CLIENT_LATE,
            Severity.SUSPECT,
            f"half of the sends were over {client.send_late_p50_ms:.2f} ms late, beside a time to "
            f"the first token of {ttft.p50:.2f} ms.",
        )


def client_saturated(facts: CellFacts) -> Iterator[Finding]:
    """Whether the client's core was full or its event loop behind."""
    client = facts.client
    if client is None:
        return
    lag_ms = _world(client.loop_lag_p99_ms, facts.speed)
    full = client.cpu_share is not None and client.cpu_share > CPU_SHARE_FULL * client.workers
    if full or (lag_ms is not None and lag_ms > LOOP_LAG_P99_MS):
        hopeless = full or (lag_ms is not None and lag_ms > LOOP_LAG_HOPELESS_MS)
        cpu = "unknown" if client.cpu_share is None else f"{client.cpu_share:.0%}"
        lag = "unknown" if lag_ms is None else f"{lag_ms:.1f} ms"
        many = "1 worker" if client.workers == 1 else f"{client.workers} workers"
        told = f"the load client's loop lagged {lag} at the 99th percentile while it used {cpu} of"
        starved = client.cpu_share is not None and (
            client.cpu_share < CPU_SHARE_STARVED * client.workers
        )
        why = ": this machine gave it no processor time" if starved else ""
        yield facts.finding(
            FindingKind.CLIENT_SATURATED,
            Severity.INVALID if hopeless else Severity.SUSPECT,
            f"{told} a core ({many}){why}.",
        )


def client_proven(facts: CellFacts) -> Iterator[Finding]:
    """Whether the load was beyond what the self-test has proved the client good for."""
    client = facts.client
    if client is None or client.proven_event_per_s is None or client.events_per_s is None:
        return
    if client.events_per_s > PROVEN_RESERVE * client.proven_event_per_s:
        yield facts.finding(
            FindingKind.CLIENT_NOT_PROVEN,
            Severity.SUSPECT,
            f"{client.events_per_s:.0f} events/s came in; up to "
            f"{client.proven_event_per_s:.0f} the client's errors are known to be under 1 ms and "
            "1 %.",
        )


def reads_coalesced(facts: CellFacts) -> Iterator[Finding]:
    """Whether events came one by one.

    Not of a simulation faster than the world, whose steps are as short as a process's turns.
    """
    client = facts.client
    if client is None or client.events_per_read is None or facts.speed > 1:
        return
    if client.events_per_read > EVENTS_PER_READ_MANY:
        is_most = client.events_per_read > EVENTS_PER_READ_MOST
        yield facts.finding(
            FindingKind.READS_COALESCED,
            Severity.SUSPECT if is_most else Severity.NOTE,
            f"a read brought {client.events_per_read:.2f} events on average.",
        )


def requests_resent(facts: CellFacts) -> Iterator[Finding]:
    """Whether requests were sent twice; their figures are those of the second sending."""
    resent_ct = facts.client.resent_ct if facts.client is not None else None
    if resent_ct:
        yield facts.finding(
            FindingKind.REQUESTS_RESENT,
            Severity.NOTE,
            f"{resent_ct} of {len(facts.samples)} requests met a connection that the server was "
            "closing and were sent again on a new one, from when on they are timed.",
        )


def _world(clock_ms: float | None, speed: int) -> float | None:
    return None if clock_ms is None else clock_ms / speed


def window_there(facts: CellFacts) -> Iterator[Finding]:
    """Whether there is a window, and a long enough one."""
    if isinstance(facts.window, NoWindow):
        yield facts.finding(
            FindingKind.NO_WINDOW, Severity.INVALID, f"no steady window: {facts.window.reason}."
        )
    elif facts.window.length_s < facts.cell.steady_s:
        yield facts.finding(
            FindingKind.WINDOW_TOO_SHORT,
            Severity.SUSPECT,
            f"the window is {facts.window.length_s:.2f} s long, {facts.cell.steady_s:g} s were "
            "asked for.",
        )


def concurrency_reached(facts: CellFacts) -> Iterator[Finding]:
    """Closed loop: whether slots were really in flight, not only between requests."""
    concurrency = facts.cell.load.concurrency
    if facts.cell.load.kind != "closed" or not concurrency or isinstance(facts.window, NoWindow):
        return
    in_flight = in_flight_mean(facts.samples, facts.window)
    if in_flight < CONCURRENCY_SHARE * concurrency:
        yield facts.finding(
            FindingKind.CONCURRENCY_NOT_REACHED,
            Severity.SUSPECT,
            f"{in_flight:.2f} requests were in flight on average, {concurrency} were asked for.",
        )


def errors(facts: CellFacts) -> Iterator[Finding]:
    """The share of measured requests that failed."""
    total = len(facts.measured)
    failed = [s for s in facts.measured if s.status is not RequestStatus.OK]
    if not total:
        yield facts.finding(FindingKind.ERROR_RATE, Severity.INVALID, "no request was measured.")
    elif failed:
        share = len(failed) / total
        severity = Severity.NOTE
        if share > ERROR_SHARE_INVALID:
            severity = Severity.INVALID
        elif share > ERROR_SHARE_SUSPECT:
            severity = Severity.SUSPECT
        kinds = ", ".join(f"{n} {kind}" for kind, n in facts.measurement.failures_by_kind)
        example = next((s.error_message for s in failed if s.error_message), None)
        yield facts.finding(
            FindingKind.ERROR_RATE,
            severity,
            f"{len(failed)} of {total} requests failed: {kinds}"
            + (f" (e.g. {example})." if example else "."),
        )
