"""The load client that a run measures with: how many workers, and up to which load they are exact.

Before anything is measured, a ground-truth server proves it in about two seconds; the proof is
remembered for the machine (docs/instrument.md).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from bench.errors import LoadError
from bench.runner.events import Noted

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.load.generator import LoadClient
    from bench.model import Plan
    from bench.runner.events import Event
    from bench.server import RunningServer


@dataclass(frozen=True, slots=True, kw_only=True)
class Instrument:
    """What is measured with.

    Attributes:
        workers: How many load workers share the load.
        proven_event_per_s: Up to which load they are proven to be exact; None: not tried.
    """

    workers: int = 1
    proven_event_per_s: float | None = None

    async def open_for(self, server: RunningServer) -> LoadClient:
        """Start the load workers for a server, off the processors that it uses on this machine.

        Raises:
            LoadError: A worker did not start.
        """
        from bench.load.cores import keep_off  # noqa: PLC0415  # keeps `bench --help` quick
        from bench.load.generator import open_client  # noqa: PLC0415  # likewise

        client = await open_client(
            server.base_url,
            api_key=server.api_key,
            admin_api_key=server.admin_api_key,
            abort_own=server.pid is None,
            workers=self.workers,
            proven_event_per_s=self.proven_event_per_s,
        )
        if server.pid is not None and not server.effective.simulated:
            await keep_off(server.pid, client.worker_pids)
        return client


async def instrument_for(
    plan: Plan, *, workers: int | None, on_event: Callable[[Event], None]
) -> Instrument:
    """Choose the workers of a run and prove them good for its load.

    A simulation is not proven: its figures are marked as they are, and are no measurement.

    Args:
        plan: What will be measured.
        workers: How many there are to be; None: as many as the load needs.
        on_event: Told where the load is not proven.
    """
    if plan.simulated:
        return Instrument(workers=workers or 1)
    from bench.selftest.need import need_of, workers_for  # noqa: PLC0415  # a simulation is quick
    from bench.selftest.proof import prove, recall  # noqa: PLC0415  # likewise

    need = need_of(plan.launches)
    known = recall(1)
    count = workers or workers_for(
        need.event_per_s, cpu_us_per_event=known.cpu_us_per_event if known else None
    )
    try:
        proof = await prove(need, workers=count)
    except LoadError as error:
        on_event(Noted(text=f"the load client was not tried before measuring: {error}"))
        return Instrument(workers=count)
    if proof.event_per_s < need.event_per_s:
        on_event(
            Noted(
                text=f"the load client is proven exact up to {proof.event_per_s:.0f} events/s; "
                f"{need.event_per_s:.0f} may be needed ({', '.join(proof.faults)}). Cells beyond "
                "it are marked; `bench selftest SCENARIO` tells more"
            )
        )
    return Instrument(workers=count, proven_event_per_s=proof.event_per_s)
