"""The `tune:` block of a scenario, read and held against the rest of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import ValidationError

from bench.scenario.mistakes import Mistake, found, nearest, scenario_error
from bench.sglang.arguments import known_options
from tuner.space.schema import Range, Tune

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.scenario import LoadedScenario

# Options that other keys of the block or of the scenario give.
_OWNED = {
    "--speculative-algorithm": "algorithm",
    "--speculative-num-steps": "num_steps",
    "--speculative-eagle-topk": "eagle_topk",
    "--speculative-num-draft-tokens": "num_draft_tokens",
}


def read_tune(loaded: LoadedScenario) -> Tune:
    """The scenario's `tune:` block.

    Raises:
        ScenarioError: There is none, or what is wrong with it, each as `file:line key: what was
            found. What to do`.
    """
    raw = loaded.scenario.tune
    if raw is None:
        raise loaded.rejected(
            "tune", "missing. Add tune: {num_steps: [1, 3, 5]} (docs/tuning.md lists its keys)"
        )
    try:
        tune = Tune.model_validate(raw)
    except ValidationError as error:
        raise scenario_error(
            [
                _mistake(loaded, [str(part) for part in details["loc"]], details)
                for details in error.errors(include_url=False)
            ]
        ) from None
    wrong = [
        Mistake(position=loaded.source.position(key), key=key, text=text)
        for key, text in _broken_rules(loaded, tune)
    ]
    if wrong:
        raise scenario_error(wrong)
    return tune


def numbers(values: tuple[int, ...] | Range) -> tuple[int, ...]:
    """The numbers of a list or range."""
    return values.values if isinstance(values, Range) else values


def _mistake(loaded: LoadedScenario, loc: list[str], details: object) -> Mistake:
    assert isinstance(details, dict)
    # Of a list-or-range pydantic names both branches; the key itself is enough.
    loc = [part for part in loc if not part.startswith(("tuple[", "Range"))]
    key = ".".join(["tune", *loc])
    kind = details["type"]
    if kind == "extra_forbidden":
        text = f"unknown key. {nearest(loc[-1], _keys(loc[:-1]))}"
    elif kind == "literal_error":
        text = f"wanted one of {details['ctx']['expected']}; found {found(details['input'])}"
    elif kind == "missing":
        text = f"missing. Add {loc[-1]}"
    else:
        text = f"{details['msg']}; found {found(details['input'])}"
    return Mistake(position=loaded.source.position(key), key=key, text=text)


def _keys(above: list[str]) -> list[str]:
    if not above:
        return list(Tune.model_fields)
    field = Tune.model_fields.get(above[0])
    block = None if field is None else field.annotation
    fields = getattr(block, "model_fields", {})
    return [info.alias or name for name, info in fields.items()]


def _broken_rules(loaded: LoadedScenario, tune: Tune) -> Iterator[tuple[str, str]]:
    yield from _names(loaded, tune)
    for axis, values in tune.arguments.items():
        yield from _option(f"tune.arguments.{axis}", axis)
        if not values:
            yield f"tune.arguments.{axis}", "has no value. Give a list; null: not given"
    for axis in (axis for axis, values in tune.environment.items() if not values):
        yield f"tune.environment.{axis}", "has no value. Give a list; null: not set"
    for axis, bundles in tune.bundles.items():
        if not bundles:
            yield f"tune.bundles.{axis}", "has no value. Give at least {default: {}}"
        for name, bundle in bundles.items():
            for option in bundle.arguments:
                yield from _option(f"tune.bundles.{axis}.{name}.arguments.{option}", option)
    for key in ("num_steps", "eagle_topk", "num_draft_tokens"):
        if not numbers(getattr(tune, key)):
            yield f"tune.{key}", "is empty. Give at least one number"


def _names(loaded: LoadedScenario, tune: Tune) -> Iterator[tuple[str, str]]:
    scenario = loaded.scenario
    for name in tune.workloads:
        if name not in scenario.workloads:
            text = f"no workload is called {name}. {nearest(name, scenario.workloads)}"
            yield f"tune.workloads.{name}", text
    arms = [("present", tune.present), *(("known_good", arm) for arm in tune.known_good)]
    for key, arm in arms:
        if arm is not None and arm not in scenario.arms:
            yield f"tune.{key}", f"no arm is called {arm}. {nearest(arm, scenario.arms)}"


def _option(key: str, option: str) -> Iterator[tuple[str, str]]:
    """What is wrong with an option of SGLang that is to be searched."""
    spellings = {spelling for known in known_options() for spelling in known.spellings}
    if option in _OWNED:
        yield key, f"is tune.{_OWNED[option]}. Move it there"
    elif option not in spellings:
        yield key, f"{option} is no option of SGLang. {nearest(option, spellings)}"
