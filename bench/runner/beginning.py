"""Runs begun, and taken up again."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from bench import clock
from bench.errors import StoreError
from bench.model import KeySource
from bench.plan import make_plan
from bench.provenance import fingerprint, redact_argv, redact_text
from bench.runner.asking import taken_by_sglang
from bench.runner.budgeting import require_fit
from bench.runner.inputs import require_inputs, require_keys
from bench.scenario import load_scenario
from bench.store import (
    check_resumable,
    create_run,
    find_run,
    is_reopenable,
    list_runs,
    load_run,
    new_manifest,
    new_run_id,
    new_session,
    open_part_run,
    reopen_run,
)
from bench.store.layout import run_id_of
from bench.store.study import is_study

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from bench.model import Plan, ServerConfig
    from bench.scenario import LoadedScenario
    from bench.store import Manifest, RunWriter

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
        admin_api_key: The same of `--admin-api-key-env` and `--admin-api-key-file`.
        budget_s: `--budget`, in seconds of the world.
        workers: `--workers`.
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
    admin_api_key: KeySource | None = None
    budget_s: float | None = None
    workers: int | None = None


def plan_of(
    asked: Asked, *, ask: Callable[[ServerConfig], str | None] = taken_by_sglang
) -> tuple[Plan, LoadedScenario]:
    """Load the scenario and plan it.

    Args:
        asked: What the plan is made from.
        ask: The version of the SGLang that takes a server's arguments all the same, of those that
            the rules reject; None: it does not, or cannot be asked.

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
        admin_api_key=asked.admin_api_key,
        ask=ask,
    )
    return plan, loaded


def start_run(asked: Asked, out: Path, *, command_line: Sequence[str]) -> tuple[Plan, RunWriter]:
    """Begin a run below `out`; sets the clock's speed, so nothing may have been timed before.

    Raises:
        InputError: As `plan_of`, or what the run reads cannot be read.
        DiskError: The folder cannot be written.
    """
    plan, loaded = plan_of(asked)
    if asked.budget_s is not None:
        require_fit(plan, asked.budget_s)
    require_keys(plan)
    require_inputs(plan, loaded)
    clock.set_speed(plan.speed)
    manifest = _manifest(asked, plan, loaded, command_line)
    return plan, create_run(out, scenario_text=_stored_text(loaded), manifest=manifest)


def resume_run(
    name: str,
    out: Path,
    *,
    command_line: Sequence[str],
    retry_failed: bool = False,
    api_key: KeySource | None = None,
    admin_api_key: KeySource | None = None,
) -> tuple[Plan, RunWriter]:
    """Take up a part-run: the same plan, and the run's folder with its finished cells.

    Args:
        name: Its id, the beginning or the end of that, its folder, or `latest`, which is the
            newest one that can be taken up and that no process is writing.
        out: The results folder.
        command_line: The command, for the manifest.
        retry_failed: Whether a published run whose launches failed in part is taken up as well.
        api_key: Where the attached servers' key is read from now; None: as when it was begun.
        admin_api_key: Likewise, the key of calls that abort and flush.

    Raises:
        StoreError: There is no such run, it is being written, or scenario, options, specdyno or
            machine are not what it was begun with (each difference is named).
        InputError: A server's key cannot be read, or one is given and no server is attached.
    """
    latest = name == LATEST
    folder = _latest(out, retry_failed=retry_failed) if latest else find_run(out, name)
    if is_study(folder):
        raise StoreError(
            f"{run_id_of(folder)} holds the launches of a tuning study.",
            hint=f"`tuner resume {run_id_of(folder)}` goes on with it.",
        )
    # A published run stays as it is until nothing speaks against taking it up.
    is_published = retry_failed and is_reopenable(folder)
    writer = None if is_published else open_part_run(folder)
    try:
        manifest = load_run(folder).manifest if writer is None else writer.manifest
        asked = _asked_of(manifest, folder)
        # Where keys are read from changes no number: it may be another place than at first.
        now = replace(
            asked,
            api_key=api_key or asked.api_key,
            admin_api_key=admin_api_key or asked.admin_api_key,
        )
        plan, loaded = plan_of(now)
        require_keys(plan)
        clock.set_speed(plan.speed)
        check_resumable(manifest, _manifest(asked, plan, loaded, command_line))
        writer = reopen_run(folder) if writer is None else writer
        writer.begin_session(new_session(redact_argv(command_line)))
    except BaseException:
        if writer is not None:
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


def _latest(out: Path, *, retry_failed: bool) -> Path:
    can_be = [
        run.folder
        for run in list_runs(out)
        if run.status != "damaged"
        and not is_study(run.folder)
        and (is_reopenable(run.folder) and retry_failed if run.published else run.pid is None)
    ]
    if not can_be:
        hint = "`bench list` shows how each one stands."
        if not retry_failed and any(is_reopenable(run.folder) for run in list_runs(out)):
            hint += " --retry-failed takes up a published run in which cells are missing."
        raise StoreError(f"no run in {out} can be resumed.", hint=hint)
    return can_be[-1]


def _asked_of(manifest: Manifest, folder: Path) -> Asked:
    """The options a run was begun with, from its manifest."""
    asked = stored_options(manifest)
    if not asked.scenario.is_file():
        raise StoreError(
            f"cannot resume {manifest.run_id}: its scenario {asked.scenario} is not there any "
            "more.",
            hint=f"Put it back; a copy is {folder / 'scenario.yaml'}.",
        )
    return asked


def stored_options(manifest: Manifest) -> Asked:
    """What a run's plan was made from."""
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
        admin_api_key=KeySource(**key) if (key := stored.get("admin_api_key")) else None,
        budget_s=stored.get("budget_s"),
        workers=stored.get("workers"),
    )
