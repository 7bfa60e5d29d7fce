"""Arms of a scenario as configurations, and configurations as arms."""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING, Final

from bench.model import BASELINE
from bench.plan.knowing import known_of
from bench.scenario import Arm, Speculative, split_arguments
from bench.sglang.arguments import asked_text, parse_arguments
from tuner.space.configuration import Configuration
from tuner.space.points import Illegal, Server, effective

if TYPE_CHECKING:
    from bench.plan.servers import PlannedArm
    from bench.scenario import LoadedScenario
    from tuner.space.schema import Tune

ADAPTIVE: Final = "--speculative-adaptive"
_DRAFT_OPTIONS: Final = (
    ("--speculative-draft-model-path", "speculative_draft_model_path"),
    ("--speculative-draft-model-revision", "speculative_draft_model_revision"),
)


def arm_with_the_draft(loaded: LoadedScenario, tune: Tune) -> str | None:
    """The arm whose draft, and whose acceptance in simulations, all speculative ones have.

    What is in use now, else the first known good, else the speculative arms, if they agree.
    """
    arms = loaded.scenario.arms
    speculative = [name for name, arm in arms.items() if arm.speculative is not None]
    named = [name for name in (tune.present, *tune.known_good) if name in speculative]
    drafts = {(arms[name].draft, arms[name].sim.acceptance) for name in named or speculative}
    if len(drafts) > 1:
        raise loaded.rejected(
            "tune",
            f"the arms {', '.join(named or speculative)} have different drafts, and one search is "
            "of one draft. Name an arm that has it: tune.present, or tune.known_good: [ARM]",
        )
    return next(iter(named or speculative), None)


def server_of(
    loaded: LoadedScenario,
    arms: dict[str, PlannedArm],
    like: str | None,
    *,
    simulated: bool,
) -> Server:
    """What all configurations have in common: the baseline's server, and the draft's words."""
    baseline = arms[BASELINE]
    if baseline.is_speculative:
        raise loaded.rejected("arms.baseline.speculative", "the baseline does not speculate")
    return Server(
        arguments=baseline.server.arguments,
        draft_arguments=_draft_words(loaded, arms, like),
        environment=baseline.server.environment,
        known=known_of(loaded.scenario, baseline.server, simulated=simulated),
    )


def _draft_words(
    loaded: LoadedScenario, arms: dict[str, PlannedArm], like: str | None
) -> tuple[str, ...]:
    """The words that name the draft model."""
    if like is not None:
        asked = parse_arguments(arms[like].server.arguments)
        given = [(option, asked_text(asked, dest)) for option, dest in _DRAFT_OPTIONS]
        return tuple(word for option, value in given if value for word in (option, value))
    draft = loaded.scenario.draft
    return () if draft is None else ("--speculative-draft-model-path", draft.path)


def configuration_of(loaded: LoadedScenario, server: Server, name: str) -> Configuration | None:
    """An arm of the scenario as a configuration; None: it is the baseline's.

    Raises:
        ScenarioError: It differs by more than a configuration can, or is not legal.
    """
    asked = loaded.scenario.arms[name]
    speculative = asked.speculative
    common = dict(loaded.scenario.arms[BASELINE].environment)
    wanted = Configuration(
        algorithm=speculative.algorithm if speculative else None,
        num_steps=speculative.num_steps if speculative else None,
        eagle_topk=speculative.eagle_topk if speculative else None,
        num_draft_tokens=speculative.num_draft_tokens if speculative else None,
        arguments=_options(loaded, name),
        environment=tuple(
            sorted((n, str(v)) for n, v in asked.environment.items() if common.get(n) != v)
        ),
    )
    outcome = effective(wanted, server)
    if isinstance(outcome, Illegal):
        raise loaded.rejected(f"arms.{name}", f"{outcome.reason} ({outcome.rule})")
    if any(option == ADAPTIVE for option, _ in outcome[0].arguments):
        raise loaded.rejected(
            f"arms.{name}",
            "SGLang's adaptive mode is no one draft, and cannot be weighed against others. It is "
            "launched beside them in any case: leave this arm out of tune.present and "
            "tune.known_good",
        )
    return outcome[0]


def _options(loaded: LoadedScenario, name: str) -> tuple[tuple[str, str], ...]:
    """An arm's own arguments as (option, value)."""
    if name == BASELINE:
        return ()
    options: list[tuple[str, str]] = []
    for word in split_arguments(loaded.scenario.arms[name].arguments):
        if word.startswith("--"):
            option, equals, value = word.partition("=")
            options.append((option, value if equals else "true"))
        elif options and options[-1][1] == "true":
            options[-1] = (options[-1][0], word)
        else:
            raise loaded.rejected(
                f"arms.{name}.arguments",
                f"{word!r}: a search knows options with one value. Move it to server.arguments",
            )
    return tuple(sorted(options))


def arm_name(place: int, configuration: Configuration) -> str:
    """The arm of a configuration in the run's tables: `baseline`, `c017-eagle3-3-1-4`."""
    if place == 0:
        return BASELINE
    words = configuration.label.lower().replace("nccl_", "")
    slug = re.sub(r"[^a-z0-9.]+", "-", words).strip("-.")[:40].rstrip("-.")
    return f"c{place:03d}-{slug}"


def arm_of(loaded: LoadedScenario, configuration: Configuration, like: str | None) -> Arm:
    """A configuration as an arm of the scenario."""
    arms = loaded.scenario.arms
    baseline = arms[BASELINE]
    if configuration.algorithm is None and not any(configuration.setting):
        return baseline
    given: dict[str, object] = {
        "arguments": (
            *baseline.arguments,
            *(o if v == "true" else f"{o} {shlex.quote(v)}" for o, v in configuration.arguments),
        ),
        "environment": {**baseline.environment, **dict(configuration.environment)},
        "sim": baseline.sim,
    }
    if configuration.algorithm is not None:
        given["speculative"] = Speculative(
            algorithm=configuration.algorithm,
            num_steps=configuration.num_steps,
            eagle_topk=configuration.eagle_topk,
            num_draft_tokens=configuration.num_draft_tokens,
        )
        if like is not None:
            model = arms[like]
            given["sim"] = model.sim
            if "draft" in model.model_fields_set and configuration.algorithm.upper() != "NGRAM":
                given["draft"] = model.draft
    return Arm(**given)  # type: ignore[arg-type]  # each is what its field takes
