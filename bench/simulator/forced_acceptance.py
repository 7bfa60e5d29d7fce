"""Acceptance that the environment forces, whatever the draft: `SGLANG_SIMULATE_ACC_LEN`.

SGLang reads these variables to measure steps without a good draft (0.5.23,
`speculative/spec_utils.py`): a verify step accepts as many tokens for all requests of its batch.
In the token mode `fixed` every token made is number 100; in `real-draft-token` it is the draft's.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from bench.errors import InputError

if TYPE_CHECKING:
    import random
    from collections.abc import Mapping

LENGTH: Final = "SGLANG_SIMULATE_ACC_LEN"
METHOD: Final = "SGLANG_SIMULATE_ACC_METHOD"
TOKEN_MODE: Final = "SGLANG_SIMULATE_ACC_TOKEN_MODE"  # noqa: S105  # no password
FIXED_TOKEN_ID: Final = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Forced:
    """What is forced.

    Attributes:
        accept_len_tok: Expected tokens a verify step, the bonus token included.
        method: `match-expected`: the next whole numbers, in proportion; `multinomial`: a normal
            draw with a standard deviation of 1, rounded.
        keeps_text: Whether the drafts' own tokens are what is written; else token 100 is.
    """

    accept_len_tok: float
    method: str
    keeps_text: bool

    def correct(self, num_steps: int, rng: random.Random) -> int:
        """Drafts that the next verify step accepts for each of its requests.

        Args:
            num_steps: The most drafts a step may accept.
            rng: Where it is drawn from.
        """
        most = num_steps + 1
        if self.method == "multinomial":
            drawn = min(max(rng.gauss(self.accept_len_tok, 1.0), 1.0), float(most))
            return round(drawn) - 1
        length = min(max(self.accept_len_tok, 1.0), float(most))
        whole = int(length)
        return whole - 1 + (whole < most and rng.random() < length - whole)


def read_forced(environment: Mapping[str, str] = os.environ) -> Forced | None:
    """What the environment forces; None: nothing.

    Raises:
        InputError: SGLang would fail at its first verify step, or the length is no number.
    """
    try:
        length = float(environment.get(LENGTH, "-1"))
    except ValueError:
        return None  # SGLang warns, and takes its default
    if not math.isfinite(length):
        raise InputError(
            f"{LENGTH}={environment[LENGTH]} in the environment is no length",
            hint="Set it to a number of tokens, or leave it out.",
        )
    if length <= 0:
        return None
    method = environment.get(METHOD, "match-expected")
    if method not in {"match-expected", "multinomial"}:
        raise InputError(
            f"{METHOD}={method} in the environment: SGLang starts with it and ends at its first "
            "verify step (ValueError: Invalid simulate_acc_method)",
            hint="Set it to match-expected or multinomial, or leave it out.",
        )
    return Forced(
        accept_len_tok=length,
        method=method,
        keeps_text=environment.get(TOKEN_MODE, "fixed") == "real-draft-token",
    )
