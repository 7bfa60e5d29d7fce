"""Faults on request: what this server has now, decided by launch, cell, requests and time.

The grammar is `bench.model.faults`. Everything that is drawn comes from the seed, the launch and
the request's place in order: the same requests have the same faults whatever the timing.
"""

from __future__ import annotations

import asyncio
import random
import signal
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from bench import clock
from bench.model.faults import FAULT_KINDS
from bench.simulator.faults_process import (
    crash,
    hang_forever,
    load_slowly,
    out_of_memory,
    watchdog_ends,
)
from bench.simulator.log import set_wall_offset_s

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.model.faults import Fault
    from bench.simulator.request import Drafts
    from bench.simulator.settings import Settings
    from bench.simulator.step import Step

FOR_GOOD_NS = 10**18
"""A step that does not end: 31 years."""

_WATCHDOG_S = 300  # SGLang's --watchdog-timeout


@dataclass(frozen=True, slots=True, kw_only=True)
class Hit:
    """A fault that one request has.

    Attributes:
        fault: Which.
        rng: What is drawn for this request.
    """

    fault: Fault
    rng: random.Random


class Faults:
    """The faults of one server; without any it does nothing."""

    def __init__(self, settings: Settings) -> None:
        launch = settings.launch
        self._settings = settings
        self._all = [
            f for f in settings.faults if f.launch is None or fnmatchcase(launch, f.launch)
        ]
        self._cell = 0
        self._cell_began_ns: int | None = None
        self._ready_ns: int | None = None
        self._requests = 0
        self._cell_requests = 0
        self._watched = False

    def __bool__(self) -> bool:
        return bool(self._all)

    # ----------------------------------------------------------------------------- the start

    def boot(self, stage: str) -> None:
        """The start has come to `load` or `capture`; it may end or stay here."""
        for fault in self._all:
            match (fault.name, stage):
                case ("slow-boot", "load"):
                    load_slowly(fault.amount or 0.0)
                case ("oom-load", "load") | ("oom-capture", "capture"):
                    out_of_memory(stage)
                case ("hang-capture", "capture"):
                    hang_forever()
                case ("ignore-term", "load") if fault.cell is None and not fault.at_s:
                    signal.signal(signal.SIGTERM, signal.SIG_IGN)
                case _:
                    pass

    def ready(self) -> None:
        """The server listens."""
        self._ready_ns = clock.now_ns()
        self._wait_for_moments(cell=None)

    # ------------------------------------------------------------------- cells and requests

    def cell_began(self) -> None:
        """The cache was flushed: bench does so before each cell."""
        self._cell += 1
        self._cell_began_ns = clock.now_ns()
        self._cell_requests = 0
        self.step_clock()
        self._wait_for_moments(cell=self._cell)

    def request_came(self) -> tuple[Hit, ...]:
        """A request to generate; the faults that it has, in the order they were asked for."""
        self._requests += 1
        self._cell_requests += 1
        for fault in self._named("crash"):
            if self._is_on(fault, moment=True):
                crash()
        hits = []
        for place, fault in enumerate(self._all):
            rng = self._rng(place, fault)
            is_drawn = rng.random() < fault.share
            if FAULT_KINDS[fault.name].acts == "request" and is_drawn and self._is_on(fault):
                hits.append(Hit(fault=fault, rng=rng))
        return tuple(hits)

    def _rng(self, place: int, fault: Fault) -> random.Random:
        settings = self._settings
        text = f"{settings.seed} {settings.launch} {place} {fault.text} {self._requests}"
        return random.Random(text)  # noqa: S311  # a simulation

    def _wait_for_moments(self, *, cell: int | None) -> None:
        """Crashes that are due by time alone."""
        loop = asyncio.get_running_loop()
        for fault in self._named("crash"):
            if fault.cell == cell and fault.at_s > 0 and not fault.after:
                loop.call_later(clock.world_s(fault.at_s), self._crash_if_still_in, cell)

    def _crash_if_still_in(self, cell: int | None) -> None:
        if cell in {None, self._cell}:
            crash()

    # -------------------------------------------------------------------------------- states

    def has(self, name: str) -> bool:
        """Whether a state is had now."""
        return any(self._is_on(fault) for fault in self._named(name))

    def stretched(self, step: Step) -> Step:
        """A step as long as throttling, drift and hangs make it."""
        factor = 1.0
        for fault in self._all:
            if fault.name == "throttle" and self._is_on(fault, step.start_ns):
                factor *= fault.amount or 1.0
            if fault.name == "drift" and self._is_on(fault, step.start_ns):
                minutes = (step.start_ns - self._began_ns(fault)) / 60e9 - fault.at_s / 60
                factor *= max(0.01, 1 + (fault.amount or 0.0) * minutes)
        end_ns = step.start_ns + round((step.end_ns - step.start_ns) * factor)
        for fault in self._named("hang"):
            if self._is_on(fault, step.start_ns):
                end_ns = max(end_ns, self._hang_end_ns(fault, step.start_ns))
        return step if end_ns == step.end_ns else replace(step, end_ns=end_ns)

    def _hang_end_ns(self, fault: Fault, start_ns: int) -> int:
        """When a step that hangs ends; SGLang's watchdog ends a server whose step does not."""
        if fault.for_s is None:
            end_ns = start_ns + FOR_GOOD_NS
        else:
            end_ns = self._began_ns(fault) + round((fault.at_s + fault.for_s) * 1e9)
        patience_s = self._settings.number("watchdog_timeout", _WATCHDOG_S)
        if end_ns - start_ns > patience_s * 1e9 and not self._watched:
            self._watched = True
            loop = asyncio.get_running_loop()
            loop.call_later(clock.world_s(patience_s), watchdog_ends, patience_s)
        return end_ns

    def drafts(self, drafts: Drafts | None) -> Drafts | None:
        """A request's drafts, which are refused while acceptance has collapsed."""
        if drafts is None or not any(True for _ in self._named("accept-collapse")):
            return drafts
        return _Collapsing(drafts, lambda: self.has("accept-collapse"))

    def step_clock(self) -> None:
        """Have the wall clock of log and responses where it is to be now."""
        faults = [fault for fault in self._named("clock-step") if self._is_on(fault)]
        set_wall_offset_s(sum(fault.amount or 0.0 for fault in faults))

    def counters_by(self) -> float:
        """What counters are to be multiplied by; 1 where they are right."""
        factor = 1.0
        for fault in self._named("counters"):
            if self._is_on(fault):
                factor *= 1 + (fault.amount or 0.0)
        return factor

    # ------------------------------------------------------------------------------ deciding

    def _named(self, name: str) -> list[Fault]:
        return [fault for fault in self._all if fault.name == name]

    def _began_ns(self, fault: Fault) -> int:
        """What a fault's seconds are counted from."""
        began = self._ready_ns if fault.cell is None else self._cell_began_ns
        return clock.now_ns() if began is None else began

    def _is_on(self, fault: Fault, at_ns: int | None = None, *, moment: bool = False) -> bool:
        if fault.cell is not None and fault.cell != self._cell:
            return False
        came = self._requests if fault.cell is None else self._cell_requests
        if came <= fault.after and (fault.after or moment):
            return False
        passed_s = ((clock.now_ns() if at_ns is None else at_ns) - self._began_ns(fault)) / 1e9
        if passed_s < fault.at_s:
            return False
        return fault.for_s is None or passed_s < fault.at_s + fault.for_s


class _Collapsing:
    """Drafts that are drawn as ever and refused for a time."""

    def __init__(self, drafts: Drafts, collapsed: Callable[[], bool]) -> None:
        self._drafts = drafts
        self._collapsed = collapsed

    def draw(self) -> int:
        """Correct drafts of the next step."""
        drawn = self._drafts.draw()
        return 0 if self._collapsed() else drawn
