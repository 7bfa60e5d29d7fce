"""Landscapes of laws that the tuner's predictor does not contain.

Nothing here comes from the tuner or from bench.physics: times are tables, cliffs, switches and
wrong constants; trees are chosen by a draft that misjudges itself; acceptance moves with load.
Each is a function of a seed, which draws its constants.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from benchmarks.landscapes import OFF, Draft, Landscape, LoadPoint, build

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


def _settings(rng: np.random.Generator) -> Callable[[Draft, int, LoadPoint], float]:
    """What the other settings do to a step: some per cent, changing with the tokens verified."""
    level = np.concatenate([[0.0], rng.normal(0.015, 0.03, len(SETTINGS) - 1)])
    slope = np.concatenate([[0.0], rng.normal(0.0, 0.03, len(SETTINGS) - 1)])

    def factor(draft: Draft, setting: int, load: LoadPoint) -> float:
        width = math.log2(load.batch * max(1, draft.tokens)) / 10
        return math.exp(level[setting] + slope[setting] * (width - 0.5))

    return factor


def _rng(seed: int, name: str) -> np.random.Generator:
    return np.random.default_rng([seed, *name.encode()])


def _varied(rng: np.random.Generator, box: Box) -> Box:
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


def _jitter(
    rng: np.random.Generator, conditional: Sequence[float], sd: float = 0.06
) -> list[float]:
    moved = np.array(conditional) + sd * rng.standard_normal() + 0.01 * rng.standard_normal(8)
    return [float(x) for x in np.clip(moved, 0.1, 0.95)]


def table(seed: int) -> Landscape:
    """Step times from a table with the treads of kernel tiles; nothing between is smooth."""
    rng = _rng(seed, "table")
    tokens = np.array([1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096])
    step = np.array([7.1, 7.3, 7.6, 7.9, 8.3, 9.4, 11.9, 15.0, 21.8, 34.5, 60.0, 115.0, 220.0])
    step = step * np.exp(0.05 * rng.standard_normal(len(step)))
    conditional = _jitter(rng, GOOD)

    def cycle(draft: Draft, _: int, load: LoadPoint) -> float:
        n = load.batch * max(1, draft.tokens)
        tile = 8 if n <= 64 else 64
        padded = math.ceil(n / tile) * tile if n > 8 else n
        drafting = draft.steps * (0.42 + (0.08 if draft.is_tree else 0.0))
        return float(np.interp(padded, tokens, step)) + drafting

    return build(
        "table",
        "a measured table with treads",
        loads=EVEN,
        reach=lambda draft, _: reach_of(draft, conditional),
        cycle_ms=cycle,
        card=DENSE_CARDS,
    )


def graph_cliffs(seed: int) -> Landscape:
    """Batches are padded to captured graph sizes; tokens beyond the largest run eagerly."""
    rng = _rng(seed, "graph_cliffs")
    conditional = _jitter(rng, FAIR)
    most = int(rng.choice([192, 256, 384]))
    eager_ms = rng.uniform(4, 7)
    box = _varied(rng, NVLINK)

    def cycle(draft: Draft, _: int, load: LoadPoint) -> float:
        n = load.batch * max(1, draft.tokens)
        if n > most:
            return box.cycle_ms(draft, load) + eager_ms
        padded = next(
            size for size in (1, 2, 4, 8, 16, 24, 32, 64, 96, 128, 192, 256, 384) if size >= n
        )
        return box.forward_ms(
            padded, load.batch, load.context_tok
        ) + draft.steps * box.draft_ms * (1.3 if draft.is_tree else 1)

    return build(
        "graph-cliffs",
        "padding to captured sizes, eager beyond",
        loads=(*EVEN[:2], replace(EVEN[2], batch=48)),
        reach=lambda draft, _: reach_of(draft, conditional),
        cycle_ms=cycle,
    )


def correlated_routing(seed: int) -> Landscape:
    """Tokens of a request go to the same experts, which makes verifying cheap."""
    rng = _rng(seed, "correlated_routing")
    conditional = _jitter(rng, GOOD)
    box = replace(_varied(rng, NVLINK), experts_ms=rng.uniform(18, 30))
    inside = rng.uniform(0.35, 0.6)

    def cycle(draft: Draft, _: int, load: LoadPoint) -> float:
        alike = load.batch**0.85 * max(1, draft.tokens) ** inside
        ms = box.forward_ms(1, load.batch, load.context_tok)
        touched = 1 - (1 - box.per_token / box.experts) ** alike
        once = 1 - (1 - box.per_token / box.experts)
        n = load.batch * max(1, draft.tokens)
        return ms + box.experts_ms * (touched - once) + 0.004 * n + draft.steps * box.draft_ms

    return build(
        "correlated-routing",
        "drafted tokens share their experts",
        loads=EVEN,
        reach=lambda draft, _: reach_of(draft, conditional),
        cycle_ms=cycle,
    )


def backend_switch(seed: int) -> Landscape:
    """Trees run on another attention backend, and wide verifications on another kernel."""
    rng = _rng(seed, "backend_switch")
    other = _settings(np.random.default_rng([seed, 7, *b"backend_switch"]))
    conditional = _jitter(rng, FAIR)
    tree_ms = rng.uniform(-1.0, 3.0)
    wide = rng.uniform(0.7, 0.95)
    box = _varied(rng, DENSE)

    def cycle(draft: Draft, _: int, load: LoadPoint) -> float:
        ms = box.cycle_ms(draft, load)
        if draft.is_tree:
            ms += tree_ms + 0.02 * load.batch * load.context_tok / 1e3
        if load.batch * draft.tokens >= 256:
            ms *= wide
        return ms

    return build(
        "backend-switch",
        "trees change the attention backend, width the kernel",
        loads=LATENCY,
        reach=lambda draft, _: reach_of(draft, conditional, BROAD),
        cycle_ms=lambda draft, setting, load: (
            cycle(draft, setting, load) * other(draft, setting, load)
        ),
        setting_names=SETTINGS,
        card=DENSE_CARDS,
    )


def constants_off(seed: int) -> Landscape:
    """Every constant of the machine is 30 to 50 % from what is known of it, either way."""
    rng = _rng(seed, "constants_off")
    conditional = _jitter(rng, FAIR)

    def off() -> float:
        return float(rng.uniform(1.3, 1.5) ** rng.choice([-1, 1]))

    start, each, most = PCIE.message_us
    box = replace(
        PCIE,
        weights_ms=PCIE.weights_ms * off(),
        experts_ms=PCIE.experts_ms * off(),
        compute_ms=PCIE.compute_ms * off(),
        message_us=(start * off(), each * off(), most),
        fixed_ms=PCIE.fixed_ms * off(),
        draft_ms=PCIE.draft_ms * off(),
        kv_ms=PCIE.kv_ms * off(),
    )
    return build(
        "constants-off",
        "all constants 30-50 % off",
        loads=EVEN,
        reach=lambda draft, _: reach_of(draft, conditional),
        cycle_ms=lambda draft, _, load: box.cycle_ms(draft, load),
        card=PCIE_CARDS,
    )


def rugged(seed: int) -> Landscape:
    """Every configuration is up to 15 % faster or slower than any law says."""
    rng = _rng(seed, "rugged")
    conditional = _jitter(rng, FAIR)
    own: dict[tuple[Draft, int], float] = {}
    box = _varied(rng, NVLINK)

    def cycle(draft: Draft, setting: int, load: LoadPoint) -> float:
        if (draft, setting) not in own:
            own[draft, setting] = float(np.exp(rng.uniform(-0.15, 0.15)))
        return box.cycle_ms(draft, load) * own[draft, setting]

    return build(
        "rugged",
        "±15 % a configuration",
        loads=EVEN,
        reach=lambda draft, _: reach_of(draft, conditional),
        cycle_ms=cycle,
    )


def uneven(seed: int) -> Landscape:
    """±5 % a configuration and load, on a machine that drifts."""
    rng = _rng(seed, "uneven")
    conditional = _jitter(rng, GOOD)
    box = _varied(rng, DENSE)
    return build(
        "uneven",
        "±5 % a configuration and load, drifting machine",
        loads=LATENCY,
        reach=lambda draft, _: reach_of(draft, conditional),
        cycle_ms=lambda draft, _, load: (
            box.cycle_ms(draft, load) * float(np.exp(rng.uniform(-0.05, 0.05)))
        ),
        drift_sd=0.003,
        card=DENSE_CARDS,
    )


def drifting_acceptance(seed: int) -> Landscape:
    """The more requests run, the less is accepted, and trees suffer less."""
    rng = _rng(seed, "drifting_acceptance")
    base = _jitter(rng, GOOD)
    slope = rng.uniform(0.015, 0.04)
    box = _varied(rng, NVLINK)

    def reach(draft: Draft, load: LoadPoint) -> list[float]:
        fall = slope * math.log2(load.batch) * (0.6 if draft.is_tree else 1.0)
        # A deep chain finds the later positions a little easier than a shallow one predicts.
        lift = 0.004 * max(0, draft.steps - 3)
        return reach_of(draft, [max(0.1, p - fall + lift) for p in base])

    return build(
        "drifting-acceptance",
        "acceptance falls with load",
        loads=BUSY,
        reach=reach,
        cycle_ms=lambda draft, _, load: box.cycle_ms(draft, load),
        drift_sd=0.002,
    )


def speculation_loses(seed: int) -> Landscape:
    """A poor draft on a slow interconnect: nothing beats leaving it off."""
    rng = _rng(seed, "speculation_loses")
    conditional = _jitter(rng, POOR, sd=0.02)
    box = replace(_varied(rng, PCIE), message_us=(25.0, rng.uniform(9.0, 14.0), 100_000))
    return build(
        "speculation-loses",
        "off is best",
        loads=LATENCY,
        reach=lambda draft, _: reach_of(draft, conditional),
        cycle_ms=lambda draft, _, load: box.cycle_ms(draft, load),
        card=PCIE_CARDS,
    )


def trees_win(seed: int) -> Landscape:
    """Drafting is slow, verifying is cheap, second candidates are often right."""
    rng = _rng(seed, "trees_win")
    conditional = _jitter(rng, (0.55, 0.53, 0.50, 0.48, 0.46, 0.44, 0.42, 0.40))
    box = replace(_varied(rng, DENSE), draft_ms=rng.uniform(0.9, 1.4), compute_ms=0.01)
    return build(
        "trees-win",
        "second candidates are often right",
        loads=LATENCY,
        reach=lambda draft, _: reach_of(draft, conditional, BROAD, 0.95),
        cycle_ms=lambda draft, _, load: box.cycle_ms(draft, load),
        card=DENSE_CARDS,
    )


def nccl_flips(seed: int) -> Landscape:
    """Which communication setting is best depends on the size of the messages."""
    rng = _rng(seed, "nccl_flips")
    conditional = _jitter(rng, FAIR)
    paths = (
        (28.0, 1.6, 100_000),
        (20.0, 1.8 + rng.uniform(0, 1.5), 16),  # quick at first, falls off its fast path
        (45.0, rng.uniform(0.25, 0.5), 100_000),  # slow to start, wide
        (30.0, 1.4, 100_000),
    )
    like = _varied(rng, PCIE)
    boxes = [replace(like, message_us=path) for path in paths]
    return build(
        "nccl-flips",
        "the best transport depends on the verify width",
        loads=(EVEN, LATENCY)[int(rng.integers(2))],
        reach=lambda draft, _: reach_of(draft, conditional),
        cycle_ms=lambda draft, setting, load: boxes[setting].cycle_ms(draft, load),
        setting_names=("default", "low-latency", "wide", "other"),
        card=PCIE_CARDS,
    )


def nothing_in_it(seed: int) -> Landscape:
    """The best speculation is within half a per cent of none."""
    rng = _rng(seed, "nothing_in_it")
    conditional = _jitter(rng, FAIR)
    box = _varied(rng, NVLINK)
    land = build(
        "nothing-in-it",
        "the best is no better than off",
        loads=EVEN,
        reach=lambda draft, _: reach_of(draft, conditional),
        cycle_ms=lambda draft, _, load: box.cycle_ms(draft, load),
        drift_sd=0.002,
    )
    speculative = np.array([draft != OFF for draft in land.drafts])
    # Against the better of each one's baselines.
    gains = [land.gain(i) for i in np.flatnonzero(speculative)]
    factor = math.exp(max(gains) + rng.uniform(-0.005, 0.005))
    cycle = np.where(speculative[:, None], land.cycle_ms * factor, land.cycle_ms)
    return replace(land, cycle_ms=cycle)


OTHER: tuple[Callable[[int], Landscape], ...] = (
    table,
    graph_cliffs,
    correlated_routing,
    backend_switch,
    constants_off,
    rugged,
    uneven,
    drifting_acceptance,
    speculation_loses,
    trees_win,
    nccl_flips,
    nothing_in_it,
)
