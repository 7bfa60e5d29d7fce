"""The scenario of what a study hands over: its winner against the baseline, night after night.

Blocks that stay as they were are copied as they were written, comments included; the others are
written anew.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import yaml

from bench.plan.points import loads_of
from tuner.export.ground import absolute, dumped
from tuner.export.yaml_writing import block, comment, folded

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from bench.scenario import Loads
    from tuner.export.adaptive import Adaptive
    from tuner.export.arms import ExportedArm
    from tuner.export.ground import Ground

SUFFIX: Final = "-tuned"
_LONGEST_NAME: Final = 64


def tuned_name(scenario: str) -> str:
    """The exported scenario's name."""
    return scenario.removesuffix(SUFFIX)[: _LONGEST_NAME - len(SUFFIX)] + SUFFIX


def scenario_text(
    ground: Ground, adaptive: Adaptive, arms: Sequence[ExportedArm], heading: Sequence[str]
) -> str:
    """The YAML text.

    Args:
        ground: The study.
        adaptive: Its thresholds are spanned by the loads.
        arms: From `tuner.export.arms`.
        heading: Lines of the comment at its top.
    """
    loaded = ground.loaded
    before = dumped(loaded.scenario)
    blocks = _as_written(loaded.source.text) if not loaded.source.overrides else {}
    after = _changed(ground, adaptive, before)
    parts = [comment(heading)]
    for key in before:
        if key in {"tune", "loads"} and key not in after:
            continue
        if key == "arms":
            parts.append(_arms_text(arms))
        elif key in blocks and after[key] == before[key]:
            parts.append(blocks[key])
        elif key == "question":
            parts.append(folded(key, after[key]))
        else:
            parts.append(block(key, after[key]))
    return "\n".join(parts)


# ------------------------------------------------------------------------------------ what changes


def _changed(ground: Ground, adaptive: Adaptive, before: Mapping[str, Any]) -> dict[str, Any]:
    after = {key: absolute(value, ground.loaded, key) for key, value in before.items()}
    after["name"] = tuned_name(before["name"])
    after["question"] = _question(ground, adaptive, before["question"])
    after.pop("tune", None)
    if ground.card is not None:
        after["sim"]["hardware"] = ground.card
    scenario, study = ground.loaded.scenario, ground.study
    measured = {cell.workload for cell in study.cells}
    workloads = {name: block for name, block in after["workloads"].items() if name in measured}
    shared = {name for name in workloads if scenario.workloads[name].loads is None}
    for name, data in workloads.items():
        own = scenario.workloads[name].loads
        if own is not None:
            data["loads"] = _loads(own, _labels(ground, {name}), adaptive)
    after["workloads"] = workloads
    if shared:
        after["loads"] = _loads(scenario.loads, _labels(ground, shared), adaptive)
    else:
        after.pop("loads", None)
    return after


def _labels(ground: Ground, workloads: Iterable[str]) -> set[str]:
    return {cell.load for cell in ground.study.cells if cell.workload in workloads}


def _loads(loads: Loads, labels: set[str], adaptive: Adaptive) -> dict[str, Any]:
    """The loads that the study measured, and those on both sides of every threshold between."""
    told = dumped(loads)
    kept = [slots for slots in loads.concurrency if str(slots) in labels]
    if kept:
        spanned = {
            batch * adaptive.ranks
            for threshold in adaptive.thresholds
            for batch in (adaptive.below(threshold), threshold)
        }
        kept += [n for n in sorted(spanned) if min(kept) < n < max(kept) and n not in kept]
        told["concurrency"] = kept if kept == list(loads.concurrency) else sorted(kept)
    else:
        told.pop("concurrency", None)
    by_label = {load.label: load for load in loads_of(loads)}
    rates = [rate for rate in told.get("rates", []) if f"rate={rate['rate_per_s']:g}" in labels]
    if rates:
        told["rates"] = rates
    else:
        told.pop("rates", None)
    if "capacity" in by_label and "capacity" not in labels:
        told.pop("capacity")
    return told


def _question(ground: Ground, adaptive: Adaptive, asked: str) -> str:
    deployed, best = ground.deployed.label, ground.best.label
    if ground.conclusion.deploy == 0:
        first = f"Is speculation still better left off, the best of it being {best}?"
    else:
        first = f"Does {deployed} still gain over the baseline?"
    second = ""
    if adaptive.forms:
        second = " Do step counts by batch size, pinned or chosen by SGLang, gain more?"
    return f"{first}{second} (Study {ground.study.study_id} asked: {' '.join(asked.split())})"


# --------------------------------------------------------------------------------------- the texts


def _arms_text(arms: Sequence[ExportedArm]) -> str:
    told = (f"  # {arm.comment}\n{block(arm.name, arm.data, indent=2)}" for arm in arms)
    return "arms:\n" + "\n".join(told)


def _as_written(text: str) -> dict[str, str]:
    """Each top-level block as it stands in the file; empty where blocks hang together.

    Comments before a block speak of the old scenario and are left out; those inside stay.
    """
    if any(
        getattr(event, "anchor", None) is not None for event in yaml.parse(text, yaml.SafeLoader)
    ):
        return {}
    node = yaml.compose(text, yaml.SafeLoader)
    if not isinstance(node, yaml.MappingNode) or node.flow_style:
        return {}
    lines = text.splitlines(keepends=True)
    begins = [key.start_mark.line for key, _ in node.value] + [len(lines)]
    blocks = {}
    for place, (key, _) in enumerate(node.value):
        own = lines[begins[place] : begins[place + 1]]
        while own and (not own[-1].strip() or own[-1].startswith("#")):
            own.pop()
        blocks[key.value] = "".join(own).rstrip("\n") + "\n"
    return blocks
