"""Landscapes of the laws that the predictor knows: bench.physics with the cards it is given.

What is left to find is which draft the acceptance is of, and what noise hides.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache

import numpy as np

from bench.physics import (
    HardwareCard,
    Speculation,
    decode_step,
    load_hardware,
    load_target,
    tree_reach,
)
from benchmarks.landscapes import OFF, Draft, Landscape, LoadPoint, build

LOADS = {
    "even": ((1, 2048, 1), (8, 2048, 1), (64, 2048, 1)),
    "latency": ((1, 4096, 3), (4, 4096, 2), (16, 4096, 1)),
    "busy": ((8, 1024, 1), (32, 1024, 2), (128, 1024, 2)),
    "long": ((1, 32768, 1), (2, 32768, 1), (6, 16384, 1)),
}
DRAFTS = {
    "good": (0.80, 0.60, 0.45, 0.34, 0.25, 0.19, 0.13, 0.09),
    "fair": (0.68, 0.44, 0.29, 0.19, 0.13, 0.085, 0.056, 0.037),
    "poor": (0.36, 0.14, 0.07, 0.035, 0.018, 0.009, 0.0045, 0.002),
}


# (name, factor of a small all-reduce, factor of a large one)
_TRANSPORTS = (("default", 1.0, 1.0), ("low-latency", 0.9, 1.3), ("wide", 1.2, 0.9))
_FAR_APART = (("default", 1.0, 1.0), ("low-latency", 0.8, 1.6), ("wide", 1.6, 0.5))


def _reach(rng: np.random.Generator, name: str) -> tuple[float, ...]:
    """The draft's, each conditional acceptance moved a little and alike."""
    reach = np.array(DRAFTS[name])
    conditional = reach / np.concatenate([[1.0], reach[:-1]])
    moved = np.clip(conditional + 0.04 * rng.standard_normal(), 0.05, 0.95)
    return tuple(float(x) for x in np.cumprod(moved))


def _known(
    name: str,
    *,
    hardware: str,
    draft: str,
    loads: str,
    model: str = "kimi-k2.5",
    settings: Sequence[tuple[str, float, float]] = (("default", 1.0, 1.0),),
    drift_sd: float = 0.0,
) -> Callable[[int], Landscape]:
    """A landscape as a function of its seed.

    Args:
        name: Its name.
        hardware: A hardware card.
        model: A target card.
        draft: Which acceptance.
        loads: Which loads.
        settings: (name, factor of a small all-reduce, factor of a large one) of each environment.
        drift_sd: The machine's walk.
    """

    def made(seed: int) -> Landscape:
        rng = np.random.default_rng([seed, *name.encode()])
        reach = _reach(rng, draft)
        target = load_target(model)
        boxes = [
            replace(
                load_hardware(hardware), allreduce_us=_scaled(load_hardware(hardware), low, high)
            )
            for _, low, high in settings
        ]

        def cycle_ms(shape: Draft, setting: int, load: LoadPoint) -> float:
            speculation = None
            if shape != OFF:
                speculation = Speculation(
                    num_steps=shape.steps, topk=shape.topk, num_draft_tokens=shape.tokens
                )
            return decode_step(
                boxes[setting],
                target,
                batch=load.batch,
                context_tok_mean=load.context_tok,
                speculation=speculation,
            ).total_ms

        @cache
        def tree(shape: Draft) -> tuple[float, ...]:
            return tree_reach(
                reach, num_steps=shape.steps, topk=shape.topk, num_draft_tokens=shape.tokens
            )

        return build(
            name,
            f"{draft} draft of {model} on {hardware}, {loads} loads",
            loads=tuple(LoadPoint(batch=b, context_tok=c, weight=w) for b, c, w in LOADS[loads]),
            reach=lambda shape, _: tree(shape),
            cycle_ms=cycle_ms,
            setting_names=[setting for setting, _, _ in settings],
            drift_sd=drift_sd,
            card=(hardware, model),
        )

    return made


def _scaled(card: HardwareCard, low: float, high: float) -> tuple[tuple[int, float], ...]:
    """The all-reduce table with its small end times `low` and its large end times `high`."""
    sizes = np.log([size for size, _ in card.allreduce_us])
    share = np.clip((sizes - np.log(14336)) / (np.log(917504) - np.log(14336)), 0, 1)
    factors = low ** (1 - share) * high**share
    return tuple(
        (size, us * float(f)) for (size, us), f in zip(card.allreduce_us, factors, strict=True)
    )


KNOWN: tuple[Callable[[int], Landscape], ...] = (
    _known(
        "nvlink-good-even",
        hardware="h200-x8",
        draft="good",
        loads="even",
        settings=_TRANSPORTS,
    ),
    _known(
        "dense-fair-latency",
        hardware="h200-x8",
        draft="fair",
        loads="latency",
        model="llama-3.3-70b",
    ),
    _known("nvlink-poor-even", hardware="h200-x8", draft="poor", loads="even"),
    _known(
        "dense-good-busy",
        hardware="h100-x1",
        draft="good",
        loads="busy",
        model="llama-3.1-8b",
        drift_sd=0.002,
    ),
    _known("nvlink-fair-long", hardware="h200-x8", draft="fair", loads="long"),
    _known("pcie-good-even", hardware="rtx-pro-6000-x8", draft="good", loads="even"),
    _known("pcie-fair-latency", hardware="rtx-pro-6000-x8", draft="fair", loads="latency"),
    _known("pcie-poor-latency", hardware="rtx-pro-6000-x8", draft="poor", loads="latency"),
    _known(
        "pcie-fair-busy", hardware="rtx-pro-6000-x8", draft="fair", loads="busy", drift_sd=0.002
    ),
    _known(
        "pcie-transports",
        hardware="rtx-pro-6000-x8",
        draft="good",
        loads="even",
        settings=_FAR_APART,
    ),
)
