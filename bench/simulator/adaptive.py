"""Adaptive speculation: how many draft steps a batch takes, by what was accepted before.

As SGLang 0.5.23 does it (`speculative/adaptive_spec_params.py`, `adaptive_runtime_state.py`):
each batch size of the configuration keeps a moving mean of accepted drafts and goes up or down
among its candidate steps, every so many batches. A batch is counted to the largest configured size
that is not above it, once padded to a CUDA graph's.
"""

from __future__ import annotations

import json
import math
from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

_DEFAULT: Final = {
    "1": {"candidate_steps": [1, 3, 5, 7], "down_hysteresis": -0.25},
    "8": {"candidate_steps": [0, 1, 3], "down_hysteresis": 0.0},
    "32": {"candidate_steps": [0, 1], "down_hysteresis": 0.0},
    "64": {"candidate_steps": [0], "down_hysteresis": 0.0},
}

_MOST: Final = 1e9
"""No weight, hysteresis or factor is as large."""


class ConfigError(Exception):
    """A configuration that SGLang does not start with; the message is SGLang's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tier:
    """What is configured for a batch size.

    Attributes:
        batch: From which batch size on.
        candidates: Draft steps to choose from, rising; 0 is no drafting.
        alpha: Weight of a new batch in the moving mean.
        interval: Batches between two decisions.
        warmup: Batches before the first.
        up: Added to what the mean must be above for more steps, drafts.
        down: Added to what it must not be above for fewer.
        ceiling: Times the mean: the most steps that a tier stays at; 0: no such limit.
    """

    batch: int
    candidates: tuple[int, ...]
    alpha: float
    interval: int
    warmup: int
    up: float
    down: float
    ceiling: float


def read_tiers(config_path: str | None) -> tuple[Tier, ...]:
    """The tiers of a configuration file, by batch size; SGLang's own without one.

    Raises:
        ConfigError: No such file, or one that SGLang refuses.
    """
    config: Any = _DEFAULT
    if config_path is not None:
        try:
            config = json.loads(Path(config_path).read_text(encoding="utf-8"))
        except OSError as error:
            raise ConfigError(f"{type(error).__name__}: {error}") from None
        except RecursionError as error:
            raise ConfigError(f"RecursionError: {error}") from None
        except ValueError as error:
            raise ConfigError(f"json.decoder.JSONDecodeError: {error}") from None
    if not isinstance(config, dict):
        raise ConfigError(
            f"AttributeError: '{type(config).__name__}' object has no attribute 'items'"
        )
    tiers = [_tier(key, entry, config) for key, entry in config.items() if key.isdigit()]
    if not tiers:
        raise ConfigError(
            "ValueError: speculative_adaptive_config must contain at least one integer-string BS "
            'key, e.g. {"1": {"candidate_steps": [1,3,7]}}. '
            f"Got keys: {list(config)}"
        )
    return tuple(sorted(tiers, key=lambda tier: tier.batch))


def _tier(key: str, own: object, config: Mapping[str, Any]) -> Tier:
    if not key.isdecimal() or len(key) > 9:
        raise ConfigError(f"ValueError: invalid literal for int() with base 10: {key!r}")
    if not isinstance(own, dict):
        raise ConfigError(f"TypeError: '{type(own).__name__}' object is not a mapping (BS {key})")
    entry = {**config, **own}
    steps = entry.get("candidate_steps")
    good = isinstance(steps, list) and steps and all(isinstance(s, int) and s >= 0 for s in steps)
    if not good or steps is None:
        raise ConfigError(
            f"ValueError: BS {key}: candidate_steps must be a list of non-negative ints, "
            f"got {steps!r}"
        )
    return Tier(
        batch=int(key),
        candidates=tuple(sorted(set(steps))),
        alpha=_number(key, entry, "ema_alpha", 0.2),
        interval=_batches(key, entry, "update_interval", 5, least=1),
        warmup=_batches(key, entry, "warmup_batches", 10, least=0),
        up=_number(key, entry, "up_hysteresis", 0.0),
        down=_number(key, entry, "down_hysteresis", -0.25),
        ceiling=_number(key, entry, "ceiling_coeff", 0),
    )


def _number(key: str, entry: Mapping[str, Any], name: str, default: float) -> float:
    value = entry.get(name, default)
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not is_number or not abs(value) <= _MOST:  # NaN is not
        raise ConfigError(f"ValueError: BS {key}: {name} must be a number, got {value!r}")
    return float(value)


def _batches(key: str, entry: Mapping[str, Any], name: str, default: int, *, least: int) -> int:
    value = entry.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ConfigError(
            f"ValueError: BS {key}: {name} must be a whole number from {least}, got {value!r}"
        )
    return value


class _Slot:
    """One tier, and where it is."""

    def __init__(self, tier: Tier, initial_steps: int) -> None:
        self._tier = tier
        middle = tier.candidates[len(tier.candidates) // 2]
        self.steps = initial_steps if initial_steps in tier.candidates else middle
        self.mean = float(self.steps - 1)
        self._batches = 0

    def seen(self, mean_correct: float) -> bool:
        """A batch has been verified; whether other steps are taken from now on."""
        tier = self._tier
        if self.steps > 0:
            self.mean = (1 - tier.alpha) * self.mean + tier.alpha * mean_correct
        self._batches += 1
        since = self._batches - tier.warmup
        if since <= 0 or since % tier.interval:
            return False
        before, self.steps = self.steps, self._chosen()
        return self.steps != before

    def _chosen(self) -> int:
        candidates = self._tier.candidates
        at = candidates.index(self.steps)
        if self.steps == 0:
            # Nothing was drafted and so nothing seen: the next candidate gets a try.
            steps = candidates[min(at + 1, len(candidates) - 1)]
            if self.mean < 0:
                self.mean = float(steps - 1)
            return steps
        lower = at - sum(1 for _ in self._steps_down(at))
        at = lower if lower < at else at + sum(1 for _ in self._steps_up(at))
        if self._tier.ceiling > 0 and candidates[at] <= self.steps:
            most = max(1, math.ceil(self.mean * self._tier.ceiling))
            while at > 0 and candidates[at] > most:
                at -= 1
        return candidates[at]

    def _steps_down(self, at: int) -> Iterator[int]:
        """Lower candidates, as long as the mean is not above what they need to be left."""
        for steps in reversed(self._tier.candidates[:at]):
            needed = steps - 0.5 if steps else 0.5
            if self.mean > needed + self._tier.down:
                return
            yield steps

    def _steps_up(self, at: int) -> Iterator[int]:
        """Higher candidates, as long as the mean is above what the one before them yields."""
        for below, steps in pairwise(self._tier.candidates[at:]):
            if self.mean <= below - 0.5 + self._tier.up:
                return
            yield steps


class Adaptive:
    """The draft steps of one scheduler's next batch.

    Attributes:
        steps: Those taken now.
    """

    def __init__(
        self,
        tiers: Sequence[Tier],
        *,
        initial_steps: int,
        graph_batch_sizes: Sequence[int],
        log: Callable[[str], None],
    ) -> None:
        self.steps = initial_steps
        self._sizes = [tier.batch for tier in tiers]
        self._slots = [_Slot(tier, initial_steps) for tier in tiers]
        self._graph_batch_sizes = graph_batch_sizes
        self._log = log

    def steps_for(self, batch: int) -> int:
        """Switch to the steps for a batch of this size, which is about to run."""
        self._switch(self._slot(batch).steps)
        return self.steps

    def verified(self, correct: Sequence[int]) -> None:
        """A batch has run: accepted drafts of each of its requests."""
        if not correct:
            return
        slot = self._slot(len(correct))
        before = slot.steps
        if slot.seen(sum(correct) / len(correct)):
            self._log(
                f"Adaptive spec params updated: steps {before} -> {slot.steps} "
                f"(ema_accept_len={slot.mean:.2f})"
            )
            self._switch(slot.steps)

    def _switch(self, steps: int) -> None:
        if steps != self.steps:
            self._log(
                f"Switch adaptive runtime state: steps {self.steps} -> {steps}, "
                f"draft_tokens {self.steps + 1} -> {steps + 1}"
            )
            self.steps = steps

    def _slot(self, batch: int) -> _Slot:
        at = bisect_left(self._graph_batch_sizes, batch)
        padded = self._graph_batch_sizes[at] if at < len(self._graph_batch_sizes) else batch
        return self._slots[max(0, bisect_right(self._sizes, padded) - 1)]
