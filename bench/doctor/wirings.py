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

from bench.doctor.captures import LEAST_TOKENS
from bench.doctor.heads import (
    embedding_tensor,
    embeddings_of,
    read_head,
    unserved_embedding,
)
from bench.doctor.reference import Forward, project, run
from bench.draft.checkpoint import values_of, whole_values
from bench.draft.vocabulary import vocabulary_map

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from bench.doctor.captures import Sample
    from bench.doctor.reference import Head
    from bench.draft.draft import Draft
    from bench.draft.target import Target

STEPS: Final = 3
MOST_ORDERS: Final = 720
"""Choices and orders of slots: all of 3 out of 9, nearly."""
MOST_ROWS: Final = 16384
"""Tokens tried on: a share of them is known to 0.4 points."""
FEWEST_ROWS: Final = 512
MOST_WORK: Final = 2**39
"""Tokens times weights of one wiring's step, beyond which fewer tokens are taken: a head for a
target 7168 wide (0.8 billion weights) runs on 700."""
ORDER_ROWS: Final = 128
"""Tokens that each choice and order of slots is tried on, to find one to start from."""
THETAS: Final = (10000.0, 50000.0, 500000.0, 1000000.0, 0.0)
ROUNDS: Final = 6

Map = Literal["offset", "absolute", "none"]
Tried = tuple[
    "NDArray[np.float32]", "NDArray[np.int64]", "NDArray[np.float32]", "NDArray[np.float32] | None"
]
"""A sample: states [n, slots, width], token ids [n], the embeddings that are served [n, width],
and the draft's own where it brings some that are not served."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wiring:
    """One way to run a head.

    Attributes:
        slots: Which of the captured slots fc reads, in order.
        shift: Row i reads the states of token i + shift.
        vocabulary: How d2t is read.
        is_tied: Whether the target's embedding is the head.
        embedding: Whose embedding of the tokens is read; SGLang puts the target's in the place of
            the draft's own.
        forward: The rest.
    """

    slots: tuple[int, ...]
    shift: int = 0
    vocabulary: Map = "offset"
    is_tied: bool = False
    embedding: Literal["target", "draft"] = "target"
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
        rows_ct: On how many tokens.
    """

    served: Scored
    ranked: tuple[Scored, ...]
    margin_tok: float
    margin_errors: float
    gain_errors: float
    tried: int
    rows_ct: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Material:
    """What is tried on: weights, states, tokens and their embeddings.

    Attributes:
        head: The head.
        samples: What is tried on.
        d2t: The map; None: there is none.
        tied: The target's embedding, as the head; None: not read, or too long.
        drafts: What was run already: by wiring, without its reading of d2t, and number of steps,
            for each sample the head's [steps, rows] draft ids.
    """

    head: Head
    samples: tuple[Tried, ...]
    d2t: NDArray[np.int64] | None
    tied: NDArray[np.float32] | None = None
    drafts: dict[tuple[Wiring, int], tuple[NDArray[np.int32], ...]] = field(default_factory=dict)

    @property
    def rows_ct(self) -> int:
        """Tokens that are predicted, of all samples."""
        return sum(len(ids) - STEPS - 1 for _, ids, *_ in self.samples)


