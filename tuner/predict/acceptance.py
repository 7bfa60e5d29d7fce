"""Accept lengths: what shallower chains and trees would have, from what was measured.

One launch of a deep chain counts how often each number of drafts was accepted. P(at least k) is
the same for every chain that is long enough, so the accept length of every shallower chain is
known: 1 + sum of P(at least k). A tree's is the sum of the chances of its nodes, if the chance of
second and further candidates is known, which no counter tells: one number, the share of the
missed probability that the next candidate catches, is fitted to measured trees. What is left is a
Gaussian process over steps, branches and tokens: a measured tree corrects its neighbours.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from tuner.predict.experience import Foreseen

    Array = NDArray[np.float64]

# P(the first draft is right) and what each further position keeps of it, before any was seen: the
# middle of published EAGLE-3 drafts, with room for bad ones.
UNSEEN: Final = (0.65, 0.94)
UNSEEN_SD: Final = 0.22  # of the log accept length at 3 steps
SHARES: Final = np.array(
    [0.15, 0.3, 0.45, 0.6, 0.75]
)  # of the missed probability: candidates tried
SHARE_MIDDLE, SHARE_SD = 0.45, 0.2
CHAIN_SD: Final = 0.006  # shallower chains against the deep one's counts
FURTHER_SD: Final = 0.05  # of the log conditional acceptance beyond the deepest position seen
# A tree's log accept length against the rule of ranks: below it, and by how much differs. In
# SpecBundle (44 cells) 5-3-6 and 7-4-8 are 0.10 and 0.15 below, with deviations of 0.13 and 0.18.
TREE_LOSS: Final = 0.12
TREE_SD: Final = 0.13
UNSEEN_OTHER: Final = 1.8  # accept length of algorithms with other rules (n-grams, blocks)
OTHER_SD: Final = 0.25  # of its logarithm
CELLS_ALIKE: Final = 0.6  # how alike a draft's errors are in different cells
READING_SD: Final = 0.006  # counting noise of a measured log accept length


@dataclass(frozen=True, slots=True, kw_only=True)
class Drafts:
    """The distinct drafts of a space as columns, each of shape (drafts,); row 0 is `off`."""

    steps: NDArray[np.int64]
    topk: NDArray[np.int64]
    tokens: NDArray[np.int64]
    family: NDArray[np.int64]  # 0 is off; each algorithm has its number
    eagle: NDArray[np.bool_]  # whether steps, topk and tokens mean what they mean to EAGLE


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptancePosterior:
    """Log accept lengths.

    Attributes:
        mean: (drafts, cells).
        objective_cov: (drafts, drafts) of their weighted sums over the cells.
    """

    mean: Array
    objective_cov: Array


def predict_acceptance(
    drafts: Drafts,
    weights: Array,
    seen: Sequence[tuple[int, Array, Array]],
    card: Array | None = None,
    foreseen: Foreseen | None = None,
) -> AcceptancePosterior:
    """What is known of the accept lengths of all drafts.

    Args:
        drafts: The drafts.
        weights: Of the cells in the objective, (cells,).
        seen: (draft, log accept length (cells,), reach (cells, positions)) of each launch; NaN
            where not measured.
        card: P(at least k accepted) expected before anything is measured, (positions,).
        foreseen: What earlier studies tell of trees; None: nothing.
    """
    depth = int(max(1, drafts.steps.max(initial=1)))
    cells = len(weights)
    mean = np.zeros((len(drafts.steps), cells))
    mean[drafts.family > 0] = np.log(UNSEEN_OTHER)
    own = np.zeros((cells, len(drafts.steps), len(drafts.steps)))
    for family in np.unique(drafts.family[drafts.eagle]):
        of = drafts.eagle & (drafts.family == family)
        reach, known = _pooled_reach(drafts, of, cells, seen, depth, card)
        chains, trees = of & (drafts.topk == 1), of & (drafts.topk > 1)
        lengths = np.log1p(np.cumsum(reach, axis=1))  # (cells, depth)
        mean[chains] = lengths[:, drafts.steps[chains] - 1].T
        if trees.any():
            mean[trees] = _trees(drafts, np.flatnonzero(trees), reach, seen, foreseen)
        for cell in range(cells):
            if known[cell] == 0:
                # Unseen: all drafts are as good or as bad as the draft model is.
                scale = of * np.log1p(drafts.steps) / np.log1p(3)
                own[cell] += UNSEEN_SD**2 * np.outer(scale, scale)
            beyond = of * _beyond(drafts.steps, reach[cell], int(known[cell]))
            own[cell] += FURTHER_SD**2 * np.outer(beyond, beyond)
    return _condition(mean, _errors(drafts, cells, foreseen), own, weights, seen)


def extended(reach: Array, depth: int) -> Array:
    """P(at least k) for k up to `depth`, the last conditional acceptance going on."""
    reach = reach[:depth]
    if len(reach) == depth:
        return reach
    before = reach[-2] if len(reach) > 1 else 1.0
    last = min(1.0, max(0.02, reach[-1] / before if before > 0 else 0.0))
    more = reach[-1] * last ** np.arange(1, depth - len(reach) + 1)
    return np.concatenate([reach, more])


def reach_through(log_lengths: Mapping[int, float], depth: int, guess: Array) -> Array:
    """P(at least k) where only accept lengths of chains were measured, no histogram.

    The first position and what each further one keeps of the one before it are those of the
    geometric fall that goes through the shallowest and the deepest accept length; with one length
    alone, the fall of `guess` goes on.

    Args:
        log_lengths: Log accept length by steps.
        depth: Positions wanted.
        guess: P(at least k) expected, (depth,).
    """
    few, many = min(log_lengths), max(log_lengths)
    drafted, deep = np.expm1(log_lengths[few]), np.expm1(log_lengths[many])
    if few == many:
        scale = drafted / guess[:few].sum()
        scaled: Array = np.minimum.accumulate(np.clip(scale * guess, 0.0, 1.0))
        return scaled
    low, high = 0.0, 1.0
    for _ in range(50):
        keeps = 0.5 * (low + high)
        fall = keeps ** np.arange(many)
        if fall.sum() / fall[:few].sum() < deep / drafted:
            low = keeps
        else:
            high = keeps
    fall = high ** np.arange(depth)
    through: Array = np.clip(drafted / fall[:few].sum() * fall, 0.0, 1.0)
    return through


def _pooled_reach(
    drafts: Drafts,
    of: NDArray[np.bool_],
    cells: int,
    seen: Sequence[tuple[int, Array, Array]],
    depth: int,
    card: Array | None,
) -> tuple[Array, NDArray[np.int64]]:
    """The chain's reach (cells, depth) and how many positions of it were measured (cells,)."""
    first, keeps = UNSEEN
    guess = (
        extended(card, depth)
        if card is not None
        else np.cumprod(first * keeps ** np.arange(depth))
    )
    reach = np.tile(guess, (cells, 1))
    known = np.zeros(cells, dtype=np.int64)
    for cell in range(cells):
        rows = [
            row[cell, : drafts.steps[d]]
            for d, _, row in seen
            if of[d] and drafts.topk[d] == 1 and np.isfinite(row[cell, 0])
        ]
        if not rows:
            lengths = {
                int(drafts.steps[d]): float(log_len[cell])
                for d, log_len, _ in seen
                if of[d] and drafts.topk[d] == 1 and np.isfinite(log_len[cell])
            }
            if lengths:
                reach[cell] = reach_through(lengths, depth, guess)
                known[cell] = max(lengths)
            continue
        deepest = max(len(row) for row in rows)
        measured = np.array(
            [np.mean([row[k] for row in rows if len(row) > k]) for k in range(deepest)]
        )
        measured = np.minimum.accumulate(np.clip(measured, 1e-6, 1.0))
        reach[cell] = extended(measured, depth)
        known[cell] = deepest
    return reach, known


