"""What the cells of a launch say of its configuration."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from bench.metrics.compare import compared_value
from bench.model import CellStatus
from tuner.predict import Reading

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from bench.model import Cell, Distribution, Finding, Measurement, TelemetryPoint
    from tuner.space import Configuration
    from tuner.space.schema import Constraints

_MOST_DIGITS = 12  # decimals of a figure beside its limit


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One launch's figures, a value a cell; None where a cell has no valid one.

    Attributes:
        value: The objective's metric, more is better.
        accept_len_tok: Accept length; None without speculation or without counters.
        reach: P(at least k drafts accepted); None likewise.
        ttft_p99_ms: 99th percentile of the time to the first token.
        tpot_p99_ms: Of the time a token.
        memory_headroom_gib: Least free memory of a GPU; None: it was not read.
        breaks: Constraints that are not kept, in words.
        marks: Kinds of findings that weaken a cell.
    """

    value: tuple[float | None, ...]
    accept_len_tok: tuple[float | None, ...]
    reach: tuple[tuple[float, ...] | None, ...]
    ttft_p99_ms: tuple[float | None, ...]
    tpot_p99_ms: tuple[float | None, ...]
    memory_headroom_gib: float | None
    breaks: tuple[str, ...]
    marks: tuple[str, ...]

    @property
    def has_value(self) -> bool:
        """Whether any cell has a valid figure."""
        return any(value is not None for value in self.value)


def measured(
    cells: Sequence[Cell],
    measurements: Sequence[Measurement],
    findings: Sequence[Finding],
    *,
    objective: str,
    constraints: Constraints,
    memory_headroom_gib: float | None = None,
) -> Measured:
    """The figures of a launch.

    Args:
        cells: Of the launch, in order.
        measurements: Of those that were measured, in any order.
        findings: Of these cells.
        objective: `tune.objective`.
        constraints: `tune.constraints`.
        memory_headroom_gib: From `memory_headroom_gib`.
    """
    of = {m.cell_id: m for m in measurements if m.status is not CellStatus.INVALID}
    rows = [of.get(cell.cell_id) for cell in cells]
    return Measured(
        value=tuple(
            None if m is None else objective_value(c, m, objective)
            for c, m in zip(cells, rows, strict=True)
        ),
        accept_len_tok=tuple(None if m is None else m.accept_len_tok for m in rows),
        reach=tuple(None if m is None else m.accept_at_position for m in rows),
        ttft_p99_ms=tuple(None if m is None else _p99(m.ttft_ms) for m in rows),
        tpot_p99_ms=tuple(None if m is None else _p99(m.tpot_ms) for m in rows),
        memory_headroom_gib=memory_headroom_gib,
        breaks=(
            *_breaks(cells, rows, constraints),
            *_memory_breaks(memory_headroom_gib, constraints.memory_headroom_gib),
        ),
        marks=tuple(sorted({f.kind.value for f in findings if f.severity.value != "note"})),
    )


def objective_value(cell: Cell, measurement: Measurement, objective: str) -> float | None:
    """The objective's metric of a cell, more is better; None where it was not measured.

    `tok_per_s` is what arms are compared by anywhere: output tokens a second in a closed loop,
    tokens a second of one user (1000 / mean TPOT) in an open one, whose throughput is the offered
    rate, and the highest rate within the limits of a capacity search.
    """
    value = {
        "tok_per_s": compared_value(cell, measurement),
        "tok_per_s_per_user": measurement.output_tok_per_s_per_user,
        "goodput": measurement.goodput_request_per_s,
        "energy": _inverse(measurement.energy_j_per_output_tok),
    }[objective]
    return value if value is not None and value > 0 else None


def _inverse(value: float | None) -> float | None:
    return None if not value else 1 / value


def _p99(distribution: Distribution | None) -> float | None:
    return None if distribution is None else distribution.p99


def _breaks(
    cells: Sequence[Cell], rows: Sequence[Measurement | None], constraints: Constraints
) -> list[str]:
    told = []
    for name, limit, column in (
        ("TTFT", constraints.ttft_p99_ms, "ttft_ms"),
        ("TPOT", constraints.tpot_p99_ms, "tpot_ms"),
    ):
        for cell, m in zip(cells, rows, strict=True):
            found = None if m is None else _p99(getattr(m, column))
            if limit is not None and found is not None and found > limit:
                told.append(
                    f"p99 {name} {beside(found, limit)} ms at {cell.workload.name} load "
                    f"{cell.load.label}, limit {limit:.12g} ms"
                )
    return told


def beside(found: float, limit: float, *, digits: int = 0) -> str:
    """A figure with as many decimals as show on which side of its limit it is, `digits` at least.

    Of 8.17 beside a limit of 8 that is 8.2, of 19.25 it is 19.
    """
    for more in range(digits, _MOST_DIGITS):
        text = f"{found:.{more}f}"
        if (float(text) - limit) * (found - limit) > 0:
            return text
    return repr(found)


def _memory_breaks(found_gib: float | None, limit_gib: float | None) -> list[str]:
    if found_gib is None or limit_gib is None or found_gib >= limit_gib:
        return []
    free = beside(found_gib, limit_gib, digits=1)
    return [f"{free} GiB free on the fullest GPU, limit {limit_gib:.12g} GiB"]


def memory_headroom_gib(
    telemetry: Iterable[TelemetryPoint], memory_bytes: Sequence[int | None]
) -> float | None:
    """The least free memory of a GPU while a launch was measured, in GiB.

    Args:
        telemetry: Of the launch's cells.
        memory_bytes: All memory of each GPU, by its index; None: not known.

    Returns:
        None where no GPU's memory was read.
    """
    free = [
        total - point.value
        for point in telemetry
        if point.source == "gpu"
        and point.name == "memory_used_bytes"
        and point.value is not None
        and point.rank is not None
        and point.rank < len(memory_bytes)
        and (total := memory_bytes[point.rank]) is not None
    ]
    return min(free) / 2**30 if free else None


def reading_of(
    found: Measured, configuration: Configuration, *, place: int, at: float, positions: int
) -> Reading:
    """The figures as the predictor takes them.

    Args:
        found: The launch's figures.
        configuration: What was launched.
        place: Its place in the space.
        at: When, in launches.
        positions: How many positions of acceptance the predictor holds.
    """
    cells = len(found.value)
    off = configuration.algorithm is None
    reach = np.full((cells, positions), np.nan)
    for row, told in zip(reach, found.reach, strict=True):
        if told is not None and not off:
            row[: len(told)] = told[:positions]
    return Reading(
        configuration=place,
        at=at,
        log_value=np.array([math.nan if v is None else math.log(v) for v in found.value]),
        log_accept_len=np.zeros(cells)
        if off
        else np.array([math.nan if v is None else math.log(v) for v in found.accept_len_tok]),
        reach=reach,
    )
