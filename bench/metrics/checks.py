"""Whether a cell's numbers may be used: every check, in the order of telling."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from bench.metrics import (
    checks_gpus,
    checks_load,
    checks_output,
    checks_server,
    checks_steady,
    collapse,
    cross_checks,
    foreign_traffic,
    hang,
)
from bench.metrics.findings import ADVICE, make_finding, status_of, with_findings, worst_status

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from bench.metrics.facts import CellFacts
    from bench.model import Finding

__all__ = [
    "ADVICE",
    "CHECKS",
    "check_cell",
    "make_finding",
    "status_of",
    "with_findings",
    "worst_status",
]

CHECKS: Final[tuple[Callable[[CellFacts], Iterable[Finding]], ...]] = (
    checks_load.errors,
    checks_load.window_there,
    checks_steady.wave_cut,
    checks_steady.few_requests,
    checks_server.configuration,
    checks_server.restarted,
    hang.spinning,
    checks_output.tokens_counted,
    checks_load.client_saturated,
    checks_load.client_proven,
    checks_load.reads_coalesced,
    checks_load.requests_resent,
    checks_load.client_late,
    checks_load.concurrency_reached,
    checks_server.queued,
    checks_server.memory_pressure,
    checks_server.cuda_graphs,
    checks_server.throttled,
    checks_server.cache_as_stated,
    checks_steady.drifting,
    checks_output.output_degenerate,
    cross_checks.acceptance_present,
    cross_checks.request_counters,
    cross_checks.draft_depth,
    cross_checks.server_counters,
    foreign_traffic.more_running_than_ours,
    cross_checks.accept_len_against_log,
    collapse.accept_collapse,
    cross_checks.events_against_steps,
    cross_checks.cycle_against_gaps,
    checks_output.lengths_censored,
    checks_server.telemetry_there,
    checks_gpus.gpus_watched,
    checks_server.simulation_late,
    checks_server.simulated,
)


def check_cell(facts: CellFacts) -> tuple[Finding, ...]:
    """All findings on one cell."""
    return tuple(finding for check in CHECKS for finding in check(facts))
