"""A suite: which scenarios a night measures, what is watched in them, and how long it may take.

Read from YAML (docs/nightly.md); a mistake is told with file, line and key, as a scenario's is.
"""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    PrivateAttr,
    ValidationError,
)

from bench.errors import InputError
from bench.metrics.watched import METRICS, WATCHED
from bench.nightly.judge import Watch
from bench.scenario import load_scenario
from bench.scenario.fields import Name, PositiveFloat, Text, VariableName
from bench.scenario.mistakes import Mistake, found, nearest, scenario_error
from bench.scenario.yaml_text import read_yaml

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pydantic_core import ErrorDetails


def _known_metric(name: str) -> str:
    if name not in METRICS:
        raise ValueError(f"{name!r} is no metric. {nearest(name, METRICS)}")
    return name


_WANTED: Final = {
    "model_type": "a mapping, {scenario: FILE, …}",
    "dict_type": "a mapping",
    "tuple_type": "a list, […]",
    "too_short": "one or more",
    "float_type": "a number",
    "bool_type": "true or false",
    "string_type": "a text",
}

MetricName = Annotated[Text, AfterValidator(_known_metric)]


class _Block(BaseModel):
    model_config = ConfigDict(
        extra="forbid", frozen=True, strict=True, allow_inf_nan=False, populate_by_name=True
    )


class SuiteScenario(_Block):
    """One scenario of a suite and how it is run; the keys are options of `bench run`."""

    scenario: Text
    """The scenario's file, relative to the suite's."""
    sim: bool = False
    """Measure the bundled simulated server."""
    sim_hardware: Text | None = None
    """With sim: another hardware card."""
    attach: dict[Name, Text] = {}
    """URL by arm of servers that run already."""
    exclusive: bool = False
    """Nobody else uses the attached servers."""
    only: tuple[Text, ...] = ()
    """Only these cells, KEY=VALUE each: arm, workload or load. The baseline stays."""
    set: tuple[Text, ...] = ()
    """Keys of the scenario to override, PATH=VALUE each."""
    hardware: Text | None = None
    """The hardware class, where bench cannot see the servers' GPUs."""


class Suite(_Block):
    """A suite."""

    name: Name
    """Its name."""
    scenarios: Annotated[tuple[SuiteScenario, ...], Field(min_length=1)]
    """What a night measures, in order; every other night the other way round."""
    watch: Annotated[tuple[MetricName, ...], Field(min_length=1)] = WATCHED
    """The metrics that are judged; all are stored."""
    margins: dict[MetricName, Annotated[float, Field(gt=0, lt=1)]] = {}
    """By metric, the share below which a change is of no practical use."""
    max_minutes: PositiveFloat = 480.0
    """What a night may take; what does not fit is left out and told."""
    webhook_env: VariableName | None = None
    """The environment variable that holds the URL a verdict is posted to."""

    _positions: tuple[str, ...] = PrivateAttr(default=())

    @contextmanager
    def at(self, place: int) -> Iterator[None]:
        """Tell what is wrong with one of its scenarios with its place in the suite's file.

        Args:
            place: Index of the scenario.
        """
        try:
            yield
        except InputError as error:
            where = self._positions[place] if place < len(self._positions) else self.name
            raise InputError(f"{where} scenarios.{place}: {error}", hint=error.hint) from error


def load_suite(path: Path) -> Suite:
    """Read a suite; the paths of its scenarios become absolute.

    Raises:
        InputError: It cannot be read.
        ScenarioError: What is wrong with it, a line each.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not text"
        raise InputError(
            f"{path}: cannot be read: {reason}.", hint="Give the path of a suite's YAML file."
        ) from None
    reading = read_yaml(text, label=str(path))
    if reading.mistakes:
        raise scenario_error(reading.mistakes)
    data = reading.data
    if not isinstance(data, dict):
        raise InputError(
            f"{path}: wanted a mapping, found {found(data)}.",
            hint="Begin with name: and scenarios: (docs/nightly.md).",
        )
    positions = {".".join(key): place for key, place in reading.positions.items()}
    try:
        suite = Suite.model_validate(data)
    except ValidationError as error:
        raise scenario_error(
            [
                _mistake(details, positions, path)
                for details in error.errors(include_url=False)
                if not _follows(details, data)
            ]
        ) from None
    folder = path.absolute().parent
    scenarios = tuple(
        s.model_copy(update={"scenario": str((folder / Path(s.scenario).expanduser()).resolve())})
        for s in suite.scenarios
    )
    suite = suite.model_copy(update={"scenarios": scenarios})
    suite._positions = tuple(  # noqa: SLF001  # set where it is made: YAML is read here alone
        positions.get(f"scenarios.{place}", str(path)) for place in range(len(scenarios))
    )
    return suite


def watch_of(suite: Suite) -> Watch:
    """What a suite has judged.

    Raises:
        InputError: One of its scenarios cannot be read.
    """
    names: dict[str, None] = {}
    for place, scenario in enumerate(suite.scenarios):
        with suite.at(place):
            loaded = load_scenario(Path(scenario.scenario), scenario.set)
            names[loaded.scenario.name] = None
    return Watch(
        suite=suite.name,
        scenarios=tuple(names),
        metrics=tuple(suite.watch),
        margins=dict(suite.margins),
    )


def _follows(details: ErrorDetails, data: Mapping[str, object]) -> bool:
    """Whether it is told only because its parts are wrong, which are told themselves."""
    loc = details["loc"]
    return details["type"] == "too_short" and len(loc) == 1 and bool(data.get(str(loc[0])))


def _mistake(details: ErrorDetails, positions: Mapping[str, str], path: Path) -> Mistake:
    loc = [str(part) for part in details["loc"] if part != "[key]"]
    key = ".".join(loc)
    where = key
    while where and where not in positions:
        where = where.rpartition(".")[0]
    return Mistake(position=positions.get(where, f"{path}:1"), key=key, text=_text(details, loc))


def _text(details: ErrorDetails, loc: list[str]) -> str:
    kind, value = details["type"], details["input"]
    block: Any = SuiteScenario if len(loc) > 2 and loc[0] == "scenarios" else Suite
    if kind == "extra_forbidden":
        return f"unknown key. {nearest(loc[-1], block.model_fields)}"
    if kind == "missing":
        return f"missing. Add {loc[-1]}: (docs/nightly.md)"
    if kind == "value_error":
        return str(details["ctx"]["error"])
    if kind == "string_pattern_mismatch":
        return f"{value!r} is no name. Names match {details['ctx']['pattern'][1:-1]}"
    if kind in _WANTED:
        return f"wanted {_WANTED[kind]}, found {found(value)}"
    return f"{details['msg']}, found {found(value)}"
