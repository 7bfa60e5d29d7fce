"""Arms of a scenario as server configurations."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from bench.model import KeySource, ServerConfig
from bench.scenario import split_arguments

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.model import LauncherTemplate
    from bench.scenario import ApiKey, LoadedScenario, ModelRef, Scenario

PYTHON = "{python}"
_LAUNCH = ("-m", "sglang.launch_server")
REMOTE_PYTHON = "python3"  # where a server is started elsewhere there is no Python of ours
MAIN = "main"  # the revision that needs no argument
# Algorithms that draft from the text itself: the scenario's draft model is not theirs.
_WITHOUT_DRAFT = ("NGRAM",)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedArm:
    """One arm's server, in two forms.

    Attributes:
        server: As it is started: paths and `{python}` of this machine.
        asked: As the scenario writes it, for `cell_id`.
        acceptance: What its drafts are expected to be accepted; None: no speculation, or unknown.
        faults: What is to go wrong where it is simulated.
    """

    name: str
    server: ServerConfig
    asked: ServerConfig
    acceptance: str | tuple[float, ...] | None
    is_speculative: bool
    faults: tuple[str, ...] = ()


def planned_arm(
    loaded: LoadedScenario,
    name: str,
    *,
    sim_hardware: str | None,
    template: LauncherTemplate | None = None,
) -> PlannedArm:
    """An arm as a server started here.

    Args:
        loaded: The scenario.
        name: The arm.
        sim_hardware: A hardware card in place of the scenario's.
        template: How it is started through another program; None: by its command.
    """
    scenario = loaded.scenario
    arm = scenario.arms[name]
    acceptance = None
    if arm.speculative is not None:
        acceptance = arm.sim.acceptance or (scenario.sim.acceptance if scenario.sim else None)
    return PlannedArm(
        name=name,
        server=_started(
            _local(
                scenario,
                name,
                resolve=loaded.source.resolve,
                python=sys.executable if template is None else REMOTE_PYTHON,
                card=sim_hardware,
            ),
            template,
        ),
        asked=_started(
            _local(scenario, name, resolve=str, python=PYTHON, card=sim_hardware), template
        ),
        acceptance=acceptance,
        is_speculative=arm.speculative is not None,
        faults=arm.sim.faults,
    )


def simulated(arm: PlannedArm, *, seed: int) -> PlannedArm:
    """The arm on the bundled simulator instead of the real server."""

    def changed(server: ServerConfig) -> ServerConfig:
        return replace(
            server,
            launcher="simulated",
            template=None,
            api_key=None,
            admin_api_key=None,
            worker_urls=(),
            command=(),
            acceptance=arm.acceptance,
            simulation_seed=seed,
            faults=arm.faults,
        )

    return replace(arm, server=changed(arm.server), asked=changed(arm.asked))


def attached(
    arm: PlannedArm,
    *,
    url: str,
    exclusive: bool = False,
    api_key: KeySource | None = None,
    admin_api_key: KeySource | None = None,
) -> PlannedArm:
    """The arm on a server that is running already; arguments say what it is expected to be.

    Args:
        arm: The arm.
        url: Where the server answers.
        exclusive: Whether nobody else uses it, so that bench may abort and flush.
        api_key: Where its key is read from; None: where the scenario says.
        admin_api_key: Likewise, the key of calls that abort and flush.
    """

    def changed(server: ServerConfig) -> ServerConfig:
        return replace(
            server,
            launcher="attached",
            template=None,
            command=(),
            environment=(),
            url=url,
            exclusive=exclusive,
            api_key=api_key or server.api_key,
            admin_api_key=admin_api_key or server.admin_api_key,
        )

    return replace(arm, server=changed(arm.server), asked=changed(arm.asked))


def _started(server: ServerConfig, template: LauncherTemplate | None) -> ServerConfig:
    return server if template is None else replace(server, launcher="template", template=template)


def _key(source: ApiKey | None, resolve: Callable[[str], str]) -> KeySource | None:
    if source is None:
        return None
    if source.env is not None:
        return KeySource(kind="env", place=source.env)
    assert source.file is not None
    return KeySource(kind="file", place=resolve(source.file))


def _local(
    scenario: Scenario, name: str, *, resolve: Callable[[str], str], python: str, card: str | None
) -> ServerConfig:
    environment = {**scenario.server.environment, **scenario.arms[name].environment}
    return ServerConfig(
        arguments=_arguments(scenario, name, resolve),
        environment=tuple(sorted(environment.items())),
        command=tuple(
            python if word == PYTHON else resolve(word)
            for word in scenario.server.launcher.command
        ),
        resolve=_own_resolution(scenario, resolve=resolve, python=python),
        api_key=_key(scenario.server.api_key, resolve),
        admin_api_key=_key(scenario.server.admin_api_key, resolve),
        worker_urls=_worker_urls(scenario, name),
        gpus=scenario.server.gpus,
        hardware=card or (scenario.sim.hardware if scenario.sim else None),
        target_card=scenario.sim.target if scenario.sim else None,
    )


def _worker_urls(scenario: Scenario, name: str) -> tuple[str, ...]:
    own = scenario.arms[name].worker_urls
    urls = scenario.server.worker_urls if own is None else own
    return tuple(url.rstrip("/") for url in urls)


def _own_resolution(
    scenario: Scenario, *, resolve: Callable[[str], str], python: str
) -> tuple[str, ...]:
    """Who is asked about the arguments: as the scenario says, else the launch command's Python."""
    launcher = scenario.server.launcher
    words = launcher.resolve
    if words is None:
        runs_here = launcher.kind == "local" and launcher.command[-2:] == _LAUNCH
        words = launcher.command[:-2] if runs_here else ()
    return tuple(python if word == PYTHON else resolve(word) for word in words)


def _arguments(scenario: Scenario, name: str, resolve: Callable[[str], str]) -> tuple[str, ...]:
    """Model, what all arms have, speculation, what the arm adds: of an option the last counts."""
    arm = scenario.arms[name]
    words = ["--model-path", resolve(scenario.target.path)]
    if scenario.target.revision != MAIN:
        words += ["--revision", scenario.target.revision]
    words += [_resolved_word(word, resolve) for word in split_arguments(scenario.server.arguments)]
    speculative = arm.speculative
    if speculative is not None:
        words += ["--speculative-algorithm", speculative.algorithm]
        draft = _draft(scenario, name)
        if draft is not None:
            words += ["--speculative-draft-model-path", resolve(draft.path)]
            if draft.revision != MAIN:
                words += ["--speculative-draft-model-revision", draft.revision]
        for option, number in (
            ("--speculative-num-steps", speculative.num_steps),
            ("--speculative-eagle-topk", speculative.eagle_topk),
            ("--speculative-num-draft-tokens", speculative.num_draft_tokens),
        ):
            if number is not None:
                words += [option, str(number)]
    words += [_resolved_word(word, resolve) for word in split_arguments(arm.arguments)]
    return tuple(words)


def _draft(scenario: Scenario, name: str) -> ModelRef | None:
    """The arm's own draft (`draft: null` is none), else the scenario's."""
    arm = scenario.arms[name]
    if "draft" in arm.model_fields_set:
        return arm.draft
    assert arm.speculative is not None
    return None if arm.speculative.algorithm.upper() in _WITHOUT_DRAFT else scenario.draft


def _resolved_word(word: str, resolve: Callable[[str], str]) -> str:
    """A word of the command line; of `--option=./path` the path is resolved."""
    option, equals, value = word.partition("=")
    if option.startswith("--") and equals:
        return f"{option}={resolve(value)}"
    return resolve(word)