def material_of(draft: Draft, samples: Sequence[Sample], target: Target | None) -> Material:
    """Read what the trials need.

    Raises:
        InputError: A weight, the embedding or the map cannot be read.
    """
    files, tensor = embedding_tensor(draft, target)
    found = vocabulary_map(draft, vocab_size=None if target is None else target.vocab_size)
    d2t = None
    if found.d2t is not None and len(found.d2t.shape) == 1 and found.d2t.shape[0]:
        d2t = values_of(draft.checkpoint, found.d2t)
    head = read_head(draft, target)
    rows = min(max(MOST_WORK // _weights_ct(head), FEWEST_ROWS), MOST_ROWS)
    own = unserved_embedding(draft, target)
    read = (
        (
            sample.states,
            sample.token_ids,
            embeddings_of(sample.token_ids, files, tensor),
            None if own is None else embeddings_of(sample.token_ids, draft.checkpoint, own),
        )
        for sample in samples
    )
    is_small = tensor.size_bytes <= 2**28
    return Material(
        head=head,
        samples=tuple(_cut(read, rows)),
        d2t=None if d2t is None else d2t.astype(np.int64),
        tied=whole_values(files, tensor) if is_small else None,
    )


def _weights_ct(head: Head) -> int:
    """Weights that each row is multiplied by: the head's and fc's, and a layer's like them."""
    layers = sum(3 * layer.gate.size for layer in head.layers)
    return head.head.size + layers + (0 if head.fc is None else head.fc.size)


def _cut(samples: Iterable[Tried], rows: int) -> Iterator[Tried]:
    """Samples of so many tokens altogether, the last one cut."""
    for states, ids, embeddings, own in samples:
        if rows < LEAST_TOKENS:
            return
        yield states[:rows], ids[:rows], embeddings[:rows], None if own is None else own[:rows]
        rows -= len(ids)


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
        rows_ct=material.rows_ct,
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
    fc, width = material.head.fc, material.samples[0][0].shape[2]
    reads_ct = len(served.slots) if fc is None else fc.shape[1] // width
    few = replace(material, samples=tuple(_cut(material.samples, ORDER_ROWS)), drafts={})
    wirings = [
        replace(served, slots=chosen, vocabulary=vocabulary)
        for chosen in islice(permutations(slots, reads_ct), MOST_ORDERS)
        for vocabulary in _maps(material)
    ]
    scored = [score_of(few, wiring, steps=1) for wiring in wirings]
    return [max(scored, key=lambda each: each.accept_len_tok).wiring] if scored else []


def _maps(material: Material) -> tuple[Map, ...]:
    return ("none",) if material.d2t is None else ("offset", "absolute", "none")


def _neighbours(material: Material, wiring: Wiring) -> Iterator[Wiring]:
    """Wirings that differ from one in one respect."""
    for vocabulary in _maps(material):
        yield replace(wiring, vocabulary=vocabulary)
    for shift in (-1, 0, 1):
        yield replace(wiring, shift=shift)
    if material.tied is not None:
        yield replace(wiring, is_tied=not wiring.is_tied)
    if material.samples[0][3] is not None:
        yield from (replace(wiring, embedding="target"), replace(wiring, embedding="draft"))
    yield from (replace(wiring, forward=way) for way in _ways(material.head, wiring))
    slots = range(material.samples[0][0].shape[1])
    for place in range(len(wiring.slots)):
        for slot in slots:
            changed = (*wiring.slots[:place], slot, *wiring.slots[place + 1 :])
            if len(set(changed)) == len(changed):
                yield replace(wiring, slots=changed)


def _ways(head: Head, wiring: Wiring) -> list[Forward]:
    """Forward passes that differ from a wiring's in one respect."""
    way = wiring.forward
    ways = [
        replace(way, residual="after" if way.residual == "before" else "before"),
        replace(way, output="after" if way.output == "before" else "before"),
        replace(way, norms_hidden=not way.norms_hidden),
        replace(way, norms_embedding=not way.norms_embedding),
        *(replace(way, theta=theta) for theta in _thetas(head)),
        *(replace(way, scaling=whose) for whose in _scalings(head)),
        *(replace(way, scale=scale) for scale in (1.0, 8.0, 32.0)),
    ]
    if head.fc_norms or head.input_norm is not None:
        ways.append(replace(way, norms_fc=not way.norms_fc))
    if any(layer.attention.has_extras for layer in head.layers):
        ways.append(replace(way, uses_extras=not way.uses_extras))
    if any(layer.is_misnamed for layer in head.layers):
        ways.append(replace(way, finds_misnamed=not way.finds_misnamed))
    if head.fc is None or len(wiring.slots) == 1:
        ways.append(replace(way, uses_fc=not way.uses_fc))
    return ways


def _thetas(head: Head) -> tuple[float, ...]:
    known = [rope.theta for rope in (head.rope, head.target_rope) if rope is not None]
    return tuple(dict.fromkeys((*known, *THETAS)))


def _scalings(head: Head) -> Iterator[Literal["own", "target", "none"]]:
    """Whose stretching of positions can make a difference."""
    own, target = head.rope, head.target_rope
    if own is not None and own.is_scaled:
        yield from ("own", "none")
    if (
        target is not None
        and target.is_scaled
        and (own is None or (own.kind, own.scaling) != (target.kind, target.scaling))
    ):
        yield from ("own", "target")


# ------------------------------------------------------------------------------------ one of them


def score_of(material: Material, wiring: Wiring, *, steps: int = STEPS) -> Scored:
    """Run a wiring over all samples, or take what was run."""
    key = (replace(wiring, vocabulary="offset"), steps)
    if key not in material.drafts:
        material.drafts[key] = tuple(
            _drafts(material, wiring, sample, steps=steps) for sample in material.samples
        )
    right = [
        _tokens(drafts, material, wiring) == _following(ids, steps)
        for drafts, (_, ids, *_) in zip(material.drafts[key], material.samples, strict=True)
    ]
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


def _following(ids: NDArray[np.int64], steps: int) -> NDArray[np.int64]:
    """[steps, rows]: the token that each step at each row is to predict."""
    rows = len(ids) - steps - 1
    return np.stack([ids[2 + step : 2 + step + rows] for step in range(steps)])


def _drafts(
    material: Material,
    wiring: Wiring,
    sample: Tried,
    *,
    steps: int,
) -> NDArray[np.int32]:
    """[steps, rows]: the draft's ids; -1 where the widths do not fit."""
    states, ids, embeddings, own = sample
    if wiring.embedding == "draft" and own is not None:
        embeddings = own
    head = material.head
    rows = len(ids) - steps - 1
    places = np.clip(np.arange(rows) + wiring.shift, 0, len(ids) - 1)
    hidden = project(head, states[places][:, list(wiring.slots)], wiring.forward)
    if hidden.shape[1] != head.norm.shape[0]:
        return np.full((steps, rows), -1, dtype=np.int32)
    outputs = run(head, hidden, embeddings[1:], wiring.forward, steps=steps)
    vocabulary = material.tied if wiring.is_tied and material.tied is not None else head.head
    found = [(output @ vocabulary.T).argmax(axis=-1) for output in outputs]
    return np.array(found, dtype=np.int32)


def _tokens(drafts: NDArray[np.int32], material: Material, wiring: Wiring) -> NDArray[np.int64]:
    ids = drafts.astype(np.int64)
    if material.d2t is None or wiring.vocabulary == "none" or wiring.is_tied:
        return ids
    mapped = material.d2t[np.minimum(ids, len(material.d2t) - 1)]
    mapped = mapped + ids if wiring.vocabulary == "offset" else mapped
    return np.where(ids < 0, ids, mapped)
