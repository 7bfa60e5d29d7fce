"""Checks on what came out: uncounted, hidden, cut short, run past its end, repeating."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from bench.metrics.step import hides_too_many
from bench.model import FindingKind, Severity, TokenSource

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.metrics.facts import CellFacts
    from bench.model import Finding

# Fewer distinct word pairs than this of all are a loop, not prose, code or lists.
DISTINCT_BIGRAM_SHARE: Final = 0.30
DEGENERATE_REQUEST_SHARE: Final = 0.20
LEAST_BIGRAMS: Final = 32  # in fewer, a share means nothing
# Up to a tenth of answers at the cap is the tail that a cap is for.
CENSORED_SHARE: Final = 0.10
# Nearly all: the cap is the length that was asked for, the same in every arm.
FIXED_LENGTH_SHARE: Final = 0.95


def tokens_counted(facts: CellFacts) -> Iterator[Finding]:
    """Who counted the output tokens, and whether any were generated out of sight."""
    unknown = [s for s in facts.ok if s.output_tok is None]
    if unknown:
        yield facts.finding(
            FindingKind.TOKENS_UNKNOWN,
            Severity.INVALID,
            f"the output tokens of {len(unknown)} of {len(facts.ok)} requests are unknown: no "
            "throughput is given.",
        )
    retokenized = sum(1 for s in facts.ok if s.token_source is TokenSource.RETOKENIZED)
    if retokenized:
        yield facts.finding(
            FindingKind.TOKENS_RETOKENIZED,
            Severity.NOTE,
            f"the output of {retokenized} of {len(facts.ok)} requests was counted by the "
            "target's tokenizer.",
        )
    hidden = sum(1 for s in facts.ok if s.tokens_before_first_event)
    if hidden:
        yield facts.finding(
            FindingKind.TOKENS_HIDDEN,
            Severity.SUSPECT,
            f"{hidden} of {len(facts.ok)} requests generated tokens before their first event; "
            + (
                "the cell's TPOT, cycle and decode speed are withheld."
                if hides_too_many(facts.ok)
                else "their decode speed is left out."
            ),
        )


def lengths_censored(facts: CellFacts) -> Iterator[Finding]:
    """Answers that ended at the cap, among others that did not.

    Their lengths are then a mixture that `output_tok` and `e2e_ms` cannot tell apart. A cap below
    nearly every answer is another thing: all are of one length, as the workload says.
    `ignore_eos` has a finding of its own.
    """
    if facts.cell.workload.ignore_eos:
        yield facts.finding(
            FindingKind.IGNORE_EOS,
            Severity.NOTE,
            f"generation ran past the end of text to {facts.cell.workload.max_output_tok} tokens.",
        )
        return
    capped = sum(1 for s in facts.ok if s.finish_reason == "length")
    share = capped / len(facts.ok) if facts.ok else 0.0
    if CENSORED_SHARE < share < FIXED_LENGTH_SHARE:
        yield facts.finding(
            FindingKind.LENGTHS_CENSORED,
            Severity.NOTE,
            f"{capped} of {len(facts.ok)} answers ({share:.0%}) ended at the "
            "cap of "
            f"{facts.cell.workload.max_output_tok} tokens; "
            f"{facts.measurement.requests_cut_at_end_ct} were under way when the "
            "window ended.",
        )


def output_degenerate(facts: CellFacts) -> Iterator[Finding]:
    """Share of distinct word pairs; a repetition loop is the fastest arm of all."""
    judged = [s for s in facts.ok if s.bigram_ct >= LEAST_BIGRAMS]
    if not judged:
        return
    pooled = sum(s.distinct_bigram_ct for s in judged) / sum(s.bigram_ct for s in judged)
    loops = sum(1 for s in judged if s.distinct_bigram_ct < DISTINCT_BIGRAM_SHARE * s.bigram_ct)
    if pooled < DISTINCT_BIGRAM_SHARE or loops > DEGENERATE_REQUEST_SHARE * len(judged):
        yield facts.finding(
            FindingKind.OUTPUT_DEGENERATE,
            Severity.SUSPECT,
            f"{pooled:.0%} of word pairs are distinct within their answers; {loops} of "
            f"{len(judged)} answers are loops.",
        )
