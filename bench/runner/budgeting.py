"""`--budget`: what is still measured in the time that is left, asked anew before each launch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from bench import clock
from bench.errors import BenchError, InputError
from bench.metrics.findings import make_finding
from bench.model import FindingKind, Severity
from bench.plan.budget import fit_budget, told, with_cells
from bench.runner.events import Noted

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from bench.model import Cell, Finding, Launch, Plan
    from bench.runner.events import Event
    from bench.store import RunWriter


class OutOfTimeError(BenchError):
    """The time of `--budget` was over, and what was begun was given up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """The time that one launch has.

    Attributes:
        until_ns: Clock time until which its start may take; None: as long as it needs.
        may_begin: Whether there is time for a cell.
    """

    until_ns: int | None
    may_begin: Callable[[Cell], bool]

    def left_s(self) -> float | None:
        """Seconds of the world that are left; None: there is no limit."""
        if self.until_ns is None:
            return None
        return max(0.0, (self.until_ns - clock.now_ns()) / 1e9 / clock.speed())


NO_LIMIT: Final = Limit(until_ns=None, may_begin=lambda _cell: True)


def require_fit(plan: Plan, budget_s: float) -> None:
    """Refuse a budget in which not even a part of the first pair can be measured.

    Raises:
        InputError: It is too small.
    """
    if not fit_budget(plan.launches, budget_s).kept:
        first = plan.launches[0]
        raise InputError(
            f"--budget: {in_words(budget_s)} are not enough for one load of two arms; the first "
            f"launch alone is expected to take {in_words(first.estimated_s)}.",
            hint="`--dry-run` shows what each launch takes; --only narrows what is measured.",
        )


class Remaining:
    """The launches that are still to be made, and the time there is for them.

    Args:
        plan: The whole plan.
        writer: The run, with what is measured already and how long it took.
        on_event: Told when something more is dropped.
    """

    def __init__(self, plan: Plan, writer: RunWriter, on_event: Callable[[Event], None]) -> None:
        self._waiting = list(plan.launches)
        self._finished = writer.finished_cells
        self._on_event = on_event
        self._budget_s: float | None = writer.manifest.plan_arguments.get("budget_s")
        self._began_ns = clock.now_ns()
        self._spent_before_s = _spent_s(writer)
        self._took_s = self._expected_s = 0.0
        self._dropped: tuple[Cell, ...] = ()

    def next(self, *, without: Collection[str] = ()) -> Launch | None:
        """The next launch with the cells to measure in it; None when nothing (more) fits.

        Args:
            without: Arms that are not started again.
        """
        waiting = [part for launch in self._waiting if (part := self._pending(launch))]
        self._waiting = [launch for launch in waiting if launch.arm not in without]
        if self._budget_s is None:
            kept: Sequence[Launch] = waiting
        else:
            fit = fit_budget(self._waiting, self._left_s(self._budget_s), slower=self._slower())
            self._say(fit.dropped, self._budget_s)
            refused = [launch for launch in waiting if launch.arm in without]
            kept = fit.kept or refused  # these take no time: they are only told of
        if not kept:
            return None
        self._waiting = [launch for launch in waiting if launch.ordinal != kept[0].ordinal]
        return kept[0]

    def limit(self, launch: Launch) -> Limit:
        """How long a launch may take to start, and which of its cells may still begin then.

        A cell that is left out for want of time is told.
        """
        if self._budget_s is None:
            return NO_LIMIT
        budget_s = self._budget_s
        ids = (cell.cell_id for cell in launch.cells)
        expected_s = dict(zip(ids, launch.cells_s, strict=False))

        def may_begin(cell: Cell) -> bool:
            fits = expected_s.get(cell.cell_id, 0.0) <= self._left_s(budget_s)
            if not fits:
                self._say((cell,), budget_s)
            return fits

        left_ns = int(self._left_s(budget_s) * 1e9 * clock.speed())
        return Limit(until_ns=clock.now_ns() + left_ns, may_begin=may_begin)

    def cut_short(self, launch: Launch) -> None:
        """A launch that was given up: what it has not measured is left out."""
        if self._budget_s is not None and (part := self._pending(launch)):
            self._say(part.cells, self._budget_s)

    def took(self, launch: Launch, began_ns: int) -> None:
        """Learn from a launch how far its estimate was off."""
        self._took_s += (clock.now_ns() - began_ns) / 1e9 / clock.speed()
        self._expected_s += launch.estimated_s

    def findings(self) -> tuple[Finding, ...]:
        """What was dropped, if anything."""
        finished = self._finished()
        dropped = [cell for cell in self._dropped if cell.cell_id not in finished]
        if not dropped or self._budget_s is None:
            return ()
        message = (
            f"{len(dropped)} cells did not fit into {in_words(self._budget_s)} and were not "
            f"measured: {told(dropped)}."
        )
        return (make_finding(FindingKind.BUDGET_DROPPED, Severity.NOTE, message),)

    def _pending(self, launch: Launch) -> Launch | None:
        finished = self._finished()
        cells = [cell for cell in launch.cells if cell.cell_id not in finished]
        return with_cells(launch, cells) if cells else None

    def _left_s(self, budget_s: float) -> float:
        here_s = (clock.now_ns() - self._began_ns) / 1e9 / clock.speed()
        return budget_s - self._spent_before_s - here_s

    def _slower(self) -> float:
        return self._took_s / self._expected_s if self._expected_s and self._took_s else 1.0

    def _say(self, dropped: tuple[Cell, ...], budget_s: float) -> None:
        known = {cell.cell_id for cell in self._dropped}
        more = [cell for cell in dropped if cell.cell_id not in known]
        self._dropped = (*self._dropped, *more)
        if more:
            self._on_event(
                Noted(text=f"does not fit into {in_words(budget_s)}, left out: {told(more)}")
            )


def _spent_s(writer: RunWriter) -> float:
    """What earlier sessions of a run took, as far as their launches tell."""
    return sum(
        (record.stopped_ns - record.started_ns) / 1e9 / writer.manifest.speed
        for record in writer.launches()
        if record.stopped_ns is not None
    )


def in_words(seconds: float) -> str:
    """`90 s`, `45 min` or `2.5 h`."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.3g} h"
