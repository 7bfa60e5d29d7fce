"""Rules that concern several keys at once: each yields (key, what was found and what to do)."""

from __future__ import annotations

from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from bench.model import BASELINE
from bench.scenario.arguments import (
    MAX_RUNNING,
    Option,
    is_max_running,
    is_speculative,
    options,
    owner,
    speculative_owner,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from bench.scenario.schema import Arm, Loads, Rate, Scenario, Workload

Found: TypeAlias = tuple[str, str]


def broken_rules(scenario: Scenario, resolve: Callable[[str], str]) -> Iterator[Found]:
    """Everything that is wrong with a scenario whose keys and types are right.

    Args:
        scenario: The scenario.
        resolve: Makes a path of the scenario one of this machine.
    """
    yield from _baseline(scenario)
    yield from _arguments("server.arguments", scenario.server.arguments)
    for name, arm in scenario.arms.items():
        yield from _arm(name, arm)
    for name, workload in scenario.workloads.items():
        yield from _workload(name, workload, resolve)
    yield from _all_loads(scenario)
    yield from _batch_limit(scenario)


def _baseline(scenario: Scenario) -> Iterator[Found]:
    baseline = scenario.arms.get(BASELINE)
    if baseline is None:
        close = get_close_matches(BASELINE, scenario.arms, n=1)
        rename = f", or rename {close[0]}" if close else ""
        yield (
            "arms",
            f"no arm is called baseline, which all are compared with. Add baseline: {{}}{rename}",
        )
    elif baseline.speculative is not None:
        yield (
            f"arms.{BASELINE}.speculative",
            "the baseline is what speculation is compared with. Move this to another arm",
        )


def _arguments(key: str, lines: tuple[str, ...]) -> Iterator[Found]:
    """Arguments that must not be where they are, for arms without speculation."""
    for option in options(lines):
        place = _line_key(key, option, lines)
        if is_speculative(option.flag):
            belongs = speculative_owner(option.flag)
            to_do = (
                f"arms.ARM.{belongs}"
                if belongs
                else "the arguments of an arm that has a speculative block"
            )
            why = (
                "would make the baseline speculate"
                if key == "server.arguments"
                else "does nothing without speculation"
            )
            yield place, f"{option.flag} {why}. Move it to {to_do}"
        elif owner(option.flag):
            yield place, f"{option.flag} does not belong here: {owner(option.flag)}. Remove it"


def _arm(name: str, arm: Arm) -> Iterator[Found]:
    key = f"arms.{name}"
    if arm.speculative is None:
        yield from _arguments(f"{key}.arguments", arm.arguments)
        if arm.draft is not None:
            yield (
                f"{key}.draft",
                "a draft does nothing without speculation. Add a speculative block or remove it",
            )
        if arm.sim.acceptance is not None:
            yield (
                f"{key}.sim.acceptance",
                "an arm without speculation accepts nothing. Add a speculative block or remove it",
            )
        return
    for option in options(arm.arguments):
        place = _line_key(f"{key}.arguments", option, arm.arguments)
        belongs = speculative_owner(option.flag)
        if belongs:
            yield place, f"{option.flag} is a key of its own. Give it as {key}.{belongs}"
        elif owner(option.flag):
            yield place, f"{option.flag} does not belong here: {owner(option.flag)}. Remove it"


def _workload(name: str, workload: Workload, resolve: Callable[[str], str]) -> Iterator[Found]:
    key = f"workloads.{name}"
    if workload.dataset == "generated":
        if workload.dataset_path is not None:
            yield (
                f"{key}.dataset_path",
                "generated prompts need no file. Remove it, or give dataset: jsonl or sharegpt",
            )
    elif workload.dataset_path is None:
        yield (
            f"{key}.dataset_path",
            f"missing: dataset {workload.dataset} is read from a file. Add dataset_path: ./FILE",
        )
    if workload.dataset != "generated" and workload.categories:
        yield (
            f"{key}.categories",
            f"only generated prompts have categories, found dataset {workload.dataset}. Remove it",
        )
    for field, text in (
        ("dataset_path", workload.dataset_path),
        ("tokenizer_path", workload.tokenizer_path),
    ):
        if text is not None and not Path(resolve(text)).is_file():
            yield (
                f"{key}.{field}",
                f"{resolve(text)} is no file. Paths with ./ are relative to the scenario's folder",
            )
    if workload.cache.startswith("shared-prefix") and workload.input_tok is None:
        yield (
            f"{key}.cache",
            "a share of the prompt is shared, but its length is not given. Add input_tok",
        )
    if workload.chat_template_kwargs and workload.api != "chat":
        yield (
            f"{key}.chat_template_kwargs",
            f"only the chat API has a chat template, found api {workload.api}. Remove it",
        )


def _all_loads(scenario: Scenario) -> Iterator[Found]:
    yield from _loads("loads", scenario.loads, scenario)
    for name, workload in scenario.workloads.items():
        if workload.loads is not None:
            yield from _loads(f"workloads.{name}.loads", workload.loads, scenario)
        loads = workload.loads or scenario.loads
        if not (loads.concurrency or loads.rates or loads.capacity):
            key = "loads" if workload.loads is None else f"workloads.{name}.loads"
            yield key, f"workload {name} has no load. Add concurrency: [1, 8], rates or capacity"


def _loads(key: str, loads: Loads, scenario: Scenario) -> Iterator[Found]:
    yield from _twice(f"{key}.concurrency", [str(slots) for slots in loads.concurrency])
    yield from _twice(f"{key}.rates", [f"rate={rate.rate_per_s:g}" for rate in loads.rates])
    for index, rate in enumerate(loads.rates):
        yield from _gaps(f"{key}.rates.{index}", rate)
    capacity = loads.capacity
    if capacity is None:
        return
    yield from _gaps(f"{key}.capacity", capacity)
    if capacity.min_rate_per_s >= capacity.max_rate_per_s:
        yield (
            f"{key}.capacity.max_rate_per_s",
            f"must be more than min_rate_per_s, {capacity.min_rate_per_s:g}",
        )
    if (
        scenario.slo.ttft_ms is None
        and scenario.slo.tpot_ms is None
        and scenario.slo.e2e_ms is None
    ):
        yield (
            f"{key}.capacity",
            "looks for the highest rate that meets the slo. Add one: slo: {ttft_ms: 2000}",
        )


def _twice(key: str, labels: list[str]) -> Iterator[Found]:
    for index, label in enumerate(labels):
        if label in labels[:index]:
            yield f"{key}.{index}", f"a load called {label} is given twice. Remove one"


def _gaps(key: str, arrivals: Rate | object) -> Iterator[Found]:
    gaps, cv = getattr(arrivals, "gaps", None), getattr(arrivals, "gap_cv", 1.0)
    if gaps != "gamma" and cv != 1.0:
        yield (
            f"{key}.gap_cv",
            f"only gamma gaps have one, found gaps: {gaps}. Write gaps: gamma",
        )


def _batch_limit(scenario: Scenario) -> Iterator[Found]:
    """SGLang lowers its batch limit with speculation: unpinned, arms would differ in it too."""
    blocks = [
        scenario.loads,
        *(workload.loads for workload in scenario.workloads.values() if workload.loads),
    ]
    largest = max((slots for block in blocks for slots in block.concurrency), default=1)
    pinned = [
        option for option in options(scenario.server.arguments) if is_max_running(option.flag)
    ]
    if not pinned:
        yield (
            "server.arguments",
            (
                f"{MAX_RUNNING} is not given, and SGLang would choose another with speculation "
                f'than without. Add "{MAX_RUNNING} {largest}" or more'
            ),
        )
    yield from _too_low("server.arguments", scenario.server.arguments, pinned, largest)
    for name, arm in scenario.arms.items():
        own = [option for option in options(arm.arguments) if is_max_running(option.flag)]
        yield from _too_low(f"arms.{name}.arguments", arm.arguments, own, largest)


def _too_low(
    key: str, lines: tuple[str, ...], pinned: list[Option], largest: int
) -> Iterator[Found]:
    if not pinned:
        return
    last = pinned[-1]
    if last.value is None or not last.value.isdecimal() or int(last.value[:12]) < largest:
        asked = last.value or "nothing"
        yield (
            _line_key(key, last, lines),
            f"{MAX_RUNNING} is {asked}, below the largest load, {largest}. Give {largest} or more",
        )


def _line_key(key: str, option: Option, lines: tuple[str, ...]) -> str:
    return f"{key}.{option.line}" if len(lines) > 1 else key
