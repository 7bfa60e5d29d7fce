"""Old against new, interleaved: the commands that tell whether a recorded change is the cause."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from bench.errors import EXIT_NO_VALID_CELL, InputError
from bench.metrics.between_runs import Change, change_between
from bench.metrics.change_words import grouped
from bench.model import BASELINE, CellStatus
from bench.nightly.acking import changes_at
from bench.scenario import load_scenario
from bench.store import list_runs, load_run

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from datetime import date

    from bench.model import Measurement
    from bench.model.nightly import ChangePoint, FieldChange, NightlyVerdict, SeriesKey
    from bench.nightly.suite import Suite, SuiteScenario

OLD, NEW = "old", "new"
ORDER: Final = (OLD, NEW, NEW, OLD, OLD, NEW)
_INSTALLED: Final = re.compile(r"packages\.(?P<name>[\w.-]+)|(?P<engine>server: version)")
_ARGUMENT: Final = re.compile(r"(?P<arm>[\w.-]+): (?P<name>[a-z0-9_]+)")
_SPECULATIVE: Final = re.compile(
    r"(?P<arm>[\w.-]+): speculative\.(?P<name>algorithm|num_steps|eagle_topk|num_draft_tokens)"
)
_FOLLOW: Final = re.compile(r"[\w.-]+: (KV cache, tokens|captured batch sizes)|packages\.specdyno")
"""Facts that no one sets: they follow from others, or are our own."""
_NOT_ARGUMENTS: Final = frozenset({"version", "engine"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Rerun:
    """How the night before a change can be had again, as far as commands can do it.

    Attributes:
        before: Shell lines that come first, e.g. an environment with the old packages.
        environment: Words in front of the old side's command.
        overrides: `--set` values of the old side.
        by_hand: What no command of ours can put back, and must be by hand.
    """

    before: tuple[str, ...]
    environment: tuple[str, ...]
    overrides: tuple[str, ...]
    by_hand: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reruns:
    """What the script has measured, old against new.

    Attributes:
        changes: An arm at a workload and load each.
        suspect_ct: Of each of them, the launches whose cell is SUSPECT.
        simulated: Whether the servers were simulated.
    """

    changes: tuple[Change, ...]
    suspect_ct: tuple[int, ...]
    simulated: bool


_BY_HAND: Final = """\
side=
by_hand() {  # side, what it wants
    [ "$side" = "$1" ] || { echo "bisect, $1: $2" >&2
        if [ -t 0 ]; then echo "Press Enter when it is so." >&2; read -r _; fi; }
    side=$1
}
"""
"""What no command can do, asked for where the side changes; without a terminal only told."""


def bisect_script(
    verdict: NightlyVerdict,
    suite: Suite,
    night: date,
    *,
    series: str,
    runs: Path,
    commands: Path | None = None,
) -> str:
    """A shell script that measures the old environment against the new one, interleaved.

    Args:
        verdict: From `bench.nightly.judge`.
        suite: Where the scenarios are.
        night: First night of the new level.
        series: Only series whose name has this in it.
        runs: Where the runs go.
        commands: The folder that `bench` is in, where it is not on the PATH.

    Raises:
        InputError: Nothing changed in that night, or its scenario is not the suite's.
    """
    changes = changes_at(verdict, night, series)
    change, _ = grouped(changes)[0]
    scenario = _scenario_of(suite, change)
    places = [c.key for c in changes if c.key.scenario == change.key.scenario]
    fields = change.attribution.fields if change.attribution else ()
    rerun = rerun_of(fields, scenario, runs)
    by_hand = rerun.by_hand
    if not fields:
        by_hand = ("what you suspect, hardware or heat, as it was: nothing recorded has changed",)
    lines = [
        "#!/bin/sh",
        f"# {change.key.label}: what changed between {change.night_before} and {change.night}.",
        *_runs_beside(verdict, change),
        *(f"#   {f.name}: {f.before} -> {f.after}" for f in fields),
        "set -e",
        *([f"PATH={shlex.quote(str(commands))}:$PATH"] if commands else []),
        *rerun.before,
        *([_BY_HAND] if by_hand else []),
        *_function(OLD, scenario, places, runs, rerun, "; ".join(by_hand)),
        *_function(NEW, scenario, places, runs, None, "as it is now" if by_hand else ""),
        "",
        *ORDER,
        f"bench nightly bisect --compare {shlex.quote(str(runs))}",
    ]
    return "\n".join(lines) + "\n"


def _runs_beside(verdict: NightlyVerdict, change: ChangePoint) -> list[str]:
    """The runs of the nights on both sides: their folders hold all that was recorded."""
    [judged] = [j for j in verdict.series if j.key == change.key]
    old, new = judged.points[max(change.index - 1, 0)], judged.points[change.index]
    return [f"# Their runs: {old.source_id} and {new.source_id}."]


def _scenario_of(suite: Suite, change: ChangePoint) -> SuiteScenario:
    for scenario in suite.scenarios:
        name = load_scenario(Path(scenario.scenario), scenario.set).scenario.name
        if name == change.key.scenario:
            return scenario
    raise InputError(
        f"suite {suite.name} has no scenario {change.key.scenario!r}.",
        hint="Give the suite that measured it.",
    )


def _function(
    side: str,
    scenario: SuiteScenario,
    places: Sequence[SeriesKey],
    runs: Path,
    rerun: Rerun | None,
    by_hand: str,
) -> list[str]:
    """A shell function that measures the changed places once; SUSPECT figures do not end it."""
    words = ["bench", "run", scenario.scenario]
    words += ["--sim"] if scenario.sim else []
    words += ["--sim-hardware", scenario.sim_hardware] if scenario.sim_hardware else []
    for arm, url in scenario.attach.items():
        words += ["--attach", f"{arm}={url}"]
    words += ["--exclusive"] if scenario.exclusive else []
    overrides = list(scenario.set)
    if not scenario.attach:
        overrides += ["measure.pairs=1"]
        overrides += ["sim.measure.pairs=1"] if scenario.sim else []
    for override in (*overrides, *(rerun.overrides if rerun else ())):
        words += ["--set", override]
    only = (
        *(f"arm={arm}" for arm in (BASELINE, *(key.arm for key in places))),
        *(f"workload={key.workload}" for key in places),
        *(f"load={key.load}" for key in places),
    )
    for filter_ in dict.fromkeys(only):
        words += ["--only", filter_]
    words += ["--out", str(runs / side), "--quiet"]
    command = shlex.join([*(rerun.environment if rerun else ()), *words])
    asked = [f"    by_hand {side} {shlex.quote(by_hand)}"] if by_hand else []
    ended = f"    {command} || [ $? = {EXIT_NO_VALID_CELL} ]"
    return [f"{side}() {{", *asked, ended, "}"]


def rerun_of(fields: Sequence[FieldChange], scenario: SuiteScenario, runs: Path) -> Rerun:
    """How recorded facts are put back.

    Args:
        fields: What changed.
        scenario: The suite's.
        runs: Where environments of old packages go.
    """
    before: list[str] = []
    environment: list[str] = []
    overrides: list[str] = []
    by_hand: list[str] = []
    packages: list[str] = []
    arguments: dict[str, list[str]] = {}
    for field in fields:
        installed = _INSTALLED.fullmatch(field.name)
        argument = _ARGUMENT.fullmatch(field.name)
        speculative = _SPECULATIVE.fullmatch(field.name)
        if _FOLLOW.fullmatch(field.name):
            continue
        if scenario.attach:  # nothing of a server that runs already is bench's to set
            by_hand.append(_told(field))
        elif field.name.startswith("environment."):
            environment += _variable(field)
        elif installed and field.before != "–":
            packages.append(f"{installed['name'] or 'sglang'}=={field.before}")
        elif field.name in {"draft.commit", "target.commit"}:
            overrides.append(f"{field.name.partition('.')[0]}.revision={field.before}")
        elif speculative and _is_plain(field.before) and _is_plain(field.after):
            place = f"arms.{speculative['arm']}.speculative.{speculative['name']}"
            overrides.append(f"{place}={field.before}")
        elif argument and argument["name"] not in _NOT_ARGUMENTS and _is_plain(field.before):
            place = "server" if argument["arm"] == "server" else f"arms.{argument['arm']}"
            arguments.setdefault(place, []).append(_argument(argument["name"], field.before))
        else:
            by_hand.append(_told(field))
    if packages:
        venv = runs / "old-venv"
        quoted = " ".join(shlex.quote(p) for p in dict.fromkeys(packages))
        before.append(f"python3 -m venv {shlex.quote(str(venv))}")
        before.append(f"{shlex.quote(str(venv / 'bin/pip'))} install {quoted}")
        python = str((venv / "bin/python").absolute())
        overrides.append(f"server.launcher.command=[{python}, -m, sglang.launch_server]")
    overrides += _with_arguments(arguments, scenario)
    return Rerun(
        before=tuple(before),
        environment=("env", *environment) if environment else (),
        overrides=tuple(overrides),
        by_hand=tuple(by_hand),
    )


def _told(field: FieldChange) -> str:
    return f"{field.name} {field.before}, not {field.after}"


def _variable(field: FieldChange) -> list[str]:
    name = field.name.removeprefix("environment.")
    return ["-u", name] if field.before == "–" else [f"{name}={field.before}"]


def _is_plain(value: str) -> bool:
    """Whether a resolved value can be written as an argument's; `False` has no argument."""
    return bool(re.fullmatch(r"[\w./:+-]+", value)) and value not in {"–", "None", "False"}


