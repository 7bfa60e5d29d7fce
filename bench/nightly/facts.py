"""The environment of a night as flat facts: what can have changed when a level did.

Names say where a fact is from: `gpus.driver` of the machine, `packages.…` of the software beside
bench, `server: …` of what every arm's server said of itself, `ARM: …` where arms differ,
`target.…` and `draft.…` of the models' files, `work: …` of what was asked.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

from bench.errors import BenchError
from bench.metrics.change_words import PROMPTS, SALTED
from bench.nightly.model_files import model_facts
from bench.scenario import load_scenario

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from bench.model import EffectiveConfig
    from bench.store import StoredRun

Facts = dict[str, str]

NOT_FACTS: Final = frozenset({"event_loop", "boot_id", "specdyno_commit", "specdyno.diff_sha256"})
"""Recorded with a run, and nothing that changes a server's speed; `specdyno.tree` tells of our own
code."""

_HASH_CHARS: Final = 16
_NCCL_LINES: Final = re.compile(r"(?:NCCL version |nccl==)(\d+\.\d+\.\d+(?:\+cuda[\d.]+)?)")
_DIGEST: Final = re.compile(r"[\w./:-]*@(sha256:[0-9a-f]{64})")
_LOG_BYTES: Final = 4_000_000


def facts_of(stored: StoredRun) -> Facts:
    """The facts of one run.

    Args:
        stored: A published run.
    """
    manifest = stored.manifest
    facts = dict(_flat(manifest.fingerprint.get("identity")))
    facts |= dict(_flat(manifest.fingerprint.get("context")))
    facts = {name: value for name, value in facts.items() if name not in NOT_FACTS}
    facts |= dict(_gpu_facts(manifest.fingerprint.get("identity")))
    facts["specdyno_version"] = manifest.specdyno_version
    facts |= _server_facts(stored)
    facts |= dict(_work_facts(stored))
    return {name: value for name, value in facts.items() if value not in {"None", ""}}


def resolved_arguments(effective: EffectiveConfig) -> Facts:
    """What a server said of itself, defaults included, as flat text."""
    told = asdict(effective)
    graphs = told["decode_graph_batch_sizes"]
    return {
        "engine": str(told["engine"]),
        "version": str(told["version"]),
        "KV cache, tokens": str(told["max_total_num_tokens"]),
        "captured batch sizes": "None" if graphs is None else " ".join(map(str, graphs)),
        **{name: str(value) for name, value in effective.other},
        **{f"speculative.{name}": str(value) for name, value in effective.speculative},
    }


def by_arm(arms: Mapping[str, Facts]) -> Facts:
    """Facts of several servers: `server: …` where all say the same, `ARM: …` where not."""
    names = dict.fromkeys(name for facts in arms.values() for name in facts)
    out: Facts = {}
    for name in names:
        values = {arm: facts.get(name, "None") for arm, facts in arms.items()}
        if len(set(values.values())) == 1:
            out[f"server: {name}"] = next(iter(values.values()))
        else:
            out |= {f"{arm}: {name}": value for arm, value in values.items()}
    return out


def _server_facts(stored: StoredRun) -> Facts:
    arms: dict[str, Facts] = {}
    facts: Facts = {}
    for launch in stored.manifest.launches:
        if launch.effective is None or launch.arm in arms:
            continue
        arms[launch.arm] = resolved_arguments(launch.effective)
        if found := _DIGEST.search(" ".join(launch.argv)):
            facts["container"] = found[1]
        log = None if launch.log_file is None else stored.folder / launch.log_file
        if log is not None and (nccl := _first_match(_NCCL_LINES, log)):
            facts["nccl"] = nccl
    for role, path_name, revision_name in (
        ("target", "model_path", "revision"),
        ("draft", "speculative.draft_model_path", "speculative.draft_model_revision"),
        ("tokenizer", "tokenizer_path", "revision"),
    ):
        for arm in arms.values():
            path = arm.get(path_name) or arm.get(path_name.replace("speculative.", "speculative_"))
            if path in {None, "None"} or any(n.startswith(f"{role}.") for n in facts):
                continue
            facts |= {
                f"{role}.{name}": value
                for name, value in model_facts(str(path), arm.get(revision_name)).items()
            }
    return facts | by_arm(arms)


def _work_facts(stored: StoredRun) -> Iterator[tuple[str, str]]:
    """What was asked of each cell, and the prompts that were sent.

    How many requests a cell has follows from how fast its arms are said to be; it is no part of
    what was asked, or a draft of more steps would be other work. It is part of the prompts' salt,
    which therefore stands beside their hash (`changed_facts`).
    """
    asked = _asked(stored)
    places, salts = {}, {}
    for launch in stored.manifest.plan:
        for cell in launch.cells:
            place = places[cell.cell_id] = f"{cell.workload}, load {cell.load}"
            salts[place] = cell.comparison_key
            yield f"work: asked of {place}", asked.get(cell.workload, cell.comparison_key)
    for place, digest in _prompt_digests(stored.folder / "samples.parquet", places):
        yield f"{PROMPTS}{place}", f"{digest}{SALTED}{salts.get(place, '')}"


def _asked(stored: StoredRun) -> dict[str, str]:
    """A hash of what the scenario says of each workload; empty where it cannot be read again."""
    overrides = stored.manifest.plan_arguments.get("overrides") or ()
    try:
        scenario = load_scenario(stored.folder / "scenario.yaml", overrides).scenario
    except BenchError:
        return {}
    window = {"warmup_requests_per_slot", "steady_s", "requests_per_slot"}
    shared = scenario.model_dump(
        mode="json", include={"seed": True, "slo": True, "measure": window}
    )
    told = {name: block.model_dump(mode="json") for name, block in scenario.workloads.items()}
    return {
        name: hashlib.sha256(
            json.dumps({"shared": shared, "workload": block}, sort_keys=True).encode()
        ).hexdigest()[:_HASH_CHARS]
        for name, block in told.items()
    }


def _prompt_digests(path: Path, places: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    import pyarrow as pa  # noqa: PLC0415  # loads only where a run is taken in
    import pyarrow.parquet as pq  # noqa: PLC0415

    try:
        table = pq.read_table(path, columns=["cell_id", "index", "prompt_sha256", "seed"])
    except (OSError, pa.ArrowException):
        return  # the run's own reader tells that it is damaged
    prompts: dict[str, set[tuple[int, str, int]]] = {}
    for row in table.to_pylist():
        place = places.get(row["cell_id"], "")
        prompts.setdefault(place, set()).add((row["index"], row["prompt_sha256"], row["seed"]))
    for place, sent in sorted(prompts.items()):
        digest = hashlib.sha256(repr(sorted(sent)).encode()).hexdigest()
        yield place, digest[:_HASH_CHARS]


def _gpu_facts(identity: object) -> Iterator[tuple[str, str]]:
    """One fact for all GPUs where they agree: a new driver is one change, not eight."""
    gpus = identity.get("gpus") if isinstance(identity, dict) else None
    if not isinstance(gpus, list) or not gpus:
        return
    yield "gpus.count", str(len(gpus))
    for name in dict.fromkeys(name for gpu in gpus for name in gpu):
        values = [str(gpu.get(name)) for gpu in gpus]
        yield f"gpus.{name}", " ".join(values if len(set(values)) > 1 else values[:1])


def _flat(value: object, name: str = "") -> Iterator[tuple[str, str]]:
    if name == "gpus":
        return
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _flat(inner, f"{name}.{key}" if name else str(key))
    elif value is not None:
        yield name, str(value)


def _first_match(pattern: re.Pattern[str], path: Path) -> str | None:
    try:
        with path.open("rb") as file:
            text = file.read(_LOG_BYTES).decode(errors="replace")
    except OSError:
        return None
    found = pattern.search(text)
    return found[1] if found else None


def hardware_of(stored: StoredRun, facts: Mapping[str, str]) -> str:
    """The hardware class: GPUs by number and model, a simulated one by its card.

    Args:
        stored: The run.
        facts: Its facts.
    """
    if stored.simulated:
        return f"simulated {_sim_hardware(stored)}"
    if "gpus.name" in facts:
        return f"{facts.get('gpus.count', '?')}x {facts['gpus.name']}"
    return facts.get("cpu.model", "unknown hardware")


def _sim_hardware(stored: StoredRun) -> str:
    import yaml  # noqa: PLC0415  # loads only for simulated runs

    asked = stored.manifest.plan_arguments
    if asked.get("sim_hardware"):
        return str(asked["sim_hardware"])
    for override in reversed(asked.get("overrides") or []):
        key, _, value = str(override).partition("=")
        if key == "sim.hardware":
            return value
    try:
        scenario: Any = yaml.safe_load((stored.folder / "scenario.yaml").read_text())
    except (OSError, yaml.YAMLError):
        return "hardware"
    return str(((scenario or {}).get("sim") or {}).get("hardware", "hardware"))
