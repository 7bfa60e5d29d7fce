"""What SGLang itself would not start with, told before anything is launched, with its lines."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from bench.errors import InputError
from bench.metrics.alike import find_alike
from bench.metrics.findings import make_finding
from bench.model import FindingKind, Severity
from bench.plan.arguing import place_of
from bench.runner.asking import Asking, is_asked
from bench.runner.beginning import stored_options
from bench.runner.events import say_nothing
from bench.scenario import load_scenario
from bench.sglang.arguments import SUPPORTED, option_of
from bench.sglang.server_info import effective_config

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench.model import Launch, Plan
    from bench.scenario import LoadedScenario
    from bench.store import Manifest


async def refuse_launches(asking: Asking, launches: Sequence[Launch], manifest: Manifest) -> None:
    """Ask SGLang about every server of a run that is still to be launched.

    Args:
        asking: Keeps the answers.
        launches: The launches that are left.
        manifest: The run's, which says where its scenario is.

    Raises:
        ScenarioError: It would not start one of them, or makes the same of two; all are told.
    """
    await asking.ask_all(launches)
    told = _refusals(asking, launches)
    if told:
        raise _error(_scenario_of(manifest), told)


def own_answer(plan: Plan, loaded: LoadedScenario) -> tuple[Plan, str | None]:
    """For `--dry-run`: SGLang asked, of servers that a command of this machine launches.

    Returns:
        The plan with what SGLang makes of its arms otherwise than the rules, and who answers for
        the arguments; None: nobody needs to, for servers that are simulated or run already.

    Raises:
        ScenarioError: As `refuse_launches`.
    """
    started = [la for la in plan.launches if la.server.launcher in {"local", "template"}]
    if not started:
        return plan, None
    rules = f"Arguments: by bench's rules for SGLang {SUPPORTED}; SGLang itself"
    asked = {la.arm: la for la in started if la.server.launcher == "local" and is_asked(la.server)}
    if not asked:
        if any(is_asked(launch.server) for launch in started):
            return plan, f"{rules} is asked before the first launch."
        return plan, f"{rules} is not asked (launcher.resolve in docs/arguments.md)."
    asking = Asking(say_nothing)
    asyncio.run(asking.ask_all(asked.values()))
    told = _refusals(asking, list(asked.values()))
    if told:
        raise _error(loaded, told)
    answers = [asking.own(launch.server_key) for launch in asked.values()]
    unasked = [own.not_asked for own in answers if own and own.not_asked is not None]
    if unasked:
        return plan, f"{rules} could not be asked ({unasked[0].partition(': ')[0]})."
    versions = ", ".join(dict.fromkeys(f"SGLang {own.version}" for own in answers if own))
    findings = [
        make_finding(FindingKind.ARGUMENTS_DISAGREE, Severity.NOTE, f"{text}.", arm=arm)
        for arm, launch in asked.items()
        for text in asking.disagreements(launch.server_key)
    ]
    takes = f"Arguments: {versions} itself takes those of {', '.join(asked)}."
    return replace(plan, findings=(*plan.findings, *findings)), takes


def _refusals(asking: Asking, launches: Sequence[Launch]) -> list[tuple[str, str]]:
    """What is wrong, each with the arm whose lines have it."""
    arms = {launch.arm: launch for launch in launches}
    refused: dict[str, list[str]] = {}
    for arm, launch in arms.items():
        judged = asking.judged(launch.server_key)
        if judged is not None and judged.refusal is not None:
            text = f"{judged.refusal.rstrip('.')}. {judged.fix or ''}".rstrip()
            refused.setdefault(text, []).append(arm)
    told = [(names[0], f"{_named(names)}: {text}") for text, names in refused.items()]
    resolved = {
        arm: own.resolved
        for arm, launch in arms.items()
        if (own := asking.own(launch.server_key)) is not None and own.resolved is not None
    }
    alike = find_alike(
        {arm: arms[arm].server for arm in resolved},
        {arm: [effective_config(found)] for arm, found in resolved.items()},
    )
    for pair in alike:
        options = ", ".join(option_of(dest) for dest in pair.different)
        text = (
            f"{pair.told}, as SGLang itself resolves them. Remove one of them, or change "
            f"{options} so that they differ"
        )
        told.append((pair.arms[1], text))
    return told


def _error(loaded: LoadedScenario | None, told: Sequence[tuple[str, str]]) -> InputError:
    """All of it as one error; without lines where the scenario was taken away meanwhile."""
    if loaded is None:
        return InputError("\n".join(text for _, text in told))
    return loaded.rejected_each((place_of(loaded, arm, text), text) for arm, text in told)


def _named(arms: Sequence[str]) -> str:
    return f"arm {arms[0]}" if len(arms) == 1 else f"arms {', '.join(arms)}"


def _scenario_of(manifest: Manifest) -> LoadedScenario | None:
    """The scenario of a run, for its lines."""
    asked = stored_options(manifest)
    path = asked.scenario
    if path.is_relative_to(Path.cwd()):
        path = path.relative_to(Path.cwd())  # as it was most likely given
    try:
        return load_scenario(path, asked.overrides)
    except InputError:
        return None
