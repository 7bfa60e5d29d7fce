"""The `tune:` block of a scenario, read and held against the rest of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import ValidationError

from bench.http import is_secret_name, redact
from bench.scenario.arguments import owner, speculative_owner
from bench.scenario.mistakes import Mistake, found, nearest, scenario_error
from bench.scenario.validating import WANTED
from bench.sglang.arguments import known_options
from bench.sglang.arguments.working import ALGORITHMS
from tuner.space.schema import Range, Tune

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from bench.scenario import LoadedScenario

# Options that other keys of the block or of the scenario give.
_OWNED = {
    "--speculative-algorithm": "algorithm",
    "--speculative-num-steps": "num_steps",
    "--speculative-eagle-topk": "eagle_topk",
    "--speculative-num-draft-tokens": "num_draft_tokens",
}
_NUMBERS = ("num_steps", "eagle_topk", "num_draft_tokens")


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
                if not _is_of_other_form(raw, [str(part) for part in details["loc"]])
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
    # Of a list-or-range pydantic names the branch as well; the key itself is enough.
    loc = [part for part in loc if not part.startswith(("tuple[", "Range"))]
    name = loc.pop(-2) if loc[-1] == "[key]" else None  # a mapping's key itself is wrong
    key = ".".join(["tune", *(loc[:-1] if name is not None else loc)])
    kind = details["type"]
    if kind == "string_pattern_mismatch" and name is not None:
        text = f"{name!r} is no name of an environment variable. Use letters, digits and _"
    elif kind == "extra_forbidden":
        text = f"unknown key. {nearest(loc[-1], _keys(loc[:-1]))}"
    elif kind == "literal_error":
        text = f"wanted one of {details['ctx']['expected']}; found {found(details['input'])}"
    elif kind == "missing":
        text = f"missing. Add {loc[-1]}"
    elif kind in WANTED:
        wanted = WANTED[kind].format(**details.get("ctx", {}))
        wanted += ", or {from: 1, to: 8}" if kind == "tuple_type" and loc[-1] in _NUMBERS else ""
        text = f"wanted {wanted}; found {found(details['input'])}"
    else:
        text = f"{details['msg']}; found {found(details['input'])}"
    return Mistake(position=loaded.source.position(key), key=key, text=text)


def _is_of_other_form(raw: Mapping[str, object], loc: list[str]) -> bool:
    """Whether a mistake is one of the form, list or range, that was not written."""
    if len(loc) < 2 or loc[0] not in _NUMBERS:
        return False
    return loc[1].startswith("tuple[" if isinstance(raw[loc[0]], dict) else "Range")


def _keys(above: list[str]) -> list[str]:
    if not above:
        return list(Tune.model_fields)
    field = Tune.model_fields.get(above[0])
    block = None if field is None else field.annotation
    fields = getattr(block, "model_fields", {})
    return [info.alias or name for name, info in fields.items()]


def _broken_rules(loaded: LoadedScenario, tune: Tune) -> Iterator[tuple[str, str]]:
    yield from _names(loaded, tune)
    yield from _algorithms(tune)
    for key in _NUMBERS:
        if not numbers(getattr(tune, key)):
            yield f"tune.{key}", "is empty. Give at least one number"
    for axis, values in tune.arguments.items():
        yield from _option(f"tune.arguments.{axis}", axis)
        if not values:
            yield f"tune.arguments.{axis}", "has no value. Give a list; null: not given"
    for axis, values in tune.environment.items():
        yield from _variable(f"tune.environment.{axis}", axis, values)
        if not values:
            yield f"tune.environment.{axis}", "has no value. Give a list; null: not set"
    yield from _bundles(tune)


def _bundles(tune: Tune) -> Iterator[tuple[str, str]]:
    for axis, bundles in tune.bundles.items():
        if not bundles:
            yield f"tune.bundles.{axis}", "has no value. Give at least {default: {}}"
        for name, bundle in bundles.items():
            for option in bundle.arguments:
                yield from _option(f"tune.bundles.{axis}.{name}.arguments.{option}", option)
            for variable, word in bundle.environment.items():
                yield from _variable(
                    f"tune.bundles.{axis}.{name}.environment.{variable}", variable, (word,)
                )


def _algorithms(tune: Tune) -> Iterator[tuple[str, str]]:
    if not tune.algorithm:
        yield "tune.algorithm", "is empty. Give at least one, e.g. [EAGLE3]"
    known = [*sorted(ALGORITHMS), "NEXTN"]
    for at, name in enumerate(tune.algorithm):
        if name.upper() not in known:
            text = (
                "no speculation is always among the candidates. Leave it out"
                if name.lower() in {"off", "none"}
                else f"{name} is no algorithm of SGLang's own. {nearest(name.upper(), known)}"
            )
            yield f"tune.algorithm.{at}", text


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
    elif (of_arm := speculative_owner(option)) is not None:
        yield key, f"the arms' {of_arm} gives it, and one search is of one draft. Take it out"
    elif (why := owner(option)) is not None:
        yield key, f"{why}. Take it out"
    elif option not in spellings:
        yield key, f"{option} is no option of SGLang. {nearest(option, spellings)}"


def _variable(key: str, name: str, words: Iterable[str | None]) -> Iterator[tuple[str, str]]:
    """What is wrong with a variable that is to be searched."""
    if is_secret_name(name) or any(word and redact(word) != word for word in words):
        yield key, f"holds a secret. Take it out: servers inherit {name} from where tuner runs"
