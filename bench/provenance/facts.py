"""What every fact has in common: one that cannot be told is None, and none takes long."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, ParamSpec, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

COMMAND_TIMEOUT_S = 3.0
"""In seconds of the world: a command that takes longer has nothing to tell."""

P = ParamSpec("P")
R = TypeVar("R")


def fact(tell: Callable[P, R]) -> Callable[P, R | None]:
    """Make a function that tells a fact return None where it fails to, whatever the reason."""

    @functools.wraps(tell)
    def told(*args: P.args, **kwargs: P.kwargs) -> R | None:
        try:
            return tell(*args, **kwargs)
        except Exception:  # noqa: BLE001  # a fact that cannot be told must never stop a run
            return None

    return told
