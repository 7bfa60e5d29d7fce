"""Fitting the two overhead constants of a target on a machine.

They are what no data sheet tells: `fixed_ms`, what a forward takes beyond bytes, operations and
all-reduces, and `cycle_fixed_ms`, what a draft-and-verify cycle adds once.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from bench.errors import InputError
from bench.physics.steps import Speculation, decode_step, prefill_time

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from bench.physics.cards import HardwareCard, TargetCard

FAR = 0.25
"""A simulated step further than this from the measured one is not met by the fit."""
MOST_MS = 30.0
"""No constant is fitted above this."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredStep:
    """The time of a step that was measured.

    Attributes:
        label: What was measured, for people.
        batch: Running requests.
        context_tok_mean: Mean tokens of context a request.
        speculation: None: a plain decoding step.
        step_ms: Mean time of a step as a request sees it: a cycle where it speculates, prefills of
            other requests in between included.
        graph_batches: Batch sizes captured as CUDA graphs; None: just this batch.
        prompt_tok: Mean tokens of a prompt that are computed; 0: no prefill came in between.
        cached_tok: Mean tokens of a prompt that were found in the cache.
        steps_per_request: Mean steps of a request: while it takes them, each of the others is
            prefilled once.
    """

    label: str
    batch: int
    context_tok_mean: float
    speculation: Speculation | None
    step_ms: float
    graph_batches: tuple[int, ...] | None = None
    prompt_tok: float = 0.0
    cached_tok: float = 0.0
    steps_per_request: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """A target with fitted constants, and how well it meets what it was fitted to.

    Attributes:
        target: With `fixed_ms`, and `cycle_fixed_ms` where speculative steps were measured.
        errors: For each measured step, simulated over measured less one.
    """

    target: TargetCard
    errors: tuple[float, ...]

    @property
    def far(self) -> tuple[int, ...]:
        """Which of the measured steps are more than FAR off."""
        return tuple(at for at, error in enumerate(self.errors) if abs(error) > FAR)


def fit_overheads(
    hardware: HardwareCard,
    target: TargetCard,
    steps: Sequence[MeasuredStep],
    *,
    tp: int | None = None,
) -> Fit:
    """The constants that bring the simulated steps nearest to the measured ones.

    Least squares of the log ratios. Without a plain step `fixed_ms` cannot be told from
    `cycle_fixed_ms`, which then keeps the hardware's value; without a speculative one
    `cycle_fixed_ms` is not fitted.

    Raises:
        InputError: No step was given, all of them are measured faster than bytes and operations
            allow, a constant stays at MOST_MS, or most steps are more than FAR off.
    """
    if not steps:
        raise InputError(
            "no measured step to fit to", hint="Measure closed-loop cells (docs/physics.md)."
        )

    def log_ratios(card: TargetCard) -> list[float]:
        return [math.log(_simulated_ms(hardware, card, step, tp) / step.step_ms) for step in steps]

    with_plain = any(step.speculation is None for step in steps)
    with_cycle = any(step.speculation is not None for step in steps)
    if with_plain and with_cycle:
        fixed, cycle = minimise(
            lambda a, b: _squares(log_ratios(replace(target, fixed_ms=a, cycle_fixed_ms=b)))
        )
        fitted = replace(target, fixed_ms=fixed, cycle_fixed_ms=cycle)
    else:
        fixed, _ = minimise(lambda a, _b: _squares(log_ratios(replace(target, fixed_ms=a))))
        fitted = replace(target, fixed_ms=fixed)
    ratios = log_ratios(fitted)
    if fitted.fixed_ms == 0.0 and min(ratios) > math.log(1.25):
        raise InputError(
            f"{target.name} on {hardware.name}: every measured step is faster than the card's "
            f"bytes and operations allow, by {math.expm1(min(ratios)):.0%} or more",
            hint="The target, its data types, the hardware or the tensor-parallel size differ "
            "from the run's.",
        )
    fit = Fit(target=fitted, errors=tuple(math.expm1(ratio) for ratio in ratios))
    _require_met(fit, steps, hardware)
    return fit


def _require_met(fit: Fit, steps: Sequence[MeasuredStep], hardware: HardwareCard) -> None:
    constants = {key: getattr(fit.target, key) for key in ("fixed_ms", "cycle_fixed_ms")}
    bound = [key for key, found in constants.items() if found is not None and found >= MOST_MS]
    if not bound and 2 * len(fit.far) <= len(steps):
        return
    why = f"{' and '.join(bound)} would have to be above {MOST_MS:g} ms" if bound else ""
    cells = "; ".join(f"{steps[at].label} {fit.errors[at]:+.0%}" for at in fit.far)
    off = f"more than {FAR:.0%} off: {cells}" if cells else ""
    raise InputError(
        f"{fit.target.name} on {hardware.name} cannot be fitted to these cells: "
        + "; ".join(filter(None, (why, off))),
        hint="The target, its data types, the hardware or the tensor-parallel size differ from "
        "the run's, or the run was disturbed.",
    )


def minimise(cost: Callable[[float, float], float]) -> tuple[float, float]:
    """The two constants in [0, MOST_MS] ms with the least `cost`, to a microsecond.

    A pattern search: eight neighbours, half the distance when none is better. The costs here have
    one valley.
    """
    here, distance = (1.0, 1.0), 2.0
    best = cost(*here)
    while distance > 5e-4:
        around = [
            (_within(here[0] + dx * distance), _within(here[1] + dy * distance))
            for dx in (-1, 0, 1)
            for dy in (-1, 0, 1)
            if dx or dy
        ]
        costs = [(cost(*point), point) for point in around]
        least, point = min(costs)
        if least < best:
            best, here = least, point
        else:
            distance /= 2
    return round(here[0], 3), round(here[1], 3)


def _within(value: float) -> float:
    return min(max(value, 0.0), MOST_MS)


def _squares(ratios: Sequence[float]) -> float:
    return sum(ratio * ratio for ratio in ratios)


def _simulated_ms(
    hardware: HardwareCard, target: TargetCard, step: MeasuredStep, tp: int | None
) -> float:
    alone_ms = decode_step(
        hardware,
        target,
        batch=step.batch,
        context_tok_mean=step.context_tok_mean,
        speculation=step.speculation,
        graph_batches=step.graph_batches,
        tp=tp,
    ).total_ms
    if step.batch == 1 or step.prompt_tok == 0:
        return alone_ms
    prefill_ms = prefill_time(
        hardware,
        target,
        chunks=[(round(step.prompt_tok), round(step.cached_tok))],
        tp=tp,
        speculative=step.speculation is not None,
    ).total_ms
    return alone_ms + (step.batch - 1) * prefill_ms / step.steps_per_request
