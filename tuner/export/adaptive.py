"""SGLang's `--speculative-adaptive-config` from a study: step counts by batch size.

Two forms. *Pinned*: one step count a key, the best measured at the loads around it. *Responsive*:
its own and those of the keys beside it, between which SGLang chooses by what is accepted. Neither
was measured as such: they are candidates, which the exported scenario measures as arms.

Source: SGLang 0.5.23, `speculative/adaptive_spec_params.py`: a batch counts to the largest key not
above it, once padded to a CUDA graph's size; below the least key the least one counts. Keys that
are no digits are not read.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

from bench.sglang.arguments import (
    SUPPORTED,
    Rejection,
    asked_text,
    by_rule,
    effective_speculative,
    known_graph_batch_sizes,
    parse_arguments,
    whole_number,
)
from tuner.export.ground import batch_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bench.model.study import StudyConfiguration
    from bench.sglang.arguments import AskedValue
    from tuner.export.ground import Ground

ADAPTIVE: Final = "--speculative-adaptive"
CONFIG: Final = "--speculative-adaptive-config"
_VERSION: Final = re.compile(r"(\d+)\.(\d+)\.(\d+)(?!\d)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Tier:
    """One key of the configuration.

    Attributes:
        batch: From which batch size on.
        steps: Draft steps to choose from, rising; 0 is no drafting.
    """

    batch: int
    steps: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """A batch size that was measured.

    Attributes:
        batch: Requests that a rank decodes at once.
        cells: Places of the study's cells there.
        steps: The step count to take there.
    """

    batch: int
    cells: tuple[int, ...]
    steps: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Adaptive:
    """Both forms, or why there are none.

    Attributes:
        base: The chain whose settings both have; None without forms.
        ranks: Servers that share a load: data-parallel replicas.
        levels: What was measured, the lightest first.
        pinned: The tiers of the pinned form; empty: no form is written.
        responsive: Of the responsive one.
        graph_sizes: Batches that are padded to; None: not known, or no graphs.
        reason: Why no form is written.
        notes: What else is worth knowing, in sentences.
    """

    base: StudyConfiguration | None = None
    ranks: int = 1
    levels: tuple[Level, ...] = ()
    pinned: tuple[Tier, ...] = ()
    responsive: tuple[Tier, ...] = ()
    graph_sizes: tuple[int, ...] | None = None
    reason: str | None = None
    notes: tuple[str, ...] = ()

    @property
    def forms(self) -> dict[str, tuple[Tier, ...]]:
        """The forms by name."""
        return {"pinned": self.pinned, "responsive": self.responsive} if self.pinned else {}

    @property
    def initial_steps(self) -> int:
        """What SGLang begins with: the deployed step count, else the middle one of the union."""
        assert self.base is not None
        union = sorted({steps for tier in self.pinned for steps in tier.steps})
        own = self.base.num_steps
        return own if own in union else union[len(union) // 2]

    @property
    def thresholds(self) -> tuple[int, ...]:
        """Batch sizes from which on another step count is pinned."""
        return tuple(tier.batch for tier in self.pinned[1:])

    def below(self, threshold: int) -> int:
        """The largest batch that still counts to the key before a threshold."""
        smaller = [size for size in self.graph_sizes or () if size < threshold]
        return smaller[-1] if smaller else threshold - 1


def config_json(tiers: Sequence[Tier], made_by: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration as SGLang reads it.

    Args:
        tiers: Of one form.
        made_by: Where it came from; SGLang reads only keys that are numbers.
    """
    return {"made_by": dict(made_by)} | {str(tier.batch): _entry(tier) for tier in tiers}


def _entry(tier: Tier) -> dict[str, Any]:
    entry: dict[str, Any] = {"candidate_steps": list(tier.steps)}
    if len(tier.steps) > 1:
        # SGLang's own thresholds: of its default configuration for keys with and without 0.
        entry |= {"up_hysteresis": 0.0, "down_hysteresis": 0.0 if 0 in tier.steps else -0.25}
    return entry


