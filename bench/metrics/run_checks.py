"""Checks over several cells: the same work, the same outputs, no difference but speculation."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from bench.metrics.compare import compare
from bench.metrics.configuration import called, config_differences
from bench.metrics.findings import make_finding
from bench.model import BASELINE, FindingKind, RequestStatus, Severity

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from bench.model import Cell, EffectiveConfig, Finding, Measurement, RequestSample

BLOCK_CHARS: Final = 64  # text_block_hashes has one hash for every so many characters
DIVERGES_P_VALUE: Final = 0.01
SAID_BY: Final = {
    "cuda_graph_config": "decode_graph_batch_sizes",
    "max_req_input_len": "max_total_num_tokens",
}
"""Values that only follow from another one: they differ with it, and are not told beside it."""
MOST_DIFFERENCES_TOLD: Final = 6

MeasuredCell = tuple["Cell", "Measurement"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """What is kept of one answer for telling where two of them part."""

    text_sha256: str
    block_hashes: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CellWork:
    """What a cell was given: (index, prompt hash, seed) a request; and its answers by index."""

    cell: Cell
    launch_id: str
    requests: tuple[tuple[int, str, int], ...]
    outputs: Mapping[int, Output]


def run_findings(
    cells: Sequence[tuple[Cell, Measurement]],
    samples_of: Callable[[str], Sequence[RequestSample]],
    effective: Mapping[str, EffectiveConfig],
    *,
    pairs_planned: int,
    simulated: bool = False,
    speed: int = 1,
) -> tuple[Finding, ...]:
    """Findings that need more than one cell.

    Args:
        cells: The measured cells of a run.
        samples_of: The requests of a cell by its cell_id; called once a cell.
        effective: What each launch's server said of itself, by launch_id.
        pairs_planned: How many pairs the plan asks for.
        simulated: Whether the servers are simulated.
        speed: The clock's speed.
    """
    works = [cell_work(cell, m.launch_id, samples_of(cell.cell_id)) for cell, m in cells]
    groups: dict[tuple[str, str], list[CellWork]] = defaultdict(list)
    for work in works:
        groups[work.cell.workload.name, work.cell.load.label].append(work)
    findings: list[Finding] = []
    if simulated and speed > 1:
        findings.append(
            make_finding(
                FindingKind.SIMULATION_SPEED,
                Severity.NOTE,
                f"the simulation ran at {speed} times the world's speed.",
            )
        )
    if pairs_planned < 2 and any(cell.arm != BASELINE for cell, _ in cells):
        findings.append(
            make_finding(FindingKind.NO_REPEATS, Severity.NOTE, "there is one pair of launches.")
        )
    for group in groups.values():
        findings += work_not_the_same(group)
        findings += outputs_diverge(group)
    findings += cycles_too_short(cells)
    findings += configs_differ(cells, effective)
    return tuple(findings)


def cell_work(cell: Cell, launch_id: str, samples: Sequence[RequestSample]) -> CellWork:
    """The work of one cell, warm-up left out."""
    measured = sorted((s for s in samples if s.phase == "measure"), key=lambda s: s.index)
    return CellWork(
        cell=cell,
        launch_id=launch_id,
        requests=tuple((s.index, s.prompt_sha256, s.seed) for s in measured),
        outputs={
            s.index: Output(text_sha256=s.text_sha256, block_hashes=s.text_block_hashes)
            for s in measured
            if s.status is RequestStatus.OK and s.text_sha256 is not None
        },
    )


def work_not_the_same(group: Sequence[CellWork]) -> Iterator[Finding]:
    """Cells of a group whose requests are not, one by one, those of its first baseline cell.

    A capacity search is left out: which rates it tries depends on what it finds.
    """
    reference = next((w for w in group if w.cell.arm == BASELINE), None)
    if reference is None or reference.cell.load.kind == "capacity":
        return
    for work in group:
        if work.requests == reference.requests:
            continue
        ours, theirs = len(work.requests), len(reference.requests)
        if ours != theirs:
            what = f"{ours} requests instead of {theirs}"
        else:
            different = sum(
                1 for a, b in zip(work.requests, reference.requests, strict=True) if a != b
            )
            what = f"another prompt, seed or place in {different} of {ours} requests"
        yield make_finding(
            FindingKind.WORK_NOT_THE_SAME,
            Severity.INVALID,
            f"{work.launch_id} at {_where(work.cell)}: {what}, against {reference.launch_id}.",
            cell_id=work.cell.cell_id,
            arm=work.cell.arm,
        )


def common_chars(first: Output, second: Output) -> float:
    """Characters that two texts certainly share from their start; infinity for equal texts."""
    if first.text_sha256 == second.text_sha256:
        return float("inf")
    shared = 0
    for a, b in zip(first.block_hashes, second.block_hashes, strict=False):
        if a != b:
            break
        shared += 1
    return float(shared * BLOCK_CHARS)


def outputs_diverge(group: Sequence[CellWork]) -> Iterator[Finding]:
    """Temperature 0: does an arm part from the baseline earlier than the baseline from itself.

    Greedy answers need not be equal to the bit: batches of other shapes round differently, and
    near-ties flip. What two launches of the baseline do to one another is the yardstick: a sign
    test over requests (those that part at the same place left out) tells whether the arm parts
    earlier. With one launch of the baseline there is no yardstick: a note.
    """
    if not group or group[0].cell.workload.sampling.temperature != 0:
        return
    baselines = sorted(
        (w for w in group if w.cell.arm == BASELINE), key=lambda w: (w.cell.pair, w.launch_id)
    )
    if not baselines:
        return
    first = baselines[0]
    second = next((w for w in baselines if w.launch_id != first.launch_id), None)
    arms = sorted({w.cell.arm for w in group} - {BASELINE})
    for arm in arms:
        work = min(
            (w for w in group if w.cell.arm == arm), key=lambda w: (w.cell.pair, w.launch_id)
        )
        parted = _parting(first, work)
        if second is None:
            yield from _divergence_note(work, parted)
            continue
        own = _parting(first, second)
        both = sorted(set(parted) & set(own))
        earlier = sum(1 for i in both if parted[i] < own[i])
        later = sum(1 for i in both if parted[i] > own[i])
        if sign_test_p_value(earlier, later) < DIVERGES_P_VALUE:
            yield make_finding(
                FindingKind.OUTPUT_DIVERGES,
                Severity.SUSPECT,
                f"{_where(work.cell)}: {earlier} of {len(both)} greedy answers part from the "
                "baseline's earlier than the "
                f"baseline's own second launch does, {later} later; {_told(parted)}.",
                cell_id=work.cell.cell_id,
                arm=arm,
            )


def sign_test_p_value(earlier: int, later: int) -> float:
    """One-sided p-value of so many earlier ones, were earlier and later as likely (binomial)."""
    from scipy.special import bdtrc  # noqa: PLC0415  # only here: importing scipy costs time

    n = earlier + later
    # bdtrc(k, n, p) is P(more than k of n); without any "earlier" that is certain.
    return float(bdtrc(earlier - 1, n, 0.5)) if earlier else 1.0


def _parting(first: CellWork, second: CellWork) -> dict[int, float]:
    """Where each answer parts, by index, over the requests that ended well in both."""
    shared = sorted(set(first.outputs) & set(second.outputs))
    return {i: common_chars(first.outputs[i], second.outputs[i]) for i in shared}


def _divergence_note(work: CellWork, parted: Mapping[int, float]) -> Iterator[Finding]:
    if any(np.isfinite(chars) for chars in parted.values()):
        yield make_finding(
            FindingKind.OUTPUT_DIVERGES,
            Severity.NOTE,
            f"{_where(work.cell)}: {_told(parted)}; with one launch of the baseline it cannot be "
            "told whether that is more "
            "than the baseline differs from itself.",
            cell_id=work.cell.cell_id,
            arm=work.cell.arm,
        )


def _told(parted: Mapping[int, float]) -> str:
    finite = [chars for chars in parted.values() if np.isfinite(chars)]
    share = len(finite) / len(parted)
    if not finite:
        return "no greedy answer differs from the baseline's"
    return (
        f"{share:.0%} of greedy answers differ from the baseline's, half of these before "
        f"character {_median_char(finite)}"
    )


def _median_char(finite: Sequence[float]) -> int:
    # Texts are told apart by blocks: the parting lies within the block after the last shared one.
    return round(float(np.median(finite))) + BLOCK_CHARS


def cycles_too_short(cells: Sequence[MeasuredCell]) -> Iterator[Finding]:
    """A verify step shorter than the baseline's plain step: it does all of that and more.

    The break-even accept length is then below 1, which no number of drafts can be.
    """
    for c in compare(cells, {}, margin=0.0, pairs_planned=1):
        if c.break_even_accept_len_tok is None or round(c.break_even_accept_len_tok, 2) >= 1:
            continue
        for cell, m in cells:
            if (m.arm, m.workload, m.load) == (c.arm, c.workload, c.load):
                yield make_finding(
                    FindingKind.CYCLE_DISAGREES,
                    Severity.SUSPECT,
                    f"a step takes {c.cycle_ms:.2f} ms, below the baseline's "
                    f"{c.baseline_step_ms:.2f} ms: a break-even accept length of "
                    f"{c.break_even_accept_len_tok:.2f} is impossible at the same batch.",
                    cell_id=cell.cell_id,
                    arm=cell.arm,
                )


def configs_differ(
    cells: Sequence[MeasuredCell], effective: Mapping[str, EffectiveConfig]
) -> Iterator[Finding]:
    """Resolved server values, not speculative, in which an arm differs from the baseline.

    A note beside the speedup, but for a running limit below the largest load, which changes what
    is compared.
    """
    launches: dict[str, set[str]] = defaultdict(set)
    for cell, measurement in cells:
        launches[cell.arm].add(measurement.launch_id)
    configs = {
        arm: [effective[launch] for launch in sorted(ids) if launch in effective]
        for arm, ids in launches.items()
    }
    largest_load = max((cell.load.concurrency or 0 for cell, _ in cells), default=0)
    for arm, arm_configs in configs.items():
        if arm == BASELINE:
            continue
        differences = config_differences(configs.get(BASELINE, []), arm_configs)
        if not differences:
            continue
        names = {name for name, _, _ in differences}
        told = [
            f"{called(name)}: {_cut(ours)} in the baseline, {_cut(theirs)} in {arm}"
            for name, ours, theirs in differences
            if SAID_BY.get(name) not in names
        ]
        more = len(told) - MOST_DIFFERENCES_TOLD
        limited = any(
            name.startswith("max_running_requests") and _below(largest_load, ours, theirs)
            for name, ours, theirs in differences
        )
        yield make_finding(
            FindingKind.CONFIG_DIFFERS_BESIDE_SPECULATION,
            Severity.SUSPECT if limited else Severity.NOTE,
            "; ".join(told[:MOST_DIFFERENCES_TOLD])
            + (f"; and {more} more" if more > 0 else "")
            + (
                f"; a running limit is below the largest load of {largest_load}."
                if limited
                else "."
            ),
            arm=arm,
        )


def _below(largest_load: int, *values: str) -> bool:
    return any(
        v.strip().isdigit() and int(v) < largest_load for vs in values for v in vs.split("|")
    )


def _cut(text: str, most_chars: int = 60) -> str:
    return text if len(text) <= most_chars else text[: most_chars - 1] + "…"


def _where(cell: Cell) -> str:
    return f"{cell.workload.name} at load {cell.load.label}, arm {cell.arm}"
