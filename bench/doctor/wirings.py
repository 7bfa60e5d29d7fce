"""Every plausible wiring of a head tried on captured states, and ranked.

The best is a hypothesis: it is what fits these states best. What SGLang does is proved by a served
run alone.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import islice, permutations
from math import sqrt
from typing import TYPE_CHECKING, Final, Literal

import numpy as np

from bench.doctor.heads import embedding_tensor, embeddings_of, read_head
from bench.doctor.reference import Forward, project, run
from bench.draft.checkpoint import values_of, whole_values
from bench.draft.vocabulary import vocabulary_map

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

    from bench.doctor.captures import Sample
    from bench.doctor.reference import Head
    from bench.draft.draft import Draft
    from bench.draft.target import Target

STEPS: Final = 3
MOST_ORDERS: Final = 720
"""Choices and orders of slots: all of 3 out of 9, nearly."""
THETAS: Final = (10000.0, 50000.0, 500000.0, 1000000.0, 0.0)
ROUNDS: Final = 6

Map = Literal["offset", "absolute", "none"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Wiring:
    """One way to run a head.

    Attributes:
        slots: Which of the captured slots fc reads, in order.
        shift: Row i reads the states of token i + shift.
        vocabulary: How d2t is read.
        is_tied: Whether the target's embedding is the head.
        forward: The rest.
    """

    slots: tuple[int, ...]
    shift: int = 0
    vocabulary: Map = "offset"
    is_tied: bool = False
    forward: Forward = field(default_factory=Forward)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scored:
    """A wiring and what it predicts.

    Attributes:
        wiring: The wiring.
        top1: Share of right tokens at step 1, 2, …, fed the true tokens.
        accepted: P(the first k drafts are right).
        accept_len_tok: 1 + their sum.
        per_row: Drafts right in a row, at each row of all samples, for comparisons in pairs.
    """

    wiring: Wiring
    top1: tuple[float, ...]
    accepted: tuple[float, ...]
    accept_len_tok: float
    per_row: NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranking:
    """All that was tried, the best first.

    Attributes:
        served: What SGLang does with the draft's config, or the first slots in order.
        ranked: Distinct results.
        margin_tok: How far the best is above the best with another result.
        margin_errors: The same in standard errors, over rows.
        gain_errors: How far the best is above the served one, in standard errors.
        tried: How many wirings were run.
    """

    served: Scored
    ranked: tuple[Scored, ...]
    margin_tok: float
    margin_errors: float
    gain_errors: float
    tried: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Material:
    """What is tried on: weights, states, tokens and their embeddings.

    Attributes:
        head: The head.
        table: The embedding's rows for `token_of` ids, as the tied head; None: not read.
        samples: (states [n, slots, width], token ids [n], embeddings [n, width]).
        d2t: The map; None: there is none.
    """

    head: Head
    samples: tuple[tuple[NDArray[np.float32], NDArray[np.int64], NDArray[np.float32]], ...]
    d2t: NDArray[np.int64] | None
    tied: NDArray[np.float32] | None = None


def material_of(draft: Draft, samples: Sequence[Sample], target: Target | None) -> Material:
    """Read what the trials need.

    Raises:
        InputError: A weight, the embedding or the map cannot be read.
    """
    files, tensor = embedding_tensor(draft, target)
    found = vocabulary_map(draft, vocab_size=None if target is None else target.vocab_size)
    d2t = None if found.d2t is None else values_of(draft.checkpoint, found.d2t)
    rows = tuple(
        (sample.states, sample.token_ids, embeddings_of(sample.token_ids, files, tensor))
        for sample in samples
    )
    is_small = tensor.size_bytes <= 2**28
    return Material(
        head=read_head(draft),
        samples=rows,
        d2t=None if d2t is None else d2t.astype(np.int64),
        tied=whole_values(files, tensor) if is_small else None,
    )


def rank(material: Material, served: Wiring) -> Ranking:
    """Climb from the served wiring and from the best order of slots, one respect at a time."""
    done: dict[Wiring, Scored] = {}

    def score(wiring: Wiring) -> Scored:
        if wiring not in done:
            done[wiring] = score_of(material, wiring)
        return done[wiring]

    first = score(served)
    for start in (served, *_orders(material, served)):
        _ascend(material, start, score)
    ranked = sorted(done.values(), key=lambda scored: -scored.accept_len_tok)
    distinct: list[Scored] = []
    for scored in ranked:
        if not any(np.array_equal(scored.per_row, other.per_row) for other in distinct[-4:]):
            distinct.append(scored)
    margin, errors = _lead(distinct[0], distinct[min(1, len(distinct) - 1)])
    return Ranking(
        served=first,
        ranked=tuple(distinct),
        margin_tok=margin,
        margin_errors=errors,
        gain_errors=_lead(distinct[0], first)[1],
        tried=len(done),
    )


def _lead(first: Scored, second: Scored) -> tuple[float, float]:
    """How far one is above another, in tokens and in standard errors over rows."""
    differences = first.per_row - second.per_row
    mean = float(differences.mean())
    error = float(differences.std(ddof=1)) / sqrt(len(differences))
    return mean, mean / error if error else 0.0


# ---------------------------------------------------------------------------- what there is to try


def _ascend(material: Material, start: Wiring, score: Callable[[Wiring], Scored]) -> Scored:
    """From a wiring to better ones, one respect at a time, until none of them is better."""
    best = score(start)
    for _ in range(ROUNDS):
        before = best
        for wiring in _neighbours(material, best.wiring):
            best = max(best, score(wiring), key=lambda scored: scored.accept_len_tok)
        if best is before:
            break
    return best


def _orders(material: Material, served: Wiring) -> list[Wiring]:
    """The choice and order of slots that does best at step 1: a start beside the served wiring."""
    slots = range(material.samples[0][0].shape[1])
    wirings = [
        replace(served, slots=chosen, vocabulary=vocabulary)
        for chosen in islice(permutations(slots, len(served.slots)), MOST_ORDERS)
        for vocabulary in _maps(material)
    ]
    scored = [score_of(material, wiring, steps=1) for wiring in wirings]
    return [max(scored, key=lambda each: each.accept_len_tok).wiring] if scored else []


def _maps(material: Material) -> tuple[Map, ...]:
    return ("none",) if material.d2t is None else ("offset", "absolute", "none")


def _neighbours(material: Material, wiring: Wiring) -> Iterator[Wiring]:
    """Wirings that differ from one in one respect."""
    head, way = material.head, wiring.forward
    for vocabulary in _maps(material):
        yield replace(wiring, vocabulary=vocabulary)
    for shift in (-1, 0, 1):
        yield replace(wiring, shift=shift)
    if material.tied is not None:
        yield replace(wiring, is_tied=not wiring.is_tied)
    ways = [
        replace(way, residual="after" if way.residual == "before" else "before"),
        replace(way, output="after" if way.output == "before" else "before"),
        replace(way, norms_hidden=not way.norms_hidden),
        replace(way, norms_embedding=not way.norms_embedding),
        *(replace(way, theta=theta) for theta in THETAS),
        *(replace(way, scale=scale) for scale in (1.0, 8.0, 32.0)),
    ]
    if head.fc_norms or head.input_norm is not None:
        ways.append(replace(way, norms_fc=not way.norms_fc))
    if any(layer.q_norm is not None or layer.biases for layer in head.layers):
        ways.append(replace(way, uses_extras=not way.uses_extras))
    if head.fc is None or len(wiring.slots) == 1:
        ways.append(replace(way, uses_fc=not way.uses_fc))
    yield from (replace(wiring, forward=way) for way in ways)
    slots = range(material.samples[0][0].shape[1])
    for place in range(len(wiring.slots)):
        for slot in slots:
            changed = (*wiring.slots[:place], slot, *wiring.slots[place + 1 :])
            if len(set(changed)) == len(changed):
                yield replace(wiring, slots=changed)


# ------------------------------------------------------------------------------------ one of them


def score_of(material: Material, wiring: Wiring, *, steps: int = STEPS) -> Scored:
    """Run a wiring over all samples."""
    right = [_right(material, wiring, sample, steps) for sample in material.samples]
    together = np.concatenate(right, axis=1)
    chained = np.cumprod(together, axis=0)
    accepted = tuple(float(share) for share in chained.mean(axis=1))
    return Scored(
        wiring=wiring,
        top1=tuple(float(share) for share in together.mean(axis=1)),
        accepted=accepted,
        accept_len_tok=1 + sum(accepted),
        per_row=chained.sum(axis=0),
    )


def _right(
    material: Material,
    wiring: Wiring,
    sample: tuple[NDArray[np.float32], NDArray[np.int64], NDArray[np.float32]],
    steps: int,
) -> NDArray[np.int64]:
    """[steps, rows]: whether each step's draft is the token that came."""
    states, ids, embeddings = sample
    head = material.head
    rows = len(ids) - steps - 1
    places = np.clip(np.arange(rows) + wiring.shift, 0, len(ids) - 1)
    hidden = project(head, states[places][:, list(wiring.slots)], wiring.forward)
    if hidden.shape[1] != head.norm.shape[0]:
        return np.zeros((steps, rows), dtype=np.int64)
    outputs = run(head, hidden, embeddings[1:], wiring.forward, steps=steps)
    vocabulary = material.tied if wiring.is_tied and material.tied is not None else head.head
    found = []
    for step, output in enumerate(outputs):
        drafts = (output @ vocabulary.T).argmax(axis=-1)
        found.append(_tokens(drafts, material, wiring) == ids[2 + step : 2 + step + rows])
    return np.array(found, dtype=np.int64)


def _tokens(drafts: NDArray[np.intp], material: Material, wiring: Wiring) -> NDArray[np.int64]:
    ids = drafts.astype(np.int64)
    if material.d2t is None or wiring.vocabulary == "none" or wiring.is_tied:
        return ids
    mapped = material.d2t[np.minimum(ids, len(material.d2t) - 1)]
    return mapped + ids if wiring.vocabulary == "offset" else mapped