def choose(ground: Ground) -> Adaptive:
    """Both forms from the study's conclusion, or the reason against them."""
    base = _base(ground)
    if base is None:
        return Adaptive(
            reason="speculation is left off, and the best of it has other settings than what is "
            "deployed: one server cannot be both."
        )
    reason = _unsupported(ground, base)
    if reason is not None:
        return Adaptive(reason=reason)
    asked = parse_arguments(ground.words(base))
    ranks = whole_number(asked_text(asked, "dp_size") or "1") or 1
    levels, notes = _levels(ground, base, ranks)
    counts = {level.steps for level in levels}
    if len(levels) < 2:
        return Adaptive(notes=notes, reason="only one batch size was measured.")
    if len(counts) == 1:
        steps = counts.pop()
        told = (
            f"{steps_text(steps)} {'are' if steps > 1 else 'is'}"
            if steps
            else "speculation off is"
        )
        return Adaptive(
            notes=notes,
            reason=f"none is needed: {told} the best at every load, or within noise of it.",
        )
    return _forms(ground, base, asked, Adaptive(ranks=ranks, levels=levels, notes=notes))


# ------------------------------------------------------------------------------ what may be at all


def _base(ground: Ground) -> StudyConfiguration | None:
    """The speculative configuration whose settings the server has."""
    if ground.deployed.algorithm is not None:
        return ground.deployed
    best = ground.best
    alike = (best.arguments, best.environment) == (
        ground.deployed.arguments,
        ground.deployed.environment,
    )
    return best if alike and best.algorithm is not None else None


def _unsupported(ground: Ground, base: StudyConfiguration) -> str | None:
    """Why this server has no adaptive mode, or would turn it off without a word."""
    version = None if ground.study.simulated else ground.study.engine_version
    found = _VERSION.match(version or "")
    oldest = tuple(map(int, SUPPORTED.split(".")))
    if found is not None and tuple(map(int, found.groups())) < oldest:
        return (
            f"the servers were SGLang {version}, and adaptive mode by batch size is known of "
            f"{SUPPORTED}: an older one may not have it, or read its file otherwise."
        )
    words = ground.words(base)
    if base.eagle_topk == 1:
        words = without_triple(words)  # SGLang's own candidates may not have these steps
    outcome = effective_speculative(parse_arguments([*words, ADAPTIVE]), ground.known)
    if isinstance(outcome, Rejection):
        return f"{outcome.reason} {by_rule(outcome.rule)}"
    if dict(outcome.values).get("speculative_adaptive") is True:
        return None
    why = next((c.why for c in outcome.changes if c.dest == "speculative_adaptive"), "it is idle")
    return f"SGLang would turn adaptive mode off with a warning: {why} {by_rule('C28')}."


def without_triple(words: Sequence[str]) -> tuple[str, ...]:
    """The words without steps, branches and draft tokens, which `Ground.words` gives in pairs."""
    triple = ("num-steps", "eagle-topk", "num-draft-tokens")
    options = {f"--speculative-{name}" for name in triple}
    kept, skip = [], False
    for word in words:
        if not skip and word not in options:
            kept.append(word)
        skip = word in options
    return tuple(kept)


# -------------------------------------------------------------------------- what is best, by batch


def _levels(
    ground: Ground, base: StudyConfiguration, ranks: int
) -> tuple[tuple[Level, ...], tuple[str, ...]]:
    cells: dict[int, list[int]] = {}
    notes = []
    for place, cell in enumerate(ground.study.cells):
        batch = batch_of(cell.load, ranks)
        if batch is None:
            notes.append(
                f"{cell.workload} at {cell.load} has no batch size of its own and is left out."
            )
        else:
            cells.setdefault(batch, []).append(place)
    levels = []
    for batch, places in sorted(cells.items()):
        steps, more = _best_steps(ground, base, places)
        levels.append(Level(batch=batch, cells=tuple(places), steps=steps))
        notes += more
    return tuple(levels), tuple(dict.fromkeys(notes))