def _argument(name: str, value: str) -> str:
    option = f"--{name.replace('_', '-')}"
    return option if value == "True" else f"{option} {value}"


def _with_arguments(arguments: dict[str, list[str]], scenario: SuiteScenario) -> Iterator[str]:
    """The scenario's own arguments with the old values behind them: the last of a kind counts."""
    if not arguments:
        return
    loaded = load_scenario(Path(scenario.scenario), scenario.set).scenario
    for place, added in arguments.items():
        arm = place.removeprefix("arms.")
        own = loaded.server.arguments if place == "server" else loaded.arms[arm].arguments
        listed = ", ".join(f'"{line}"' for line in (*own, *added))
        yield f"{place}.arguments=[{listed}]"


def compare_reruns(runs: Path) -> Reruns:
    """Old against new over all their launches (Welch's interval on the logarithms).

    Args:
        runs: The folder that the script wrote to.

    Raises:
        InputError: One side has no run yet.
    """
    sides: dict[str, list[Measurement]] = {}
    simulated = False
    for side in (OLD, NEW):
        folder = runs / side
        published = [run for run in list_runs(folder) if run.published] if folder.is_dir() else []
        if not published:
            raise InputError(
                f"{folder} has no finished run.", hint="Run the script of `bench nightly bisect`."
            )
        stored = [load_run(run.folder) for run in published]
        sides[side] = [m for run in stored for m in run.measurements]
        simulated |= any(run.simulated for run in stored)
    places = dict.fromkeys((m.workload, m.load, m.arm) for m in (*sides[NEW], *sides[OLD]))
    cells = [
        [[m for m in sides[side] if (m.workload, m.load, m.arm) == place] for side in (OLD, NEW)]
        for place in places
    ]
    return Reruns(
        changes=tuple(change_between(old, new) for old, new in cells),
        suspect_ct=tuple(
            sum(m.status is CellStatus.SUSPECT for m in (*old, *new)) for old, new in cells
        ),
        simulated=simulated,
    )
