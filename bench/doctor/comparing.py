"""A trainer's captures beside what the server feeds: slot by slot, on the same token ids."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

import numpy as np

from bench.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from bench.doctor.captures import Sample

SAME: Final = 0.98
"""Mean cosine above which two slots are the same state: neighbouring layers of large models come
near 0.95, and another precision of the weights stays above 0.99."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """One of the trainer's slots, and the server's that is nearest to it.

    Attributes:
        place: Its place in the trainer's captures.
        state: The server's state that it is; None: it is none of those captured.
        cosine: Mean cosine with that state, or with the nearest.
        runner_up: The next nearest's.
        shift: Row i of the trainer's is the server's row i + shift.
    """

    place: int
    state: int | None
    cosine: float
    runner_up: float
    shift: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Sides:
    """Which side is not what the draft reads.

    Attributes:
        wrong: The trainer's captures, what the server feeds, or neither.
        text: The same in words, with what was seen.
    """

    wrong: Literal["trainer", "server", "neither"]
    text: str


def compare(trained: Sequence[Sample], served: Sequence[Sample]) -> tuple[Slot, ...]:
    """Which of the server's states each of the trainer's slots is.

    Args:
        trained: The trainer's captures.
        served: The server's, labelled, of the same token ids.

    Raises:
        InputError: They share no sequence, or the server's do not say which states they are.
    """
    numbers = served[0].numbers
    if numbers is None:
        raise InputError(
            "the server's captures do not say which states they are.",
            hint="Make them with bench doctor capture.",
        )
    pairs = list(_pairs(trained, served))
    if not pairs:
        raise InputError(
            "the trainer's captures and the server's share no sequence of token ids.",
            hint="bench doctor capture --tokens DIR sends the ids of the trainer's captures.",
        )
    by_shift = {
        shift: np.mean([_cosines(one, other, shift) for one, other in pairs], axis=0)
        for shift in (0, -1, 1)  # the first of equals is taken
    }
    found = []
    for place in range(pairs[0][0].shape[1]):
        shift = max(by_shift, key=lambda each: float(by_shift[each][place].max()))
        row = by_shift[shift][place]
        order = np.argsort(-row)
        nearest = float(row[order[0]])
        found.append(
            Slot(
                place=place,
                state=numbers[int(order[0])] if nearest >= SAME else None,
                cosine=nearest,
                runner_up=float(row[order[1]]) if len(order) > 1 else 0.0,
                shift=shift,
            )
        )
    return tuple(found)


def _pairs(
    trained: Sequence[Sample], served: Sequence[Sample]
) -> list[tuple[NDArray[np.float32], NDArray[np.float32]]]:
    """Their states where one's token ids begin as the other's do, as far as both go."""
    found = []
    for one in trained:
        for other in served:
            rows = min(len(one.token_ids), len(other.token_ids))
            if np.array_equal(one.token_ids[:rows], other.token_ids[:rows]):
                found.append((one.states[:rows], other.states[:rows]))
                break
    return found


def _cosines(
    one: NDArray[np.float32], other: NDArray[np.float32], shift: int
) -> NDArray[np.float32]:
    """[slots of one, slots of other], mean over tokens: row i of one, row i + shift of other.

    The first token is left out: its state is often a hundred times as long as the others', and
    says nothing of layers.
    """
    rows = np.arange(1 + max(-shift, 0), len(one) - max(shift, 0))
    units = [
        states / np.maximum(np.linalg.norm(states, axis=-1, keepdims=True), 1e-9)
        for states in (one[rows], other[rows + shift])
    ]
    found: NDArray[np.float32] = np.einsum("nsh,nth->st", *units) / len(rows)
    return found


def wrong_side(
    slots: Sequence[Slot],
    *,
    fed: tuple[int, ...] | None,
    read: tuple[int, ...] | None,
    num_aux: int,
) -> Sides:
    """Whether the trainer's captures or what is served is not what the draft reads.

    Args:
        slots: The trainer's slots beside the server's states.
        fed: The states that SGLang feeds by the draft's config; None: not known.
        read: The states that the draft predicts best from; None: no better than those fed.
        num_aux: How many states the draft reads.
    """
    # Behind those that are read trainers keep the final state, which no server gives.
    kept = slots[:-1] if len(slots) > num_aux else slots
    strange = [str(slot.place) for slot in kept if slot.state is None]
    shifts = sorted({slot.shift for slot in kept} - {0})
    held = ["?" if slot.state is None else slot.state for slot in slots]
    if strange:
        return Sides(
            wrong="trainer",
            text=f"The trainer's side: slot {', '.join(strange)} of its captures is none of the "
            "states that the server gave. It is another layer (capture more of them), a state "
            "after a norm, or of another model or precision.",
        )
    if shifts:
        return Sides(
            wrong="trainer",
            text=f"The trainer's side: its row i holds the server's state of token i "
            f"{shifts[0]:+d}. Row i is to hold the state of token i.",
        )
    if read is not None:
        return Sides(
            wrong="server",
            text=f"The server's side: the draft reads states {list(read)} best, and is fed "
            f"{'others' if fed is None else list(fed)}.",
        )
    if fed is not None and held[:num_aux] != list(fed):
        return Sides(
            wrong="trainer",
            text=f"The trainer's side: its captures hold states {_listed(held)}, and a loader "
            f"that takes the first {num_aux} trains on {_listed(held[:num_aux])}; SGLang feeds "
            f"{list(fed)}, and the draft reads these no worse than any others.",
        )
    return Sides(
        wrong="neither",
        text="Neither side: the captures hold what SGLang feeds, in the same order.",
    )


def _listed(states: Sequence[object]) -> str:
    return f"[{', '.join(map(str, states))}]"
