"""The maps between a draft's vocabulary and its target's, and by which convention they count.

SGLang and the trainers write d2t as offsets: token of draft id i = i + d2t[i]. Some tools write
the token itself. t2d marks the chosen tokens, and so proves which of the two it is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from bench.draft.checkpoint import values_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from bench.draft.draft import Draft
    from bench.draft.headers import Tensor

Convention = Literal["offset", "absolute", "zero", "neither", "open"]
"""offset, absolute: what the map is. zero: offsets of the first tokens. neither: its tokens
repeat, leave the vocabulary or are not those that t2d marks. open: it could be either."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VocabularyMap:
    """What a draft's d2t and t2d say.

    Attributes:
        d2t: The map's tensor; None: there is none.
        t2d: The marks' tensor.
        convention: How d2t counts; None: there is none, or it is not one-dimensional.
        is_proved: Whether t2d proves it.
        facts: What was found, in words.
        marked: How many tokens t2d marks.
    """

    d2t: Tensor | None
    t2d: Tensor | None
    convention: Convention | None = None
    is_proved: bool = False
    facts: tuple[str, ...] = ()
    marked: int | None = None


def vocabulary_map(draft: Draft, *, vocab_size: int | None) -> VocabularyMap:
    """Read and judge the maps of a draft.

    Args:
        draft: The draft.
        vocab_size: Of the target, else what the draft says of it; None: not known.

    Raises:
        InputError: A map cannot be read.
    """
    tensors = draft.checkpoint.tensors
    d2t = next((t for name, t in tensors.items() if "d2t" in name), None)
    t2d = next((t for name, t in tensors.items() if "t2d" in name), None)
    marks = None if t2d is None or len(t2d.shape) != 1 else values_of(draft.checkpoint, t2d)
    chosen = None if marks is None else np.flatnonzero(marks)
    marked = None if chosen is None else len(chosen)
    if d2t is None or len(d2t.shape) != 1:
        return VocabularyMap(d2t=d2t, t2d=t2d, marked=marked)
    values = values_of(draft.checkpoint, d2t)
    if values is None or values.dtype.kind not in "iu":
        wanted = f"{d2t.text}: wanted whole numbers"
        return VocabularyMap(
            d2t=d2t, t2d=t2d, convention="neither", facts=(wanted,), marked=marked
        )
    convention, is_proved, facts = _judged(values.astype(np.int64), chosen, vocab_size)
    return VocabularyMap(
        d2t=d2t, t2d=t2d, convention=convention, is_proved=is_proved, facts=facts, marked=marked
    )


def _judged(
    values: NDArray[np.int64], chosen: NDArray[np.intp] | None, vocab_size: int | None
) -> tuple[Convention, bool, tuple[str, ...]]:
    tokens = values + np.arange(len(values))
    shown = f"d2t begins {values[:6].tolist()}, ends {values[-2:].tolist()}"
    as_offset, as_absolute = _is_choice(tokens, vocab_size), _is_choice(values, vocab_size)
    if chosen is not None:
        if np.array_equal(np.sort(tokens), chosen):
            return (
                ("offset" if values.any() else "zero"),
                True,
                (shown, "i + d2t[i] is what t2d marks"),
            )
        if np.array_equal(np.sort(values), chosen):
            return "absolute", True, (shown, "d2t[i] itself is what t2d marks")
        facts = (shown, f"t2d marks {len(chosen):,} tokens, begins {chosen[:6].tolist()}")
        return "neither", True, facts
    if not values.any():
        return "zero", False, ("d2t is 0 everywhere",)
    if as_offset and as_absolute:
        # Among offsets, neighbouring tokens that were both chosen repeat the value.
        repeats = int(np.count_nonzero(np.diff(values) == 0))
        return ("offset", False, (shown,)) if repeats else ("open", False, (shown,))
    if as_offset:
        return "offset", False, (shown, "d2t[i] itself repeats, i + d2t[i] does not")
    if as_absolute:
        largest = f"i + d2t[i] reaches {int(tokens.max()):,}"
        return "absolute", False, (shown, f"{largest}, or repeats; d2t[i] does neither")
    return "neither", False, (shown, "neither i + d2t[i] nor d2t[i] is a choice of tokens")


def _is_choice(tokens: NDArray[np.int64], vocab_size: int | None) -> bool:
    """Whether these can be the tokens of a vocabulary's part: each once, none outside."""
    if not len(tokens) or tokens.min() < 0:
        return False
    if vocab_size is not None and tokens.max() >= vocab_size:
        return False
    return len(np.unique(tokens)) == len(tokens)
