"""The rules: each looks at a case and yields what it finds. docs/draft-doctor.md lists them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from bench.draft.rules.forms import check_form
from bench.draft.rules.forward import check_forward
from bench.draft.rules.layers import check_layers
from bench.draft.rules.positions import check_positions
from bench.draft.rules.serving import check_serving
from bench.draft.rules.vocabularies import check_vocabulary
from bench.draft.rules.weights import check_weights

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from bench.draft.case import Case
    from bench.draft.findings import DraftFinding

CHECKS: Final[tuple[Callable[[Case], Iterator[DraftFinding]], ...]] = (
    check_form,
    check_layers,
    check_forward,
    check_weights,
    check_vocabulary,
    check_positions,
    check_serving,
)

__all__ = ["CHECKS"]
