"""Whole runs: begun, taken up again, measured, published."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Final, Literal

from bench import clock
from bench.errors import (
    BenchError,
    DiskError,
    InputError,
    Interrupted,
    MachineError,
    ServerError,
)
from bench.metrics import ADVICE, compare, run_findings, with_findings
from bench.metrics.alike import alike_arms, alike_findings, mark_alike
from bench.metrics.findings import make_finding
from bench.metrics.machines import different_machines
from bench.model import Finding, FindingKind, Severity
from bench.runner.beginning import plan_of, stored_options
from bench.runner.budgeting import OutOfTimeError, Remaining
from bench.runner.events import Noted, say_nothing
from bench.runner.measuring import open_bench
from bench.server.orphans import Fate, end_orphan, forget_note, notes_in
from bench.sglang.arguments import SUPPORTED
from bench.sglang.failures import FailureClass
from bench.store import LOGS, abandoned_logs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from bench.model import (
        Cell,
        EffectiveConfig,
        Launch,
        LaunchRecord,
        Measurement,
        Plan,
        ServerConfig,
    )
    from bench.runner.events import Event
    from bench.runner.measuring import Bench
    from bench.server.orphans import ServerNote
    from bench.store import RunWriter, StoredRun

MAX_FAILED_STARTS: Final = 2
"""An arm whose server failed to start this often is not tried again: a try takes minutes."""


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
        ScenarioError: SGLang itself would not start an arm, or makes the same of two; nothing was
            launched.
        Interrupted: Ctrl-C or TERM.
        ServerError: No launch got as far as one finished cell.
        MachineError: A server would not end, or the load worker died again and again.
        DiskError: Results cannot be written.

    Whatever is raised, the part-run is kept for `bench resume`; but one in which nothing was
    measured or started (servers that run already did not answer, arguments were refused) is
    removed.
    """
    cells_total = sum(len(launch.cells) for launch in plan.launches)
    try:
        await end_orphans(plan, writer, on_event)
        async with open_bench(
            writer, gpus=plan.gpus, cells_total=cells_total, on_event=on_event
        ) as bench:
            await bench.prove_attached(plan)
            await bench.prove_arguments(plan)
            await bench.prove_client(plan, workers=writer.manifest.plan_arguments.get("workers"))
            remaining = Remaining(plan, writer, on_event)
            failures = await _measure_launches(plan, bench, writer, remaining)
        if failures and not writer.finished_cells():
            launch, first = failures[0]
            which = "The first failure, arm" if len(failures) > 1 else "Arm"
            raise ServerError(
                f"no cell was measured. {which} {launch.arm}: {first}", hint=first.hint
            )
        told = [
            launch_failed(writer, launch, error)
            for launch, error in failures
            if not isinstance(error, OutOfTimeError)
        ]
        return publish(plan, writer, (*told, *remaining.findings()))
    except BenchError as error:
        if _holds_nothing(plan, writer) or (
            isinstance(error, InputError) and not writer.launches()
        ):
            writer.discard()
        else:
            begun = isinstance(error, Interrupted) or writer.finished_cells()
            _mark(writer, "interrupted" if begun else "failed")
        raise


def _holds_nothing(plan: Plan, writer: RunWriter) -> bool:
    """Whether a part-run is worth nothing: no cell, and no log of a server that bench started."""
    attached = all(launch.server.launcher == "attached" for launch in plan.launches)
    return attached and not writer.finished_cells()


async def end_orphans(plan: Plan, writer: RunWriter, on_event: Callable[[Event], None]) -> None:
    """End servers that earlier runs in the same results folder left behind, by name.

    Raises:
        MachineError: One would not end: the next would find its memory and GPUs taken.
    """
    if all(launch.server.launcher in {"attached", "simulated"} for launch in plan.launches):
        return
    out = writer.folder.parent.parent
    for logs in (*abandoned_logs(out), writer.folder / LOGS):
        for log_path, note in notes_in(logs).items():
            fate = await end_orphan(note)
            if fate is Fate.ALIVE:
                raise MachineError(
                    f"the server {note.name} of an earlier run ({log_path}) is still there and "
                    "would not end.",
                    hint=f"End it by hand: {note.by_hand}",
                )
            if fate in {Fate.GONE, Fate.ENDED}:
                forget_note(log_path)
            if fate is Fate.ENDED:
                on_event(Noted(text=f"{note.name}, a server that an earlier run left, was ended"))
            elif fate is not Fate.GONE:
                why = "its launcher tells nothing" if fate is Fate.UNKNOWN else _not_ours(note)
                on_event(
                    Noted(
                        text=f"{note.name}, a server of an earlier run, may still be there "
                        f"({why}); what ends it: {note.by_hand}"
                    )
                )


