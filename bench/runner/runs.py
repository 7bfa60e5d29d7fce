"""Whole runs: begun, taken up again, measured, published."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from bench import clock
from bench.errors import BenchError, DiskError, InputError, Interrupted, ServerError, StoreError
from bench.metrics import ADVICE, compare, run_findings, with_findings
from bench.metrics.findings import make_finding
from bench.metrics.machines import different_machines
from bench.model import Finding, FindingKind, KeySource, Severity
from bench.plan import make_plan
from bench.provenance import fingerprint, redact_argv, redact_text
from bench.runner.budgeting import Remaining, require_fit
from bench.runner.events import say_nothing
from bench.runner.measuring import open_bench
from bench.scenario import load_scenario
from bench.sglang.failures import FailureClass
from bench.store import (
    check_resumable,
    create_run,
    find_run,
    list_runs,
    new_manifest,
    new_run_id,
    new_session,
    open_part_run,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from bench.model import Cell, EffectiveConfig, Launch, LaunchRecord, Measurement, Plan
    from bench.runner.events import Event
    from bench.runner.measuring import Bench
    from bench.scenario import LoadedScenario
    from bench.store import Manifest, RunWriter, StoredRun

MAX_FAILED_STARTS: Final = 2
"""An arm whose server failed to start this often is not tried again: a try takes minutes."""

LATEST: Final = "latest"


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What a plan is made from: all that `bench resume` needs to make the same one again.

    Attributes:
        scenario: The scenario's file.
        simulated: `--sim`.
        sim_hardware: `--sim-hardware`.
        attach: `--attach`, as {arm: url}.
        only: `--only`.
        overrides: `--set`.
        add_pairs: `--add-pairs`.
        exclusive: `--exclusive`.
        api_key: `--api-key-env` or `--api-key-file`: where it is read from.
        budget_s: `--budget`, in seconds of the world.
    """

    scenario: Path
    simulated: bool = False
    sim_hardware: str | None = None
    attach: tuple[tuple[str, str], ...] = ()
    only: tuple[str, ...] = ()
    overrides: tuple[str, ...] = ()
    add_pairs: int = 0
    exclusive: bool = False
    api_key: KeySource | None = None
    budget_s: float | None = None


def plan_of(asked: Asked) -> tuple[Plan, LoadedScenario]:
    """Load the scenario and plan it.

    Raises:
        InputError: The scenario or an option is wrong; nothing was started.
    """
    loaded = load_scenario(asked.scenario, asked.overrides)
    plan = make_plan(
        loaded,
        simulated=asked.simulated,
        attach=dict(asked.attach),
        only=asked.only,
        sim_hardware=asked.sim_hardware,
        add_pairs=asked.add_pairs,
        exclusive=asked.exclusive,
        api_key=asked.api_key,
    )
    return plan, loaded


def start_run(asked: Asked, out: Path, *, command_line: Sequence[str]) -> tuple[Plan, RunWriter]:
    """Begin a run below `out`; sets the clock's speed, so nothing may have been timed before.

    Raises:
        InputError: As `plan_of`.
        DiskError: The folder cannot be written.
    """
    plan, loaded = plan_of(asked)
    if asked.budget_s is not None:
        require_fit(plan, asked.budget_s)
    clock.set_speed(plan.speed)
    manifest = _manifest(asked, plan, loaded, command_line)
    return plan, create_run(out, scenario_text=_stored_text(loaded), manifest=manifest)


def resume_run(name: str, out: Path, *, command_line: Sequence[str]) -> tuple[Plan, RunWriter]:
    """Take up a part-run: the same plan, and the run's folder with its finished cells.

    Args:
        name: Its id, the beginning or the end of that, its folder, or `latest`, which is the
            newest part-run that no process is writing.
        out: The results folder.
        command_line: The command, for the manifest.

    Raises:
        StoreError: There is no such part-run, it is being written, or scenario, options, specdyno
            or machine are not what it was begun with (each difference is named).
    """
    writer = open_part_run(_latest_part_run(out) if name == LATEST else find_run(out, name))
    try:
        asked = _asked_of(writer)
        plan, loaded = plan_of(asked)
        clock.set_speed(plan.speed)
        check_resumable(writer.manifest, _manifest(asked, plan, loaded, command_line))
        writer.begin_session(new_session(redact_argv(command_line)))
    except BaseException:
        writer.close()
        raise
    return plan, writer


