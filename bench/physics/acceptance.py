"""Acceptance of drafts: how far a chain or a tree of them is followed.

`reach[k-1]` is P(at least k drafts accepted) of a verify step, the quantity that SGLang's
histogram of correct drafts estimates: `sum(hist[k:]) / verify_ct`. The accept length counts the
bonus token: 1 + the sum of reach.
"""

from __future__ import annotations

import heapq
import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bench.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

# Share of the draft's missed probability that its next candidate catches. With p = 0.8 the second
# candidate is right in 8 % of steps, with p = 0.36 in 12 %: the order of the gains EAGLE-2 reports
# for trees. An assumption: no card measures ranks.
NEXT_RANK_SHARE = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptanceCard:
    """How well a draft predicts a target.

    Attributes:
        name: The card's name, or the given numbers themselves.
        reach: P(at least k drafts accepted) for k = 1, 2, …, of a chain, thinking off.
        reach_thinking: The same while the target thinks; None: as `reach`.
        source: Where the numbers come from.
        note: What to know when reading them.
    """

    name: str
    reach: tuple[float, ...]
    reach_thinking: tuple[float, ...] | None = None
    source: str = ""
    note: str = ""

    def __post_init__(self) -> None:
        for reach in (self.reach, self.reach_thinking or self.reach):
            falling = all(a >= b for a, b in itertools.pairwise(reach))
            if not reach or not falling or not all(0.0 <= p <= 1.0 for p in reach):
                message = (
                    f"acceptance {self.name!r}: P(at least k drafts accepted) for k = 1, 2, … "
                    "must be falling numbers between 0 and 1; found "
                    f"{', '.join(f'{p:g}' for p in reach) or 'none'}"
                )
                raise InputError(
                    message, hint="Give for example 0.36,0.14,0.07, or the name of a card."
                )


def reach_of(reach: Sequence[float], num_steps: int) -> tuple[float, ...]:
    """`reach` for exactly `num_steps` positions.

    Past its end the last conditional acceptance goes on. A run at K steps predicts every shorter
    chain; a longer one is an extrapolation.
    """
    known = list(reach[:num_steps])
    if len(known) < num_steps:
        last = known[-1]
        before = known[-2] if len(known) > 1 else 1.0
        conditional = last / before if before > 0 else 0.0
        while len(known) < num_steps:
            known.append(known[-1] * conditional)
    return tuple(known)


def accept_len_tok(reach: Sequence[float], num_steps: int) -> float:
    """Tokens a verify step of a chain yields in the mean: the bonus and Σ P(at least k)."""
    return 1.0 + sum(reach_of(reach, num_steps))


def tree_reach(
    reach: Sequence[float], *, num_steps: int, topk: int = 1, num_draft_tokens: int | None = None
) -> tuple[float, ...]:
    """P(at least k drafts accepted) of EAGLE-2's tree as SGLang builds it.

    With `topk` 1 it is the chain. Each level keeps its `topk` best nodes and gives each `topk`
    children; of all nodes seen, `topk + (num_steps-1)·topk²`, the `num_draft_tokens - 1` likeliest
    are verified. A node's chance is the product of its path's; siblings exclude one another, so
    that the chance to reach a depth is the sum over the tree's nodes there. Rank r > 1 of a
    position whose first candidate is right with p has p·(NEXT_RANK_SHARE·(1-p))^(r-1). Source:
    Sequoia (arXiv 2402.12374) for the sum, EAGLE-2 (arXiv 2406.16858) for the choice of nodes.

    Args:
        reach: Of the chain: the path of first candidates.
        num_steps: Depth of the tree.
        topk: Candidates per node and nodes kept per level.
        num_draft_tokens: Verified tokens, the root counted; None: the whole chain.
    """
    chain = reach_of(reach, num_steps)
    if topk == 1:
        return chain[: num_steps if num_draft_tokens is None else num_draft_tokens - 1]
    if num_draft_tokens is None:
        raise InputError(
            f"a tree with topk {topk} needs num_draft_tokens; none was given",
            hint="Give num_draft_tokens, or topk 1.",
        )
    beams = [1.0]
    nodes: list[tuple[float, int]] = []  # (chance of the path, depth), depth from 0
    before = 1.0
    for depth, reached in enumerate(chain):
        p = reached / before if before > 0 else 0.0
        before = reached
        ranks = [p * (NEXT_RANK_SHARE * (1.0 - p)) ** rank for rank in range(topk)]
        candidates = [beam * q for beam in beams for q in ranks]
        nodes.extend((chance, depth) for chance in candidates)
        beams = heapq.nlargest(topk, candidates)
    # Between equal chances the shallower node goes first, so that no node is chosen without its
    # parent.
    chosen = sorted(nodes, key=lambda node: (-node[0], node[1]))[: num_draft_tokens - 1]
    return tuple(
        min(1.0, sum(chance for chance, at in chosen if at == depth)) for depth in range(num_steps)
    )
