"""Counts of one thing from different places must agree, or a number is wrong and says so."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from bench.metrics.acceptance import accept_len_server_tok, pool_counters, reports_counters
from bench.metrics.cache import cell_span_ns
from bench.metrics.configuration import speculative_setting
from bench.metrics.series import counter_delta
from bench.metrics.step import (
    COALESCED_SHARE,
    event_coverage,
    expected_events,
    undisturbed_gaps_ms,
)
from bench.metrics.window import Window
from bench.model import FindingKind, RequestStatus, Severity

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.metrics.facts import CellFacts
    from bench.model import Finding, RequestSample

# Server-wide counters are read between responses, so a request more or less may be in them; a cell
# has dozens.
COUNTER_TOLERANCE: Final = 0.02
# Beyond this a count is not off by an edge case, it counts something else.
GROSS: Final = 0.10
# A trailing event may carry what the detokenizer held back; more events than steps by more than
# this are not steps.
EXTRA_EVENTS: Final = 1
# A tick of 40 steps of one request has a standard error of about 7 %: the window may begin and end
# in intervals that are not among the readings.
LOG_TOLERANCE: Final = 0.15
LEAST_TICKS: Final = 5
# The mean step and the median gap agree within a few per cent on an undisturbed server.
CYCLE_TOLERANCE: Final = 0.10


def request_counters(facts: CellFacts) -> Iterator[Finding]:
    """Each request's own counters: histogram against sums, tokens against steps and drafts."""
    reporting = [s for s in facts.ok if reports_counters(s)]
    for name, off in (
        ("the histogram's steps are not the verify steps", _steps_off),
        ("the histogram's drafts are not the correct drafts", _drafts_off),
        ("more tokens came out than were accepted, verified and prefilled", _tokens_off),
    ):
        parts = [(s, *off(s)) for s in reporting]
        bad = [s for s, by, _ in parts if by]
        if bad:
            yield _disagree(
                facts,
                sum(by for _, by, _ in parts) / max(1, sum(of for _, _, of in parts)),
                f"{name} in {len(bad)} of {len(reporting)} requests, e.g. request "
                f"{bad[0].index}: {_figures(bad[0])}.",
            )


def _steps_off(s: RequestSample) -> tuple[int, int]:
    """By how many the histogram's steps miss the verify steps, and of how many."""
    verify, histogram = s.spec_verify_ct or 0, s.spec_correct_drafts_histogram
    return (0 if histogram is None else abs(sum(histogram) - verify)), verify


def _drafts_off(s: RequestSample) -> tuple[int, int]:
    """By how many the histogram's drafts miss the correct drafts, and of how many."""
    histogram, correct = s.spec_correct_drafts_histogram, s.spec_num_correct_drafts
    if histogram is None or correct is None:
        return 0, 0
    return abs(sum(k * n for k, n in enumerate(histogram)) - correct), correct


def _tokens_off(s: RequestSample) -> tuple[int, int]:
    """How many tokens came out beyond those the steps can have made, and of how many."""
    if s.output_tok is None or s.spec_num_correct_drafts is None or s.spec_verify_ct is None:
        return 0, 0
    # One token from prefill, and one more for each time the request was thrown out and prefilled
    # again.
    prefilled = 1 + (s.num_retractions or 0)
    made = s.spec_num_correct_drafts + s.spec_verify_ct + prefilled
    return max(0, s.output_tok - made), s.output_tok


def _figures(s: RequestSample) -> str:
    return (
        f"output_tok {s.output_tok}, correct drafts {s.spec_num_correct_drafts}, verify steps "
        f"{s.spec_verify_ct}, "
        f"histogram {s.spec_correct_drafts_histogram}"
    )


def draft_depth(facts: CellFacts) -> Iterator[Finding]:
    """No step can accept more drafts than the draft is deep."""
    num_steps = speculative_setting(facts.effective, "num_steps")
    histogram = facts.counters.histogram
    if (
        facts.measurement.accept_rate is None
        or not isinstance(num_steps, int)
        or histogram is None
    ):
        return
    deeper = sum(histogram[num_steps + 1 :])
    if deeper:
        yield _disagree(
            facts,
            deeper / sum(histogram),
            f"{deeper} of {sum(histogram)} verify steps accepted more than num_steps = "
            f"{num_steps} drafts.",
        )


