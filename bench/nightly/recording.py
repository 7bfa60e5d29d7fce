"""Runs as points of the history: our own runs, and other tools' result files."""

from __future__ import annotations

import hashlib
import math
import re
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from typing import TYPE_CHECKING, Final

from bench.foreign import ForeignResult, read_results, strict_json
from bench.metrics.watched import ACCEPT_LEN, CYCLE, OUTPUT, SPEEDUP, foreign_name
from bench.model import BASELINE, CellStatus
from bench.model.nightly import Point, SeriesKey
from bench.nightly.facts import facts_of, hardware_of, resolved_arguments
from bench.nightly.history import as_utc, fingerprint_of
from bench.sglang.server_info import effective_config

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from bench.model import Measurement
    from bench.store import StoredRun

_DATE_IN_NAME: Final = re.compile(r"(20\d\d)-?([01]\d)-?([0-3]\d)")
_CONTEXT: Final = {"sm_clock_mhz": "sm_clock_mhz", "temperature_c": "gpu_temperature_c"}
"""Readings of the GPUs that go beside the series, by their names there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """What one source adds to a history.

    Attributes:
        source_id: Its run id, or the hash of its row.
        where: What it is called: the run's id, or the file and row.
        night: Its date.
        points: Its values.
        facts: Its environment.
        left_out: What gave no point, and why.
    """

    source_id: str
    where: str
    night: date
    points: tuple[Point, ...]
    facts: dict[str, str]
    left_out: tuple[str, ...]


def recorded_run(stored: StoredRun, *, hardware: str | None = None) -> Recorded:
    """A published run of ours.

    Args:
        stored: The run; its repeats are averaged (geometric means over launches).
        hardware: The hardware class, where the run cannot tell it (servers elsewhere).
    """
    facts = facts_of(stored)
    at = as_utc(datetime.fromisoformat(stored.manifest.started_at))
    where = hardware or hardware_of(stored, facts)
    fingerprint = fingerprint_of(facts)
    groups: dict[tuple[str, str, str], list[Measurement]] = {}
    left_out: list[str] = []
    for m in stored.measurements:
        if m.status is CellStatus.INVALID:
            left_out.append(f"{m.arm} {m.workload} load {m.load}: INVALID")
            continue
        groups.setdefault((m.workload, m.load, m.arm), []).append(m)
    values: list[tuple[str, str, str, str, float, bool]] = []
    for (workload, load, arm), cells in groups.items():
        suspect = any(m.status is CellStatus.SUSPECT for m in cells)
        for metric, value in _values(cells, _gpu_means(stored, cells)):
            values.append((workload, load, arm, metric, value, suspect))
    for c in stored.comparisons:
        if c.speedup is not None:
            suspect = c.status is not CellStatus.VALID
            values.append((c.workload, c.load, c.arm, SPEEDUP, c.speedup, suspect))
    points = tuple(
        Point(
            key=SeriesKey(
                scenario=stored.manifest.scenario,
                workload=workload,
                load=load,
                arm=arm,
                metric=metric,
                hardware=where,
            ),
            night=at.date(),
            at=at,
            value=value,
            suspect=suspect,
            simulated=stored.simulated,
            fingerprint=fingerprint,
            source="bench",
            source_id=stored.run_id,
        )
        for workload, load, arm, metric, value, suspect in values
        if math.isfinite(value) and value > 0
    )
    return Recorded(
        source_id=stored.run_id,
        where=stored.run_id,
        night=at.date(),
        points=points,
        facts=facts,
        left_out=tuple(dict.fromkeys(left_out)),
    )


def _values(cells: Sequence[Measurement], gpu: Mapping[str, float]) -> Iterator[tuple[str, float]]:
    """(metric, value) of one arm at one workload and load, over its launches."""
    correct = sum(m.spec_num_correct_drafts or 0 for m in cells)
    verify = sum(m.spec_verify_ct or 0 for m in cells)
    if verify:
        yield ACCEPT_LEN, 1 + correct / verify
    for metric, told in (
        (OUTPUT, [m.output_tok_per_s for m in cells]),
        (CYCLE, [m.cycle_ms for m in cells]),
        ("ttft_p99_ms", [m.ttft_ms and m.ttft_ms.p99 for m in cells]),
        ("ttft_p50_ms", [m.ttft_ms and m.ttft_ms.p50 for m in cells]),
        ("tpot_mean_ms", [m.tpot_ms and m.tpot_ms.mean for m in cells]),
        ("request_per_s", [m.request_per_s for m in cells]),
        ("capacity_rate_per_s", [m.capacity_rate_per_s for m in cells]),
        ("energy_j_per_output_tok", [m.energy_j_per_output_tok for m in cells]),
    ):
        known = [value for value in told if value]
        if known:
            yield metric, math.exp(math.fsum(map(math.log, known)) / len(known))
    yield from gpu.items()


def _gpu_means(stored: StoredRun, cells: Sequence[Measurement]) -> dict[str, float]:
    """Means of the GPUs' readings in the cells, of what there are any."""
    import pyarrow as pa  # noqa: PLC0415  # loads only where a run is taken in
    import pyarrow.compute as pc  # noqa: PLC0415
    import pyarrow.parquet as pq  # noqa: PLC0415

    wanted = [("source", "=", "gpu"), ("cell_id", "in", [m.cell_id for m in cells])]
    try:
        table = pq.read_table(
            stored.folder / "telemetry.parquet", columns=["name", "value"], filters=wanted
        )
    except (OSError, pa.ArrowException):
        return {}  # without telemetry the night is as good, and tells less
    means = {}
    for name, metric in _CONTEXT.items():
        mean = pc.mean(table.filter(pc.equal(table["name"], name))["value"]).as_py()
        if mean:
            means[metric] = float(mean)
    return means