def _best_steps(
    ground: Ground, base: StudyConfiguration, cells: Sequence[int]
) -> tuple[int, list[str]]:
    """The best step count of several cells; the deployed one where nothing is surely better."""
    study, deployed = ground.study, ground.deployed
    own = deployed.num_steps or 0
    contenders = {own: deployed}
    notes = []
    for told in ground.conclusion.cells:
        best = study.configurations[told.best]
        if told.cell not in cells or told.within_noise or best.place == deployed.place:
            continue
        steps = _steps_within(base, best)
        where = f"{study.cells[told.cell].workload} at {study.cells[told.cell].load}"
        if steps is None:
            notes.append(
                f"The best for {where}, {best.label}, is no chain of these settings: adaptive "
                f"mode cannot switch to it, and {steps_text(own)} stay there."
            )
        elif not best.launches:
            notes.append(
                f"The best for {where}, {best.label}, is only predicted: {steps_text(own)} stay "
                "there."
            )
        else:
            contenders[steps] = best
    scores = {
        steps: sum(study.cells[cell].weight * c.cell_gain[cell] for cell in cells)
        for steps, c in contenders.items()
        if c.cell_gain is not None
    }
    return max(scores, key=lambda steps: (scores[steps], steps == own), default=own), notes


def _steps_within(base: StudyConfiguration, other: StudyConfiguration) -> int | None:
    """The step count of what adaptive mode can switch to on a server of `base`."""
    if (other.arguments, other.environment) != (base.arguments, base.environment):
        return None
    if other.algorithm is None:
        return 0
    return other.num_steps if (other.algorithm, other.eagle_topk) == (base.algorithm, 1) else None


# -------------------------------------------------------------------------------------- the forms


def _forms(
    ground: Ground,
    base: StudyConfiguration,
    asked: Mapping[str, AskedValue],
    found: Adaptive,
) -> Adaptive:
    effective = effective_speculative(asked, ground.known)
    sizes = None
    if not isinstance(effective, Rejection):
        sizes = known_graph_batch_sizes(asked, effective, ground.known) or None
    keys = [1]
    changes = [found.levels[0]]
    for lower, upper in pairwise(found.levels):
        if lower.steps == upper.steps:
            continue
        key = _threshold(lower.batch, upper.batch, sizes)
        if key is None:
            return Adaptive(
                notes=found.notes,
                reason=f"batches of {lower.batch} and {upper.batch} want different step counts "
                "and are padded to the same CUDA graph: SGLang cannot tell them apart.",
            )
        keys.append(key)
        changes.append(upper)
    counts = [level.steps for level in changes]
    beside = [
        tuple(sorted(set(counts[max(0, place - 1) : place + 2]))) for place in range(len(counts))
    ]
    notes = [*found.notes]
    if 0 in counts:
        notes.append(
            "0 steps are not quite the server without speculation: their bookkeeping still runs."
        )
    if not ground.study.simulated and ground.study.engine_version != SUPPORTED:
        version = ground.study.engine_version or "a version that it did not tell"
        notes.append(f"Checked by the rules of SGLang {SUPPORTED}; the servers were {version}.")
    notes.append(
        f"Each step count keeps CUDA graphs of its own: {len(set(counts))} sets, so more memory "
        "and a longer start than the study measured."
    )
    return Adaptive(
        base=base,
        ranks=found.ranks,
        levels=found.levels,
        pinned=tuple(Tier(batch=k, steps=(n,)) for k, n in zip(keys, counts, strict=True)),
        responsive=tuple(Tier(batch=k, steps=n) for k, n in zip(keys, beside, strict=True)),
        graph_sizes=sizes,
        notes=tuple(notes),
    )


def _threshold(lower: int, upper: int, sizes: Sequence[int] | None) -> int | None:
    """From which batch on the upper level counts: halfway in ratio, at a graph's size.

    Nothing between the two was measured; on a scale of ratios halfway is the least regret.
    """
    halfway = math.ceil(math.sqrt(lower * upper))
    if not sizes:
        return max(halfway, lower + 1)
    first, last = padded(lower, sizes), padded(upper, sizes)
    if first == last:
        return None
    above = [size for size in (*sizes, last) if first < size <= last]
    return min(above, key=lambda size: (size < halfway, abs(size - halfway)))


def padded(batch: int, sizes: Sequence[int] | None) -> int:
    """The CUDA graph that a batch of this size runs as; itself where there is none."""
    return next((size for size in sizes or () if size >= batch), batch)


def steps_text(count: int) -> str:
    """`1 step`, `3 steps`."""
    return f"{count} step" if count == 1 else f"{count} steps"
