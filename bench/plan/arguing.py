"""Arms held against the rules of SGLang's arguments, the loads, and one another."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING, Final

from bench.model import Finding, FindingKind, Severity
from bench.plan.knowing import known_of
from bench.plan.ranks import key_of
from bench.sglang.arguments import (
    RULES_BY_ID,
    SUPPORTED,
    EffectiveSpeculative,
    Rejection,
    asked_text,
    by_rule,
    effective_speculative,
    known_graph_batch_sizes,
    likeness,
    parse_arguments,
    whole_number,
)
from bench.sglang.arguments.options import Option, find_option, known_options, option_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from bench.model import ServerConfig
    from bench.plan.points import Point
    from bench.plan.servers import PlannedArm
    from bench.scenario import LoadedScenario
    from bench.sglang.arguments import AskedValue, Change, Known


_OPTION: Final = re.compile(r"--[A-Za-z][\w-]*")
_NAME: Final = re.compile(r"\b[a-z]+(?:_[a-z0-9]+)+\b")  # as SGLang's own words call it

Ask = Callable[["ServerConfig"], str | None]
"""The version of the SGLang that takes a server's arguments; None: it refuses, or is unasked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LookedAt:
    """An arm and what becomes of its arguments."""

    arm: PlannedArm
    asked: Mapping[str, AskedValue]
    known: Known
    effective: EffectiveSpeculative


def look_at(loaded: LoadedScenario, arm: PlannedArm, *, simulated: bool) -> LookedAt:
    """An arm as the rules see it.

    Raises:
        ScenarioError: SGLang would not start with it.
    """
    asked = parse_arguments(arm.server.arguments)
    known = known_of(loaded.scenario, arm.server, simulated=simulated)
    effective = effective_speculative(asked, known)
    if isinstance(effective, Rejection):
        told = f"{effective.reason} {effective.fix}"
        raise loaded.rejected(
            place_of(loaded, arm.name, told), f"{told} {by_rule(effective.rule)}"
        )
    return LookedAt(arm=arm, asked=asked, known=known, effective=effective)


def overruled(loaded: LoadedScenario, arm: PlannedArm, ask: Ask) -> Finding | None:
    """What is told of an arm that the rules reject and SGLang takes; None: it is no such arm.

    What fails only once models are loaded is none of SGLang's resolution.
    """
    known = known_of(loaded.scenario, arm.server, simulated=False)
    rejection = effective_speculative(parse_arguments(arm.server.arguments), known)
    if not isinstance(rejection, Rejection) or rejection.late:
        return None
    version = ask(arm.server)
    if version is None:
        return None
    return Finding(
        kind=FindingKind.ARGUMENTS_DISAGREE,
        severity=Severity.NOTE,
        message=f"the rules reject what SGLang {version} takes: {rejection.reason} "
        f"{by_rule(rejection.rule)}.",
        advice="SGLang's own answer counts: see in /server_info what it makes of them.",
        arm=arm.name,
    )


def place_of(loaded: LoadedScenario, arm: str, told: str) -> str:
    """The key of the first option that a text names and an arm's lines have, else of the arm."""
    names = {option.dest for option in known_options()}
    words = [
        *_OPTION.findall(told),
        *(option_of(name) for name in _NAME.findall(told) if name in names),
    ]
    for word in words:
        option = find_option(word)
        if isinstance(option, Option):
            key = _speculative_key(loaded, arm, option) or key_of(loaded, arm, option.dest)
            if key is not None:
                return key
    return _key(loaded, arm)


def _speculative_key(loaded: LoadedScenario, arm: str, option: Option) -> str | None:
    name = option.dest.removeprefix("speculative_")
    given = getattr(loaded.scenario.arms[arm].speculative, name, None)
    is_own = name != option.dest and given is not None
    return f"arms.{arm}.speculative.{name}" if is_own else None


def _key(loaded: LoadedScenario, arm: str) -> str:
    own = loaded.scenario.arms[arm]
    if own.speculative is not None:
        return f"arms.{arm}.speculative"
    return f"arms.{arm}.arguments" if own.arguments else "server.arguments"


def advice_of(looked: LookedAt) -> Iterator[Finding]:
    """What will not be as it was asked, and what the rules advise; the arm is measured anyway."""
    for change in looked.effective.changes:
        if change.asked is not None:
            yield _note(looked, f"{change.sentence} {by_rule(change.rule)}.")
    for advice in looked.effective.advice:
        text = f"{advice.text} {advice.fix} {by_rule(advice.rule)}"
        yield _note(looked, text, _REFUSED if advice.refused else _NOT_AS_ASKED)


_NOT_AS_ASKED = "Ask for what will be, and leave out what does nothing (docs/arguments.md)."
_REFUSED = (
    f"SGLang {SUPPORTED} does not start with it: correct it, unless your version takes it "
    "(docs/arguments.md)."
)


