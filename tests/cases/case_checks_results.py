"""Checks of other tools' results and of what GPUs tell."""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

from case_fields import AnyOf

from bench import gpu
from bench.foreign import (
    CountDoubt,
    agrees_with_itself,
    count_doubts,
    parse_rows,
    parse_tables,
    recomputed,
    strict_json,
)
from bench.metrics.hang import GpuSpan, is_spin_hang
from bench.sglang.log_text import read_text

Found = dict[str, Any]

NO_HANG = AnyOf((None, "none", "no_hang", "healthy", "ok", "normal", "running", "loading"))


def check_result_table(folder: Path) -> Found:
    [result, *others] = parse_tables(read_text(folder / "input.txt"))
    again = {check.field: check.value for check in recomputed(result)}
    output, retokenized = result.output_tok, result.output_tok_retokenized
    return dict(result.row) | {
        "tables": 1 + len(others),
        "duration_s": result.duration_s,
        "accept_length": result.accept_len_tok,
        "recomputed": again,
        "consistent": agrees_with_itself(result),
        "inconsistent_fields": [c.field for c in recomputed(result) if not c.agrees],
        "retokenized_ratio": retokenized / output if retokenized is not None and output else None,
    }


def check_result_json(folder: Path) -> Found:
    rows = parse_rows(read_text(folder / "input.jsonl"))
    return {
        "rows": len(rows.rows),
        "damaged_lines": rows.damaged,
        "written_json_is_strict": all(is_strict(strict_json(row)) for row in rows.rows),
        **{f"row{index}": row for index, row in enumerate(rows.rows)},
    }


def is_strict(text: str) -> bool:
    def refuse(constant: str) -> None:
        raise ValueError(constant)

    try:
        json.loads(text, parse_constant=refuse)
    except ValueError:
        return False
    return True


def check_token_count_rows(folder: Path) -> Found:
    rows = parse_rows(read_text(folder / "input.jsonl")).rows
    doubtful = [index for index, row in enumerate(rows) if count_doubts(row)]
    return {
        "suspicious_rows": doubtful,
        "ok_rows": [index for index in range(len(rows)) if index not in doubtful],
        "rules": [doubt.value for doubt in CountDoubt],
        "doubts": [[doubt.value for doubt in count_doubts(row)] for row in rows],
    }


# -------------------------------------------------------------------------------------------- GPUs


def check_telemetry_hang(folder: Path) -> Found:
    context = json.loads((folder / "context.json").read_text())
    by_gpu: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for row in parse_rows(read_text(folder / "telemetry.jsonl")).rows:
        by_gpu[row["gpu"]].append(row)

    def told(rows: list[dict[str, Any]], name: str) -> list[float]:
        return [row[name] for row in rows if row.get(name) is not None]

    spans = [
        GpuSpan(
            utilisation_pct=told(rows, "util"),
            power_w=told(rows, "power_w"),
            memory_bytes=[mib * 2**20 for mib in told(rows, "mem_mib")],
            power_limit_w=rows[0].get("power_limit_w", context.get("power_limit_w")),
        )
        for rows in by_gpu.values()
    ]
    silent_s = context.get("seconds_without_log", context.get("seconds_without_tokens", 0))
    generating = any(context.get(name) for name in ("tokens_per_s", "output_tok_per_s"))
    hangs = not generating and is_spin_hang(spans, silent_s=silent_s)
    return {"diagnosis": "collective_spin_hang" if hangs else NO_HANG}


def check_nvml_rows(folder: Path) -> Found:
    smi = folder / "nvidia_smi.csv"
    listed = gpu.parse_nvidia_smi(read_text(smi)) if smi.exists() else []
    calls = folder / "nvml_calls.json"
    recorded = json.loads(calls.read_text()) if calls.exists() else []
    replayed = replay(recorded)
    rows = [gpu_fields(row.facts, dict(row.values)) for row in listed]
    for row in rows:
        again = replayed.get(row["index"], {})
        assert all(row[name] == again[name] for name in again if name in row), (row, again)
    rows = rows or [replayed[index] for index in sorted(replayed)]
    found: Found = {"rows": rows}
    for name in ("power_w", "mem_used_mib", "mem_total_mib", "util_pct", "power_limit_w"):
        values = {row["index"]: row.get(name) for row in rows}
        found[f"total_{name}"] = gpu.total(list(values.values()))
        found[f"total_{name.split('_')[0]}_known_gpus"] = [
            index for index, value in values.items() if value is not None
        ]
    found["total_power_known_gpus"] = [
        row["index"] for row in rows if row.get("power_w") is not None
    ]
    return found


