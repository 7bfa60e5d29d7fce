"""A scenario's file: reading it, and where every key stands in it."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bench.errors import InputError, ScenarioError
from bench.scenario.mistakes import Mistake, found, nearest, scenario_error
from bench.scenario.overrides import apply_override
from bench.scenario.rules import broken_rules
from bench.scenario.validating import validated
from bench.scenario.yaml_text import MAX_BYTES, read_yaml

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from bench.scenario.schema import Scenario


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Where a scenario was read from.

    Attributes:
        path: The file.
        text: The file's text, verbatim.
        sha256: Hash of its bytes.
        overrides: The `--set` values applied, in order.
        positions: `file:line` (or `--set PATH`) by dotted key.
    """

    path: Path
    text: str
    sha256: str
    overrides: tuple[str, ...]
    positions: Mapping[str, str]

    def position(self, key_path: str) -> str:
        """`file:line` of a dotted key, e.g. "arms.eagle3.speculative.num_steps".

        Of its nearest ancestor when the key is not given.
        """
        return _position(self.positions, key_path, f"{self.path}:1")

    def resolve(self, path: str) -> str:
        """A path of the scenario as one of this machine.

        What begins with ./, ../ or ~/ is made absolute; all else stays as it is.
        """
        return _resolve(self.path.parent, path)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedScenario:
    """A scenario that keeps every rule, and its source."""

    scenario: Scenario
    source: Source

    def rejected(self, key_path: str, text: str) -> ScenarioError:
        """A later room's objection to a key: `file:line key: text`."""
        return self.rejected_each([(key_path, text)])

    def rejected_each(self, told: Iterable[tuple[str, str]]) -> ScenarioError:
        """Several objections, (key, text) each: a line each, in the order of the file."""
        return scenario_error(
            [Mistake(position=self.source.position(key), key=key, text=text) for key, text in told]
        )


def load_scenario(path: Path, overrides: Sequence[str] = ()) -> LoadedScenario:
    """Read a scenario and check all that can be checked without a server.

    Args:
        path: The YAML file.
        overrides: `PATH=VALUE` each, applied in order.

    Raises:
        InputError: The file cannot be read.
        ScenarioError: What is wrong with it, a line each: `file:line key: what was found. What to
            do`.
    """
    raw = _bytes(path)
    text = _decoded(raw, path)
    reading = read_yaml(text, label=str(path))
    if reading.mistakes:
        raise scenario_error(reading.mistakes)
    data = reading.data
    if data is None:
        raise ScenarioError(f"{path}: is empty. scenarios/README.md says how to begin")
    if not isinstance(data, dict):
        raise ScenarioError(
            f"{path}:1: wanted a mapping, found {found(data)}. Begin with name: and question:"
        )
    positions = {".".join(key): place for key, place in reading.positions.items()}
    mistakes: list[Mistake] = []
    for override in overrides:
        data, changed, wrong = apply_override(data, override)
        positions |= {".".join(key): place for key, place in changed.items()}
        mistakes += wrong
    source = Source(
        path=path,
        text=text,
        sha256=hashlib.sha256(raw).hexdigest(),
        overrides=tuple(overrides),
        positions=positions,
    )
    if mistakes:
        raise scenario_error(mistakes)
    scenario = validated(data, source.position)
    if isinstance(scenario, list):
        raise scenario_error(scenario)
    broken = [
        Mistake(position=source.position(key), key=key, text=text)
        for key, text in broken_rules(scenario, source.resolve)
    ]
    if broken:
        raise scenario_error(broken)
    return LoadedScenario(scenario=scenario, source=source)


def _bytes(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise InputError(
            f"{path}: no such scenario.", hint=_other_scenarios(path.parent, path.name)
        ) from None
    except IsADirectoryError:
        raise InputError(
            f"{path}: is a folder, not a scenario.", hint=_other_scenarios(path, None)
        ) from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InputError(
            f"{path}: cannot be read: {reason}.", hint="Give the path of a scenario's YAML file."
        ) from None
    if len(raw) > MAX_BYTES:
        raise InputError(
            f"{path}: has more than {MAX_BYTES} bytes, which no scenario has.",
            hint="Give a scenario's YAML file.",
        )
    return raw


def _other_scenarios(folder: Path, asked: str | None) -> str:
    """What to do about a scenario that is not there: the nearest in the folder, or all."""
    try:
        names = sorted(
            other.name for other in folder.iterdir() if other.suffix in (".yaml", ".yml")
        )
    except OSError:
        return f"There is no folder {folder} either. Give the path of a scenario's YAML file."
    if not names:
        return f"There is no YAML file in {folder.absolute()}. Give the path of a scenario."
    return nearest(asked, names) if asked else f"In it: {', '.join(names)}."


def _decoded(raw: bytes, path: Path) -> str:
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise ScenarioError(
            f"{path}:{line}: is not UTF-8 (byte 0x{raw[error.start]:02x}). Save the file as UTF-8"
        ) from None


def _position(positions: Mapping[str, str], key_path: str, otherwise: str) -> str:
    while key_path:
        if key_path in positions:
            return positions[key_path]
        key_path = key_path.rpartition(".")[0]
    return otherwise


def _resolve(folder: Path, path: str) -> str:
    if path in (".", "..") or path.startswith(("./", "../")):
        return os.path.normpath(folder.absolute() / path)
    if path == "~" or path.startswith("~/"):
        return os.path.expanduser(path)  # noqa: PTH111  # a text in, a text out
    return path
