"""Two step counts in one launch: SGLang's adaptive speculation, made to alternate.

A hysteresis that no accept length reaches takes the decision from the controller: at every
decision it goes down from the higher candidate and up from the lower one. So the draft steps
change after every so many verify batches, and all that a launch draws once (memory layout,
channels, captured graphs) is the same for both.

Source: SGLang 0.5.23, `speculative/adaptive_spec_params.py`.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from bench.errors import InputError
from bench.sglang.arguments import (
    NOTHING,
    Rejection,
    asked_text,
    effective_speculative,
    graph_batch_sizes,
    parse_arguments,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench.sglang.arguments import EffectiveSpeculative, Known

LEAST_INTERVAL: Final = 8
"""Verify batches of a phase: of shorter ones too much straddles a switch."""

_BEYOND: Final = 1000.0
"""More drafts than any accept length has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Alternation:
    """Which step counts alternate, and how often.

    Attributes:
        few: The lower draft steps; 0 is no drafting.
        many: The higher ones.
        interval: Verify batches of one before the other's turn.
    """

    few: int
    many: int
    interval: int

    @property
    def log_interval(self) -> int:
        """A `--decode-log-interval` with which a phase has several decode lines of its own."""
        return max(1, self.interval // 8)

    @property
    def ranks_only(self) -> bool:
        """Whether one side is steps 0, whose figure is no baseline's.

        Its drafting is off, yet what speculation needs beside is kept (the verify of one token,
        buffers, graphs), and the draft has not seen the tokens of such a phase, so that the next
        phase's first drafts are worse than they would be.
        """
        return self.few == 0


def alternation(steps_a: int, steps_b: int, interval: int) -> Alternation:
    """Two step counts, in whichever order, that take turns every `interval` verify batches.

    Raises:
        InputError: They are no two step counts, or the interval is too short.
    """
    few, many = sorted((steps_a, steps_b))
    if few < 0 or few == many:
        raise InputError(
            f"steps {steps_a} and {steps_b} cannot take turns.",
            hint="Name two different step counts, 0 or more.",
        )
    if interval < LEAST_INTERVAL:
        raise InputError(
            f"step counts cannot take turns every {interval} verify batches.",
            hint=f"Give at least {LEAST_INTERVAL}; 20 to 200 is usual.",
        )
    return Alternation(few=few, many=many, interval=interval)


def alternation_config(steps_a: int, steps_b: int, interval: int) -> str:
    """The JSON of a `--speculative-adaptive-config` under which two step counts take turns.

    One entry, for batches of 1 and more: every verify batch counts, whatever its size.

    Raises:
        InputError: They are no two step counts, or the interval is too short.
    """
    asked = alternation(steps_a, steps_b, interval)
    entry = {
        "candidate_steps": [asked.few, asked.many],
        "down_hysteresis": _BEYOND,
        "up_hysteresis": -_BEYOND,
        "ceiling_coeff": 0,
        "update_interval": asked.interval,
        "warmup_batches": 0,
    }
    return json.dumps({"1": entry})


def alternation_arguments(
    arguments: Sequence[str], asked: Alternation, config_path: str
) -> tuple[str, ...]:
    """A server's arguments with the two step counts taking turns; the higher one begins.

    Decode lines are logged several times a phase, in both alike.

    Args:
        arguments: Of a chain on the command line; of an option given twice SGLang takes the last.
        asked: What takes turns.
        config_path: A file on the server's machine with `alternation_config`.
    """
    return (
        *arguments,
        *("--speculative-num-steps", str(asked.many)),
        *("--speculative-num-draft-tokens", str(asked.many + 1)),
        "--speculative-adaptive",
        *("--speculative-adaptive-config", config_path),
        *("--decode-log-interval", str(asked.log_interval)),
    )


def alternation_obstacle(
    arguments: Sequence[str], asked: Alternation, config_path: str, known: Known = NOTHING
) -> str | None:
    """Why two step counts cannot take turns with these arguments; None: they can.

    SGLang itself turns adaptive speculation off where it has none (all but chains of EAGLE and
    EAGLE3, attention data parallelism, two-batch overlap, …) and goes on without it.

    Args:
        arguments: As to `alternation_arguments`.
        asked: What takes turns.
        config_path: As there; it need not be written yet.
        known: What is known of models, GPUs and server.
    """
    given = parse_arguments(alternation_arguments(arguments, asked, config_path))
    outcome = effective_speculative(given, known)
    if isinstance(outcome, Rejection):
        return outcome.reason
    if dict(outcome.values).get("speculative_adaptive") is not True:
        return _why_off(outcome)
    ranks = asked_text(given, "dp_size") or "1"
    if ranks != "1":
        return f"each of the {ranks} data-parallel ranks switches by its own count"
    on_cpu = known.gpu == "cpu" or asked_text(given, "device") == "cpu"
    if on_cpu and graph_batch_sizes(given, outcome, default_most=1):
        return "on a CPU adaptive speculation does not start without --disable-cuda-graph"
    return None


def _why_off(outcome: EffectiveSpeculative) -> str:
    reasons = [c.why for c in outcome.changes if c.dest == "speculative_adaptive"]
    if outcome.algorithm is None or not reasons:
        return "there is no EAGLE or EAGLE3 speculation"
    return f"SGLang turns adaptive speculation off: {reasons[0]}"
