"""How many tokens a verify step yields: ratios of sums over requests, never means of ratios.

The source is the per-request counters of a response's final event. They are the server's own,
count this cell's requests only, and need no log tick. Two lengths stand side by side and are never
mixed:

- `accept_len_tok` (tau) = 1 + correct drafts / verify steps: the bonus token in, the token that
  prefill makes out.
- `accept_len_server_tok` = completion tokens / verify steps: what SGLang prints as
  `spec_accept_length`, the prefill token in and cut at the stop (tokenizer_manager.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from bench.model import RequestStatus

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from bench.model import RequestSample


@dataclass(frozen=True, slots=True, kw_only=True)
class SpecCounters:
    """Sums over the requests that report counters; None when one of them lacks its part.

    Attributes:
        requests: How many requests reported verify steps.
        output_tok: Completion tokens of these requests.
        histogram: Element k: verify steps that accepted exactly k drafts.
    """

    requests: int
    verify_ct: int | None
    num_correct_drafts: int | None
    num_proposed_drafts: int | None
    histogram: tuple[int, ...] | None
    output_tok: int | None


def reports_counters(sample: RequestSample) -> bool:
    """Whether the request ended well and took part in a verify step, by the server's count."""
    return sample.status is RequestStatus.OK and bool(sample.spec_verify_ct)


def pool_counters(samples: Iterable[RequestSample]) -> SpecCounters:
    """Sum the counters of the requests that ended well and report any."""
    reporting = [s for s in samples if reports_counters(s)]
    return SpecCounters(
        requests=len(reporting),
        verify_ct=_sum([s.spec_verify_ct for s in reporting]),
        num_correct_drafts=_sum([s.spec_num_correct_drafts for s in reporting]),
        num_proposed_drafts=_sum([s.spec_num_proposed_drafts for s in reporting]),
        histogram=pool_histograms([s.spec_correct_drafts_histogram for s in reporting]),
        output_tok=_sum([s.output_tok for s in reporting]),
    )


def pool_histograms(histograms: Sequence[tuple[int, ...] | None]) -> tuple[int, ...] | None:
    """Sum histograms of different lengths; None when there are none or one of them is missing."""
    present = [h for h in histograms if h is not None]
    if not present or len(present) < len(histograms):
        return None
    return tuple(
        sum(h[k] for h in present if k < len(h)) for k in range(max(len(h) for h in present))
    )


def accept_len_tok(num_correct_drafts: int | None, verify_ct: int | None) -> float | None:
    """Tau: tokens a verify step yields, bonus token included."""
    if num_correct_drafts is None or not verify_ct:
        return None
    return 1 + num_correct_drafts / verify_ct


def accept_len_server_tok(output_tok: int | None, verify_ct: int | None) -> float | None:
    """The server's own accept length: completion tokens a verify step, prefill token in."""
    return None if output_tok is None or not verify_ct else output_tok / verify_ct


def accept_at_position(
    histogram: tuple[int, ...] | None, num_steps: int | None = None
) -> tuple[float, ...] | None:
    """P(at least k drafts accepted) for k = 1, 2, … from a pooled histogram.

    Args:
        histogram: Element k: steps that accepted exactly k drafts (the server cuts it after the
            highest seen).
        num_steps: Draft depth, if known: positions up to it that were never accepted are given, as
            0.
    """
    verify_ct = sum(histogram or ())
    if histogram is None or not verify_ct:
        return None
    at_least = [sum(histogram[k:]) / verify_ct for k in range(1, len(histogram))]
    return (*at_least, *(0.0 for _ in range((num_steps or 0) - len(at_least))))


def conditional_at_position(at_position: tuple[float, ...] | None) -> tuple[float, ...] | None:
    """P(at least k) / P(at least k - 1); ends where the condition was never met."""
    if at_position is None:
        return None
    before = (1.0, *at_position)
    return tuple(p / q for p, q in zip(at_position, before, strict=False) if q > 0)


def accept_rate(
    num_correct_drafts: int | None, verify_ct: int | None, num_steps: int | None
) -> float | None:
    """The share of the draft's depth that was used: correct drafts / (verify steps x num_steps).

    Not the server's `spec_accept_rate`, whose denominator is the size of the tree: a tree wastes
    most of its nodes by design, so that rate cannot rank shapes.
    """
    if num_correct_drafts is None or not verify_ct or not num_steps:
        return None
    return num_correct_drafts / (verify_ct * num_steps)


def pooled_accept_len(accept_lens_tok: Sequence[float], verify_cts: Sequence[int]) -> float | None:
    """Pool accept lengths that come one a request (or rank), each weighted by its verify steps."""
    verify_ct = sum(verify_cts)
    weighted = sum(a * v for a, v in zip(accept_lens_tok, verify_cts, strict=True))
    return weighted / verify_ct if verify_ct else None


def states_usable(accept_lens_tok: Sequence[float | None]) -> bool:
    """Whether the accept lengths of a server's internal states cover every data-parallel rank."""
    return bool(accept_lens_tok) and all(value is not None for value in accept_lens_tok)


def _sum(values: Sequence[int | None]) -> int | None:
    present = [v for v in values if v is not None]
    return sum(present) if present and len(present) == len(values) else None
