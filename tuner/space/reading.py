"""The `tune:` block of a scenario, read and held against the rest of it."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from pydantic import ValidationError

from bench.http import is_secret_name, redact
from bench.provenance.redaction import redact_text
from bench.scenario.arguments import owner, speculative_owner
from bench.scenario.fields import MOST_DRAFT_TOKENS, MOST_STEPS, MOST_TOPK
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
_NUMBERS: Final = {
    "num_steps": MOST_STEPS,
    "eagle_topk": MOST_TOPK,
    "num_draft_tokens": MOST_DRAFT_TOKENS,
}
"""Keys of numbers, each with the most that is searched."""
# All but the tab and the line break, which a value in JSON may have.
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
MOST_WORD_BYTES: Final = 131_071
"""Linux's MAX_ARG_STRLEN without the NUL behind a word of a command line, or NAME=VALUE."""


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
        Mistake(position=loaded.source.position(key), key=redact_text(key), text=text)
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
        text = f"wanted {wanted}; found {redact_text(found(details['input']))}"
    else:
        text = f"{details['msg']}; found {redact_text(found(details['input']))}"
    for above, named in pairwise(loc):
        if above in {"arguments", "environment"} and _is_of_secret(named):
            text = _secret(above, named)
    return Mistake(position=loaded.source.position(key), key=redact_text(key), text=text)


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
    for key, most in _NUMBERS.items():
        yield from _sizes(key, getattr(tune, key), most)
    for axis, values in tune.arguments.items():
        yield from _option(f"tune.arguments.{axis}", axis, values)
        for at, word in enumerate(values):
            yield from _word(f"tune.arguments.{axis}.{at}", word)
        if not values:
            yield f"tune.arguments.{axis}", "has no value. Give a list; null: not given"
    for axis, values in tune.environment.items():
        yield from _variable(f"tune.environment.{axis}", axis, values)
        for at, word in enumerate(values):
            yield from _word(f"tune.environment.{axis}.{at}", word, before=f"{axis}=")
        if not values:
            yield f"tune.environment.{axis}", "has no value. Give a list; null: not set"
    yield from _bundles(tune)


def _bundles(tune: Tune) -> Iterator[tuple[str, str]]:
    for axis, bundles in tune.bundles.items():
        if not bundles:
            yield f"tune.bundles.{axis}", "has no value. Give at least {default: {}}"
        for name, bundle in bundles.items():
            own = f"tune.bundles.{axis}.{name}"
            for option, word in bundle.arguments.items():
                yield from _option(f"{own}.arguments.{option}", option, (word,))
                yield from _word(f"{own}.arguments.{option}", word)
            for variable, word in bundle.environment.items():
                yield from _variable(f"{own}.environment.{variable}", variable, (word,))
                yield from _word(f"{own}.environment.{variable}", word, before=f"{variable}=")


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


def _sizes(key: str, values: tuple[int, ...] | Range, most: int) -> Iterator[tuple[str, str]]:
    """What is wrong with how many steps, branches or tokens a draft is to have."""
    if not numbers(values):
        yield f"tune.{key}", "is empty. Give at least one number"
    if isinstance(values, Range):
        given = [(f"tune.{key}.to", values.to)]
    else:
        given = [(f"tune.{key}.{at}", number) for at, number in enumerate(values)]
    for where, number in given:
        if number > most:
            yield where, f"wanted at most {most}; found the number {number}"


def _word(key: str, word: str | None, *, before: str = "") -> Iterator[tuple[str, str]]:
    """What is wrong with a value that a server would be started with."""
    if word is None:
        return
    if (control := _CONTROL.search(word)) is not None:
        yield key, f"found the control character U+{ord(control[0]):04X}. Remove it"
    bytes_long = len((before + word).encode())
    if bytes_long > MOST_WORD_BYTES:
        yield (
            key,
            f"a word of {bytes_long} bytes; a process takes at most {MOST_WORD_BYTES}. Shorten it",
        )


def _is_of_secret(name: str) -> bool:
    """Whether what bears this name is a secret; argparse takes `--api-k` for `--api-key`."""
    example = f"{name} value"
    return is_secret_name(name) or redact(example) != example


def _secret(kind: str, name: str) -> str:
    """What is said of a secret, without repeating it."""
    if kind == "environment":
        return f"holds a secret. Take it out: servers inherit {name} from where tuner runs"
    return (
        "holds a secret. Take it out; for the server's key give server.api_key: {env: NAME} or "
        "{file: PATH}"
    )


def _option(key: str, option: str, words: Iterable[str | None]) -> Iterator[tuple[str, str]]:
    """What is wrong with an option of SGLang that is to be searched."""
    spellings = {spelling for known in known_options() for spelling in known.spellings}
    if _is_of_secret(option) or any(word and redact_text(word) != word for word in words):
        yield key, _secret("arguments", option)
    elif option in _OWNED:
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
        yield key, _secret("environment", name)
