"""The launch command and environment of what is deployed, ready to copy."""

from __future__ import annotations

import math
import shlex
from typing import TYPE_CHECKING, Final

from bench.model.study import OBJECTIVES
from bench.provenance import redact_argv, redact_environment
from bench.provenance.redaction import REDACTED
from tuner.export.yaml_writing import comment

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tuner.export.ground import Ground

SIMULATED: Final = "SIMULATED: no hardware was measured; every figure is the simulator's."


def answer_sentence(ground: Ground) -> str:
    """What the study says to do, with the gain that it confirmed."""
    conclusion, deployed, best = ground.conclusion, ground.deployed.label, ground.best.label
    verdict = "no verdict" if conclusion.verdict is None else conclusion.verdict.value
    over = ground.study.configurations[conclusion.baseline].label
    objective = OBJECTIVES.get(ground.study.objective, ground.study.objective)
    gain = (
        f"{_percent(conclusion.gain)} {objective} over {over}, 95 % interval "
        f"{_percent(conclusion.ci95_low)} to {_percent(conclusion.ci95_high)}, {verdict}"
    )
    reason = conclusion.reason
    why = f" {reason[0].upper()}{reason[1:].removesuffix('.')}." if reason else ""
    if conclusion.answer == "deploy":
        return f"Deploy {deployed}: {gain}.{why}"
    if conclusion.answer == "leave_off":
        settings = "" if deployed == "off" else f", with these settings: {deployed}"
        return f"Leave speculation off{settings}. The best of it, {best}: {gain}.{why}"
    if conclusion.answer == "keep_present":
        if conclusion.best == conclusion.deploy:
            return f"Keep what you have, {deployed}: nothing better was found. {gain}.{why}"
        return f"Keep what you have, {deployed}. The best found, {best}: {gain}.{why}"
    return f"UNDECIDED ({best}: {gain}).{why} Until it is decided, {deployed} is handed over."


def environment_of(ground: Ground) -> dict[str, str]:
    """Variables of the server to deploy: the scenario's and its own, secrets redacted."""
    if ground.study.environment is not None:
        return redact_environment(dict(ground.study.environment))
    own = dict(ground.server.environment)
    return redact_environment({**own, **dict(ground.deployed.environment)})


def launch_script(ground: Ground, heading: Sequence[str]) -> str:
    """A shell script that starts the server to deploy.

    Args:
        ground: The study.
        heading: Lines of its first comment.
    """
    lines = ["#!/bin/sh", *comment(heading).splitlines()]
    argv = redact_argv(ground.argv)
    if any(REDACTED in word for word in argv):
        lines.append(f"# Put in by hand what stands as {REDACTED}.")
    kind = ground.loaded.scenario.server.launcher.kind
    if kind != "local":
        lines.append(f"# The scenario starts this through {kind}: run it where that does.")
    for name, value in environment_of(ground).items():
        if REDACTED in value:
            lines.append(f"# {name} holds a secret: export it before.")
        else:
            lines.append(f"export {name}={shlex.quote(value)}")
    lines.append(f"exec {shell_command(argv)}")
    return "\n".join(lines) + "\n"


def shell_command(argv: Sequence[str]) -> str:
    """A command line as a shell takes it, an option with its values a line."""
    return " \\\n  ".join(" ".join(map(shlex.quote, group)) for group in _by_option(argv))


def _by_option(argv: Sequence[str]) -> Iterator[list[str]]:
    group: list[str] = []
    for word in argv:
        if word.startswith("--") and group:
            yield group
            group = []
        group.append(word)
    yield group


def _percent(gain: float) -> str:
    """A log ratio as a percentage: `+74.0 %`."""
    return f"{100 * math.expm1(gain):+.1f} %".replace("-", "\N{MINUS SIGN}")
