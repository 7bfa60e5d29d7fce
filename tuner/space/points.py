"""From the axes to raw points, to legal ones, to distinct effective configurations."""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from bench.scenario.fields import MOST_DRAFT_TOKENS, MOST_STEPS, MOST_TOPK
from bench.sglang.arguments import (
    EAGLE_FAMILY,
    NOTHING,
    Known,
    Rejection,
    effective_speculative,
    parse_arguments,
)
from tuner.space.configuration import Configuration

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from bench.sglang.arguments import AskedValue, EffectiveSpeculative

SHALLOW: Final = (
    "a tree of no more tokens than steps, or of two: its deepest drafts or its branches would "
    "never be verified, and fewer steps or a chain draft the same sooner"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """Arguments and variables beside the draft, as asked."""

    arguments: tuple[tuple[str, str], ...] = ()
    environment: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Axes:
    """What is searched, as plain data.

    Attributes:
        algorithms: Speculative algorithms; off is always added.
        num_steps: Draft steps.
        eagle_topk: Branches.
        num_draft_tokens: Tokens verified, of trees.
        settings: The first is the user's own.
    """

    algorithms: tuple[str, ...]
    num_steps: tuple[int, ...]
    eagle_topk: tuple[int, ...]
    num_draft_tokens: tuple[int, ...]
    settings: tuple[Setting, ...] = (Setting(),)


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """What all configurations have in common.

    Attributes:
        arguments: The command line without speculation.
        draft_arguments: Words that name the draft model, for algorithms that have one.
        environment: Variables of all.
        known: Of models, GPUs and version.
    """

    arguments: tuple[str, ...] = ()
    draft_arguments: tuple[str, ...] = ()
    environment: tuple[tuple[str, str], ...] = ()
    known: Known = NOTHING


@dataclass(frozen=True, slots=True, kw_only=True)
class Illegal:
    """A point that is never launched: SGLang would not start with it, or it does less for more."""

    rule: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Space:
    """The configurations that may be launched.

    Attributes:
        configurations: Distinct and legal; the first is the user's setting without speculation.
        raw: How many points the axes have.
        illegal: (rule, how many, the reason of the first) of points that are never launched.
        aliases: How many are another's double, by what makes them so.
    """

    configurations: tuple[Configuration, ...]
    raw: int
    illegal: tuple[tuple[str, int, str], ...]
    aliases: tuple[tuple[str, int], ...]

    @property
    def legal(self) -> int:
        """How many raw points are legal."""
        return self.raw - sum(count for _, count, _ in self.illegal)


def survey(axes: Axes, server: Server, *, most: int | None = None) -> Space:
    """Every raw point judged; what is left, by effective configuration.

    Args:
        axes: What is searched.
        server: What all configurations have in common.
        most: Stop as soon as there are more configurations; None: never.
    """
    found: dict[Configuration, None] = {}
    illegal: Counter[str] = Counter()
    aliases: Counter[str] = Counter()
    reasons: dict[str, str] = {}
    raw = 0
    for asked in _raw(axes):
        raw += 1
        judged = effective(asked, server)
        if isinstance(judged, Illegal):
            illegal[judged.rule] += 1
            reasons.setdefault(judged.rule, judged.reason)
            continue
        configuration, why = judged
        if configuration in found:
            aliases[why] += 1
        else:
            found[configuration] = None
            if most is not None and len(found) > most:
                break
    return Space(
        configurations=tuple(found),
        raw=raw,
        illegal=tuple((rule, count, reasons[rule]) for rule, count in illegal.most_common()),
        aliases=tuple(aliases.most_common()),
    )


def command_line(asked: Configuration, server: Server) -> tuple[str, ...]:
    """The server's words and the configuration's; of an option the last counts."""
    words = [*server.arguments]
    if asked.algorithm is not None:
        words += ["--speculative-algorithm", asked.algorithm]
        if asked.algorithm.upper() in WITH_DRAFT:
            words += server.draft_arguments
        for option, number in (
            ("--speculative-num-steps", asked.num_steps),
            ("--speculative-eagle-topk", asked.eagle_topk),
            ("--speculative-num-draft-tokens", asked.num_draft_tokens),
        ):
            if number is not None:
                words += [option, str(number)]
    for option, value in asked.arguments:
        words += [option] if value == "true" else [option, value]
    return tuple(words)


def effective(asked: Configuration, server: Server) -> tuple[Configuration, str] | Illegal:
    """What a point becomes, with what makes it an alias if it is one; or why it is not legal."""
    given = asked
    has_steps = asked.algorithm is None or asked.algorithm.upper() in {*EAGLE_FAMILY, "NEXTN"}
    if not has_steps:
        asked = replace(asked, num_steps=None, eagle_topk=None)
    parsed = parse_arguments(command_line(asked, server))
    common = dict(server.environment)
    known = replace(server.known, environment={**common, **dict(asked.environment)})
    outcome = effective_speculative(parsed, known)
    if isinstance(outcome, Rejection):
        return Illegal(rule=outcome.rule, reason=outcome.reason)
    for advice in outcome.advice:
        if advice.refused:
            return Illegal(rule=advice.rule, reason=advice.text)
    if (beyond := _beyond(outcome)) is not None:
        return Illegal(rule="size", reason=beyond)
    tokens = outcome.num_draft_tokens
    eagle = outcome.algorithm in EAGLE_FAMILY and (outcome.eagle_topk or 0) > 1
    if eagle and tokens is not None and tokens <= max(2, outcome.num_steps or 0):
        return Illegal(rule="shallow", reason=SHALLOW)
    configuration = Configuration(
        algorithm=outcome.algorithm,
        num_steps=outcome.num_steps if has_steps else None,
        eagle_topk=outcome.eagle_topk if has_steps else None,
        num_draft_tokens=tokens,
        arguments=_effective_arguments(asked, parsed, outcome, server),
        environment=tuple((n, v) for n, v in asked.environment if common.get(n) != v),
    )
    if asked != given:
        return configuration, f"{asked.algorithm} takes no draft steps and no topk"
    changed = [change.rule for change in outcome.changes if change.asked is not None]
    return configuration, changed[0] if changed else "the same settings in other words"


def _beyond(outcome: EffectiveSpeculative) -> str | None:
    """What makes a draft larger than any that is searched; None: nothing.

    Options and arms may ask for what the axes may not (--speculative-ngram-max-bfs-breadth).
    """
    eagle = outcome.algorithm in EAGLE_FAMILY
    for what, number, most in (
        ("draft steps", outcome.num_steps, MOST_STEPS if eagle else MOST_DRAFT_TOKENS),
        ("branches a draft step", outcome.eagle_topk, MOST_TOPK),
        ("draft tokens", outcome.num_draft_tokens, MOST_DRAFT_TOKENS),
    ):
        if number is not None and number > most:
            return f"{number} {what} are more than {most}, the most that is searched. Give fewer"
    return None


WITH_DRAFT: Final = frozenset({"EAGLE", "EAGLE3", "NEXTN", "STANDALONE", "DFLASH", "DSPARK"})


def _effective_arguments(
    asked: Configuration,
    parsed: Mapping[str, AskedValue],
    outcome: EffectiveSpeculative,
    server: Server,
) -> tuple[tuple[str, str], ...]:
    """The searched options that do anything, with the values that they will have."""
    common = parse_arguments(server.arguments)
    settled = _settled(outcome)
    kept = []
    for option, value in asked.arguments:
        dest = next(iter(parse_arguments([option, "" if value == "true" else value])))
        if dest in outcome.without_effect or dest not in parsed:
            continue
        if dest in common and common[dest] == parsed[dest]:  # as the scenario has it
            continue
        becomes = settled.get(dest)
        word = value if becomes is None else _as_word(becomes)
        if _would_be(dest, option, asked, server) != word:
            kept.append((option, word))
    return tuple(sorted(kept))


def _settled(outcome: EffectiveSpeculative) -> dict[str, str | float | bool]:
    return {dest: value for dest, value in outcome.values if value is not None}


def _would_be(dest: str, option: str, asked: Configuration, server: Server) -> str | None:
    """What a setting would be if one searched option were not given; None: that is not known."""
    without = replace(asked, arguments=tuple(a for a in asked.arguments if a[0] != option))
    known = replace(
        server.known, environment={**dict(server.environment), **dict(asked.environment)}
    )
    outcome = effective_speculative(parse_arguments(command_line(without, server)), known)
    if isinstance(outcome, Rejection) or dest not in (settled := _settled(outcome)):
        return None
    return _as_word(settled[dest])


def _as_word(value: str | float | bool) -> str:  # noqa: FBT001  # a setting's own value
    return str(value).lower() if isinstance(value, bool) else str(value)


def _raw(axes: Axes) -> Iterator[Configuration]:
    for setting in axes.settings:
        off = Configuration(arguments=setting.arguments, environment=setting.environment)
        yield off
        for algorithm, steps, topk, tokens in itertools.product(
            axes.algorithms, axes.num_steps, axes.eagle_topk, axes.num_draft_tokens
        ):
            yield replace(
                off,
                algorithm=algorithm,
                num_steps=steps,
                eagle_topk=topk,
                num_draft_tokens=tokens,
            )


def settings_of(
    arguments: Mapping[str, Sequence[str | None]],
    environment: Mapping[str, Sequence[str | None]],
    bundles: Sequence[Sequence[Setting]] = (),
) -> tuple[Setting, ...]:
    """All combinations of the values of these axes; None is an option or variable not given."""
    of_arguments = [[(o, v) for v in values] for o, values in arguments.items()]
    of_variables = [[(n, v) for v in values] for n, values in environment.items()]
    made = []
    for chosen in itertools.product(
        itertools.product(*of_arguments),
        itertools.product(*of_variables),
        itertools.product(*bundles),
    ):
        words, variables, bundle = chosen
        options = {o: v for o, v in words if v is not None}
        named = {n: v for n, v in variables if v is not None}
        for part in bundle:
            options |= dict(part.arguments)
            named |= dict(part.environment)
        made.append(
            Setting(
                arguments=tuple(sorted(options.items())), environment=tuple(sorted(named.items()))
            )
        )
    return tuple(dict.fromkeys(made))
