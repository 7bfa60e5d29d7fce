"""What an export stands on: the study, its scenario, and the server that both describe."""

from __future__ import annotations

import math
import shlex
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from bench.errors import InputError, StoreError
from bench.model import BASELINE
from bench.plan.knowing import known_of
from bench.plan.servers import planned_arm
from bench.scenario import ModelRef, load_scenario
from bench.sglang.arguments import asked_text, parse_arguments
from bench.store.layout import SCENARIO
from bench.store.manifest import read_manifest
from tuner.export.yaml_writing import plain
from tuner.space.configuration import configuration_in
from tuner.space.points import Server, command_line

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pydantic import BaseModel

    from bench.model import LaunchRecord, ServerConfig
    from bench.model.study import Study, StudyConclusion, StudyConfiguration
    from bench.scenario import Arm, LoadedScenario
    from bench.sglang.arguments import AskedValue, Known

DRAFT: Final = "speculative_draft_model_path"
_MAIN: Final = "main"
_PATHS: Final = frozenset(
    {"path", "file", "dataset_path", "tokenizer_path", "command", "resolve", "arguments"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ground:
    """A concluded study and the scenario it was made of.

    Attributes:
        study: The study.
        conclusion: Its conclusion.
        loaded: Its scenario, the run's overrides applied; paths are relative to the original.
        server: The baseline's server.
        draft: The draft model that was measured; None: the scenario names none.
        draft_arm: The scenario's arm with that draft; None: no arm has it.
        card: The hardware card that was simulated in place of the scenario's.
    """

    study: Study
    conclusion: StudyConclusion
    loaded: LoadedScenario
    server: ServerConfig
    draft: ModelRef | None
    draft_arm: str | None
    card: str | None

    @property
    def deployed(self) -> StudyConfiguration:
        """What is handed over to be run with."""
        return self.study.configurations[self.conclusion.deploy]

    @property
    def best(self) -> StudyConfiguration:
        """The best configuration that speculates."""
        return self.study.configurations[self.conclusion.best]

    @property
    def argv(self) -> tuple[str, ...]:
        """The server command of what is deployed, the command's words included."""
        return self.study.argv or (*self.server.command, *self.words(self.deployed))

    @property
    def known(self) -> Known:
        """What the rules of SGLang's arguments may use, the version of the study's servers."""
        known = known_of(self.loaded.scenario, self.server, simulated=self.study.simulated)
        return known if self.study.simulated else replace(known, version=self.study.engine_version)

    def words(self, configuration: StudyConfiguration) -> tuple[str, ...]:
        """A configuration's arguments, without the command before them."""
        draft = () if self.draft is None else _draft_words(self.draft, self.loaded)
        server = Server(arguments=self.server.arguments, draft_arguments=draft)
        return command_line(configuration_in(configuration), server)


_YET = {"running": " yet", "interrupted": " yet"}
_HINTS = {
    "running": "Wait until it has ended; if it was killed, `tuner resume {}` goes on.",
    "interrupted": "`tuner resume {}` takes it up again; its launches are kept.",
    "complete": "`tuner show {}` tells why; nothing can be handed over.",
}


def ground_of(folder: Path, study: Study) -> Ground:
    """The study and its scenario, from the folder of its run.

    Raises:
        InputError: The study is not over or has no conclusion, or its scenario cannot be read any
            more.
    """
    if study.conclusion is None or study.status != "complete":
        launched = sum(trial.launch_id is not None for trial in study.trials)
        raise InputError(
            f"study {study.study_id} has no conclusion{_YET.get(study.status, '')} after "
            f"{launched} of {study.launches_budget} launches: it is {study.status}.",
            hint=_HINTS.get(study.status, _HINTS["interrupted"]).format(study.study_id),
        )
    try:
        manifest = read_manifest(folder)
    except StoreError as error:
        raise InputError(f"the study's run cannot be read: {error}", hint=error.hint) from None
    loaded = _scenario(folder, manifest.plan_arguments)
    draft, arm = _draft(study, loaded, manifest.launches)
    card = manifest.plan_arguments.get("sim_hardware")
    return Ground(
        study=study,
        conclusion=study.conclusion,
        loaded=loaded,
        server=planned_arm(loaded, BASELINE, sim_hardware=card).server,
        draft=draft,
        draft_arm=arm,
        card=card,
    )


def dumped(block: BaseModel) -> dict[str, Any]:
    """A block of the scenario as plain data, as far as it was given."""
    data: dict[str, Any] = plain(block.model_dump(exclude_unset=True, warnings=False))
    return data


def absolute(value: Any, loaded: LoadedScenario, key: str = "") -> Any:  # noqa: ANN401  # YAML data
    """A key's value with the paths in it made absolute: the export stands elsewhere.

    Args:
        value: Plain data.
        loaded: Paths are relative to its file.
        key: The nearest key above; only some hold paths.
    """
    if isinstance(value, dict):
        return {name: absolute(one, loaded, name) for name, one in value.items()}
    if isinstance(value, list):
        return [absolute(one, loaded, key) for one in value]
    if key not in _PATHS or not isinstance(value, str):
        return value
    if key != "arguments":
        return _absolute_word(value, loaded)
    words = shlex.split(value)
    changed = [_absolute_word(word, loaded) for word in words]
    return value if changed == words else shlex.join(changed)


def _absolute_word(word: str, loaded: LoadedScenario) -> str:
    option, equals, path = word.partition("=")
    if option.startswith("--") and equals:
        return f"{option}={_absolute_word(path, loaded)}"
    return loaded.source.resolve(word) if word.startswith(("./", "../")) else word


def batch_of(load: str, ranks: int) -> int | None:
    """How many requests a rank decodes at once at a load; None: the load does not say."""
    return math.ceil(int(load) / ranks) if load.isdecimal() and int(load) else None


# ------------------------------------------------------------------------------------ the scenario


def _scenario(folder: Path, asked: dict[str, Any]) -> LoadedScenario:
    """The original while it says what the run's copy says: it stands beside the files it names."""
    copy = folder / SCENARIO
    original = Path(asked.get("scenario") or copy)
    loaded = load_scenario(
        original if _same_text(copy, original) else copy, asked.get("overrides") or ()
    )
    return replace(loaded, source=replace(loaded.source, path=original))


def _same_text(copy: Path, original: Path) -> bool:
    try:
        return copy.read_bytes() == original.read_bytes()
    except OSError:
        return False


# --------------------------------------------------------------------------------------- the draft


def _draft(
    study: Study, loaded: LoadedScenario, launches: Sequence[LaunchRecord]
) -> tuple[ModelRef | None, str | None]:
    """The draft model that was launched, and the scenario's arm that has it."""
    assert study.conclusion is not None
    best = study.configurations[study.conclusion.best].arm
    commands = [study.argv, *(launch.argv for launch in launches if launch.arm == best)]
    asked = next((found for argv in commands if DRAFT in (found := _options(argv))), None)
    arms = list(_speculative_arms(loaded))
    if asked is None:
        for name, arm in arms:
            if (draft := _draft_of(arm, loaded)) is not None:
                return draft, name
        return loaded.scenario.draft, None
    path = asked_text(asked, DRAFT) or ""
    for name, arm in arms:
        draft = _draft_of(arm, loaded)
        if draft is not None and loaded.source.resolve(draft.path) == path:
            return draft, name
    revision = asked_text(asked, "speculative_draft_model_revision") or _MAIN
    return ModelRef(path=path, revision=revision), None


def _options(argv: Sequence[str]) -> Mapping[str, AskedValue]:
    """The arguments of a command line, the command before them left out."""
    first = next((at for at, word in enumerate(argv) if word.startswith("--")), len(argv))
    return parse_arguments(argv[first:])


def _draft_of(arm: Arm, loaded: LoadedScenario) -> ModelRef | None:
    return arm.draft if "draft" in arm.model_fields_set else loaded.scenario.draft


def _speculative_arms(loaded: LoadedScenario) -> Iterator[tuple[str, Arm]]:
    """What is in use, then what is known to be good, then the others."""
    scenario = loaded.scenario
    tune = scenario.tune or {}
    named: Sequence[object] = [tune.get("present"), *(tune.get("known_good") or ())]
    for name in dict.fromkeys([*named, *scenario.arms]):
        arm = scenario.arms.get(name) if isinstance(name, str) else None
        if arm is not None and arm.speculative is not None:
            yield str(name), arm


def _draft_words(draft: ModelRef, loaded: LoadedScenario) -> tuple[str, ...]:
    words = ("--speculative-draft-model-path", loaded.source.resolve(draft.path))
    if draft.revision == _MAIN:
        return words
    return (*words, "--speculative-draft-model-revision", draft.revision)
