"""Acceptance of drafts: how far a chain or a tree of them is followed.

`reach[k-1]` is P(at least k drafts accepted) of a verify step, the quantity that SGLang's
histogram of correct drafts estimates: `sum(hist[k:]) / verify_ct`. The accept length counts the
bonus token: 1 + the sum of reach.
"""

from __future__ import annotations

import heapq
import itertools
import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from bench.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

# Share of the draft's missed probability that its next candidate catches. With p = 0.8 the second
# candidate is right in 8 % of steps, with p = 0.36 in 12 %: the order of the gains EAGLE-2 reports
# for trees. An assumption, unless a card measures ranks.
NEXT_RANK_SHARE = 0.5
_MOST_LOG_ODDS = 700.0  # beyond it exp overflows


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptanceCard:
    """How well a draft predicts a target.

    Attributes:
        name: The card's name, or the given numbers themselves.
        method: SGLang's algorithm of the draft; None: not said.
        reach: P(at least k drafts accepted) for k = 1, 2, …, of a chain at temperature 0,
            thinking off, over all categories.
        reach_thinking: The same while the target thinks; None: as `reach`.
        categories: (category, its reach): the kinds of prompts it was measured with.
        temperature_loss: The share of each conditional acceptance that temperature 1 costs; other
            temperatures in proportion.
        rank_share: The share of what a draft's candidate misses that the next one catches.
        position: (output token, shift): log-odds added to reach there, straight lines between,
            the ends going on; empty: the same from first token to last.
        request_sd: Standard deviation between requests of the log-odds of reach.
        source: Where the numbers come from.
        note: What to know when reading them.
    """

    name: str
    reach: tuple[float, ...]
    method: str | None = None
    reach_thinking: tuple[float, ...] | None = None
    categories: tuple[tuple[str, tuple[float, ...]], ...] = ()
    temperature_loss: float = 0.0
    rank_share: float = NEXT_RANK_SHARE
    position: tuple[tuple[int, float], ...] = ()
    request_sd: float = 0.0
    source: str = ""
    note: str = ""

    def __post_init__(self) -> None:
        every = (self.reach, self.reach_thinking or self.reach, *(r for _, r in self.categories))
        for reach in every:
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
        for field, value in (
            ("temperature_loss", self.temperature_loss),
            ("rank_share", self.rank_share),
        ):
            if not 0.0 <= value <= 1.0:
                raise InputError(
                    f"acceptance {self.name!r}: {field} must be between 0 and 1; found {value:g}",
                    hint="It is a share.",
                )

    def of_category(self, category: str) -> AcceptanceCard:
        """The card with the acceptance of one category in place of the mean over all.

        Raises:
            InputError: It has no such category.
        """
        found = dict(self.categories).get(category)
        if found is None:
            known = ", ".join(name for name, _ in self.categories) or "none"
            raise InputError(
                f"acceptance {self.name!r} has no category {category!r}",
                hint=f"Its categories: {known}.",
            )
        return replace(self, name=f"{self.name}:{category}", reach=found, reach_thinking=None)


def chain_reach(
    card: AcceptanceCard,
    *,
    thinking: bool = False,
    temperature: float = 0.0,
    output_tok: float | None = None,
    deviate: float | None = None,
) -> tuple[float, ...]:
    """A card's reach for one request at one place of its output.

    Args:
        card: The draft.
        thinking: Whether the target thinks.
        temperature: Of the sampling.
        output_tok: Tokens put out so far; None: over the whole output.
        deviate: Of one request, from a standard normal distribution; over all requests the mean of
            the result is the card's. None: that mean.
    """
    reach = card.reach_thinking if thinking and card.reach_thinking else card.reach
    if card.temperature_loss and temperature > 0:
        kept = max(0.0, 1.0 - card.temperature_loss * min(temperature, 1.0))
        reach = tuple(p * kept ** (k + 1) for k, p in enumerate(reach))
    shift = _shift_at(card.position, output_tok) if output_tok is not None else 0.0
    sd = 0.0 if deviate is None else card.request_sd
    if shift or sd:
        # A logistic of a normal deviate has about the mean of the logistic with its argument
        # divided by sqrt(1 + π·sd²/8) (MacKay 1992); stretching the argument keeps the mean.
        stretch = math.sqrt(1.0 + math.pi * sd**2 / 8.0)
        shift += sd * (deviate or 0.0)
        reach = tuple(_moved(p, stretch, shift) for p in reach)
    return reach


def _moved(p: float, stretch: float, shift: float) -> float:
    if p <= 0.0 or p >= 1.0:
        return p
    log_odds = math.log(p / (1.0 - p)) * stretch + shift
    return 1.0 / (1.0 + math.exp(min(-log_odds, _MOST_LOG_ODDS)))


def _shift_at(position: Sequence[tuple[int, float]], output_tok: float) -> float:
    if not position:
        return 0.0
    if output_tok <= position[0][0]:
        return position[0][1]
    for (tok0, shift0), (tok1, shift1) in itertools.pairwise(position):
        if output_tok <= tok1:
            return shift0 + (shift1 - shift0) * (output_tok - tok0) / (tok1 - tok0)
    return position[-1][1]


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
    reach: Sequence[float],
    *,
    num_steps: int,
    topk: int = 1,
    num_draft_tokens: int | None = None,
    rank_share: float = NEXT_RANK_SHARE,
) -> tuple[float, ...]:
    """P(at least k drafts accepted) of EAGLE-2's tree as SGLang builds it.

    With `topk` 1 it is the chain. Each level keeps its `topk` best nodes and gives each `topk`
    children; of all nodes seen, `topk + (num_steps-1)·topk²`, the `num_draft_tokens - 1` likeliest
    are verified. A node's chance is the product of its path's; siblings exclude one another, so
    that the chance to reach a depth is the sum over the tree's nodes there. Rank r > 1 of a
    position whose first candidate is right with p has p·(rank_share·(1-p))^(r-1). Source:
    Sequoia (arXiv 2402.12374) for the sum, EAGLE-2 (arXiv 2406.16858) for the choice of nodes.

    Args:
        reach: Of the chain: the path of first candidates.
        num_steps: Depth of the tree.
        topk: Candidates per node and nodes kept per level.
        num_draft_tokens: Verified tokens, the root counted; None: the whole chain.
        rank_share: The share of what a candidate misses that the next one catches.
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
        ranks = [p * (rank_share * (1.0 - p)) ** rank for rank in range(topk)]
        candidates = [beam * q for beam in beams for q in ranks]
        nodes.extend((chance, depth) for chance in candidates)
        beams = heapq.nlargest(topk, candidates)
    # Between equal chances the shallower node goes first, so that no node is chosen without its
    # parent.
    chosen = sorted(nodes, key=lambda node: (-node[0], node[1]))[: num_draft_tokens - 1]
    return tuple(
        min(1.0, sum(chance for chance, at in chosen if at == depth)) for depth in range(num_steps)
    )
