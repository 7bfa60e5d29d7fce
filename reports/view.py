"""A stored run, arranged as a page shows it: everything in order, cells pooled over pairs.

Pure functions over `bench.store.StoredRun`; a ratio over several cells is a ratio of sums, and
what was not observed stays None.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bench.model import BASELINE, CellStatus

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from bench.model import Comparison, Measurement
    from bench.store import StoredRun


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """One workload at one load.

    Attributes:
        workload: Its name.
        load: The load's label.
    """

    workload: str
    load: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Pooled:
    """The cells of one arm at one place, over its pairs; None: no cell observed it.

    Attributes:
        arm: The arm.
        place: Workload and load.
        cells: The measurements, by pair.
        status: The worst of theirs.
        output_tok_per_s: Mean over the cells.
        output_tok_per_s_per_user: Likewise.
        output_tok_per_s_per_gpu: Likewise.
        accept_len_tok: 1 + correct drafts / verify steps, over the sums.
        accept_at_position: Element k-1: share of verify steps that accepted at least k, over the
            sums.
        histogram: Element k: verify steps that accepted exactly k, summed.
        cycle_ms: Mean over the cells.
        limit_tok_per_s: Mean over the cells.
        energy_j_per_output_tok: Mean over the cells.
        prefill_share: Mean over the cells.
        queue_share: Mean over the cells.
    """

    arm: str
    place: Place
    cells: tuple[Measurement, ...]
    status: CellStatus
    output_tok_per_s: float | None
    output_tok_per_s_per_user: float | None
    output_tok_per_s_per_gpu: float | None
    accept_len_tok: float | None
    accept_at_position: tuple[float, ...] | None
    histogram: tuple[int, ...] | None
    cycle_ms: float | None
    limit_tok_per_s: float | None
    energy_j_per_output_tok: float | None
    prefill_share: float | None
    queue_share: float | None


def arms_of(stored: StoredRun) -> tuple[str, ...]:
    """The baseline first, then the others as planned."""
    planned = dict.fromkeys(launch.arm for launch in stored.manifest.plan)
    return (*(a for a in planned if a == BASELINE), *(a for a in planned if a != BASELINE))


def arm_numbers(stored: StoredRun) -> dict[str, int]:
    """The number of each arm's series: 0 is the baseline's even where there is none."""
    arms = arms_of(stored)
    start = 0 if BASELINE in arms else 1
    return {arm: number for number, arm in enumerate(arms, start=start)}


def places_of(stored: StoredRun) -> tuple[Place, ...]:
    """Workloads as planned, each with its loads from low to high."""
    planned = dict.fromkeys(
        Place(workload=cell.workload, load=cell.load)
        for launch in sorted(stored.manifest.plan, key=lambda launch: launch.ordinal)
        for cell in launch.cells
    )
    workloads = list(dict.fromkeys(place.workload for place in planned))
    return tuple(
        sorted(planned, key=lambda p: (workloads.index(p.workload), load_order(p.load), p.load))
    )


def load_order(load: str) -> tuple[int, float]:
    """Orders load labels: concurrencies by number, rates by number, then the others."""
    for kind, prefix in enumerate(("", "rate=")):
        try:
            if load.startswith(prefix):
                return kind, float(load.removeprefix(prefix))
        except ValueError:
            continue
    return 2, 0.0


def load_value(load: str) -> float | None:
    """A concurrency or rate as a number; None for `capacity` and `trace`."""
    kind, value = load_order(load)
    return value if kind < 2 else None


def load_phrase(load: str) -> str:
    """A load as words: `at 8 requests at once`."""
    kind, _ = load_order(load)
    if kind == 0:
        return "at 1 request" if load == "1" else f"at {load} requests at once"
    if kind == 1:
        return f"at {load.removeprefix('rate=')} requests a second"
    return f"at load {load}"


def pooled(stored: StoredRun) -> tuple[Pooled, ...]:
    """Every arm at every place that has a cell, places in order, arms in order within each."""
    groups: dict[tuple[Place, str], list[Measurement]] = {}
    for m in stored.measurements:
        groups.setdefault((Place(workload=m.workload, load=m.load), m.arm), []).append(m)
    return tuple(
        _pool(arm, place, sorted(groups[place, arm], key=lambda m: m.pair))
        for place in places_of(stored)
        for arm in arms_of(stored)
        if (place, arm) in groups
    )


def comparisons_at(stored: StoredRun, arm: str, workload: str) -> tuple[Comparison, ...]:
    """One arm's comparisons in one workload, from low load to high."""
    chosen = [c for c in stored.comparisons if c.arm == arm and c.workload == workload]
    return tuple(sorted(chosen, key=lambda c: load_order(c.load)))


def varies(values: Iterable[object]) -> bool:
    """Whether there are two different ones; a column or series appears only then."""
    return len(set(values)) > 1


_WORST = (CellStatus.VALID, CellStatus.SUSPECT, CellStatus.INVALID)


def _pool(arm: str, place: Place, cells: Sequence[Measurement]) -> Pooled:
    # An INVALID cell's numbers are not used, unless there are no others to show.
    usable = [m for m in cells if m.status is not CellStatus.INVALID] or list(cells)
    histogram = summed_histogram([m.spec_correct_drafts_histogram for m in usable])
    return Pooled(
        arm=arm,
        place=place,
        cells=tuple(cells),
        status=max((m.status for m in cells), key=_WORST.index),
        output_tok_per_s=_mean(usable, lambda m: m.output_tok_per_s),
        output_tok_per_s_per_user=_mean(usable, lambda m: m.output_tok_per_s_per_user),
        output_tok_per_s_per_gpu=_mean(usable, lambda m: m.output_tok_per_s_per_gpu),
        accept_len_tok=_accept_len(usable),
        accept_at_position=_at_least(histogram),
        histogram=histogram,
        cycle_ms=_mean(usable, lambda m: m.cycle_ms),
        limit_tok_per_s=_mean(usable, lambda m: m.limit_tok_per_s),
        energy_j_per_output_tok=_mean(usable, lambda m: m.energy_j_per_output_tok),
        prefill_share=_mean(usable, lambda m: m.prefill_share),
        queue_share=_mean(usable, lambda m: m.queue_share),
    )


def _mean(
    cells: Sequence[Measurement], value: Callable[[Measurement], float | None]
) -> float | None:
    present = [v for v in map(value, cells) if v is not None]
    return math.fsum(present) / len(present) if present else None


def _accept_len(cells: Sequence[Measurement]) -> float | None:
    told = [
        (m.spec_num_correct_drafts, m.spec_verify_ct)
        for m in cells
        if m.spec_num_correct_drafts is not None and m.spec_verify_ct
    ]
    steps = sum(verify for _, verify in told)
    return 1 + sum(correct for correct, _ in told) / steps if steps else None


def summed_histogram(histograms: Sequence[tuple[int, ...] | None]) -> tuple[int, ...] | None:
    """Histograms of accepted drafts added up; None: none was told."""
    present = [h for h in histograms if h]
    if not present:
        return None
    length = max(map(len, present))
    return tuple(sum(h[k] for h in present if k < len(h)) for k in range(length))


def _at_least(histogram: tuple[int, ...] | None) -> tuple[float, ...] | None:
    if histogram is None or not sum(histogram) or len(histogram) < 2:
        return None
    steps = sum(histogram)
    return tuple(sum(histogram[k:]) / steps for k in range(1, len(histogram)))
