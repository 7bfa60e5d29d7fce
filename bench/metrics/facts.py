"""What the checks of a cell look at: everything known of it, in one record."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from bench.metrics.findings import make_finding

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench.metrics.acceptance import SpecCounters
    from bench.metrics.series import Series
    from bench.metrics.window import NoWindow, Window
    from bench.model import (
        Cell,
        ClientStats,
        EffectiveConfig,
        Finding,
        FindingKind,
        Measurement,
        RequestSample,
        Severity,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class CellFacts:
    """One cell, as the checks see it.

    Attributes:
        samples: All requests, warm-up included, by index.
        measured: Those after warm-up.
        ok: Those of the measured that ended as they should.
        counters: Acceptance counters pooled over `ok`.
        measurement: The derived numbers; their `status` is not set yet.
        speed: The clock's speed: the client's own delays are this much longer on the clock.
        unread: Why readings of the server's metrics are missing; None: nothing is known.
        gpus_unread: The same of its GPUs.
    """

    cell: Cell
    samples: Sequence[RequestSample]
    measured: Sequence[RequestSample]
    ok: Sequence[RequestSample]
    series: Series
    window: Window | NoWindow
    counters: SpecCounters
    measurement: Measurement
    client: ClientStats | None
    effective: EffectiveConfig | None
    gpus: int
    simulated: bool
    speed: int
    unread: str | None = None
    gpus_unread: str | None = None

    def finding(self, kind: FindingKind, severity: Severity, message: str) -> Finding:
        """A finding on this cell."""
        return make_finding(kind, severity, message, cell_id=self.cell.cell_id, arm=self.cell.arm)
