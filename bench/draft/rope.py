"""Rotary positions as a config.json describes them, in its old form and in its new one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from bench.draft.config_values import block, number, shown

if TYPE_CHECKING:
    from collections.abc import Mapping

DEFAULT_THETA: Final = 10000.0
"""What transformers and SGLang take where a config gives none."""

_PLAIN: Final = frozenset({"default", ""})


@dataclass(frozen=True, slots=True, kw_only=True)
class Rope:
    """Rotary positions.

    Attributes:
        theta: The base; `DEFAULT_THETA` where the config gives none.
        is_given: Whether the config gives one.
        kind: `default`, `yarn`, `llama3`, `linear`, ….
        scaling: The scaling's other values, sorted, for comparison.
        conflict: The base of the other form, where a config has both and they differ.
    """

    theta: float
    is_given: bool
    kind: str
    scaling: tuple[tuple[str, str], ...]
    conflict: float | None = None

    @property
    def is_scaled(self) -> bool:
        """Whether positions are stretched."""
        return self.kind not in _PLAIN

    @property
    def text(self) -> str:
        """`theta 1e+06, yarn (factor 32.0)`."""
        scaled = ", ".join(f"{key} {value}" for key, value in self.scaling)
        theta = f"theta {self.theta:g}" + ("" if self.is_given else " (not given: the default)")
        return theta + (f", {self.kind}" + (f" ({scaled})" if scaled else "")) * self.is_scaled


def rope_of(config: Mapping[str, Any]) -> Rope:
    """The positions of a model: `rope_parameters` wins over `rope_theta` and `rope_scaling`."""
    new = block(config, "rope_parameters")
    scaling = new or block(config, "rope_scaling")
    old_theta, new_theta = number(config, "rope_theta"), number(new, "rope_theta")
    given = new_theta if new_theta is not None else old_theta
    differs = old_theta is not None and new_theta is not None and old_theta != new_theta
    kind = scaling.get("rope_type") or scaling.get("type") or "default"
    others = {
        shown(key): shown(value)
        for key, value in scaling.items()
        if key not in {"rope_theta", "rope_type", "type"}
    }
    return Rope(
        theta=DEFAULT_THETA if given is None else given,
        is_given=given is not None,
        kind=shown(kind),
        scaling=tuple(sorted(others.items())),
        conflict=old_theta if differs else None,
    )
