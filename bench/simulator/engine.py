"""The schedulers of one server: who gets a request, when their steps end, when tokens are sent.

One interval timer wakes the process at the end of the next step of any scheduler. Where it is far
behind, all steps that are due are taken first and each request's tokens then go out as one event,
as SGLang's front end sends what has piled up.
"""

from __future__ import annotations

import math
import random
import signal
from typing import TYPE_CHECKING

from bench import clock
from bench.simulator.faults_process import scheduler_work
from bench.simulator.rank_stats import BEHIND_S, RankStats
from bench.simulator.scheduler import Scheduler

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from bench.simulator.faults import Faults
    from bench.simulator.request import Request
    from bench.simulator.settings import Settings
    from bench.simulator.stats import Stats
    from bench.simulator.truth import Truth

_LAUNCH_NOISE_LIMIT_SD = 2.0


class Engine:
    """All data-parallel ranks; everything happens in the event loop's thread.

    Attributes:
        schedulers: One for each rank.
        launch_factor: How much slower this start is than the cards.
    """

    def __init__(self, settings: Settings, stats: Stats, truth: Truth, faults: Faults) -> None:
        self._settings = settings
        self._stats = stats
        self._truth = truth
        self.launch_factor = _launch_factor(settings)
        self.schedulers = [
            Scheduler(
                rank,
                settings,
                RankStats(rank, settings),
                truth,
                faults,
                launch_text=_launch_text(settings),
                launch_factor=self.launch_factor,
            )
            for rank in range(settings.dp)
        ]
        self._next_rank = 0
        self._idle_callbacks: list[Callable[[], None]] = []

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Take the interval timer: the event loop's own timers are a millisecond coarse."""
        loop.add_signal_handler(signal.SIGALRM, self._on_timer)

    # ---------------------------------------------------------------------------- from outside

    @property
    def behind_max_ns(self) -> int:
        """How late the process got to a step's end at worst, since start or flush."""
        return max(scheduler.stats.behind_max_ns for scheduler in self.schedulers)

    @property
    def late_step_ns(self) -> int:
        """Length of all steps that the process got to the end of too late, on the worst rank."""
        return max(scheduler.stats.late_step_ns for scheduler in self.schedulers)

    def submit(self, request: Request) -> None:
        """Give a request to a rank; an idle one takes it up at once."""
        with scheduler_work():
            self._rank_for(request).submit(request)
            self._send()
            self._arm()

    def abort(self, rid: str) -> bool:
        """End every request whose name begins so: at once in a queue, else with its step.

        As in SGLang one of them must have that very name; else nothing is done and False returned.
        """
        requests = self.requests()
        if not any(request.rid == rid and request.abort is None for request in requests):
            return False
        self._abort([request for request in requests if request.rid.startswith(rid)])
        return True

    def abort_all(self) -> None:
        """End every request."""
        self._abort(self.requests())

    def requests(self) -> list[Request]:
        """Every request that has not ended."""
        return [request for scheduler in self.schedulers for request in scheduler.requests()]

    def when_idle(self, callback: Callable[[], None]) -> None:
        """Call back once nothing waits or runs: now, if so."""
        self._idle_callbacks.append(callback)
        self._notify_if_idle()

    def flush(self) -> bool:
        """Empty the prefix caches; False, and nothing done, while requests wait or run."""
        if self.requests():
            return False
        for scheduler in self.schedulers:
            scheduler.pool.cache.clear()
            scheduler.stats.flushed()
        return True

    # ------------------------------------------------------------------------------- the ranks

    def _rank_for(self, request: Request) -> Scheduler:
        """As SGLang's controller of the ranks chooses, which knows their loads a little late."""
        if request.wanted_rank is not None:
            return self.schedulers[request.wanted_rank]
        method = self._settings.load_balance
        if method == "total_requests":
            return min(self.schedulers, key=lambda rank: len(rank.requests()))
        if method == "total_tokens":
            return min(self.schedulers, key=_load)
        chosen = self.schedulers[self._next_rank]
        self._next_rank = (self._next_rank + 1) % len(self.schedulers)
        return chosen

    def _abort(self, requests: list[Request]) -> None:
        with scheduler_work():
            for request in requests:
                self.schedulers[request.dp_rank].abort(request)
            self._send()
            self._notify_if_idle()

    # --------------------------------------------------------------------------------- the time

    def _arm(self) -> None:
        ends_ns = [rank.step.end_ns for rank in self.schedulers if rank.step is not None]
        if ends_ns:
            wait_s = clock.world_s((min(ends_ns) - clock.now_ns()) / 1e9)
            signal.setitimer(signal.ITIMER_REAL, max(wait_s, 1e-6))

    def _on_timer(self) -> None:
        with scheduler_work():
            while (due := self._due()) is not None:
                late_ns = due.advance()
                if clock.world_s(late_ns / 1e9) < BEHIND_S:
                    self._send()
            self._send()
            self._arm()
            self._notify_if_idle()

    def _due(self) -> Scheduler | None:
        """The rank whose step was due first; None: no step is."""
        now_ns = clock.now_ns()
        due = [
            (rank.step.end_ns, rank.rank)
            for rank in self.schedulers
            if rank.step is not None and rank.step.end_ns <= now_ns
        ]
        return self.schedulers[min(due)[1]] if due else None

    def _send(self) -> None:
        for scheduler in self.schedulers:
            for request in scheduler.outbox:
                self._send_one(request)
            scheduler.outbox.clear()
        self._truth.settle()

    def _send_one(self, request: Request) -> None:
        now_ns = clock.now_ns()
        if request.first_token_ns is not None and request.first_emitted_ns is None:
            request.first_emitted_ns = now_ns
        if request.finish is None:
            request.reply.progress(request)
            return
        request.finish_emitted_ns = now_ns
        request.reply.progress(request)
        self._stats.request_ended(request)
        self._truth.request(request)

    def _notify_if_idle(self) -> None:
        if self._idle_callbacks and not self.requests():
            callbacks, self._idle_callbacks = self._idle_callbacks, []
            for callback in callbacks:
                callback()


def _load(rank: Scheduler) -> tuple[int, int]:
    requests = rank.requests()
    return sum(request.context_tok for request in requests), len(requests)


def _launch_factor(settings: Settings) -> float:
    """How much slower or faster this start is than the card, cut at two standard deviations."""
    rng = random.Random(_launch_text(settings))  # noqa: S311  # a simulation
    deviation = rng.gauss(0.0, 1.0)
    deviation = max(-_LAUNCH_NOISE_LIMIT_SD, min(_LAUNCH_NOISE_LIMIT_SD, deviation))
    return math.exp(deviation * settings.hardware.launch_sd)


def _launch_text(settings: Settings) -> str:
    """What makes a launch another launch: its seed and arguments, but not where it listens."""
    asked = sorted(item for item in settings.asked.items() if item[0] not in {"host", "port"})
    return f"{settings.seed} {asked}"
