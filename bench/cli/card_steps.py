"""What a stored run measured of a server's steps, for fitting a card to it."""

from __future__ import annotations

import sys
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from bench.errors import InputError
from bench.model import CellStatus
from bench.physics import Speculation, load_target
from bench.physics.fitting import MeasuredStep
from bench.sglang.arguments import read_model_facts

if TYPE_CHECKING:
    from bench.model import EffectiveConfig, Measurement
    from bench.physics import TargetCard
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


def require_same_model(stored: StoredRun, card: TargetCard) -> None:
    """Refuse a card of another model than the run measured, as far as that can be told.

    A simulated run names its card; a real one its model, of which a folder's config.json tells.
    Of a model that cannot be read the name is compared, and a difference told on stderr.

    Raises:
        InputError: The card has other layers or another vocabulary.
    """
    for launch in stored.manifest.launches:
        words = dict(pairwise(launch.argv))
        found: dict[str, int | None]
        path = words.get("--model-path")
        if (simulated := words.get("--sim-target")) is not None:
            try:
                of_run = load_target(simulated)
            except InputError:  # a card of one's own that is not there any more
                continue
            found = {"layers": of_run.layers, "vocab_size": of_run.vocab_size}
            path = of_run.name
        else:
            facts = read_model_facts(path or "")
            found = (
                {} if facts is None else {"layers": facts.layers, "vocab_size": facts.vocab_size}
            )
        own = {"layers": card.layers, "vocab_size": card.vocab_size}
        other = [key for key, value in found.items() if value not in {None, own[key]}]
        if other:
            told = ", ".join(f"{key} {found[key]} and not {own[key]}" for key in other)
            raise InputError(
                f"{stored.run_id} measured {path}, which is not the model of card {card.name}: "
                f"it has {told}",
                hint="Give the card of the run's model with --target.",
            )
        if path and not found and not _alike(path, card.name):
            print(
                f"Is {card.name} the card of {path}, which the run measured? It cannot be told "
                "from here; a fit to another model means nothing.",
                file=sys.stderr,
            )
            return


def _alike(path: str, name: str) -> bool:
    model, own = ("".join(filter(str.isalnum, Path(text).name.lower())) for text in (path, name))
    return model in own or own in model


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