def tree_sums(reach: Array, topk: int, depth: int, shares: Array) -> Array:
    """Chances of a tree's nodes, sorted falling, for every depth of tree.

    A position whose first candidate is right with p has a candidate of rank r > 1 that is right
    with p · (share · (1 - p))^(r-1). Each level keeps its `topk` best nodes. The accept length of
    the tree of d levels and n tokens is 1 + the sum of the first n - 1 of its row.

    Args:
        reach: Of the chain, (cells, positions).
        topk: Branches.
        depth: Levels.
        shares: Of the missed probability, (shares,).

    Returns:
        Running sums, (shares, cells, depth, nodes); a shallower tree has fewer nodes, and its last
        sum goes on.
    """
    cells = len(reach)
    before = np.concatenate([np.ones((cells, 1)), reach[:, : depth - 1]], axis=1)
    first = np.clip(reach[:, :depth] / np.maximum(before, 1e-9), 0.0, 1.0)
    most = topk + (depth - 1) * topk * topk
    sums = np.zeros((len(shares), cells, depth, most))
    beams = np.ones((len(shares), cells, 1))
    nodes = np.zeros((len(shares), cells, 0))
    rank = np.arange(topk)
    for level in range(depth):
        p = first[None, :, level, None]
        chances = p * (shares[:, None, None] * (1.0 - p)) ** rank
        grown = (beams[..., :, None] * chances[..., None, :]).reshape(len(shares), cells, -1)
        nodes = np.concatenate([nodes, grown], axis=2)
        running = np.cumsum(-np.sort(-nodes, axis=2), axis=2)
        sums[:, :, level, : running.shape[2]] = running
        sums[:, :, level, running.shape[2] :] = running[..., -1:]
        beams = -np.sort(-grown, axis=2)[..., :topk]
    return sums


