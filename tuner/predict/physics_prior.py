"""What the cards say a step of every configuration takes, and of which parts it is made."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from bench.sglang.arguments import EAGLE_FAMILY
from tuner.predict.cost import Points

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from bench.physics import HardwareCard, TargetCard
    from tuner.space import Configuration


def step_times(
    hardware: HardwareCard,
    target: TargetCard,
    drafts: Sequence[tuple[int, int, int]],
    cells: Sequence[tuple[int, float]],
    *,
    tp: int | None = None,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Log milliseconds (drafts, cells), and shares (drafts, cells, components) of the step.

    Components: weights, compute, KV, all-reduces, host, drafting, what a cycle adds once.

    Args:
        hardware: The node.
        target: The model.
        drafts: (steps, topk, draft tokens); steps 0 and tokens 0 is no speculation.
        cells: (running requests, mean tokens of context).
        tp: Tensor-parallel size; None: all GPUs of the node.
    """
    from bench.physics import Speculation, decode_step  # noqa: PLC0415  # only where cards are named

    parts = np.zeros((len(drafts), len(cells), 7))
    for i, (steps, topk, tokens) in enumerate(drafts):
        speculation = None
        if tokens:
            speculation = Speculation(num_steps=steps, topk=topk, num_draft_tokens=tokens)
        for j, (batch, context_tok) in enumerate(cells):
            step = decode_step(
                hardware,
                target,
                batch=batch,
                context_tok_mean=context_tok,
                speculation=speculation,
                tp=tp,
            )
            parts[i, j] = (
                step.weights_ms,
                step.compute_ms,
                step.kv_ms,
                step.allreduce_ms,
                step.fixed_ms,
                step.draft_ms,
                step.cycle_ms,
            )
    total = parts.sum(axis=2)
    return np.log(total), parts / total[..., None]


def points_of(
    configurations: Sequence[Configuration],
    cells: Sequence[tuple[int, float]],
    weights: NDArray[np.float64],
    cards: tuple[HardwareCard, TargetCard] | None,
    *,
    tp: int | None = None,
) -> Points:
    """A space as the arrays that the predictor works on.

    Args:
        configurations: The first is the baseline.
        cells: (running requests, mean tokens of context) of each.
        weights: Of the cells in the objective, summing to 1.
        cards: Hardware and target as far as the scenario names them; None: no physics.
        tp: Tensor-parallel size; None: all GPUs of the card's node.
    """
    settings = {c.setting: None for c in configurations}
    number = {setting: at for at, setting in enumerate(settings)}
    algorithms = {c.algorithm: None for c in configurations if c.algorithm is not None}
    family: dict[str | None, int] = {None: 0}
    family.update({name: at for at, name in enumerate(algorithms, start=1)})
    eagle = [c.algorithm in EAGLE_FAMILY for c in configurations]
    steps = [c.num_steps or 0 for c in configurations]
    topk = [c.eagle_topk or 0 for c in configurations]
    tokens = [c.num_draft_tokens or 1 for c in configurations]
    log_ms = shares = None
    if cards is not None:
        # An algorithm without a draft model drafts in no time.
        shapes = [
            (s if e else 0, max(1, k), n) if c.algorithm is not None else (0, 0, 0)
            for c, e, s, k, n in zip(configurations, eagle, steps, topk, tokens, strict=True)
        ]
        distinct = list(dict.fromkeys(shapes))
        log_ms, shares = step_times(*cards, distinct, cells, tp=tp)
        at = [distinct.index(shape) for shape in shapes]
        log_ms, shares = log_ms[at], shares[at]
    return Points(
        steps=np.array(steps),
        topk=np.array(topk),
        tokens=np.array(tokens),
        family=np.array([family[c.algorithm] for c in configurations]),
        eagle=np.array(eagle),
        setting=np.array([number[c.setting] for c in configurations]),
        batch=np.array([float(batch) for batch, _ in cells]),
        weights=weights,
        log_ms=log_ms,
        shares=shares,
    )
