"""The answer of a run as plain JSON data: what `--json` of `bench run` and `bench show` prints."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from bench.store.manifest import strict

if TYPE_CHECKING:
    from bench.model import Comparison, Measurement
    from bench.store.reader import StoredRun


def answer_json(stored: StoredRun) -> dict[str, Any]:
    """Everything a run says but its samples and telemetry.

    Names are those of docs/metrics.md; distributions are {mean, p50, p90, p95, p99, n}; what was
    not observed is None.

    Args:
        stored: From `load_run`.

    Returns:
        {run, scenario, question, status, simulated, speed, cells, comparisons, findings}; a cell
        is every field of its measurement, in the order of the plan.
    """
    manifest = stored.manifest
    return {
        "run": manifest.run_id,
        "scenario": manifest.scenario,
        "question": manifest.question,
        "status": str(stored.status),
        "simulated": stored.simulated,
        "speed": manifest.speed,
        "cells": [_cell(measurement) for measurement in stored.measurements],
        "comparisons": [comparison_row(comparison) for comparison in stored.comparisons],
        "findings": [strict(msgspec.to_builtins(finding)) for finding in stored.findings],
    }


def _cell(measurement: Measurement) -> dict[str, Any]:
    cell: dict[str, Any] = strict(msgspec.to_builtins(measurement))
    return {**cell, "failures_by_kind": dict(cell["failures_by_kind"])}


def comparison_row(comparison: Comparison) -> dict[str, Any]:
    """A comparison as plain JSON data."""
    answer: dict[str, Any] = strict(msgspec.to_builtins(comparison))
    differences = [
        {"name": name, "baseline": baseline, "arm": arm}
        for name, baseline, arm in answer["config_differences"]
    ]
    return {**answer, "config_differences": differences}
