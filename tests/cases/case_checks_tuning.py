"""Checks of what a tuner decides: whether speculation wins, what a step costs, what is stale."""

from __future__ import annotations

import csv
import json
import statistics
from collections import defaultdict
from pathlib import Path
from typing import Any

from bench.metrics.speedup import best_setting, falls_with_load, step_cost_ratio, tpot_speedup
from bench.model.study import TrialState
from tuner.study.lease import Condition, Here, Lease, judge

Found = dict[str, Any]

NOWHERE = Here(host="here", boot_id="", pid_namespace="", started_ticks={})


def check_speculation_verdict(folder: Path) -> Found:
    baseline = json.loads((folder / "baseline.json").read_text())
    rows = list(csv.DictReader((folder / "sweep.csv").read_text().splitlines()))
    return verdicts(baseline, rows)


def verdicts(baseline: dict[str, Any], rows: list[dict[str, str]]) -> Found:
    """Of a sweep in launches of one tensor parallelism, or (column `tp`) of several."""
    if rows and "tp" in rows[0]:
        by_tp = defaultdict(list)
        for row in rows:
            by_tp[row["tp"]].append(row)
        parts = {tp: _verdicts(baseline[tp], of_tp) for tp, of_tp in by_tp.items()}
        return {name: {tp: part[name] for tp, part in parts.items()} for name in _verdicts({}, [])}
    return _verdicts(baseline, rows)


def _verdicts(baseline: dict[str, Any], rows: list[dict[str, str]]) -> Found:
    values: dict[str, dict[tuple[int, ...], list[float]]] = defaultdict(lambda: defaultdict(list))
    accepts: dict[str, dict[tuple[int, ...], list[float]]] = defaultdict(lambda: defaultdict(list))
    costs: list[float | None] = []
    for row in rows:
        at, setting = row["bs"], setting_of(row)
        base, value, accept = baseline.get(at), number(row["tok_s"]), number(row["accept_len"])
        known = base is not None and value is not None
        costs.append(
            step_cost_ratio(accept, value / mean(base)) if known and accept is not None else None
        )
        if known:
            values[at][setting].append(value)
            if accept is not None:
                accepts[at][setting].append(accept)
    best = {at: best_setting(baseline[at], settings) for at, settings in values.items()}
    return {
        "best": {at: "off" if b.best is None else b.best for at, b in best.items()},
        "best_spec": {at: b.best_speculative for at, b in best.items()},
        "speedup_best_spec": {at: b.speedup for at, b in best.items()},
        "verdict": {at: b.verdict and b.verdict.value for at, b in best.items()},
        "highest_accept_is_fastest": all(
            max(lengths, key=lambda setting: mean(lengths[setting])) == best[at].best_speculative
            for at, lengths in accepts.items()
        ),
        "step_cost_ratio": costs,
    }


def setting_of(row: dict[str, str]) -> tuple[int, int, int]:
    """The effective triple: a chain verifies its steps and the root, whatever was asked."""
    steps, topk, draft = int(row["steps"]), int(row["topk"]), int(row["draft"])
    return (steps, topk, steps + 1 if topk == 1 else draft)


def number(text: str) -> float | None:
    return float(text) if text.strip() else None


def mean(given: float | list[float]) -> float:
    return statistics.geometric_mean(given) if isinstance(given, list) else given


def check_speedup_by_load(folder: Path) -> Found:
    return speedup_by_load(json.loads((folder / "input.json").read_text()))


def speedup_by_load(rows: list[dict[str, float | None]]) -> Found:
    speedups = [
        None
        if row.get("base_tpot_ms") is None or row.get("spec_tpot_ms") is None
        else tpot_speedup(row["base_tpot_ms"], row["spec_tpot_ms"])
        for row in rows
    ]
    loads = [row["qps"] for row in rows]
    return {
        "speedup": speedups,
        "monotone_decreasing": falls_with_load(dict(zip(loads, speedups, strict=True))),
    }


def check_speedup_by_prompt(folder: Path) -> Found:
    return speedup_by_prompt(json.loads((folder / "input.json").read_text()))


def speedup_by_prompt(given: dict[str, Any]) -> Found:
    speedups = [
        None if run["tok_s"] is None else run["tok_s"] / given["base"] for run in given["runs"]
    ]
    return {
        "speedup": speedups,
        "step_cost_ratio": [
            None
            if speedup is None or run["accept"] is None
            else step_cost_ratio(run["accept"], speedup)
            for run, speedup in zip(given["runs"], speedups, strict=True)
        ],
    }


def check_stale_trials(folder: Path) -> Found:
    return stale_trials(json.loads((folder / "input.json").read_text()))


def stale_trials(given: dict[str, Any]) -> Found:
    """Heartbeats are leases of another machine: their age is all that is known."""
    leases = {
        trial["n"]: None
        if trial["last_heartbeat"] is None
        else Lease(
            host="elsewhere",
            boot_id="b",
            pid_namespace="n",
            pid=1,
            started_ticks=0,
            renewed_at_s=trial["last_heartbeat"],
            interval_s=given["heartbeat_interval"],
        )
        for trial in given["trials"]
        if trial["state"].lower() == TrialState.RUNNING
    }
    found = judge(leases, given["now"], NOWHERE, grace_s=given["grace_period"])
    stale = [one.number for one in found if one.condition is Condition.STALE]
    return {
        "stale_now": stale,
        "cannot_judge_without_heartbeat": [
            one.number for one in found if one.condition is Condition.UNKNOWN
        ],
        "retried_by_callback": stale,
        "not_retried_automatically": [
            trial["n"]
            for trial in given["trials"]
            if trial["state"] == "FAIL" and trial.get("fail_reason") != TrialState.STALE
        ],
    }


CHECKS = {
    "speculation_verdict": check_speculation_verdict,
    "speedup_by_load": check_speedup_by_load,
    "speedup_by_prompt": check_speedup_by_prompt,
    "stale_trials": check_stale_trials,
}
