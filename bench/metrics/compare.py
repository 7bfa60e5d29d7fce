"""Every arm against the baseline at every workload and load, from the cells of a run."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from bench.metrics.acceptance import accept_len_tok
from bench.metrics.configuration import config_differences
from bench.metrics.findings import worst_status
from bench.metrics.speedup import (
    Estimate,
    estimate_speedup,
    judge,
    more_pairs_needed,
    step_cost_ratio,
)
from bench.model import BASELINE, CellStatus, Comparison, Severity, Verdict

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from bench.model import Cell, EffectiveConfig, Finding, Measurement

METRIC_OF_LOAD: Final = {
    "closed": "output_tok_per_s",
    "open": "inverse_mean_tpot",
    "capacity": "capacity_rate_per_s",
}


def compare(
    cells: Sequence[tuple[Cell, Measurement]],
    effective: Mapping[str, EffectiveConfig],
    *,
    margin: float,
    pairs_planned: int,
    findings: Iterable[Finding] = (),
) -> tuple[Comparison, ...]:
    """Compare every arm with the baseline at every workload and load.

    Args:
        cells: The measured cells of a run, in any order; a comparison's order is that of its first
            cell.
        effective: What each launch's server said of itself, by launch_id.
        margin: Speedups within ± this share of 1 are SAME.
        pairs_planned: How many pairs the plan asks for.
        findings: Findings on these cells, for saying why a cell did not enter.

    Returns:
        One comparison for each arm, workload and load that has cells of the arm.
    """
    invalid_kinds: dict[str | None, list[str]] = defaultdict(list)
    for finding in findings:
        if finding.severity is Severity.INVALID:
            invalid_kinds[finding.cell_id].append(finding.kind.value)
    groups: dict[tuple[str, str], dict[str, list[_MeasuredCell]]] = defaultdict(
        lambda: defaultdict(list)
    )
    for cell, measurement in cells:
        groups[measurement.workload, measurement.load][measurement.arm].append(
            _MeasuredCell(
                cell=cell,
                measurement=measurement,
                value=compared_value(cell, measurement),
                why_not=_why_not(measurement, invalid_kinds.get(cell.cell_id, [])),
            )
        )
    return tuple(
        _comparison(arms.get(BASELINE, []), arm_cells, effective, margin, pairs_planned)
        for arms in groups.values()
        for arm, arm_cells in arms.items()
        if arm != BASELINE
    )


def compared_value(cell: Cell, measurement: Measurement) -> float | None:
    """The figure a cell is compared by, more is better; None when it was not measured.

    Closed loop: output tokens a second. Open loop: 1000 / mean `tpot_ms`, since throughput is the
    offered rate there. Capacity: the highest rate that met the limits.
    """
    if cell.load.kind == "closed":
        return measurement.output_tok_per_s
    if cell.load.kind == "capacity":
        return measurement.capacity_rate_per_s
    tpot = measurement.tpot_ms
    return 1000 / tpot.mean if tpot is not None and tpot.mean > 0 else None


@dataclass(frozen=True, slots=True, kw_only=True)
class _MeasuredCell:
    """A cell with what it is compared by, and why it may not be (None: it may)."""

    cell: Cell
    measurement: Measurement
    value: float | None
    why_not: str | None

    @property
    def obstacle(self) -> str | None:
        if self.why_not is not None:
            return self.why_not
        return None if self.value else f"has no {METRIC_OF_LOAD[self.cell.load.kind]}"


def _why_not(measurement: Measurement, kinds: Sequence[str]) -> str | None:
    if measurement.status is not CellStatus.INVALID:
        return None
    return f"is INVALID ({', '.join(sorted(set(kinds)))})" if kinds else "is INVALID"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pairs:
    """The pairs that entered: both sides' cells, each pair's ratio, what kept others out."""

    baseline: list[_MeasuredCell]
    arm: list[_MeasuredCell]
    ratios: list[float]
    obstacles: list[str]


def _match_pairs(baseline: Sequence[_MeasuredCell], arm: Sequence[_MeasuredCell]) -> _Pairs:
    matched = _Pairs(baseline=[], arm=[], ratios=[], obstacles=[])
    for pair in sorted({c.measurement.pair for c in (*baseline, *arm)}):
        sides = [[c for c in cells if c.measurement.pair == pair] for cells in (baseline, arm)]
        usable = [[c for c in side if c.obstacle is None] for side in sides]
        for name, side, left in zip((BASELINE, "arm"), sides, usable, strict=True):
            if not left:
                why = side[0].obstacle if side else "was not measured"
                matched.obstacles.append(f"pair {pair}: {name} cell {why}")
        if all(usable):
            matched.baseline.extend(usable[0])
            matched.arm.extend(usable[1])
            # Blocks of one launch are averaged: they are no replicates.
            matched.ratios.append(_mean_value(usable[1]) / _mean_value(usable[0]))
    return matched


def _comparison(
    baseline: Sequence[_MeasuredCell],
    arm: Sequence[_MeasuredCell],
    effective: Mapping[str, EffectiveConfig],
    margin: float,
    pairs_planned: int,
) -> Comparison:
    matched = _match_pairs(baseline, arm)
    estimate = estimate_speedup(matched.ratios)
    verdict, more_pairs = _verdict(estimate, margin)
    cycle_ms = _pooled(
        [m.measurement for m in matched.arm], lambda m: (m.cycle_ms, m.spec_verify_ct)
    )
    step_ms = _pooled(
        [m.measurement for m in matched.baseline], lambda m: (m.cycle_ms, m.output_tok_sum)
    )
    entered = (*matched.baseline, *matched.arm)
    concerned = entered or (*baseline, *arm)
    first = arm[0]
    return Comparison(
        arm=first.measurement.arm,
        workload=first.measurement.workload,
        load=first.measurement.load,
        metric=METRIC_OF_LOAD[first.cell.load.kind],
        speedup=estimate.speedup if estimate else None,
        ci95_low=estimate.ci95_low if estimate else None,
        ci95_high=estimate.ci95_high if estimate else None,
        pairs=len(matched.ratios),
        degrees_of_freedom=estimate.degrees_of_freedom if estimate else None,
        verdict=verdict,
        more_pairs_needed=more_pairs,
        # The accept length that breaks even is what a cycle costs in plain steps.
        break_even_accept_len_tok=step_cost_ratio(cycle_ms, step_ms)
        if cycle_ms and step_ms
        else None,
        accept_len_tok=_pooled_accept_len(matched.arm),
        cycle_ms=cycle_ms,
        baseline_step_ms=step_ms,
        baseline_value=_mean_value(matched.baseline) if matched.baseline else None,
        arm_value=_mean_value(matched.arm) if matched.arm else None,
        status=worst_status(c.measurement.status for c in concerned),
        reason=_reason(matched, estimate, pairs_planned),
        config_differences=config_differences(
            _configs(matched.baseline or baseline, effective),
            _configs(matched.arm or arm, effective),
        ),
    )


def _verdict(estimate: Estimate | None, margin: float) -> tuple[Verdict | None, int | None]:
    if estimate is None or estimate.ci95_low is None or estimate.ci95_high is None:
        return None, None
    verdict = judge(estimate.ci95_low, estimate.ci95_high, margin)
    undecided = verdict is Verdict.UNDECIDED
    return verdict, more_pairs_needed(estimate, margin) if undecided else None


def _reason(matched: _Pairs, estimate: Estimate | None, pairs_planned: int) -> str | None:
    told = "; ".join(matched.obstacles)
    if estimate is None:
        return f"no pair of launches can be compared: {told}" if told else "no pair of launches"
    if estimate.pairs > 1:
        return None
    of_planned = f" of {pairs_planned} planned" if pairs_planned > 1 else ""
    return f"one pair of launches{of_planned}: no interval and no verdict" + (
        f" ({told})" if told else ""
    )


def _mean_value(cells: Sequence[_MeasuredCell]) -> float:
    """Mean over pairs of the mean over each pair's cells: more blocks weigh no more."""
    by_pair: dict[int, list[float]] = defaultdict(list)
    for c in cells:
        by_pair[c.measurement.pair].append(c.value or 0.0)
    means = [sum(values) / len(values) for _, values in sorted(by_pair.items())]
    return sum(means) / len(means)


def _pooled(
    measurements: Sequence[Measurement],
    value_and_weight: Callable[[Measurement], tuple[float | None, int | None]],
) -> float | None:
    """Mean weighted by steps: the ratio of sums; None when a cell lacks its part."""
    parts = [value_and_weight(m) for m in measurements]
    told = [(value, weight) for value, weight in parts if value is not None and weight]
    if not told or len(told) < len(parts):
        return None
    return sum(value * weight for value, weight in told) / sum(weight for _, weight in told)


def _pooled_accept_len(cells: Sequence[_MeasuredCell]) -> float | None:
    counts = [(c.measurement.spec_num_correct_drafts, c.measurement.spec_verify_ct) for c in cells]
    told = [(correct, verify) for correct, verify in counts if correct is not None and verify]
    if not told or len(told) < len(counts):
        return None
    return accept_len_tok(sum(c for c, _ in told), sum(v for _, v in told))


def _configs(
    cells: Sequence[_MeasuredCell], effective: Mapping[str, EffectiveConfig]
) -> list[EffectiveConfig]:
    launches = sorted({c.measurement.launch_id for c in cells})
    return [effective[launch] for launch in launches if launch in effective]
