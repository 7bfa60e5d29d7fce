"""What a result tells twice: its rates again from its counts, and whether both agree."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from bench.foreign.results import ForeignResult

TOLERANCE: Final = 0.005
"""Relative: durations and means are printed rounded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recomputed:
    """One figure, told and computed from other figures of the same result.

    Attributes:
        field: By the tools' own name.
        told: As in the result.
        value: From the counts.
        agrees: Within 0.5 %, or half a unit of the last printed place.
    """

    field: str
    told: float
    value: float
    agrees: bool


def recomputed(result: ForeignResult) -> tuple[Recomputed, ...]:
    """Every figure of a result that its other figures give again."""
    r, spec, seconds = result, result.spec, result.duration_s
    mean_e2e_ms = None if r.e2e_ms is None else r.e2e_ms.mean_ms
    both_tok = None if r.input_tok is None or r.output_tok is None else r.input_tok + r.output_tok
    busy_s = (
        None
        if mean_e2e_ms is None or r.completed_ct is None
        else r.completed_ct * mean_e2e_ms / 1e3
    )
    candidates = [
        ("request_throughput", r.request_per_s, _ratio(r.completed_ct, seconds)),
        ("input_throughput", r.input_tok_per_s, _ratio(r.input_tok, seconds)),
        ("output_throughput", r.output_tok_per_s, _ratio(r.output_tok, seconds)),
        ("total_throughput", r.total_tok_per_s, _ratio(both_tok, seconds)),
        ("concurrency", r.concurrency_mean, _ratio(busy_s, seconds)),
    ]
    if spec is not None:
        per_draft = _ratio(spec.accepted_tok, spec.drafts)
        rate_pct = _ratio(spec.accepted_tok, spec.draft_tok)
        candidates += [
            (
                "spec_decode_acceptance_length",
                r.accept_len_tok,
                None if per_draft is None else 1 + per_draft,
            ),
            (
                "spec_decode_acceptance_rate",
                None if spec.accept_rate is None else spec.accept_rate * 100,
                None if rate_pct is None else rate_pct * 100,
            ),
        ]
    return tuple(
        Recomputed(
            field=field,
            told=told,
            value=value,
            agrees=_agrees(told, value, result.decimals.get(field)),
        )
        for field, told, value in candidates
        if told is not None and value is not None
    )


def agrees_with_itself(result: ForeignResult) -> bool | None:
    """Whether all that a result tells twice agrees; None when it tells nothing twice."""
    checks = recomputed(result)
    return all(check.agrees for check in checks) if checks else None


def _ratio(part: float | None, whole: float | None) -> float | None:
    return None if part is None or not whole else part / whole


def _agrees(told: float, value: float, decimals: int | None) -> bool:
    rounding = 0.0 if decimals is None else 0.5 * 10.0**-decimals
    return abs(told - value) <= max(TOLERANCE * abs(value), rounding) + 1e-9
