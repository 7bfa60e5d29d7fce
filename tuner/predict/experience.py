"""What trees accept elsewhere: earlier studies and published tables as a prior.

Chains do not tell what a tree accepts: the rule of ranks (`tuner.predict.acceptance`) is off by
10 % and more, by an amount that differs. How far it is off, the *excess*, is much alike for trees
of the same target model, though. A record is the excess of one tree that somebody measured in one
cell. The excess of a tree in a cell is a sum of parts: one that everyone has, and those of the
target model, of the draft model, of the workload, of the target on the workload, and of the cell
alone; trees of like shape have like parts. How large each part is, the records decide, under broad
priors that together make the standard deviation which the rule has without any record.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Final

import numpy as np

from tuner.predict.acceptance import (
    CELLS_ALIKE,
    READING_SD,
    TREE_SD,
    Drafts,
    predict_acceptance,
    trees_alike,
)
from tuner.predict.cost import fit_scales

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from tuner.predict.cost import FittedScales

    Array = NDArray[np.float64]

Shape = tuple[int, int, int]  # steps, branches, draft tokens

PARTS_SPREAD: Final = 1.0  # the parts' standard deviations are known to a factor of e
MOST_STEPS: Final = 32
MOST_BRANCHES: Final = 32
MOST_TOKENS: Final = 4096
"""Of the drafts that anything is learnt from: what is foreseen of larger ones takes gigabytes."""
_MOST_EXCESS: Final = 10.0  # a log ratio of accept lengths, which steps bound
_SHARED: Final = 3  # everyone, target, draft: parts that all cells of a study share
_OWN: Final = 3  # workload, target on workload, the cell alone


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """By how much one tree's log accept length was off the rule of ranks in one cell.

    Attributes:
        origin: Who measured: a study's id or a table's name.
        target: Name of the target model, from `model_name`.
        draft: Name of the draft model, likewise.
        workload: What it was asked.
        load: The load's label.
        num_steps: Draft steps a cycle.
        eagle_topk: Branches a draft step.
        num_draft_tokens: Tokens verified a cycle, the root counted.
        excess: Log of the measured accept length minus that of the rule.
    """

    origin: str
    target: str
    draft: str
    workload: str
    load: str
    num_steps: int
    eagle_topk: int
    num_draft_tokens: int
    excess: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Experience:
    """Records, and where they are to be used.

    Attributes:
        records: From elsewhere.
        target: Of the study that begins, from `model_name`.
        draft: Likewise.
        workloads: Of its cells, in order.
    """

    records: tuple[Record, ...]
    target: str
    draft: str
    workloads: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Foreseen:
    """Excesses before anything is measured; chains have none.

    The covariance of tree t in cell c and tree u in cell d is
    among_cells[c, d] · among_trees[t, u] - sum over r of taken[r, c, t] · taken[r, d, u].

    Attributes:
        mean: (drafts, cells).
        among_cells: (cells, cells) covariance before the records.
        among_trees: (drafts, drafts) correlation.
        taken: (records, cells, drafts) what the records take away of it.
    """

    mean: Array
    among_cells: Array
    among_trees: Array
    taken: Array

    @property
    def sd(self) -> Array:
        """Standard deviations, (drafts, cells)."""
        before = np.outer(np.diag(self.among_trees), np.diag(self.among_cells))
        left: Array = np.sqrt(np.maximum(0.0, before - (self.taken**2).sum(axis=0).T))
        return left


def model_name(path: str) -> str:
    """A model's name, whoever holds it: the last part of its hub id or folder, in small letters.

    Folders of the hub's own cache (`models--ORG--NAME/snapshots/…`) have the name of their model.
    """
    parts = [part for part in re.split(r"[/\\]", path) if part]
    cached = next((part for part in parts if part.startswith("models--")), None)
    last = cached.split("--")[-1] if cached else (parts or [""])[-1]
    return re.sub(r"[^a-z0-9]+", "-", last.casefold()).strip("-")


def is_learnable(shape: Shape) -> bool:
    """Whether a draft is of a size that anything is learnt from."""
    steps, branches, tokens = shape
    return (
        1 <= steps <= MOST_STEPS and 1 <= branches <= MOST_BRANCHES and 2 <= tokens <= MOST_TOKENS
    )


def is_possible(record: Record) -> bool:
    """Whether a record that was stored can be one that somebody measured."""
    shape = (record.num_steps, record.eagle_topk, record.num_draft_tokens)
    return is_learnable(shape) and abs(record.excess) <= _MOST_EXCESS


def records_of(
    lengths: Mapping[Shape, float],
    *,
    origin: str,
    target: str,
    draft: str,
    workload: str,
    load: str = "",
) -> list[Record]:
    """What one cell's accept lengths tell of trees.

    Chains of two depths must have been measured: one alone leaves open how acceptance falls. Trees
    that are deeper than the deepest chain tell nothing, nor do drafts of which none was accepted,
    of which more was accepted than drafted, or that are larger than `MOST_STEPS` and its like.

    Args:
        lengths: Accept length by shape, chains and trees.
        origin: Who measured.
        target: Path or hub id of the target model.
        draft: Likewise of the draft model.
        workload: What it was asked.
        load: The load's label.
    """
    lengths = {
        shape: length
        for shape, length in lengths.items()
        if is_learnable(shape) and 1 < length <= shape[0] + 1
    }
    chains = sorted(shape for shape in lengths if shape[1] == 1 and shape[0] > 0)
    if len({steps for steps, _, _ in chains}) < 2:
        return []
    trees = sorted(s for s in lengths if s[1] > 1 and s[0] <= chains[-1][0])
    if not trees:
        return []
    expected = _rule(chains, trees, tuple(float(lengths[c]) for c in chains))
    return [
        Record(
            origin=origin,
            target=model_name(target),
            draft=model_name(draft),
            workload=model_name(workload),
            load=load,
            num_steps=tree[0],
            eagle_topk=tree[1],
            num_draft_tokens=tree[2],
            excess=float(np.log(lengths[tree]) - log_length),
        )
        for tree, log_length in zip(trees, expected, strict=True)
    ]


def _rule(chains: Sequence[Shape], trees: Sequence[Shape], lengths: Sequence[float]) -> Array:
    """Log accept lengths of trees as the predictor has them from chains alone."""
    steps, topk, tokens = np.array([*chains, *trees]).T
    drafts = Drafts(
        steps=steps,
        topk=topk,
        tokens=tokens,
        family=np.ones(len(steps), dtype=np.int64),
        eagle=np.ones(len(steps), dtype=bool),
    )
    unknown = np.full((1, int(steps.max())), np.nan)
    seen = [(at, np.log([length]), unknown) for at, length in enumerate(lengths)]
    expected: Array = predict_acceptance(drafts, np.ones(1), seen).mean[len(chains) :, 0]
    return expected


def foresee(experience: Experience, shapes: Sequence[Shape]) -> Foreseen:
    """What is known of the excesses of drafts in the cells of a study.

    Without records it is what the rule of ranks says of itself: no excess, and `TREE_SD`.

    Args:
        experience: The records and the study.
        shapes: Of the drafts; chains among them have no excess.
    """
    cells = len(experience.workloads)
    among_trees = trees_alike(*np.array(shapes, dtype=np.int64).reshape(-1, 3).T)
    if not experience.records:
        alike = CELLS_ALIKE + (1 - CELLS_ALIKE) * np.eye(cells)
        return Foreseen(
            mean=np.zeros((len(shapes), cells)),
            among_cells=TREE_SD**2 * alike,
            among_trees=among_trees,
            taken=np.zeros((0, cells, len(shapes))),
        )
    fitted = _fitted(experience.records)
    here = tuple(
        (experience.target, experience.draft, model_name(workload), f"here {cell}")
        for cell, workload in enumerate(experience.workloads)
    )
    there = tuple(_place(record) for record in experience.records)
    of_records = [(r.num_steps, r.eagle_topk, r.num_draft_tokens) for r in experience.records]
    variances = np.exp(2 * fitted.log_scales)
    like = trees_alike(*np.array([*of_records, *shapes]).T)[: len(of_records), len(of_records) :]
    to_cells = np.tensordot(variances, _parts(there, here), axes=1)
    cross = to_cells[:, :, None] * like[:, None, :]  # (records, cells, drafts)
    flat = cross.reshape(len(of_records), -1)
    taken = np.linalg.solve(fitted.factor, flat).astype(np.float64, copy=False)
    return Foreseen(
        mean=(fitted.solved @ flat).reshape(cells, len(shapes)).T,
        among_cells=np.tensordot(variances, _parts(here, here), axes=1),
        among_trees=among_trees,
        taken=taken.reshape(cross.shape),
    )


# --------------------------------------------------------------------------------------- the parts

_Place = tuple[str, str, str, str]  # target, draft, workload, cell


def _place(record: Record) -> _Place:
    cell = f"{record.origin} {record.target} {record.draft} {record.workload} {record.load}"
    return record.target, record.draft, record.workload, cell


def _parts(some: Sequence[_Place], others: Sequence[_Place]) -> Array:
    """Which parts of the excess two cells have in common, (parts, some, others)."""
    same = [
        np.array(
            [[one[at] == other[at] for other in others] for one in some], dtype=np.float64
        ).reshape(len(some), len(others))
        for at in range(4)
    ]
    target, draft, workload, cell = same
    return np.stack(
        [np.ones_like(target), target, draft, workload, target * workload, cell], axis=0
    )


def _middles() -> Array:
    """Standard deviations of the parts that are expected before any record.

    Together they are `TREE_SD`; those that all cells of a study share are `CELLS_ALIKE` of its
    square. Beyond that nothing is known: parts of a kind are alike.
    """
    shared = [CELLS_ALIKE * TREE_SD**2 / _SHARED] * _SHARED
    own = [(1 - CELLS_ALIKE) * TREE_SD**2 / _OWN] * _OWN
    middles: Array = np.sqrt(np.array(shared + own))
    return middles


@lru_cache(maxsize=8)
def _fitted(records: tuple[Record, ...]) -> FittedScales:
    """The likeliest parts, and the records solved for them."""
    there = tuple(_place(record) for record in records)
    shapes = np.array([(r.num_steps, r.eagle_topk, r.num_draft_tokens) for r in records])
    stack = _parts(there, there) * trees_alike(*shapes.T)
    middle = np.log(_middles())
    return fit_scales(
        stack,
        READING_SD**2 * np.eye(len(records)),
        np.array([record.excess for record in records]),
        middle,
        middle,
        np.full(len(middle), PARTS_SPREAD),
        iterations=60,
    )