def events_against_steps(facts: CellFacts) -> Iterator[Finding]:
    """Token-bearing events against steps: fewer were merged, more are not steps."""
    speculative = facts.counters.requests > 0
    coverage = event_coverage(facts.ok, speculative=speculative)
    if coverage is None:
        return
    unit = "verify steps + 1" if speculative else "tokens"
    if coverage < 1 - COALESCED_SHARE:
        yield facts.finding(
            FindingKind.STREAM_COALESCED,
            Severity.NOTE,
            f"{coverage:.1%} as many events as {unit}: on average {1 / coverage:.2f} steps came "
            "as one event."
            if coverage > 0
            else f"no event carried a token, against {unit}.",
        )
    bad = [s for s in facts.ok if _too_many_events(s, speculative=speculative)]
    if bad and coverage > 1 + COALESCED_SHARE:
        first = bad[0]
        yield _disagree(
            facts,
            coverage - 1,
            f"{len(bad)} of {len(facts.ok)} requests have more events than {unit}, e.g. request "
            f"{first.index}: "
            f"{len(first.event_ns)} events, {expected_events(first, speculative=speculative)} "
            "expected.",
        )


def _too_many_events(s: RequestSample, *, speculative: bool) -> bool:
    expected = expected_events(s, speculative=speculative)
    return expected is not None and len(s.event_ns) > expected + EXTRA_EVENTS


def server_counters(facts: CellFacts) -> Iterator[Finding]:
    """Our requests' sums, warm-up included, against the server's counters around the cell."""
    span = cell_span_ns(facts.samples)
    if span is None or not facts.series.scraped_ns:
        return
    if facts.series.scraped_ns[0] > span[0] or facts.series.scraped_ns[-1] < span[1]:
        yield facts.finding(
            FindingKind.TELEMETRY_MISSING,
            Severity.NOTE,
            "the server's scrapes do not enclose the cell, so its counters were not compared "
            "with the requests'.",
        )
        return
    foreign = _foreign_requests(facts, span)
    if foreign:
        sent = sum(1 for s in facts.samples if s.sent_ns is not None)
        yield facts.finding(
            FindingKind.FOREIGN_TRAFFIC,
            Severity.INVALID if foreign > GROSS * sent else Severity.SUSPECT,
            f"the server finished {foreign} requests beside our {sent}.",
        )
        return
    yield from _compare_totals(facts, span)


def _foreign_requests(facts: CellFacts, span: tuple[int, int]) -> int:
    finished = counter_delta(facts.series, "sglang:num_requests_total", *span)
    ours = sum(1 for s in facts.samples if s.sent_ns is not None)
    return max(0, round(finished) - ours) if finished is not None else 0


def _compare_totals(facts: CellFacts, span: tuple[int, int]) -> Iterator[Finding]:
    generated = counter_delta(facts.series, "sglang:generation_tokens_total", *span)
    verified = counter_delta(facts.series, "sglang:spec_verify_calls_total", *span)
    ok = [s for s in facts.samples if s.status is RequestStatus.OK]
    if generated is None or any(s.output_tok is None for s in ok):
        return
    output_tok = sum(s.output_tok or 0 for s in ok)
    # What the server generated for requests that failed on the way is in its counters and not in
    # ours.
    all_ok = len(ok) == len(facts.samples)
    if all_ok and abs(generated - output_tok) > COUNTER_TOLERANCE * output_tok:
        yield _disagree(
            facts,
            abs(generated / output_tok - 1) if output_tok else 1.0,
            f"the server counted {generated:.0f} generated tokens, its responses {output_tok}.",
        )
    ours = accept_len_server_tok(output_tok, pool_counters(ok).verify_ct)
    if ours is None or verified is None:
        return
    theirs = generated / verified if verified else 0.0
    if abs(theirs / ours - 1) > COUNTER_TOLERANCE:
        yield _disagree(
            facts,
            abs(theirs / ours - 1),
            f"accept_len_server_tok is {ours:.3f} by the requests and {theirs:.3f} by the "
            "server's counters "
            f"({generated:.0f} tokens / {verified:.0f} verify steps).",
        )


