"""Live progress on stderr: the launch, the cell, tok/s and accept length now, the time left."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from bench import clock
from bench.cli.output import Printer, duration, many
from bench.cli.tables import is_attached, work_in
from bench.model import CellStatus
from bench.runner import (
    CellFinished,
    CellProgress,
    CellStarting,
    LaunchEnded,
    LaunchProgress,
    LaunchReady,
    LaunchStarting,
    Noted,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rich.status import Status

    from bench.load.generator import Progress as LoadProgress
    from bench.model import Cell, Launch, LaunchRecord, Plan
    from bench.runner import Event

LIVE_PER_S = 4


class Progress:
    """A line a launch and a finished cell; on a terminal also one live line below them."""

    def __init__(self, plan: Plan, run_id: str, *, finished: set[str], quiet: bool) -> None:
        self._plan = plan
        self._run_id = run_id
        self._printer: Printer | None = None if quiet else Printer(stderr=True)
        self._status: Status | None = None
        self._time = TimeLeft(plan, finished)
        self._launch = ""

    def __enter__(self) -> Self:
        self._say(self._beginning())
        if self._plan.simulated:
            self._say(
                f"SIMULATED servers at {self._plan.speed}× speed: "
                "nothing below was measured on hardware.",
                style="bold yellow",
            )
        printer = self._printer
        if printer is not None and printer.is_terminal and not printer.is_dumb_terminal:
            self._status = printer.status("", refresh_per_second=LIVE_PER_S)
            self._status.start()
        return self

    def __exit__(self, *_exception: object) -> None:
        if self._status is not None:
            self._status.stop()
            self._say("")  # the answer follows

    def on_event(self, event: Event) -> None:
        """Print what is worth a line; show the rest live."""
        match event:
            case LaunchStarting(launch=launch, launches=launches):
                self._launch, what = _launch_name(launch, launches)
                self._say(f"{self._launch}: {what}")
                self._live(f"{self._launch}: {what}")
            case LaunchProgress(text=text):
                self._live(f"{self._launch}: {text}" if self._launch else text)
            case LaunchReady(record=record) if not self._plan.simulated:
                self._say(f"  {_ready(record)}")
            case CellStarting(cell=cell):
                self._live(f"{_cell_name(cell)}: getting ready")
            case CellProgress(cell=cell, progress=progress):
                self._live(f"{_cell_name(cell)}: {_now(progress)}")
            case CellFinished():
                self._time.finished(event.cell.cell_id)
                self._say(f"  [{event.done}/{event.total}] {_outcome(event)}{self._left()}")
                self._live(self._launch)
            case LaunchEnded(record=record) if record.failure:
                self._give_up(record)
                who = record.arm if is_attached(self._plan) else record.launch_id
                self._say(f"  {who} failed: {record.failure}", style="bold red")
            case Noted(text=text):
                self._say(f"  {text}", style="bold yellow")
            case _:
                pass

    def _give_up(self, record: LaunchRecord) -> None:
        """Cells of a server that never came are not waited for."""
        if record.ready_ns is None:
            launch = self._plan.launches[record.ordinal]
            self._time.given_up(cell.cell_id for cell in launch.cells)

    def _beginning(self) -> str:
        finished = len(self._time.finished_ids)
        done = f" ({many(finished, 'cell')} finished already)" if finished else ""
        return (
            f"{self._run_id}: {work_in(self._plan)}{done}, about "
            f"{duration(self._time.left_s() or 0)}"
        )

    def _left(self) -> str:
        left_s = self._time.left_s()
        return "" if left_s is None else f", {duration(left_s)} left"

    def _say(self, text: str, *, style: str | None = None) -> None:
        """Print a line; a terminal that has gone away ends the talking, not the measuring."""
        if self._printer is None:
            return
        try:
            self._printer.print(text, style=style, soft_wrap=True)
        except OSError:
            self._printer = self._status = None

    def _live(self, text: str) -> None:
        if self._status is None:
            return
        from rich.text import Text

        line = f"{text}{self._left()}"
        assert self._printer is not None
        columns = self._printer.width - 3  # the spinner is before it; a folded line would jump
        line = line if len(line) <= columns else f"{line[: columns - 1]}…"
        self._status.update(Text(line))  # a str would be read as rich's markup


class TimeLeft:
    """The time that is left, from the plan's estimates and how they have held so far."""

    def __init__(self, plan: Plan, finished: set[str]) -> None:
        # A launch's start is spread over its cells.
        self._weights_s = {
            cell.cell_id: launch.estimated_s / len(launch.cells)
            for launch in plan.launches
            for cell in launch.cells
        }
        self.finished_ids = finished & self._weights_s.keys()
        self._given_up: set[str] = set()
        self._done_s = 0.0
        self._pace = 1.0
        self._started_ns = self._latest_ns = clock.monotonic_ns()

    @property
    def total(self) -> int:
        """Cells of the plan."""
        return len(self._weights_s)

    def finished(self, cell_id: str) -> None:
        """A cell is done."""
        self.finished_ids.add(cell_id)
        self._done_s += self._weights_s[cell_id]
        self._latest_ns = clock.monotonic_ns()
        passed_s = (self._latest_ns - self._started_ns) / 1e9
        # As if one more second had gone as estimated: the first cell does not swing it.
        self._pace = (passed_s + 1) / (self._done_s + 1)

    def given_up(self, cell_ids: Iterable[str]) -> None:
        """Cells that will not be measured now."""
        self._given_up.update(cell_ids)

    def left_s(self) -> float | None:
        """Seconds of the world; None when nothing is left."""
        left = self._weights_s.keys() - self.finished_ids - self._given_up
        if not left:
            return None
        left_s = sum(self._weights_s[cell_id] for cell_id in left) * self._pace
        return max(0.0, left_s - (clock.monotonic_ns() - self._latest_ns) / 1e9)