def _not_ours(note: ServerNote) -> str:
    if note.ends_by_name:
        return f"it was started from {note.host}"
    return "its launcher's commands do not name it, so it is left alone"


async def _measure_launches(
    plan: Plan, bench: Bench, writer: RunWriter, remaining: Remaining
) -> list[tuple[Launch, BenchError]]:
    """Measure the remaining launches in order; those that failed or were cut, with the reason."""
    failures: list[tuple[Launch, BenchError]] = []
    failed_starts: Counter[str] = Counter()
    while launch := remaining.next(without=_given_up(failed_starts)):
        if failed_starts[launch.arm] >= MAX_FAILED_STARTS:
            tries = "tries" if launch.server.launcher == "attached" else "starts"
            failures.append(
                (
                    launch,
                    ServerError(f"not tried, since {failed_starts[launch.arm]} {tries} failed"),
                )
            )
            continue
        began_ns = clock.now_ns()
        try:
            await bench.measure(launch, launches=len(plan.launches), limit=remaining.limit(launch))
            remaining.took(launch, began_ns)
        except OutOfTimeError as error:
            failures.append((launch, error))
            await bench.close_server(failure=str(error))
            remaining.cut_short(launch)
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


def publish(
    plan: Plan, writer: RunWriter, failures: Sequence[Finding] = (), *, compared: bool = True
) -> Path:
    """Judge the finished cells against one another, compare them and publish the run's folder.

    Args:
        plan: All launches.
        writer: The run.
        failures: Launches that failed.
        compared: Whether equal pair numbers are neighbours, so that arms may be compared by them.
    """
    measured = _measured(plan, writer.measurements())
    effective = _effective(writer.launches())
    servers = {launch.arm: launch.server for launch in plan.launches}
    alike = alike_arms(measured, effective, servers) if compared else ()
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
        *alike_findings(alike, servers),
        *_split_launches(plan, {m.cell_id: m.launch_id for _, m in measured}),
    )
    judged = [(cell, with_findings(m, across)) for cell, m in measured]
    comparisons = (
        compare(
            judged,
            effective,
            margin=plan.practical_margin,
            pairs_planned=plan.pairs,
            findings=(*writer.findings(), *across),
        )
        if compared
        else ()
    )
    return writer.publish(
        [m for _, m in judged],
        mark_alike(comparisons, alike),
        (*plan.findings, *failures, *across),
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
        plan, _ = plan_of(replace(stored_options(stored.manifest), scenario=copy), ask=_was_begun)
    except InputError:  # it names files beside the original, or is of another specdyno
        return stored
    measured = _measured(plan, stored.measurements)
    effective = _effective(stored.manifest.launches)
    comparisons = compare(
        measured,
        effective,
        margin=plan.practical_margin,
        pairs_planned=plan.pairs,
        findings=stored.findings,
    )
    servers = {launch.arm: launch.server for launch in plan.launches}
    alike = alike_arms(measured, effective, servers)
    return replace(stored, comparisons=mark_alike(comparisons, alike))


def _was_begun(_server: ServerConfig) -> str:
    """Of a run that was begun, SGLang took whatever the rules reject."""
    return SUPPORTED


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


def launch_failed(writer: RunWriter, launch: Launch, error: BenchError) -> Finding:
    """What a run says of a launch that did not measure all of its cells."""

    def lasting(text: str) -> str:
        return text.replace(f"{writer.folder}/", "")  # the folder is renamed when it is published

    return Finding(
        kind=FindingKind.LAUNCH_FAILED,
        severity=Severity.INVALID,
        arm=launch.arm,
        message=lasting(f"arm {launch.arm}, pair {launch.pair}: {error}"),
        advice=lasting(error.hint or ADVICE[FindingKind.LAUNCH_FAILED]),
    )
