"""What a stored run measured of a server's steps, for fitting a card to it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bench.model import CellStatus
from bench.physics import Speculation
from bench.physics.fitting import MeasuredStep

if TYPE_CHECKING:
    from bench.model import EffectiveConfig, Measurement
    from bench.store import StoredRun


def measured_steps(stored: StoredRun) -> list[MeasuredStep]:
    """The time of a step of each closed-loop cell that is not INVALID.

    The batch is the mean of busy slots in the window, or the concurrency where that is not known;
    the context is the mean prompt and half the mean answer. Cells without a step time, and cells
    whose server changes its drafts by itself, are left out.
    """
    found = []
    effective = {launch.launch_id: launch.effective for launch in stored.manifest.launches}
    for cell in stored.measurements:
        step = _step_of(cell, effective.get(cell.launch_id))
        if step is not None and cell.status is not CellStatus.INVALID:
            found.append(step)
    return found


def tensor_parallel_sizes(stored: StoredRun) -> set[int]:
    """The tensor-parallel sizes that the run's servers said they had."""
    return {
        int(value)
        for launch in stored.manifest.launches
        if launch.effective is not None
        for name, value in launch.effective.other
        if name == "tp_size" and value.isdigit()
    }


def _step_of(cell: Measurement, effective: EffectiveConfig | None) -> MeasuredStep | None:
    if effective is None or not cell.load.isdigit() or cell.cycle_ms is None:
        return None
    if cell.prompt_tok is None or cell.output_tok is None:
        return None
    settings = dict(effective.speculative)
    speculation = None
    if settings.get("algorithm") is not None:
        steps, topk, tokens = (
            settings.get(name) for name in ("num_steps", "eagle_topk", "num_draft_tokens")
        )
        if settings.get("adaptive") or not isinstance(steps, int) or not isinstance(tokens, int):
            return None
        width = topk if isinstance(topk, int) else 1
        speculation = Speculation(num_steps=steps, topk=width, num_draft_tokens=tokens)
    busy = cell.window_busy_slots_mean or float(cell.load)
    cached_tok = cell.prompt_tok.mean * (cell.cache_hit_ratio or 0.0)
    return MeasuredStep(
        label=f"{cell.arm} {cell.workload} at {cell.load}",
        batch=max(1, round(busy)),
        context_tok_mean=cell.prompt_tok.mean + cell.output_tok.mean / 2,
        speculation=speculation,
        step_ms=cell.cycle_ms,
        graph_batches=effective.decode_graph_batch_sizes,
        prompt_tok=cell.prompt_tok.mean - cached_tok,
        cached_tok=cached_tok,
        steps_per_request=cell.output_tok.mean / (cell.accept_len_tok or 1.0),
    )
