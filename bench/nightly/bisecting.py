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
from bench.model import BASELINE
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


def bisect_script(
    verdict: NightlyVerdict, suite: Suite, night: date, *, series: str, runs: Path
) -> str:
    """A shell script that measures the old environment against the new one, interleaved.

    Args:
        verdict: From `bench.nightly.judge`.
        suite: Where the scenarios are.
        night: First night of the new level.
        series: Only series whose name has this in it.
        runs: Where the runs go.

    Raises:
        InputError: Nothing changed in that night, or its scenario is not the suite's.
    """
    changes = changes_at(verdict, night, series)
    change, _ = grouped(changes)[0]
    scenario = _scenario_of(suite, change)
    places = [c.key for c in changes if c.key.scenario == change.key.scenario]
    fields = change.attribution.fields if change.attribution else ()
    rerun = rerun_of(fields, scenario, runs)
    lines = [
        "#!/bin/sh",
        f"# {change.key.label}: what changed between {change.night_before} and {change.night}.",
        "set -e",
        *([] if fields else ["# Nothing that was recorded changed: suspect hardware or heat."]),
        *(f"#   {f.name}: {f.before} -> {f.after}" for f in fields),
        *(
            f"# By hand, before every `old`, and back before every `new`: {b}"
            for b in rerun.by_hand
        ),
        *rerun.before,
        "",
        _function(OLD, scenario, places, runs, rerun),
        _function(NEW, scenario, places, runs, None),
        "",
        *ORDER,
        f"bench nightly bisect --compare {shlex.quote(str(runs))}",
    ]
    return "\n".join(lines) + "\n"


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
) -> str:
    """A shell function that measures the changed places once; SUSPECT figures do not end it."""
    words = ["bench", "run", scenario.scenario]
    words += ["--sim"] if scenario.sim else []
    for arm, url in scenario.attach.items():
        words += ["--attach", f"{arm}={url}"]
    overrides = [*scenario.set, "measure.pairs=1"]
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
    return f"{side}() {{ {command} || [ $? = {EXIT_NO_VALID_CELL} ]; }}"


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
        if field.name.startswith("environment."):
            environment += _variable(field)
        elif installed and field.before != "–":
            packages.append(f"{installed['name'] or 'sglang'}=={field.before}")
        elif field.name in {"draft.commit", "target.commit"}:
            overrides.append(f"{field.name.partition('.')[0]}.revision={field.before}")
        elif argument and argument["name"] not in _NOT_ARGUMENTS and _is_plain(field.before):
            place = "server" if argument["arm"] == "server" else f"arms.{argument['arm']}"
            arguments.setdefault(place, []).append(_argument(argument["name"], field.before))
        else:
            by_hand.append(f"{field.name} {field.after} -> {field.before}")
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


def compare_reruns(runs: Path) -> tuple[Change, ...]:
    """Old against new over all their launches (Welch's interval on the logarithms).

    Args:
        runs: The folder that the script wrote to.

    Raises:
        InputError: One side has no run yet.
    """
    sides: dict[str, list[Measurement]] = {}
    for side in (OLD, NEW):
        folder = runs / side
        published = [run for run in list_runs(folder) if run.published] if folder.is_dir() else []
        if not published:
            raise InputError(
                f"{folder} has no finished run.", hint="Run the script of `bench nightly bisect`."
            )
        sides[side] = [m for run in published for m in load_run(run.folder).measurements]
    places = dict.fromkeys((m.workload, m.load, m.arm) for m in (*sides[NEW], *sides[OLD]))
    return tuple(
        change_between(
            *(
                [m for m in sides[side] if (m.workload, m.load, m.arm) == place]
                for side in (OLD, NEW)
            )
        )
        for place in places
    )