def _manifest(
    asked: Asked, plan: Plan, loaded: LoadedScenario, command_line: Sequence[str]
) -> Manifest:
    return new_manifest(
        plan,
        run_id=new_run_id(plan.scenario),
        scenario_text=_stored_text(loaded),
        command_line=redact_argv(command_line),
        fingerprint=fingerprint(),
        plan_arguments={
            **asdict(asked),
            "scenario": str(asked.scenario.absolute()),
            "attach": [list(pair) for pair in asked.attach],
            "only": list(asked.only),
            "overrides": [redact_text(override) for override in asked.overrides],
        },
    )


def _stored_text(loaded: LoadedScenario) -> str:
    """The scenario as it is stored: a secret in a comment, say, stays out."""
    return redact_text(loaded.source.text)


def _latest_part_run(out: Path) -> Path:
    part_runs = [run for run in list_runs(out) if not run.published and run.pid is None]
    if not part_runs:
        raise StoreError(
            f"no run in {out} can be resumed.", hint="`bench list` shows how each one stands."
        )
    return part_runs[-1].folder


def _asked_of(writer: RunWriter) -> Asked:
    """The options a run was begun with, from its manifest."""
    asked = _stored_options(writer.manifest)
    if not asked.scenario.is_file():
        raise StoreError(
            f"cannot resume {writer.run_id}: its scenario {asked.scenario} is not there any more.",
            hint=f"Put it back; a copy is {writer.folder / 'scenario.yaml'}.",
        )
    return asked


def _stored_options(manifest: Manifest) -> Asked:
    stored = manifest.plan_arguments
    return Asked(
        scenario=Path(stored["scenario"]),
        simulated=stored["simulated"],
        sim_hardware=stored["sim_hardware"],
        attach=tuple((arm, url) for arm, url in stored["attach"]),
        only=tuple(stored["only"]),
        overrides=tuple(stored["overrides"]),
        add_pairs=stored["add_pairs"],
        exclusive=stored.get("exclusive", False),
        api_key=KeySource(**key) if (key := stored.get("api_key")) else None,
        budget_s=stored.get("budget_s"),
    )


async def run(
    plan: Plan, writer: RunWriter, *, on_event: Callable[[Event], None] = say_nothing
) -> Path:
    """Measure every cell of `plan` that is not on disk yet and publish the run.

    Args:
        plan: What to measure; its launches are done in order.
        writer: The open run folder: a new one, or a part-run taken up again.
        on_event: Told of every step, for the console.

    Returns:
        The published run's folder.

    Raises:
        Interrupted: Ctrl-C or TERM.
        ServerError: No launch got as far as one finished cell.
        MachineError: A server would not end, or the load worker died again and again.
        DiskError: Results cannot be written.

    Whatever is raised, the part-run is kept for `bench resume`.
    """
    cells_total = sum(len(launch.cells) for launch in plan.launches)
    try:
        async with open_bench(
            writer, gpus=plan.gpus, cells_total=cells_total, on_event=on_event
        ) as bench:
            remaining = Remaining(plan, writer, on_event)
            failures = await _measure_launches(plan, bench, writer, remaining)
        if failures and not writer.finished_cells():
            launch, first = failures[0]
            raise ServerError(
                f"no cell was measured. The first failure, arm {launch.arm}: {first}",
                hint=first.hint,
            )
        told = [_launch_failed(writer, *failure) for failure in failures]
        return publish(plan, writer, (*told, *remaining.findings()))
    except Interrupted:
        _mark(writer, "interrupted")
        raise
    except BenchError:
        _mark(writer, "interrupted" if writer.finished_cells() else "failed")
        raise


async def _measure_launches(
    plan: Plan, bench: Bench, writer: RunWriter, remaining: Remaining
) -> list[tuple[Launch, ServerError]]:
    """Measure the remaining launches in order; those that failed, with the reason."""
    failures: list[tuple[Launch, ServerError]] = []
    failed_starts: Counter[str] = Counter()
    while launch := remaining.next(without=_given_up(failed_starts)):
        if failed_starts[launch.arm] >= MAX_FAILED_STARTS:
            failures.append(
                (
                    launch,
                    ServerError(f"not tried, since {failed_starts[launch.arm]} starts failed"),
                )
            )
            continue
        began_ns = clock.now_ns()
        try:
            await bench.measure(launch, launches=len(plan.launches))
            remaining.took(launch, began_ns)
        except ServerError as error:
            failures.append((launch, error))
            await bench.close_server(failure=str(error))
            if writer.launches()[-1].ready_ns is None:
                failed_starts[launch.arm] += 1 if _may_yet_start(error) else MAX_FAILED_STARTS
    return failures


