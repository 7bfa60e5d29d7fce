"""Closed loops on a made-up server, steady or slowing down, and what is found in them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

import numpy as np

from bench.metrics import summarize
from benchmarks.synthetic import MadeUpServer, closed_loop, made_up_cell

if TYPE_CHECKING:
    from bench.model import FindingKind

LOOPS: Final = ((1, 20), (8, 2), (8, 6), (8, 12), (64, 2), (64, 6), (64, 8))
LENGTHS: Final[tuple[Literal["equal", "spread"], ...]] = ("equal", "spread")
_ANSWER_TOK: Final = 128
_REACH: Final = (0.36, 0.14, 0.07)


@dataclass(frozen=True, slots=True, kw_only=True)
class Loop:
    """One closed loop.

    Attributes:
        turns: Requests a slot, after one of warm-up.
        lengths: Of the answers: all 128 tokens, or lognormal around that (sd 0.5 of the log).
        slower: By how much the server is slower at the end than at the beginning.
    """

    slots: int
    turns: int
    lengths: Literal["equal", "spread"] = "equal"
    slower: float = 0.0


def findings_of(loop: Loop, seed: int) -> set[FindingKind]:
    """The kinds of what the product finds in one such cell; every second one speculates."""
    reach = _REACH if seed % 2 else ()
    lasts_s = (loop.turns + 1) * _lasts_s(loop.slots, reach)
    server = MadeUpServer(reach=reach, slowdown=lambda at_s: 1 + loop.slower * at_s / lasts_s)
    cell = made_up_cell(
        concurrency=loop.slots, requests=loop.slots * loop.turns, speculative=bool(reach)
    )
    samples = closed_loop(
        cell,
        server,
        np.random.default_rng([seed, loop.slots, loop.turns]),
        length_tok=_equal if loop.lengths == "equal" else _spread,
    )
    _, findings = summarize(
        cell,
        samples,
        [],
        client=None,
        effective=None,
        launch_id="L",
        gpus=0,
        simulated=False,
    )
    return {finding.kind for finding in findings}


def _lasts_s(slots: int, reach: tuple[float, ...]) -> float:
    """About how long a request takes: its steps, and the prefills of the others."""
    server = MadeUpServer()
    step_ms = server.step_ms + server.step_ms_per_request * (slots - 1)
    return (_ANSWER_TOK / (1 + sum(reach)) * step_ms + slots * server.prefill_ms / 1.5) / 1e3


def _equal(_: np.random.Generator) -> int:
    return _ANSWER_TOK


def _spread(rng: np.random.Generator) -> int:
    return int(np.clip(_ANSWER_TOK * np.exp(0.5 * rng.standard_normal()), 2, 4 * _ANSWER_TOK))