def _trees(
    drafts: Drafts,
    trees: NDArray[np.int64],
    reach: Array,
    seen: Sequence[tuple[int, Array, Array]],
    foreseen: Foreseen | None,
) -> Array:
    """Log accept lengths of the trees, (trees, cells), averaged over what the share may be."""
    by_share = np.zeros((len(SHARES), len(trees), len(reach)))
    for topk in np.unique(drafts.topk[trees]):
        sums = tree_sums(reach, int(topk), int(drafts.steps[trees].max()), SHARES)
        for at in np.flatnonzero(drafts.topk[trees] == topk):
            draft = trees[at]
            node = min(int(drafts.tokens[draft]) - 2, sums.shape[3] - 1)
            by_share[:, at] = np.log1p(sums[:, :, drafts.steps[draft] - 1, node]) - TREE_LOSS
    if foreseen is not None:
        by_share += foreseen.mean[trees]
    weight = -0.5 * ((SHARES - SHARE_MIDDLE) / SHARE_SD) ** 2
    place = {int(draft): at for at, draft in enumerate(trees)}
    for draft, log_len, _ in seen:
        if draft in place:
            error = by_share[:, place[draft]] - log_len
            weight = weight - 0.5 * np.nanmean((error / (0.5 * TREE_SD)) ** 2, axis=1)
    weight = np.exp(weight - weight.max())
    averaged: Array = np.tensordot(weight / weight.sum(), by_share, axes=1)
    return averaged


@dataclass(frozen=True, slots=True, kw_only=True)
class _Errors:
    """How far the rules may be wrong whatever was seen.

    Attributes:
        terms: ((cells, cells), (drafts, drafts)), whose products add up.
        taken: (records, cells, drafts) what earlier studies take away of that.
    """

    terms: tuple[tuple[Array, Array], ...]
    taken: Array


def _errors(drafts: Drafts, cells: int, foreseen: Foreseen | None) -> _Errors:
    share = CELLS_ALIKE + (1 - CELLS_ALIKE) * np.eye(cells)
    if foreseen is None:
        return _Errors(
            terms=((share, _alike(drafts, TREE_SD)),),
            taken=np.zeros((0, cells, len(drafts.steps))),
        )
    return _Errors(
        terms=(
            (share, _alike(drafts, 0.0)),
            (foreseen.among_cells, foreseen.among_trees),
        ),
        taken=foreseen.taken,
    )