def _may_yet_start(error: ServerError) -> bool:
    """Whether the same server may start another time: no more without an engine or a model."""
    return getattr(error, "failure_class", None) not in {
        FailureClass.ENGINE_NOT_INSTALLED,
        FailureClass.MODEL_NOT_FOUND,
    }


def _given_up(failed_starts: Counter[str]) -> set[str]:
    """Arms whose server is not started again."""
    return {arm for arm, starts in failed_starts.items() if starts >= MAX_FAILED_STARTS}


def _mark(writer: RunWriter, status: Literal["interrupted", "failed"]) -> None:
    """Say how the part-run stands; a full disk may keep that from being written."""
    with suppress(DiskError):
        writer.mark(status)


def publish(plan: Plan, writer: RunWriter, failures: Sequence[Finding] = ()) -> Path:
    """Judge the finished cells against one another, compare them and publish the run's folder."""
    measured = _measured(plan, writer.measurements())
    effective = _effective(writer.launches())
    across = (
        *run_findings(
            measured,
            writer.samples_of_cell,
            effective,
            pairs_planned=plan.pairs,
            simulated=plan.simulated,
            speed=plan.speed,
        ),
        *different_machines(measured, _attached_urls(plan)),
        *_split_launches(plan, {m.cell_id: m.launch_id for _, m in measured}),
    )
    judged = [(cell, with_findings(m, across)) for cell, m in measured]
    comparisons = compare(
        judged,
        effective,
        margin=plan.practical_margin,
        pairs_planned=plan.pairs,
        findings=(*writer.findings(), *across),
    )
    return writer.publish(
        [m for _, m in judged], comparisons, (*plan.findings, *failures, *across)
    )


def answer_so_far(stored: StoredRun) -> StoredRun:
    """A part-run with the comparisons that its finished cells allow; a published run as it is.

    Checks over several cells (equal work, equal outputs) are made only when it is published.

    Args:
        stored: From `bench.store.load_run`.
    """
    if stored.published:
        return stored
    copy = stored.folder / "scenario.yaml"
    try:
        plan, _ = plan_of(replace(_stored_options(stored.manifest), scenario=copy))
    except InputError:  # it names files beside the original, or is of another specdyno
        return stored
    comparisons = compare(
        _measured(plan, stored.measurements),
        _effective(stored.manifest.launches),
        margin=plan.practical_margin,
        pairs_planned=plan.pairs,
        findings=stored.findings,
    )
    return replace(stored, comparisons=comparisons)


def _measured(plan: Plan, measurements: Iterable[Measurement]) -> list[tuple[Cell, Measurement]]:
    cells = {cell.cell_id: cell for launch in plan.launches for cell in launch.cells}
    return [(cells[m.cell_id], m) for m in measurements if m.cell_id in cells]


def _effective(records: Iterable[LaunchRecord]) -> dict[str, EffectiveConfig]:
    return {r.launch_id: r.effective for r in records if r.effective is not None}


def _attached_urls(plan: Plan) -> dict[str, str]:
    """The base URL of each arm whose server is not ours."""
    return {launch.arm: launch.server.url for launch in plan.launches if launch.server.url}


def _split_launches(plan: Plan, launch_ids: Mapping[str, str]) -> Iterator[Finding]:
    """Launches whose cells (launch ids by cell id) come from several starts of the server."""
    for launch in plan.launches:
        starts = sorted({launch_ids[c.cell_id] for c in launch.cells if c.cell_id in launch_ids})
        if len(starts) > 1:
            yield make_finding(
                FindingKind.LAUNCH_SPLIT,
                Severity.NOTE,
                f"the cells of arm {launch.arm}, pair {launch.pair}, come from {len(starts)} "
                f"starts of its server: {', '.join(starts)}.",
                arm=launch.arm,
            )


def _launch_failed(writer: RunWriter, launch: Launch, error: BenchError) -> Finding:
    def lasting(text: str) -> str:
        return text.replace(f"{writer.folder}/", "")  # the folder is renamed when it is published

    return Finding(
        kind=FindingKind.LAUNCH_FAILED,
        severity=Severity.INVALID,
        arm=launch.arm,
        message=lasting(f"arm {launch.arm}, pair {launch.pair}: {error}"),
        advice=lasting(error.hint or ADVICE[FindingKind.LAUNCH_FAILED]),
    )