def gpu_fields(facts: gpu.GpuFacts, values: dict[str, float | None]) -> Found:
    def mib(size: float | None) -> float | None:
        return None if size is None else size / 2**20

    return {
        "index": facts.index,
        "name": facts.name,
        "mem_total_mib": mib(facts.memory_bytes),
        "mem_used_mib": mib(values["memory_used_bytes"]),
        "util_pct": values["utilisation_pct"],
        "power_w": values["power_w"],
        "power_limit_w": values["power_limit_w"],
        "temperature_c": values["temperature_c"],
        "temp_c": values["temperature_c"],
        "sm_clock_mhz": values["sm_clock_mhz"],
    }


NVML_READS = {
    "nvmlDeviceGetMemoryInfo": ("mem_used_mib", "mem_total_mib"),
    "nvmlDeviceGetPowerUsage": ("power_w",),
    "nvmlDeviceGetUtilizationRates": ("util_pct",),
    "nvmlDeviceGetEnforcedPowerLimit": ("power_limit_w",),
    "nvmlDeviceGetTemperature": ("temperature_c", "temp_c"),
    "nvmlDeviceGetClockInfo": ("sm_clock_mhz",),
}


def replay(recorded: list[dict[str, Any]]) -> dict[int, Found]:
    """What bench reads of each GPU from a library that answers as recorded, where recorded."""
    if not recorded:
        return {}
    with mock.patch.dict(sys.modules, pynvml=recorded_nvml(recorded)):
        gpu._session.cache_clear()
        read = {
            facts.index: gpu_fields(facts, dict(gpu.read_gpu(facts.index)))
            for facts in gpu.list_gpus()
        }
    gpu._session.cache_clear()
    told: dict[int, Found] = defaultdict(dict)
    for call in recorded:
        index = call["gpu"]
        told[index]["index"] = index
        for name in NVML_READS.get(call["fn"], ()):
            told[index][name] = read[index][name]
    return told


def recorded_nvml(recorded: list[dict[str, Any]]) -> SimpleNamespace:
    """A stand-in for pynvml: each GPU's calls as recorded, any other call not supported."""

    class NVMLError(Exception):
        pass

    answers = {(call["fn"], call["gpu"]): call for call in recorded}

    def function(name: str) -> Any:
        def answer(device: int, *_rest: object) -> Any:
            call = answers.get((name, device), {"error": "NVMLError_NotSupported"})
            if "error" in call:
                raise NVMLError(call["error"])
            return as_returned(name, call)

        return answer

    functions = {
        name: function(name) for name in (*NVML_READS, *(call["fn"] for call in recorded))
    }
    return SimpleNamespace(
        nvmlInit=lambda: None,
        nvmlDeviceGetCount=lambda: 1 + max(call["gpu"] for call in recorded),
        nvmlDeviceGetHandleByIndex=lambda index: index,
        NVML_CLOCK_SM=1,
        NVML_CLOCK_MEM=2,
        NVML_TEMPERATURE_GPU=0,
        **functions,
    )


def as_returned(name: str, call: dict[str, Any]) -> Any:
    """A recorded value in NVML's own type and unit."""
    [value] = [value for key, value in call.items() if key.startswith("value")]
    if name == "nvmlDeviceGetMemoryInfo":
        unit = 2**20 if "value_mib" in call else 1
        return SimpleNamespace(**{key: size * unit for key, size in value.items()})
    if name == "nvmlDeviceGetUtilizationRates":
        return SimpleNamespace(gpu=value["gpu"] if isinstance(value, dict) else value)
    return value


CHECKS = {
    "result_table": check_result_table,
    "result_json": check_result_json,
    "token_count_rows": check_token_count_rows,
    "telemetry_hang": check_telemetry_hang,
    "nvml_rows": check_nvml_rows,
}
