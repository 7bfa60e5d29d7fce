"""The arms of the exported scenario: the baseline, what is handed over, and the adaptive forms."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from bench.model import BASELINE
from tuner.export.adaptive import ADAPTIVE, CONFIG
from tuner.export.ground import absolute, dumped
from tuner.space.points import WITH_DRAFT

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.model.study import StudyConfiguration
    from tuner.export.adaptive import Adaptive
    from tuner.export.ground import Ground

TUNED: Final = "tuned"
BEST: Final = "best-speculative"
PRESENT: Final = "present"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportedArm:
    """One arm.

    Attributes:
        name: Its name.
        comment: What it is, in a line.
        data: As the scenario has it.
    """

    name: str
    comment: str
    data: dict[str, Any]


def config_file(form: str) -> str:
    """The file of an adaptive form."""
    return f"adaptive-{form}.json"


def form_arm(form: str) -> str:
    """The arm of an adaptive form."""
    return f"adaptive-{form}"


def arms_of(ground: Ground, adaptive: Adaptive) -> tuple[ExportedArm, ...]:
    """All arms, no two of them the same server."""
    return tuple(_arms(ground, adaptive))


def _arms(ground: Ground, adaptive: Adaptive) -> Iterator[ExportedArm]:
    conclusion, scenario = ground.conclusion, ground.loaded.scenario
    yield ExportedArm(
        name=BASELINE,
        comment="The baseline of the study: without speculation.",
        data=absolute(dumped(scenario.arms[BASELINE]), ground.loaded),
    )
    if conclusion.deploy != 0:
        yield ExportedArm(
            name=TUNED,
            comment=f"What the study hands over: {ground.deployed.label}.",
            data=_static(ground, ground.deployed),
        )
    if conclusion.best not in {0, conclusion.deploy}:
        yield ExportedArm(
            name=BEST,
            comment=f"The best that speculates, not handed over: {ground.best.label}.",
            data=_static(ground, ground.best),
        )
    present = conclusion.present
    if present not in {None, 0, conclusion.deploy, conclusion.best}:
        assert present is not None
        configuration = ground.study.configurations[present]
        yield ExportedArm(
            name=PRESENT,
            comment=f"What was in use when the study began: {configuration.label}.",
            data=_static(ground, configuration),
        )
    for form in adaptive.forms:
        yield ExportedArm(
            name=form_arm(form),
            comment=_FORMS[form],
            data=_adaptive(ground, adaptive, form),
        )


_FORMS: Final = {
    "pinned": "One step count a batch size, the best measured there; never measured as a whole.",
    "responsive": "SGLang chooses between these step counts and their neighbours by what is "
    "accepted.",
}


def _static(ground: Ground, configuration: StudyConfiguration) -> dict[str, Any]:
    speculative = {
        "algorithm": configuration.algorithm,
        "num_steps": configuration.num_steps,
        "eagle_topk": configuration.eagle_topk,
        "num_draft_tokens": configuration.num_draft_tokens,
    }
    return _arm(ground, configuration, speculative, ())


def _adaptive(ground: Ground, adaptive: Adaptive, form: str) -> dict[str, Any]:
    assert adaptive.base is not None
    speculative = {
        "algorithm": adaptive.base.algorithm,
        "num_steps": adaptive.initial_steps,
        "eagle_topk": 1,
    }
    lines = (ADAPTIVE, f"{CONFIG} ./{config_file(form)}")
    return _arm(ground, adaptive.base, speculative, lines)


def _arm(
    ground: Ground,
    configuration: StudyConfiguration,
    speculative: dict[str, Any],
    lines: tuple[str, ...],
) -> dict[str, Any]:
    """A configuration on top of the baseline, as the study launched it."""
    baseline = ground.loaded.scenario.arms[BASELINE]
    data: dict[str, Any] = {}
    if configuration.algorithm is not None:
        data["speculative"] = {k: v for k, v in speculative.items() if v is not None}
        data |= _draft(ground, configuration.algorithm)
    own = [
        shlex.join([option] if value == "true" else [option, value])
        for option, value in configuration.arguments
    ]
    if arguments := absolute([*baseline.arguments, *own], ground.loaded, "arguments"):
        data["arguments"] = arguments
    if lines:  # their files stand beside the exported scenario
        data["arguments"] = [*data.get("arguments", ()), *lines]
    if environment := {**baseline.environment, **dict(configuration.environment)}:
        data["environment"] = environment
    acceptance = _acceptance(ground)
    if configuration.algorithm is not None and acceptance is not None:
        data["sim"] = {"acceptance": acceptance}
    return data


def _draft(ground: Ground, algorithm: str) -> dict[str, Any]:
    """The draft that was measured, where it is not the scenario's own."""
    scenario = ground.loaded.scenario
    if algorithm.upper() not in WITH_DRAFT:
        return {} if scenario.draft is None else {"draft": None}
    if ground.draft == scenario.draft:
        return {}
    return {
        "draft": None if ground.draft is None else absolute(dumped(ground.draft), ground.loaded)
    }


def _acceptance(ground: Ground) -> str | list[float] | None:
    """What the simulator is told of the draft; None: what the scenario tells of all arms."""
    if ground.draft_arm is None:
        return None
    told = ground.loaded.scenario.arms[ground.draft_arm].sim.acceptance
    return list(told) if isinstance(told, tuple) else told
