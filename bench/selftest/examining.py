"""The whole self-test: what the client can take, and how exact it is up to which load."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from bench.selftest.proof import proof_of, recall, remember
from bench.selftest.trial import paced, run_trial, scheduled, unpaced

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from bench.selftest.need import Need
    from bench.selftest.trial import Trial, TrialResult

_TRIAL_S: Final = 2.0
_LADDER_S: Final = 0.7
_STEP: Final = 1.5
_MOST_STEPS: Final = 12
_UNPACED_EVENTS: Final = 200_000
_OPEN_RATE_PER_S: Final = 50.0
_LIGHT: Final = (8, 400.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Examination:
    """What the self-test found.

    Attributes:
        need: What it was asked to be good for.
        workers: How many worker processes there were.
        at_need: A closed load of that size.
        at_rate: An open load at the rate that is needed (or a low one).
        at_most: Streams that are as fast as the client reads them.
        light: 8 streams that hardly load anything, to compare the server's own lateness with.
        proven_event_per_s: The highest load that was tried at which errors stayed under 1 ms and
            1 %; None: none did.
        refused_event_per_s: The lowest load above it at which they did not; None: none was found.
        faults: What was wrong there.
        is_remembered: Whether later runs will know what it proved.
    """

    need: Need
    workers: int
    at_need: TrialResult
    at_rate: TrialResult
    at_most: TrialResult
    light: TrialResult
    proven_event_per_s: float | None
    refused_event_per_s: float | None
    faults: tuple[str, ...]
    is_remembered: bool

    @property
    def is_good_enough(self) -> bool:
        """Whether the load that is needed is proven."""
        proven = self.proven_event_per_s
        return proven is not None and proven >= self.need.event_per_s


async def examine(
    need: Need, *, workers: int, on_step: Callable[[str], None] = lambda _: None
) -> Examination:
    """Run the whole self-test, about 20 seconds, and remember what it proves.

    Args:
        need: What the client is to be good for.
        workers: How many worker processes share the load.
        on_step: Told what is tried next.

    Raises:
        LoadError: The ground-truth server or a load worker does not start.
    """

    async def tried(trial: Trial, what: str) -> TrialResult:
        on_step(what)
        return await run_trial(trial, workers=workers)

    light = await tried(
        paced(streams=_LIGHT[0], event_per_s=_LIGHT[1], seconds=_TRIAL_S), "a light load"
    )
    at_need = await tried(
        paced(streams=need.streams, event_per_s=need.event_per_s, seconds=_TRIAL_S),
        f"the load that is needed, {need.event_per_s:.0f} events/s",
    )
    rate = need.rate_per_s or _OPEN_RATE_PER_S
    at_rate = await tried(
        scheduled(rate_per_s=rate, event_per_s=rate * 8, seconds=_TRIAL_S),
        f"an open load of {rate:g} requests/s",
    )
    at_most = await tried(
        unpaced(streams=need.streams, events=_UNPACED_EVENTS), "all that can be read"
    )
    proven, refused, faults = await _ladder(need, tried)
    return Examination(
        need=need,
        workers=workers,
        at_need=at_need,
        at_rate=at_rate,
        at_most=at_most,
        light=light,
        proven_event_per_s=proven,
        refused_event_per_s=refused,
        faults=faults,
        is_remembered=recall(workers) is not None,
    )


async def _ladder(
    need: Need, tried: Callable[[Trial, str], Awaitable[TrialResult]]
) -> tuple[float | None, float | None, tuple[str, ...]]:
    """(highest load that is right, lowest above it that is not, what was wrong there).

    Loads go up by halves from the one that is needed, or down from it. One that goes wrong is
    tried once more before it counts.
    """

    async def faults_at(event_per_s: float) -> tuple[str, ...]:
        trial = paced(streams=need.streams, event_per_s=event_per_s, seconds=_LADDER_S)
        for _ in range(2):
            result = await tried(trial, f"{event_per_s:.0f} events/s")
            if result.is_right:
                remember(proof_of(result, event_per_s))
                return ()
        return result.accuracy.faults()

    event_per_s = need.event_per_s
    faults = await faults_at(event_per_s)
    is_going_up = not faults
    for _ in range(_MOST_STEPS):
        before = event_per_s
        event_per_s *= _STEP if is_going_up else 1 / _STEP
        found = await faults_at(event_per_s)
        if is_going_up and found:
            return before, event_per_s, found
        if not is_going_up and not found:
            return event_per_s, before, faults
        faults = found
    return (event_per_s, None, ()) if is_going_up else (None, event_per_s, faults)
