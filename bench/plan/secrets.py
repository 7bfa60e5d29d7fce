"""Keys, tokens and passwords do not belong into a scenario, whose copy lies with the results."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from bench.http import is_secret_name, redact
from bench.scenario import split_arguments

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bench.scenario import LoadedScenario, Scenario

_TO_DO = "A scenario is stored with its results"


def check_secrets(loaded: LoadedScenario) -> None:
    """Raise for a secret in a scenario or an override, without repeating it.

    Raises:
        ScenarioError: There is one; the message says where it may stand instead.
    """
    scenario = loaded.scenario
    for key, environment in _environments(scenario):
        for name, value in environment.items():
            if value and (is_secret_name(name) or redact(value) != value):
                raise loaded.rejected(
                    f"{key}.{name}",
                    f"holds a secret. {_TO_DO}: export {name} before running bench, from where "
                    "servers inherit it",
                )
    host = scenario.server.launcher.host
    if host is not None and ":" in host.partition("@")[0] and "@" in host:
        raise loaded.rejected(
            "server.launcher.host",
            f"holds a secret. {_TO_DO}, and ssh takes a key instead: write user@machine",
        )
    for key, words in _word_lists(scenario):
        option = _secret_option(words)
        if option is not None:
            raise loaded.rejected(
                key,
                f"a secret stands in {option}. {_TO_DO}: take it out, and for the server's key "
                "give server.api_key: {env: NAME} or {file: PATH}",
            )


def _environments(scenario: Scenario) -> list[tuple[str, Mapping[str, str]]]:
    arms = [(f"arms.{name}.environment", arm.environment) for name, arm in scenario.arms.items()]
    return [("server.environment", scenario.server.environment), *arms]


def _word_lists(scenario: Scenario) -> list[tuple[str, Sequence[str]]]:
    launcher = scenario.server.launcher
    found: list[tuple[str, Sequence[str]]] = [
        ("server.arguments", split_arguments(scenario.server.arguments))
    ]
    for name, arm in scenario.arms.items():
        found.append((f"arms.{name}.arguments", split_arguments(arm.arguments)))
    for key in type(launcher).model_fields:
        value = getattr(launcher, key)
        if isinstance(value, tuple):
            found.append((f"server.launcher.{key}", value))
    return found


def _secret_option(words: Sequence[str]) -> str | None:
    """What to call the first secret among the words of a command line; None: there is none."""
    for word, after in pairwise((*words, "")):
        name, equals, value = word.partition("=")
        if _is_of_secret(name) and (value or not _is_option(after)):
            return name
        if equals and value and is_secret_name(name):
            return name
        if redact(word) != word:
            return "a word"
    return None


def _is_of_secret(option: str) -> bool:
    """Whether an option's value is a secret; argparse takes `--api-k` for `--api-key`."""
    example = f"{option} value"
    return option.startswith("-") and (is_secret_name(option) or redact(example) != example)


def _is_option(word: str) -> bool:
    return not word or word.startswith("-")
