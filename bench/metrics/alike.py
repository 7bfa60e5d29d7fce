"""Arms that asked for different things and were the same server."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import combinations
from typing import TYPE_CHECKING, Final

from bench.metrics.configuration import PER_LAUNCH
from bench.metrics.findings import make_finding
from bench.model import FindingKind, Severity
from bench.sglang.arguments import option_of, parse_arguments

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from bench.model import (
        Cell,
        Comparison,
        EffectiveConfig,
        Finding,
        Measurement,
        ServerConfig,
    )
    from bench.sglang.arguments import AskedValue

_FROM_MEMORY: Final = frozenset({"max_req_input_len", "max_total_num_tokens"})
"""What a launch's free memory came to: it varies between launches of one server."""

_SHAPE: Final = ("num_steps", "eagle_topk", "num_draft_tokens")


@dataclass(frozen=True, slots=True, kw_only=True)
class AlikeArms:
    """Two arms that asked for different things and are the same server.

    Attributes:
        arms: Their names.
        different: The arguments that they were asked for otherwise, by name.
        told: What each asked for and what both became.
    """

    arms: tuple[str, str]
    different: tuple[str, ...]
    told: str


def find_alike(
    servers: Mapping[str, ServerConfig], configs: Mapping[str, Sequence[EffectiveConfig]]
) -> tuple[AlikeArms, ...]:
    """The arms whose difference is in their command lines alone.

    Arms that ask for the same, or differ in more than their arguments (environment, launcher), are
    what they were meant to be. Where it cannot be told what became of an argument, nothing is.

    Args:
        servers: What each arm is asked to be.
        configs: What it became, by its own account: one for each launch.
    """
    found = []
    for first, second in combinations((arm for arm in servers if configs.get(arm)), 2):
        left, right = servers[first], servers[second]
        different = _asked_otherwise(left.arguments, right.arguments)
        if not different or _beside_arguments(left) != _beside_arguments(right):
            continue
        became = [
            _settings(config, different) for arm in (first, second) for config in configs[arm]
        ]
        told = became[0]
        if any(settings != told for settings in became) or not told.keys() >= set(different):
            continue
        asked = "; ".join(
            f"{arm}: {_in_words(server.arguments, different)}"
            for arm, server in ((first, left), (second, right))
        )
        found.append(
            AlikeArms(
                arms=(first, second),
                different=different,
                told=f"arms {first} and {second} ask for different things ({asked}) and are the "
                f"same server: {_became(configs[first][0], told, different)}",
            )
        )
    return tuple(found)


def alike_arms(
    cells: Sequence[tuple[Cell, Measurement]],
    effective: Mapping[str, EffectiveConfig],
    servers: Mapping[str, ServerConfig],
) -> tuple[AlikeArms, ...]:
    """The measured arms that were the same server, by what was read back after each start.

    Args:
        cells: The measured cells of a run.
        effective: What each launch's server said of itself, by launch_id.
        servers: What each arm was asked to be.
    """
    launches: dict[str, dict[str, EffectiveConfig]] = {}
    for _, m in cells:
        if m.launch_id in effective:
            launches.setdefault(m.arm, {})[m.launch_id] = effective[m.launch_id]
    return find_alike(servers, {arm: tuple(own.values()) for arm, own in launches.items()})


def alike_findings(
    alike: Sequence[AlikeArms], servers: Mapping[str, ServerConfig]
) -> Iterator[Finding]:
    """One for each two arms: what differs between them is noise, or the machine."""
    for pair in alike:
        first, second = pair.arms
        elsewhere = servers[first].url != servers[second].url
        yield make_finding(
            FindingKind.ARMS_ALIKE,
            Severity.SUSPECT,
            f"{pair.told}, by what the servers say of themselves"
            + ("; they are two servers, which may differ for that." if elsewhere else "."),
            arm=second,
        )


def mark_alike(
    comparisons: Sequence[Comparison], alike: Sequence[AlikeArms]
) -> tuple[Comparison, ...]:
    """Comparisons with the arms that were the same server as the compared one."""
    others: dict[str, list[str]] = {}
    for first, second in (pair.arms for pair in alike):
        others.setdefault(first, []).append(second)
        others.setdefault(second, []).append(first)
    return tuple(replace(c, same_server_as=tuple(others.get(c.arm, ()))) for c in comparisons)


def _beside_arguments(server: ServerConfig) -> ServerConfig:
    """All that makes a server but its arguments, and but where it is."""
    return replace(server, arguments=(), url=None, resolve=(), simulation_seed=0)


def _asked_otherwise(first: Sequence[str], second: Sequence[str]) -> tuple[str, ...]:
    left, right = parse_arguments(first), parse_arguments(second)
    return tuple(dest for dest in {**left, **right} if left.get(dest) != right.get(dest))


def _settings(config: EffectiveConfig, asked: Collection[str]) -> dict[str, object]:
    """What arguments decide of a server; what was asked for counts whatever it is."""
    other: dict[str, object] = {
        name: value
        for name, value in config.other
        if name in asked or not (name in _FROM_MEMORY or PER_LAUNCH.search(name))
    }
    speculative = {f"speculative_{name}": value for name, value in config.speculative}
    of_engine = {"version": config.version, "graphs": config.decode_graph_batch_sizes}
    return {**other, **speculative, **of_engine}


def _in_words(arguments: Sequence[str], dests: Sequence[str]) -> str:
    asked = parse_arguments(arguments)
    return ", ".join(
        f"{option_of(dest)}{_value(asked[dest])}" if dest in asked else f"no {option_of(dest)}"
        for dest in dests
    )


def _value(asked: AskedValue) -> str:
    if asked is True:
        return ""
    return f" {asked if isinstance(asked, str) else ' '.join(asked)}"


def _became(
    config: EffectiveConfig, settings: Mapping[str, object], different: Sequence[str]
) -> str:
    speculative = dict(config.speculative)
    algorithm = speculative.get("algorithm")
    shape = [f"{name} {speculative[name]}" for name in _SHAPE if speculative.get(name) is not None]
    told = ["no speculation"] if algorithm is None else [str(algorithm), *shape]
    named = {"speculative_algorithm", *(f"speculative_{name}" for name in _SHAPE)}
    rest = [dest for dest in different if dest not in named]
    told += [
        f"{dest} {'unset' if settings[dest] in {None, 'null'} else settings[dest]}"
        for dest in rest
    ]
    return ", ".join(told)
