"""What the landscapes of other laws are made of: accept lengths, machines, settings.

Nothing here comes from the tuner or from bench.physics: a draft that misjudges itself chooses the
trees, and a machine is a handful of constants of our own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from benchmarks.landscapes import Draft, LoadPoint

MOE_CARDS = ("h200-x8", "kimi-k2.5")
PCIE_CARDS = ("rtx-pro-6000-x8", "kimi-k2.5")
DENSE_CARDS = ("h200-x8", "llama-3.3-70b")

EVEN = (
    LoadPoint(batch=1, context_tok=2048, weight=1),
    LoadPoint(batch=8, context_tok=2048, weight=1),
    LoadPoint(batch=64, context_tok=2048, weight=1),
)
LATENCY = (
    LoadPoint(batch=1, context_tok=4096, weight=3),
    LoadPoint(batch=4, context_tok=4096, weight=2),
    LoadPoint(batch=16, context_tok=4096, weight=1),
)
BUSY = (
    LoadPoint(batch=8, context_tok=1024, weight=1),
    LoadPoint(batch=32, context_tok=1024, weight=2),
    LoadPoint(batch=128, context_tok=1024, weight=2),
)

GOOD = (0.80, 0.74, 0.72, 0.70, 0.68, 0.66, 0.62, 0.60)
FAIR = (0.70, 0.66, 0.63, 0.60, 0.58, 0.55, 0.52, 0.50)
POOR = (0.36, 0.34, 0.32, 0.30, 0.30, 0.30, 0.30, 0.30)
# P(the rth candidate is right | none before it is)
STEEP = (0.25, 0.15, 0.10)
BROAD = (0.50, 0.40, 0.30)


def reach_of(
    draft: Draft,
    conditional: Sequence[float],
    ranks: Sequence[float] = STEEP,
    misjudged: float = 0.7,
) -> list[float]:
    """P(at least k accepted) of a chain or a tree.

    The draft keeps and verifies what it believes in: its belief is the true chance to the power of
    `misjudged`, so that it spreads where it should go deep.
    """
    if draft.topk == 1:
        return [float(x) for x in np.cumprod(conditional[: draft.steps])]
    beams = [(1.0, 1.0)]
    nodes: list[tuple[float, float, int]] = []
    for depth in range(draft.steps):
        first = conditional[depth]
        chances, left = [first], 1 - first
        for rank in ranks[: draft.topk - 1]:
            chances.append(left * rank)
            left *= 1 - rank
        grown = [
            (belief * chance**misjudged, true * chance)
            for belief, true in beams
            for chance in chances
        ]
        grown.sort(reverse=True)
        nodes += [(belief, true, depth) for belief, true in grown]
        beams = grown[: draft.topk]
    nodes.sort(key=lambda node: (-node[0], node[2]))
    reach = [0.0] * draft.steps
    for _, true, depth in nodes[: draft.tokens - 1]:
        reach[depth] += true
    return [min(1.0, x) for x in reach]


@dataclass(frozen=True, slots=True, kw_only=True)
class Box:
    """A machine and model of our own: milliseconds of what a forward does over n tokens.

    Attributes:
        weights_ms: What is read whatever n.
        experts_ms: What all experts would take to read.
        experts: Their number; `per_token` are used by a token.
        spread: n tokens touch as many as n ** spread independent ones would.
        compute_ms: A token's matrix products.
        message_us: One all-reduce of n tokens: start, a token, and the most tokens that the fast
            path takes.
        allreduces: How many.
        fixed_ms: Host.
        draft_ms: One draft step.
        kv_ms: A thousand tokens of context.
    """

    weights_ms: float = 1.4
    experts_ms: float = 16.0
    experts: int = 256
    per_token: int = 8
    spread: float = 1.0
    compute_ms: float = 0.02
    message_us: tuple[float, float, int] = (5.0, 0.06, 100_000)
    allreduces: int = 120
    fixed_ms: float = 2.2
    draft_ms: float = 0.35
    kv_ms: float = 0.012

    def forward_ms(self, tokens: int, batch: int, context_tok: int) -> float:
        """A target's forward."""
        start, each, most = self.message_us
        us = start + each * tokens if tokens <= most else 4 * start + 2 * each * tokens
        touched = 1 - (1 - self.per_token / self.experts) ** (tokens**self.spread)
        read_ms = self.weights_ms + self.experts_ms * touched
        return (
            max(read_ms, self.compute_ms * tokens)
            + self.allreduces * us / 1e3
            + self.fixed_ms
            + self.kv_ms * batch * context_tok / 1e3
        )

    def cycle_ms(self, draft: Draft, load: LoadPoint) -> float:
        """A whole cycle, or a plain step."""
        tokens = load.batch * max(1, draft.tokens)
        drafting = draft.steps * self.draft_ms * (1 + 0.0015 * load.batch * draft.topk)
        return self.forward_ms(tokens, load.batch, load.context_tok) + drafting


NVLINK = Box()
PCIE = Box(
    message_us=(28.0, 1.6, 100_000), weights_ms=3.4, experts_ms=40.0, kv_ms=0.03, draft_ms=0.5
)
DENSE = Box(
    weights_ms=6.5, experts_ms=0.0, compute_ms=0.018, allreduces=64, fixed_ms=1.2, draft_ms=0.3
)


SETTINGS = ("default", "other-backend", "other-transport")


def settings_of(rng: np.random.Generator) -> Callable[[Draft, int, LoadPoint], float]:
    """What the other settings do to a step: some per cent, changing with the tokens verified."""
    level = np.concatenate([[0.0], rng.normal(0.015, 0.03, len(SETTINGS) - 1)])
    slope = np.concatenate([[0.0], rng.normal(0.0, 0.03, len(SETTINGS) - 1)])

    def factor(draft: Draft, setting: int, load: LoadPoint) -> float:
        width = math.log2(load.batch * max(1, draft.tokens)) / 10
        return math.exp(level[setting] + slope[setting] * (width - 0.5))

    return factor


def rng_of(seed: int, name: str) -> np.random.Generator:
    return np.random.default_rng([seed, *name.encode()])


def varied(rng: np.random.Generator, box: Box) -> Box:
    """Another machine of the kind: every constant within about a quarter."""

    def near() -> float:
        return float(np.exp(rng.uniform(-0.25, 0.25)))

    start, each, most = box.message_us
    return replace(
        box,
        weights_ms=box.weights_ms * near(),
        experts_ms=box.experts_ms * near(),
        compute_ms=box.compute_ms * near(),
        message_us=(start * near(), each * near(), most),
        fixed_ms=box.fixed_ms * near(),
        draft_ms=box.draft_ms * near(),
        kv_ms=box.kv_ms * near(),
    )


def jittered(
    rng: np.random.Generator, conditional: Sequence[float], sd: float = 0.06
) -> list[float]:
    moved = np.array(conditional) + sd * rng.standard_normal() + 0.01 * rng.standard_normal(8)
    return [float(x) for x in np.clip(moved, 0.1, 0.95)]
