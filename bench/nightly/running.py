"""A night: every scenario of a suite measured once, each stored as soon as it is finished."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final

from bench import clock, runner
from bench.errors import BenchError, InputError, Interrupted, MachineError, StoreError
from bench.model import BASELINE
from bench.nightly.history import LOCK, add, check_versions, read_history
from bench.nightly.recording import recorded_run
from bench.store import load_run
from bench.store.disk import take_lock, writing

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractContextManager
    from datetime import date

    from bench.model import Plan
    from bench.nightly.history import History
    from bench.nightly.recording import Recorded
    from bench.nightly.suite import Suite, SuiteScenario
    from bench.runner import Event
    from bench.store import RunWriter

    Watching = Callable[[Plan, str], AbstractContextManager[Callable[[Event], None]]]

_MOST_PAIRS: Final = 1000  # what a scenario may ask for
_LEAST_S: Final = 30.0  # with less left nothing is begun


@dataclass(frozen=True, slots=True, kw_only=True)
class NightOutcome:
    """What became of a night.

    Attributes:
        night: Its date.
        ordinal: How many nights of the suite came before.
        runs: Folders of the published runs.
        failures: (scenario, why) of those without figures; they are in the history too.
        left_out: What was measured and gave no point, and why.
    """

    night: date
    ordinal: int
    runs: tuple[Path, ...]
    failures: tuple[tuple[str, str], ...]
    left_out: tuple[str, ...]


def run_night(
    suite: Suite,
    *,
    history: Path,
    out: Path,
    command_line: Sequence[str],
    watching: Watching,
) -> NightOutcome:
    """Measure every scenario of a suite, one launch an arm, and add to the history.

    The order of arms is the other way round every other night, and so is that of the scenarios,
    so that what a night's time does not suffice for is not always the same. Every scenario is
    written down as begun first: a night that is killed leaves its date all the same.

    Args:
        suite: From `bench.nightly.load_suite`.
        history: Its folder.
        out: The results folder.
        command_line: The command, for the runs' manifests.
        watching: Makes what is told of a run's events, from its plan and id.

    Raises:
        InputError: The suite cannot be measured as it stands; nothing was started.
        StoreError: The history was written to by a newer specdyno.
        MachineError: Another night is being measured; the history says so.
        Interrupted: Ctrl-C or TERM; what was finished is stored.
    """
    check_versions(history)
    begin_ns = clock.monotonic_ns()
    held = read_history(history)
    ordinal, night = held.nights_of(suite.name), _night_of(suite, held)
    names = _planned(suite, ordinal)
    handle = _lock(history, suite, night)
    try:
        parts = list(zip(suite.scenarios, names, strict=True))[:: -1 if ordinal % 2 else 1]
        for _, name in parts:
            add(
                history,
                kind="begun",
                night=night,
                suite=suite.name,
                ordinal=ordinal,
                scenario=name,
            )
        outcomes = [
            _measure(
                scenario,
                name,
                suite=suite,
                history=history,
                out=out,
                command_line=command_line,
                watching=watching,
                night=night,
                ordinal=ordinal,
                left_s=suite.max_minutes * 60 - (clock.monotonic_ns() - begin_ns) / 1e9,
            )
            for scenario, name in parts
        ]
    finally:
        os.close(handle)
    return NightOutcome(
        night=night,
        ordinal=ordinal,
        runs=tuple(folder for folder, _, _ in outcomes if folder is not None),
        failures=tuple(failure for _, failure, _ in outcomes if failure is not None),
        left_out=tuple(line for _, _, lines in outcomes for line in lines),
    )


def _night_of(suite: Suite, held: History) -> date:
    """Today, or for simulated servers alone the day after the last night, if that is later.

    Simulated nights pass as fast as they are measured: a month of them takes an hour.
    """
    today = clock.utc_now().date()
    nights = [e.night for e in held.entries if e.suite == suite.name and e.ordinal is not None]
    if not nights or not all(scenario.sim for scenario in suite.scenarios):
        return today
    return max(today, max(nights) + timedelta(days=1))


def _lock(history: Path, suite: Suite, night: date) -> int:
    with writing("to the history", history):
        history.mkdir(parents=True, exist_ok=True)
    try:
        return take_lock(history / LOCK)
    except StoreError as error:
        if isinstance(error, MachineError) or error.exit_code == MachineError.exit_code:
            raise
        reason = "another night was still being measured"
        add(history, kind="failure", night=night, suite=suite.name, reason=reason)
        raise MachineError(
            f"{history}: another night is being measured ({error}).",
            hint="Give the night more room (max_minutes), or begin it later.",
        ) from error


def _asked(scenario: SuiteScenario, ordinal: int, budget_s: float | None) -> runner.Asked:
    """One launch an arm: of the pairs that `bench run` would make, the one of this night.

    Odd pairs have their arms the other way round. Simulated servers also draw their noise by the
    pair: each night has one of its own.
    """
    only, overrides = tuple(scenario.only), tuple(scenario.set)
    if not scenario.attach:
        pair = ordinal % (_MOST_PAIRS if scenario.sim else 2)
        only = (*only, f"pair={pair}")
        pairs = max(pair + 1, 2)
        overrides = (*overrides, f"measure.pairs={pairs}")
        if scenario.sim:
            overrides = (*overrides, f"sim.measure.pairs={pairs}")
    return runner.Asked(
        scenario=Path(scenario.scenario),
        simulated=scenario.sim,
        sim_hardware=scenario.sim_hardware,
        attach=tuple(scenario.attach.items()),
        exclusive=scenario.exclusive,
        only=only,
        overrides=overrides,
        budget_s=budget_s,
    )


def _planned(suite: Suite, ordinal: int) -> list[str]:
    """Names of the scenarios, all of which can be measured as the suite says.

    Raises:
        InputError: One cannot, lacks the baseline, or measures what another one measures.
    """
    names: list[str] = []
    measured: set[tuple[str, ...]] = set()
    for place, scenario in enumerate(suite.scenarios):
        with suite.at(place):
            plan, _ = runner.plan_of(_asked(scenario, ordinal, None))
            if BASELINE not in plan.arms:
                raise InputError(
                    f"{scenario.scenario}: the night would measure {', '.join(plan.arms)} "
                    f"without the baseline.",
                    hint="Attach the baseline's server as well: without it a change of the "
                    "machine cannot be told from one of speculation.",
                )
            where = (plan.scenario, scenario.hardware or "", scenario.sim_hardware or "")
            series = {
                (*where, cell.arm, cell.workload.name, cell.load.label)
                for launch in plan.launches
                for cell in launch.cells
                if cell.arm != BASELINE
            }
            if not measured.isdisjoint(series):
                raise InputError(
                    f"scenario {plan.scenario} is in the suite twice, with the same cells: they "
                    f"would be points of the same series.",
                    hint="Give one of them other cells (only:), another hardware:, or a scenario "
                    "file with a name of its own.",
                )
            measured |= series
            names.append(plan.scenario)
    return names


def _measure(  # noqa: PLR0913  # a night's own facts, one keyword each
    scenario: SuiteScenario,
    name: str,
    *,
    suite: Suite,
    history: Path,
    out: Path,
    command_line: Sequence[str],
    watching: Watching,
    night: date,
    ordinal: int,
    left_s: float,
) -> tuple[Path | None, tuple[str, str] | None, tuple[str, ...]]:
    """(the run's folder, (scenario, why it failed), what gave no point)."""

    def failed(reason: str) -> tuple[None, tuple[str, str], tuple[str, ...]]:
        add(
            history,
            kind="failure",
            night=night,
            suite=suite.name,
            ordinal=ordinal,
            scenario=name,
            reason=reason,
        )
        return None, (name, reason), ()

    if left_s < _LEAST_S:
        return failed(f"no time was left of max_minutes: {suite.max_minutes:g}")
    try:
        plan, writer = runner.start_run(
            _asked(scenario, ordinal, left_s), out, command_line=command_line
        )
        with writer, watching(plan, writer.run_id) as on_event:
            folder = _run(plan, writer, on_event)
    except Interrupted:
        failed("stopped by hand")
        raise
    except BenchError as error:
        return failed(str(error))
    recorded = _of_night(recorded_run(load_run(folder), hardware=scenario.hardware), night)
    if not recorded.points:
        return failed(f"no usable cell in {folder.name}: {'; '.join(recorded.left_out)}")
    add(
        history,
        kind="night",
        night=night,
        points=recorded.points,
        facts=[recorded.facts],
        suite=suite.name,
        ordinal=ordinal,
        scenario=name,
    )
    return folder, None, recorded.left_out


def _run(plan: Plan, writer: RunWriter, on_event: Callable[[Event], None]) -> Path:
    import uvloop  # noqa: PLC0415  # loads only where something is measured

    return uvloop.run(runner.run(plan, writer, on_event=on_event))


def _of_night(recorded: Recorded, night: date) -> Recorded:
    """A run that began past midnight is of the night that began before it."""
    points = tuple(replace(point, night=night) for point in recorded.points)
    return replace(recorded, night=night, points=points)