# ------------------------------------------------------------------------------ other tools' files


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignNames:
    """What a result file of another tool cannot tell.

    Attributes:
        scenario: Name of the scenario its rows are of.
        arm: Name of the arm.
        hardware: The hardware class.
        night: The date; None: the one in the file's name, else the file's own.
    """

    scenario: str
    arm: str
    hardware: str
    night: date | None


def recorded_results(path: Path, names: ForeignNames) -> list[Recorded]:
    """The rows of a result file of SGLang's bench_serving or `vllm bench serve`.

    Args:
        path: JSONL or JSON.
        names: What it cannot tell.

    Raises:
        InputError: It cannot be read, or has no result.
    """
    night = names.night or _date_of(path)
    begin = datetime.combine(night, time(), tzinfo=UTC)
    return [
        _recorded_row(
            result, names, begin + timedelta(seconds=place), f"{path} result {place + 1}"
        )
        for place, result in enumerate(read_results(path))
    ]


def _recorded_row(
    result: ForeignResult, names: ForeignNames, at: datetime, where: str
) -> Recorded:
    row = strict_json(result.row)
    source_id = hashlib.sha256(f"{at:%Y-%m-%d}{row}".encode()).hexdigest()[:16]
    info = result.row.get("server_info")
    told_settings = resolved_arguments(effective_config(info)) if isinstance(info, dict) else {}
    facts = {f"{names.arm}: {name}": value for name, value in told_settings.items()}
    facts |= {
        "tool": result.tool,
        "backend": result.backend or "",
        f"{names.arm}: model_path": result.model or facts.get(f"{names.arm}: model_path", ""),
    }
    facts = {name: value for name, value in facts.items() if value not in {"", "None"}}
    load = _load_label(result)
    key = {
        "scenario": names.scenario,
        "workload": _workload_label(result),
        "load": load,
        "arm": names.arm,
        "hardware": names.hardware,
    }
    p99 = dict(result.ttft_ms.percentiles_ms).get(99.0) if result.ttft_ms else None
    told: dict[str, float | None] = {
        OUTPUT: result.output_tok_per_s,
        ACCEPT_LEN: result.accept_len_tok,
        "ttft_p99_ms": p99,
        "ttft_p50_ms": result.ttft_ms.median_ms if result.ttft_ms else None,
        "tpot_mean_ms": result.tpot_ms.mean_ms if result.tpot_ms else None,
        "request_per_s": result.request_per_s,
    }
    points = tuple(
        Point(
            key=SeriesKey(metric=foreign_name(result.tool, metric), **key),
            night=at.date(),
            at=at,
            value=float(value),
            suspect=False,
            simulated=False,
            fingerprint=fingerprint_of(facts),
            source=result.tool,
            source_id=source_id,
        )
        for metric, value in told.items()
        if value is not None and value > 0
    )
    left_out = tuple(f"{metric}: not told" for metric, value in told.items() if not value)
    if not points:
        left_out = (f"has none of {', '.join(told)}",)
    if names.arm == BASELINE and result.accept_len_tok:
        points = ()
        why = (
            f"has an accept length ({result.accept_len_tok:g}), so it is no baseline: name its arm"
        )
        left_out = (f"{why} with --arm",)
    return Recorded(
        source_id=source_id,
        where=where,
        night=at.date(),
        points=points,
        facts=facts,
        left_out=left_out,
    )


def _workload_label(result: ForeignResult) -> str:
    """The data set, and the lengths that were asked of made-up prompts."""
    lengths = [result.row.get(name) for name in ("random_input_len", "random_output_len")]
    name = result.dataset or "unnamed"
    if name.startswith("random") and all(isinstance(length, int) for length in lengths):
        return f"{name}-{lengths[0]}-{lengths[1]}"
    return name


def _load_label(result: ForeignResult) -> str:
    """As of our loads: a limit on requests at once, else a rate, else all at once."""
    if result.max_concurrency:
        return str(result.max_concurrency)
    if result.request_rate_per_s:
        return f"rate={result.request_rate_per_s:g}"
    return "unlimited"


def _date_of(path: Path) -> date:
    for match in _DATE_IN_NAME.finditer(path.name):
        try:
            return date(int(match[1]), int(match[2]), int(match[3]))
        except ValueError:
            continue
    return datetime.fromtimestamp(path.stat().st_mtime, tz=UTC).date()
