"""Checks of series of nightly values."""

from __future__ import annotations

import json
import math
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from case_fields import AnyOf

from bench.model.nightly import Cause, ChangeKind, ChangePoint, Point, SeriesJudgement, SeriesKey
from bench.nightly.history import History
from bench.nightly.judge import Watch, judge

Found = dict[str, Any]

FIRST = datetime(2026, 1, 1, tzinfo=UTC)
CLASSES = {
    Cause.ENVIRONMENT: "environment_shift_not_speculation",
    Cause.UNCLEAR: "unclear",
}
ABOUT_PCT = 0.5
"""How far a total change may be from one that is said to be `about` so much."""


def check_nightly_series(folder: Path) -> Found:
    given = json.loads((folder / "input.json").read_text())
    assert given.pop("higher_is_better") is True
    return {
        name: both(values) if isinstance(values, dict) else single(values)
        for name, values in given.items()
    }


def single(values: list[float]) -> Found:
    judged = judged_series({("arm", "output_tok_per_s"): values})["arm", "output_tok_per_s"]
    worse = [change for change in judged.changes if change.worse]
    drifts = any(change.kind is ChangeKind.DRIFT for change in worse)
    moved = 100 * math.expm1(sum(change.ln_change for change in worse))
    return {
        "regression": "drift" if drifts else at(worse),
        "outlier_index": judged.incidents[0].index if judged.incidents else None,
        "rel_change_pct_about": about(moved),
        "total_change_pct_about": about(moved),
    }


def both(values: dict[str, list[float]]) -> Found:
    """An arm beside its baseline, and their ratio night by night."""
    speedup = [a / b for a, b in zip(values["spec"], values["baseline"], strict=True)]
    judged = judged_series(
        {
            ("baseline", "output_tok_per_s"): values["baseline"],
            ("spec", "output_tok_per_s"): values["spec"],
            ("spec", "speedup"): speedup,
        }
    )
    spec = judged["spec", "output_tok_per_s"].changes
    cause = spec[0].attribution.cause if spec and spec[0].attribution else None
    return {
        "baseline_change": at(judged["baseline", "output_tok_per_s"].changes),
        "spec_change": at(spec),
        "speedup_change": at(judged["spec", "speedup"].changes),
        "class": CLASSES.get(cause, "speculation"),
    }


def judged_series(
    values: dict[tuple[str, str], list[float]],
) -> dict[tuple[str, str], SeriesJudgement]:
    series = {}
    for (arm, metric), figures in values.items():
        key = SeriesKey(
            scenario="case", workload="w", load="1", arm=arm, metric=metric, hardware="h"
        )
        series[key] = tuple(
            Point(
                key=key,
                night=(FIRST + timedelta(days=place)).date(),
                at=FIRST + timedelta(days=place),
                value=value,
                suspect=False,
                simulated=False,
                fingerprint="same",
                source="bench",
                source_id=str(place),
            )
            for place, value in enumerate(figures)
        )
    history = History(
        folder=Path(), entries=(), series=series, facts={}, failures=(), acks=(), damaged=()
    )
    verdict = judge(history, Watch(suite="case"), judged_at=FIRST)
    return {(j.key.arm, j.key.metric): j for j in verdict.series}


def at(changes: tuple[ChangePoint, ...] | list[ChangePoint]) -> AnyOf | None:
    """The first night of the one new level, give or take one; None without one."""
    assert len(changes) < 2, [change.index for change in changes]
    return AnyOf(changes[0].index + off for off in (0, -1, 1)) if changes else None


def about(pct: float) -> AnyOf:
    """Numbers near enough to a change in per cent."""
    steps = range(round(-ABOUT_PCT * 10), round(ABOUT_PCT * 10) + 1)
    return AnyOf(round(pct, 1) + step / 10 for step in steps)


CHECKS = {"nightly_series": check_nightly_series}
