"""The frozen records that the rooms hand to one another; nothing here computes beyond naming.

Scenario edge types live in `bench.scenario`; here is what the plan makes of them (`asked`), what
measuring yields (`observed`) and what follows from that (`concluded`). Units are in the names. A
value that was not observed is None, never 0 and never NaN.
"""

from __future__ import annotations

from bench.model.asked import (
    BASELINE,
    Api,
    Cell,
    KeySource,
    Launch,
    LauncherTemplate,
    Load,
    Plan,
    Sampling,
    ServerConfig,
    Slo,
    Timeouts,
    Workload,
)
from bench.model.concluded import (
    CellStatus,
    Comparison,
    Distribution,
    Finding,
    FindingKind,
    Measurement,
    Severity,
    Verdict,
)
from bench.model.observed import (
    ClientStats,
    EffectiveConfig,
    LaunchRecord,
    RequestSample,
    RequestStatus,
    TelemetryPoint,
    TokenSource,
)

__all__ = [
    "BASELINE",
    "Api",
    "Cell",
    "CellStatus",
    "ClientStats",
    "Comparison",
    "Distribution",
    "EffectiveConfig",
    "Finding",
    "FindingKind",
    "KeySource",
    "Launch",
    "LaunchRecord",
    "LauncherTemplate",
    "Load",
    "Measurement",
    "Plan",
    "RequestSample",
    "RequestStatus",
    "Sampling",
    "ServerConfig",
    "Severity",
    "Slo",
    "TelemetryPoint",
    "Timeouts",
    "TokenSource",
    "Verdict",
    "Workload",
]
