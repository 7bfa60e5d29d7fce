"""A trainer's captures beside what the server feeds: slot by slot, on the same token ids."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

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
    """

    place: int
    state: int | None
    cosine: float
    runner_up: float


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
    cosines = np.mean([_cosines(one, other) for one, other in pairs], axis=0)
    found = []
    for place, row in enumerate(cosines):
        order = np.argsort(-row)
        nearest = float(row[order[0]])
        found.append(
            Slot(
                place=place,
                state=numbers[int(order[0])] if nearest >= SAME else None,
                cosine=nearest,
                runner_up=float(row[order[1]]) if len(order) > 1 else 0.0,
            )
        )
    return tuple(found)


def _pairs(
    trained: Sequence[Sample], served: Sequence[Sample]
) -> list[tuple[NDArray[np.float32], NDArray[np.float32]]]:
    known = {sample.token_ids.tobytes(): sample.states for sample in served}
    return [
        (sample.states, known[key])
        for sample in trained
        if (key := sample.token_ids.tobytes()) in known
    ]


def _cosines(one: NDArray[np.float32], other: NDArray[np.float32]) -> NDArray[np.float32]:
    """[slots of one, slots of other], mean over tokens; the first token is left out.

    Its state is often a hundred times as long as the others', and says nothing of layers.
    """
    units = [
        states[1:] / np.maximum(np.linalg.norm(states[1:], axis=-1, keepdims=True), 1e-9)
        for states in (one, other)
    ]
    found: NDArray[np.float32] = np.einsum("nsh,nth->st", *units) / len(units[0])
    return found