def _note(looked: LookedAt, message: str, advice: str = _NOT_AS_ASKED) -> Finding:
    return Finding(
        kind=FindingKind.ARGUMENTS_ADVICE,
        severity=Severity.NOTE,
        message=message,
        advice=advice,
        arm=looked.arm.name,
    )


# -------------------------------------------------------------------------------------- the loads


def check_loads(
    loaded: LoadedScenario, looked: LookedAt, points: Sequence[Point]
) -> Iterator[Finding]:
    """Whether prompts and answers fit the context, and the largest load the CUDA graphs.

    Raises:
        ScenarioError: A workload that the server would refuse every request of.
    """
    context_tok = _context_tok(looked)
    reserved_tok = looked.effective.reserved_tok or 0
    for workload in {point.workload.name: point.workload for point in points}.values():
        wanted_tok = (workload.input_tok or 1) + workload.max_output_tok + reserved_tok
        if context_tok is None or wanted_tok <= context_tok:
            continue
        kept = f", and {reserved_tok} that speculation keeps for drafts" if reserved_tok else ""
        raise loaded.rejected(
            f"workloads.{workload.name}.max_output_tok",
            f"a prompt of {workload.input_tok or 'at least 1'} tokens and an answer of "
            f"{workload.max_output_tok}{kept} are more than the context of {context_tok} of arm "
            f"{looked.arm.name}: SGLang refuses such requests. Give a larger --context-length, or "
            f"shorter prompts or answers {by_rule('context')}",
        )
    yield from _graphs(looked, points)


def _context_tok(looked: LookedAt) -> int | None:
    given = whole_number(asked_text(looked.asked, "context_length") or "")
    target = looked.known.target
    return given if given is not None or target is None else target.context_len_tok


def _graphs(looked: LookedAt, points: Sequence[Point]) -> Iterator[Finding]:
    sizes = known_graph_batch_sizes(looked.asked, looked.effective, looked.known)
    largest = max((point.load.concurrency or 0 for point in points), default=0)
    given = (asked_text(looked.asked, dest) for dest in ("attn_dp_size", "dp_size"))
    ranks = max(whole_number(text or "") or 1 for text in given)  # each decodes its share
    if sizes and math.ceil(largest / ranks) > sizes[-1]:
        yield _note(
            looked,
            f"CUDA graphs are captured for batches up to {sizes[-1]}, and the largest load is "
            f"{largest}: it decodes without graphs. Give --cuda-graph-max-bs-decode "
            f"{math.ceil(largest / ranks)} in server.arguments {by_rule('C44')}.",
        )


# ------------------------------------------------------------------------------------- likenesses


def check_alike(
    loaded: LoadedScenario, looked_at: Sequence[LookedAt], *, simulated: bool
) -> Iterator[Finding]:
    """Arms that are the same server.

    Arms that ask the same are taken for what they are, a check of the bench against itself. Arms
    that ask for different things and get the same are a mistake: rejected where that is certain.

    Raises:
        ScenarioError: Two arms are certain to be the same by what the server changes.
    """
    for first, second in combinations(looked_at, 2):
        if not _alike(first, second, simulated=simulated):
            continue
        why = [
            change
            for looked in (first, second)
            for change in looked.effective.changes
            if change.asked is not None or RULES_BY_ID[change.rule].id == "auto"
        ]
        told = "; ".join(dict.fromkeys(change.sentence for change in why))
        if why:
            rules = ", ".join(dict.fromkeys(change.rule for change in why))
            told += f"; rule {rules}, docs/arguments.md"
        names = f"arms {first.arm.name} and {second.arm.name} are the same server"
        same_asked = first.asked == second.asked
        if not same_asked and _is_certain((first, second), why):
            raise loaded.rejected(
                _key(loaded, second.arm.name),
                f"{names} once SGLang has resolved their arguments"
                + (f" ({told})" if told else "")
                + ". Remove one of them",
            )
        yield Finding(
            kind=FindingKind.ARMS_ALIKE,
            severity=Severity.NOTE,
            message=f"{names}"
            + ("." if same_asked else f" by SGLang's rules{f' ({told})' if told else ''}."),
            advice="What differs between them is noise: remove one, unless that is the question.",
            arm=second.arm.name,
        )


def _alike(first: LookedAt, second: LookedAt, *, simulated: bool) -> bool:
    if simulated and _simulation(first.arm) != _simulation(second.arm):
        return False
    return first.arm.server.environment == second.arm.server.environment and likeness(
        first.asked, first.effective
    ) == likeness(second.asked, second.effective)


def _simulation(arm: PlannedArm) -> tuple[object, ...]:
    """What makes a simulated server another beside its arguments."""
    return (arm.acceptance, arm.faults)


def _is_certain(pair: tuple[LookedAt, LookedAt], changes: Sequence[Change]) -> bool:
    """Whether what makes two arms the same holds on the server's version."""
    if all(looked.known.is_supported for looked in pair):
        return True
    return not any(looked.effective.without_effect for looked in pair) and all(
        RULES_BY_ID[change.rule].always for change in changes
    )