def _launch_name(launch: Launch, launches: int) -> tuple[str, str]:
    """What to call a launch, and what is done; servers that run already only take turns."""
    place = f"{launch.ordinal + 1}/{launches}"
    if launch.server.launcher == "attached":
        turn = f"turn {place} " if launches > 1 else ""
        return f"{turn}{launch.arm}", f"measuring the server at {launch.server.url}"
    return f"launch {place} {launch.arm}, pair {launch.pair}", "starting the server"


def _ready(record: LaunchRecord) -> str:
    """How long a start took, and what of that is known."""
    assert record.ready_ns is not None
    took_s = (record.ready_ns - record.started_ns) / 1e9 / clock.speed()
    parts = (("weights", record.load_s), ("CUDA graphs", record.capture_s))
    told = ", ".join(f"{what} {duration(seconds)}" for what, seconds in parts if seconds)
    return f"ready after {duration(took_s)}" + (f" ({told})" if told else "")


def _cell_name(cell: Cell) -> str:
    return f"{cell.arm} {cell.workload.name} load {cell.load.label}"


def _now(progress: LoadProgress) -> str:
    parts = [f"{progress.phase} {progress.done}/{progress.total}"]
    if progress.output_tok_per_s is not None:
        parts.append(f"{progress.output_tok_per_s:.0f} tok/s")
    if progress.accept_len_tok is not None:
        parts.append(f"accept length {progress.accept_len_tok:.2f}")
    return ", ".join(parts)


def _outcome(event: CellFinished) -> str:
    cell, m = event.cell, event.measurement
    parts = ["no tok/s" if m.output_tok_per_s is None else f"{m.output_tok_per_s:.1f} tok/s"]
    if m.accept_len_tok is not None:
        parts.append(f"accept length {m.accept_len_tok:.2f}")
    if m.failed_ct:
        parts.append(f"{m.failed_ct} of {m.request_ct} requests failed")
    parts.append(str(m.status))
    if m.status is not CellStatus.VALID:
        kinds = (f.kind for f in event.findings if f.severity.upper() == m.status)
        parts[-1] += f" ({', '.join(dict.fromkeys(kinds))})"
    return f"{_cell_name(cell)}: {', '.join(parts)}"