def _alike(drafts: Drafts, tree_sd: float) -> Array:
    """Errors of the rules in one cell, (drafts, drafts)."""
    on = drafts.family > 0
    same = (drafts.family[:, None] == drafts.family) & on
    eagle = same & drafts.eagle
    trees = eagle & (drafts.topk[:, None] > 1) & (drafts.topk > 1)
    near = _shapes_alike(drafts.steps, drafts.topk, drafts.tokens)
    cov = CHAIN_SD**2 * eagle * _near(drafts.steps, 3.0) + tree_sd**2 * trees * near
    cov = cov + OTHER_SD**2 * (same & ~drafts.eagle) * near
    alike: Array = cov + 1e-8 * np.eye(len(drafts.steps))
    return alike


def trees_alike(
    steps: NDArray[np.int64], topk: NDArray[np.int64], tokens: NDArray[np.int64]
) -> Array:
    """How alike the errors of trees are, (drafts, drafts); 0 where one of two is a chain."""
    both = (topk[:, None] > 1) & (topk > 1)
    alike: Array = both * _shapes_alike(steps, topk, tokens)
    return alike


def _shapes_alike(
    steps: NDArray[np.int64], topk: NDArray[np.int64], tokens: NDArray[np.int64]
) -> Array:
    near = _near(steps, 3.0) * _near(_log2(topk), 1.0) * _near(_log2(tokens), 1.2)
    alike: Array = 0.5 + 0.5 * near
    return alike


def _near(values: NDArray[np.int64] | Array, length: float) -> Array:
    kernel: Array = np.exp(-0.5 * ((values[:, None] - values) / length) ** 2)
    return kernel


def _log2(values: NDArray[np.int64]) -> Array:
    logs: Array = np.log2(np.maximum(values, 1))
    return logs


def _beyond(steps: NDArray[np.int64], reach: Array, known: int) -> Array:
    """By how much a log accept length moves with the log acceptance beyond `known` positions."""
    depth = len(reach)
    power = np.maximum(0, np.arange(1, depth + 1) - known)
    slope = np.cumsum(reach * power) / (1 + np.cumsum(reach))
    padded = np.concatenate([[0.0], slope])
    moved: Array = padded[np.minimum(steps, depth)]
    return moved


def _condition(
    mean: Array,
    errors: _Errors,
    own: Array,
    weights: Array,
    seen: Sequence[tuple[int, Array, Array]],
) -> AcceptancePosterior:
    """The process given the measured accept lengths.

    Args:
        mean: (drafts, cells).
        errors: Of the rules, which cells share in part.
        own: (cells, drafts, drafts): what each cell does not know of its drafts.
        weights: (cells,).
        seen: As `predict_acceptance`.
    """
    cells = len(weights)
    terms, taken = errors.terms, errors.taken
    weighted = np.tensordot(weights, taken, axes=(0, 1))  # (records, drafts)
    among = sum((weights @ share @ weights) * alike for share, alike in terms)
    among += np.tensordot(weights**2, own, axes=1)
    among -= weighted.T @ weighted
    lengths = np.array([log_len for _, log_len, _ in seen]).reshape(len(seen), cells)
    launch, cell = np.nonzero(np.isfinite(lengths))
    if not len(launch):
        return AcceptancePosterior(mean=mean, objective_cov=among)
    draft = np.array([d for d, _, _ in seen])[launch]
    known = taken[:, cell, draft]  # (records, lengths)
    same = cell[:, None] == cell
    cov = sum(share[np.ix_(cell, cell)] * alike[np.ix_(draft, draft)] for share, alike in terms)
    cov += same * own[cell[:, None], draft[:, None], draft]
    cov -= known.T @ known
    cov[np.diag_indices_from(cov)] += READING_SD**2
    error = lengths[launch, cell] - mean[draft, cell]
    pull = np.linalg.solve(cov, error)
    moved = mean.copy()
    for at in range(cells):
        to_cell = sum(share[at, cell] * alike[:, draft] for share, alike in terms)
        to_cell -= taken[:, at].T @ known
        to_cell[:, cell == at] += own[at][:, draft[cell == at]]
        moved[:, at] += to_cell @ pull
    cross = sum((share[cell] @ weights) * alike[:, draft] for share, alike in terms)
    cross += weights[cell] * own[cell, :, draft].T
    cross -= weighted.T @ known
    posterior = among - cross @ np.linalg.solve(cov, cross.T)
    return AcceptancePosterior(mean=moved, objective_cov=posterior)