def acceptance_present(facts: CellFacts) -> Iterator[Finding]:
    """A speculative arm must report acceptance, a baseline must not."""
    several = [s for s in facts.ok if (s.output_tok or 0) > 1]
    silent = [s for s in several if not reports_counters(s)]
    if facts.cell.arm_is_speculative and silent:
        yield facts.finding(
            FindingKind.ACCEPTANCE_MISSING,
            Severity.SUSPECT,
            f"{len(silent)} of {len(several)} requests with more than one token came without "
            "verify counts.",
        )
    if not facts.cell.arm_is_speculative and facts.counters.requests:
        yield facts.finding(
            FindingKind.CONFIG_NOT_AS_ASKED,
            Severity.INVALID,
            f"the arm asks for no speculation, but {facts.counters.requests} requests report "
            "verify steps.",
        )


def accept_len_against_log(facts: CellFacts) -> Iterator[Finding]:
    """Tau against what the server logs: each tick it sets a gauge to the last interval's length.

    Readings of it are samples at unequal weights, so they have no mean; but a length over all
    steps cannot lie outside those of the intervals, of whichever rank.
    """
    tau = facts.measurement.accept_len_tok
    if tau is None or not isinstance(facts.window, Window):
        return
    logged: list[float] = []
    for readings in facts.series.ranks("sglang:spec_accept_length").values():
        inside = readings.between(facts.window.start_ns, facts.window.end_ns)
        ticks = inside[inside > 0]  # before its first tick the gauge reads 0
        if ticks.size < LEAST_TICKS:
            return
        logged += ticks.tolist()
    if not logged:
        return
    low, high = min(logged), max(logged)
    if not low / (1 + LOG_TOLERANCE) <= tau <= high * (1 + LOG_TOLERANCE):
        yield facts.finding(
            FindingKind.COUNTERS_DISAGREE,
            Severity.SUSPECT,
            f"the server's log gauge shows accept lengths from {low:.2f} to {high:.2f} tokens, "
            f"the requests' counters {tau:.2f}.",
        )


def cycle_against_gaps(facts: CellFacts) -> Iterator[Finding]:
    """The step by counters against the step by the clock.

    Prefills of other requests stall decoding, which is how a server behaves. So where the mean
    step and the median gap differ, the gaps in which another request awaited its first token are
    left out: a mean of the others well above their median is a note, something holds events up. A
    mean step below their median cannot come about while nothing was merged: one of the two is
    wrong.
    """
    cycle, gap = facts.measurement.cycle_ms, facts.measurement.cycle_from_gaps_ms
    if cycle is None or not gap or abs(cycle / gap - 1) <= CYCLE_TOLERANCE:
        return
    assert isinstance(facts.window, Window)  # there is no cycle without one
    alone = undisturbed_gaps_ms(facts.samples, facts.window)
    if not alone.size:
        return
    mean, median = float(alone.mean()), float(np.median(alone))
    below = cycle < (1 - CYCLE_TOLERANCE) * median
    if below or mean > (1 + CYCLE_TOLERANCE) * median:
        yield facts.finding(
            FindingKind.CYCLE_DISAGREES,
            Severity.SUSPECT if below else Severity.NOTE,
            f"the mean step is {cycle:.2f} ms; the gaps between events while no other request "
            f"awaited its first token are {mean:.2f} ms in the mean and {median:.2f} ms in the "
            "median.",
        )


def _disagree(facts: CellFacts, share: float, message: str) -> Finding:
    return facts.finding(
        FindingKind.COUNTERS_DISAGREE,
        Severity.INVALID if share > GROSS else Severity.SUSPECT,
        message,
    )
