"""Sweeps begun, and taken up again."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from bench import clock
from bench.errors import InputError, StoreError
from bench.plan.trials import trial_launch, trial_plan
from bench.provenance import fingerprint, redact_argv, redact_text
from bench.runner.inputs import require_inputs, require_keys
from bench.scenario import load_scenario
from bench.store import (
    check_resumable,
    create_run,
    find_run,
    load_run,
    new_manifest,
    new_run_id,
    new_session,
    open_part_run,
)
from bench.store.study import JOURNAL, read_study
from tuner.space.candidates import candidates_of
from tuner.space.reading import read_tune
from tuner.sweep.idle_settings import without_idle_settings

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench.model.study import Study
    from bench.scenario import LoadedScenario
    from bench.store import Manifest, RunWriter
    from tuner.space.candidates import Candidates
    from tuner.space.schema import Tune

LEAST_LAUNCHES: Final = 4  # the baseline, one other, and both once more
STUDY_KEY: Final = "study"
"""In a manifest's plan arguments: the run is a study's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What a sweep is made from.

    Attributes:
        scenario: The scenario's file.
        simulated: `--sim`.
        sim_hardware: `--sim-hardware`.
        overrides: `--set`.
        launches: `--launches`; None: as `tune.budget` has it.
        hours: `--hours`, of the clock; None likewise.
        workers: `--workers`.
    """

    scenario: Path
    simulated: bool = False
    sim_hardware: str | None = None
    overrides: tuple[str, ...] = ()
    launches: int | None = None
    hours: float | None = None
    workers: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """A sweep before its first launch.

    Attributes:
        asked: What it is made from.
        loaded: The scenario.
        tune: Its `tune:` block.
        candidates: What may be launched.
    """

    asked: Asked
    loaded: LoadedScenario
    tune: Tune
    candidates: Candidates

    @property
    def launches(self) -> int:
        """All launches that it may take, the final's included."""
        return self.asked.launches or self.tune.budget.launches

    @property
    def hours(self) -> float | None:
        """Hours of the clock that it may take; None: as many as the launches need."""
        return self.asked.hours or self.tune.budget.hours

    @property
    def launch_s(self) -> float:
        """What one launch is expected to take, in seconds of the world."""
        return trial_launch(
            self.candidates.ground, self.candidates.arms[0], pair=0, ordinal=0
        ).estimated_s


def prepare(asked: Asked) -> Prepared:
    """Read the scenario and lay out its space.

    Raises:
        InputError: What is wrong with the scenario or an option; nothing was started.
    """
    loaded = load_scenario(asked.scenario, asked.overrides)
    tune = read_tune(loaded)
    candidates = candidates_of(
        loaded, tune, simulated=asked.simulated, sim_hardware=asked.sim_hardware
    )
    prepared = Prepared(asked=asked, loaded=loaded, tune=tune, candidates=candidates)
    _require_hours(prepared)
    if asked.sim_hardware is None:  # what goes through NCCL is known of the scenario's own
        return replace(prepared, candidates=without_idle_settings(candidates, loaded))
    return prepared


def _require_hours(prepared: Prepared) -> None:
    """Raise for hours that are not enough for the fewest launches of a sweep."""
    hours, each_s = prepared.hours, prepared.launch_s
    if hours is not None and hours * 3600 < LEAST_LAUNCHES * each_s:
        raise InputError(
            f"{hours:g} h are not enough: a launch takes about {each_s:.0f} s, and a sweep has at "
            f"least {LEAST_LAUNCHES}.",
            hint=f"Give at least {LEAST_LAUNCHES * each_s / 3600:.2g} h: --hours or "
            "tune.budget.hours.",
        )


def start_sweep(prepared: Prepared, out: Path, *, command_line: Sequence[str]) -> RunWriter:
    """Begin the run of a sweep below `out`; sets the clock's speed.

    Raises:
        InputError: What it reads cannot be read.
        DiskError: The folder cannot be written.
    """
    candidates = prepared.candidates
    drafting = next(
        at for at, c in enumerate(candidates.space.configurations) if c.algorithm is not None
    )
    plan = trial_plan(
        candidates.ground,
        [
            trial_launch(candidates.ground, candidates.arms[place], pair=0, ordinal=place)
            for place in (0, drafting)
        ],
    )
    require_keys(plan)
    require_inputs(plan, candidates.ground.loaded)
    clock.set_speed(plan.speed)
    return create_run(
        out,
        scenario_text=redact_text(prepared.loaded.source.text),
        manifest=_manifest(prepared, command_line),
    )


def resume_sweep(
    name: str,
    out: Path,
    *,
    command_line: Sequence[str],
    launches: int | None = None,
    hours: float | None = None,
) -> tuple[Prepared, RunWriter]:
    """Take up a sweep that was stopped.

    Args:
        name: The study: its id, the beginning or end of that, or its folder.
        out: The results folder.
        command_line: The command, for the manifest.
        launches: Another budget than it was begun with.
        hours: Likewise, for this sitting.

    Raises:
        StoreError: There is no such study, it is over or being written, or scenario, options,
            specdyno or machine are not what it was begun with.
    """
    folder = find_run(out, name)
    manifest = load_run(folder).manifest
    if STUDY_KEY not in manifest.plan_arguments:
        read_study(folder)  # tells that it is no study
    if manifest.status == "complete":
        raise StoreError(
            f"{manifest.run_id} is complete.",
            hint=f"`tuner show {manifest.run_id}` has its answer.",
        )
    study: Study | None = None
    if not (folder / JOURNAL).is_file():
        study = read_study(folder)
    with suppress(StoreError):  # all but the budget stands in the journal, too
        study = read_study(folder)
    writer = open_part_run(folder)
    try:
        asked = replace(
            _asked_of(writer.manifest, folder),
            launches=launches or (None if study is None else study.launches_budget),
            hours=hours or (None if study is None else study.hours_budget),
        )
        prepared = prepare(asked)
        clock.set_speed(prepared.candidates.ground.speed)
        check_resumable(writer.manifest, _manifest(prepared, command_line))
        writer.begin_session(new_session(redact_argv(command_line)))
    except BaseException:
        writer.close()
        raise
    return prepared, writer


def _asked_of(manifest: Manifest, folder: Path) -> Asked:
    stored = manifest.plan_arguments
    scenario = Path(stored["scenario"])
    if not scenario.is_file():
        raise StoreError(
            f"cannot resume {manifest.run_id}: its scenario {scenario} is not there any more.",
            hint=f"Put it back; a copy is {folder / 'scenario.yaml'}.",
        )
    return Asked(
        scenario=scenario,
        simulated=stored["simulated"],
        sim_hardware=stored["sim_hardware"],
        overrides=tuple(stored["overrides"]),
        workers=stored["workers"],
    )


def _manifest(prepared: Prepared, command_line: Sequence[str]) -> Manifest:
    asked = prepared.asked
    plan = trial_plan(prepared.candidates.ground, [])
    arguments: dict[str, Any] = asdict(asked)
    for budget in ("launches", "hours"):  # may be another when it is taken up
        del arguments[budget]
    return new_manifest(
        plan,
        run_id=new_run_id(plan.scenario),
        scenario_text=redact_text(prepared.loaded.source.text),
        command_line=redact_argv(command_line),
        fingerprint=fingerprint(),
        plan_arguments={
            **arguments,
            "scenario": str(asked.scenario.absolute()),
            "overrides": [redact_text(override) for override in asked.overrides],
            "attach": [],
            "only": [],
            "add_pairs": 0,
            STUDY_KEY: True,
        },
    )
