"""What two runs were asked and where they ran, key by key, and where that differs."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import yaml

from bench.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from bench.store import StoredRun

# What must be equal for two cells to have done the same work on the same number of GPUs.
_WORK = ("target", "workloads", "loads", "measure", "seed", "slo", "timeouts")
_FREE_TO_DIFFER = {"measure.pairs", "sim.measure.pairs"}


def asked_differences(a: StoredRun, b: StoredRun) -> list[tuple[str, str, str]]:
    """Keys of the work that differ: (key, in the first run, in the second).

    Raises:
        StoreError: A stored scenario cannot be read.
    """
    rows = [
        ("simulated", str(a.simulated), str(b.simulated)),
        ("speed of the clock", str(a.speed), str(b.speed)),
        *_request_counts(a, b),
    ]
    differing = [row for row in rows if row[1] != row[2]]
    return differing + _differing(_work(a), _work(b))


def environment_differences(a: StoredRun, b: StoredRun) -> list[tuple[str, str, str]]:
    """Facts of machine, software and resolved servers that differ, likewise."""
    return _differing(_environment(a), _environment(b))


def flat(value: object, name: str = "") -> Iterator[tuple[str, str]]:
    """A nested value as (dotted key, text) pairs; lists of plain values stay one value."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from flat(inner, f"{name}.{key}" if name else str(key))
    elif isinstance(value, list) and any(isinstance(inner, dict | list) for inner in value):
        for place, inner in enumerate(value):
            yield from flat(inner, f"{name}[{place}]")
    else:
        yield name, str(value)


def _differing(a: Mapping[str, str], b: Mapping[str, str]) -> list[tuple[str, str, str]]:
    return [
        (key, a.get(key, "–"), b.get(key, "–"))
        for key in dict.fromkeys((*a, *b))
        if a.get(key) != b.get(key)
    ]


def _work(stored: StoredRun) -> dict[str, str]:
    file = stored.folder / "scenario.yaml"
    try:
        scenario: Any = yaml.safe_load(file.read_text())
    except (OSError, yaml.YAMLError) as error:
        raise StoreError(f"{file} cannot be read: {error}") from error
    asked = {key: scenario.get(key) for key in _WORK}
    asked["server"] = {"gpus": (scenario.get("server") or {}).get("gpus")}
    if stored.simulated:
        asked["sim"] = scenario.get("sim")
    overrides = stored.manifest.plan_arguments.get("overrides") or []
    asked["set"] = {str(text).partition("=")[0]: str(text).partition("=")[2] for text in overrides}
    return {key: text for key, text in flat(asked) if key not in _FREE_TO_DIFFER}


def _request_counts(a: StoredRun, b: StoredRun) -> Iterator[tuple[str, str, str]]:
    """Requests of the cells that both measured: they follow from what arms were expected to do."""
    first, second = (
        {(m.workload, m.load): m.request_ct for m in run.measurements} for run in (a, b)
    )
    for workload, load in sorted(first.keys() & second.keys()):
        key = f"requests of a cell in {workload}, load {load}"
        yield key, str(first[workload, load]), str(second[workload, load])


def _environment(stored: StoredRun) -> dict[str, str]:
    facts = dict(flat(stored.manifest.fingerprint))
    facts["specdyno_version"] = stored.manifest.specdyno_version
    for launch in reversed(stored.manifest.launches):
        if launch.effective is None:
            continue
        effective = asdict(launch.effective)
        resolved = {
            "version": effective["version"],
            "KV cache, tokens": effective["max_total_num_tokens"],
            **dict(launch.effective.other),
            **{f"speculative.{name}": value for name, value in launch.effective.speculative},
        }
        facts |= {f"{launch.arm}: {name}": str(value) for name, value in resolved.items()}
    return facts
