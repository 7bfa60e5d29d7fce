"""Landscapes of laws that the tuner's predictor does not contain.

Nothing here comes from the tuner or from bench.physics: times are tables, cliffs, switches and
wrong constants; trees are chosen by a draft that misjudges itself; acceptance moves with load.
Each is a function of a seed, which draws its constants.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from benchmarks.landscapes import OFF, Draft, Landscape, LoadPoint, build
from benchmarks.landscapes_laws import (
    BROAD,
    BUSY,
    DENSE,
    DENSE_CARDS,
    EVEN,
    FAIR,
    GOOD,
    LATENCY,
    NVLINK,
    PCIE,
    PCIE_CARDS,
    POOR,
    SETTINGS,
    jittered,
    reach_of,
    rng_of,
    settings_of,
    varied,
)


def table(seed: int) -> Landscape:
    """Step times from a table with the treads of kernel tiles; nothing between is smooth."""
    rng = rng_of(seed, "table")
    tokens = np.array([1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096])
    step = np.array([7.1, 7.3, 7.6, 7.9, 8.3, 9.4, 11.9, 15.0, 21.8, 34.5, 60.0, 115.0, 220.0])
    step = step * np.exp(0.05 * rng.standard_normal(len(step)))
    conditional = jittered(rng, GOOD)

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
    rng = rng_of(seed, "graph_cliffs")
    conditional = jittered(rng, FAIR)
    most = int(rng.choice([192, 256, 384]))
    eager_ms = rng.uniform(4, 7)
    box = varied(rng, NVLINK)

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
    rng = rng_of(seed, "correlated_routing")
    conditional = jittered(rng, GOOD)
    box = replace(varied(rng, NVLINK), experts_ms=rng.uniform(18, 30))
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
    rng = rng_of(seed, "backend_switch")
    other = settings_of(np.random.default_rng([seed, 7, *b"backend_switch"]))
    conditional = jittered(rng, FAIR)
    tree_ms = rng.uniform(-1.0, 3.0)
    wide = rng.uniform(0.7, 0.95)
    box = varied(rng, DENSE)

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
    rng = rng_of(seed, "constants_off")
    conditional = jittered(rng, FAIR)

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
    rng = rng_of(seed, "rugged")
    conditional = jittered(rng, FAIR)
    own: dict[tuple[Draft, int], float] = {}
    box = varied(rng, NVLINK)

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
    rng = rng_of(seed, "uneven")
    conditional = jittered(rng, GOOD)
    box = varied(rng, DENSE)
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
    rng = rng_of(seed, "drifting_acceptance")
    base = jittered(rng, GOOD)
    slope = rng.uniform(0.015, 0.04)
    box = varied(rng, NVLINK)

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
    rng = rng_of(seed, "speculation_loses")
    conditional = jittered(rng, POOR, sd=0.02)
    box = replace(varied(rng, PCIE), message_us=(25.0, rng.uniform(9.0, 14.0), 100_000))
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
    rng = rng_of(seed, "trees_win")
    conditional = jittered(rng, (0.55, 0.53, 0.50, 0.48, 0.46, 0.44, 0.42, 0.40))
    box = replace(varied(rng, DENSE), draft_ms=rng.uniform(0.9, 1.4), compute_ms=0.01)
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
    rng = rng_of(seed, "nccl_flips")
    conditional = jittered(rng, FAIR)
    paths = (
        (28.0, 1.6, 100_000),
        (20.0, 1.8 + rng.uniform(0, 1.5), 16),  # quick at first, falls off its fast path
        (45.0, rng.uniform(0.25, 0.5), 100_000),  # slow to start, wide
        (30.0, 1.4, 100_000),
    )
    like = varied(rng, PCIE)
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
    rng = rng_of(seed, "nothing_in_it")
    conditional = jittered(rng, FAIR)
    box = varied(rng, NVLINK)
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
