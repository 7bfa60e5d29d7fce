"""Checks on whether a window tells how the server is, and not where in a wave it was cut.

Slots that start together stay together for some requests: prefills come in bursts, and decoding is
fast between them and slow in them, on a server that never changes. All users share these steps, so
that a hundred requests of one burst are one observation and not a hundred. What repeats is the
time of a request; so speed is compared over parts of the window that are each as long as one or
longer (batch means: Law and Carson 1979), and a window of few of these is told.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

import numpy as np

from bench.metrics.step import decode_part, undisturbed_gaps_ms
from bench.metrics.window import Window, counts_tokens
from bench.model import FindingKind, Severity

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from bench.metrics.facts import CellFacts
    from bench.model import Finding, RequestSample

# A drift of 5 % between the halves is above the usual practical margin; it must also be beyond
# chance.
DRIFT_SHARE: Final = 0.05
DRIFT_P_VALUE: Final = 0.01
ROUNDING: Final = 1e-8
"""Values that differ by no more than this share are equal."""
# Two degrees of freedom are the least with which a trend can be told from scatter; more than a
# dozen parts find no more and lie too near to one another.
LEAST_PARTS: Final = 4
MOST_PARTS: Final = 12
# Below this the 95th percentile is the slowest request, and a single answer that takes twice as
# long moves tok/s by more than a twentieth.
LEAST_REQUESTS: Final = 20
# The usual practical margin is worth knowing; more than a twentieth is more than other checks of a
# load let pass.
CUT_WAVE_NOTE_SHARE: Final = 0.02
CUT_WAVE_SHARE: Final = 0.05


def drifting(facts: CellFacts) -> Iterator[Finding]:
    """The trend of a user's decode speed over parts of the window, each a request long or longer.

    Least squares over the parts, with Student's t on the slope. With fewer than four parts drift
    cannot be told from a wave: then `few_requests` says so.
    """
    if not isinstance(facts.window, Window):
        return
    parts = min(MOST_PARTS, math.floor(_requests_long(facts, facts.window)))
    if parts < LEAST_PARTS:
        return
    speeds = decode_speeds(facts.ok, facts.window, parts)
    if speeds is None:
        return
    slope, p_value = trend(speeds)
    mean = float(speeds.mean())
    change = slope * parts / 2 / mean
    if abs(change) > DRIFT_SHARE and p_value < DRIFT_P_VALUE:
        ends = mean - slope * (parts - 1) / 2, mean + slope * (parts - 1) / 2
        yield facts.finding(
            FindingKind.DRIFTING,
            Severity.SUSPECT,
            f"users decoded at {ends[0]:.1f} tok/s at the beginning of the window and at "
            f"{ends[1]:.1f} at its end (trend over {parts} parts, each a request long or longer; "
            f"{change:+.1%} between the halves).",
        )


def decode_speeds(
    samples: Sequence[RequestSample], window: Window, parts: int
) -> np.ndarray | None:
    """A user's decode speed in equal parts of the window, a ratio of sums in each.

    Returns:
        Tokens a second, shape (parts,); None when nobody decoded in one of them.
    """
    edges = [
        window.start_ns + (window.end_ns - window.start_ns) * k // parts for k in range(parts + 1)
    ]
    decode_ns, tokens = np.zeros(parts), np.zeros(parts)
    for k in range(parts):
        for sample in samples:
            part = decode_part(sample, edges[k], edges[k + 1])
            if part is not None:
                decode_ns[k] += part[0]
                tokens[k] += part[1]
    return tokens / (decode_ns / 1e9) if decode_ns.all() else None


def trend(values: np.ndarray) -> tuple[float, float]:
    """Slope a place of a straight line through values, and the two-sided p-value that it is 0."""
    from scipy.special import stdtr  # noqa: PLC0415  # only here: importing scipy costs time

    n = len(values)
    if np.ptp(values) <= ROUNDING * np.abs(values).max():
        return 0.0, 1.0  # what is left of equal values is how they were rounded
    place = np.arange(n) - (n - 1) / 2
    spread = float(place @ place)
    slope = float(place @ values) / spread
    left = values - values.mean() - slope * place
    error = math.sqrt(float(left @ left) / (n - 2) / spread)
    if error == 0:
        return slope, 1.0 if slope == 0 else 0.0
    return slope, 2 * float(stdtr(n - 2, -abs(slope) / error))


def wave_cut(facts: CellFacts) -> Iterator[Finding]:
    """Closed loop: whether the window holds as many prefills as answers.

    A window that begins after a burst of prefills and ends before the next has the tokens of more
    answers than it has prefills, so that it reads high: by the share of time that prefills take
    from decoding (a mean step against an undisturbed one), times the share that is missing.
    """
    measurement = facts.measurement
    tokens, answer, cycle = (
        measurement.window_output_tok,
        measurement.output_tok,
        measurement.cycle_ms,
    )
    if facts.cell.load.kind != "closed" or not isinstance(facts.window, Window):
        return
    # Where events were merged a gap is several steps.
    if not tokens or answer is None or not cycle or measurement.cycle_from_gaps_ms is None:
        return
    alone = undisturbed_gaps_ms(facts.samples, facts.window)
    prefills = sum(
        1
        for s in facts.samples
        if counts_tokens(s) and s.event_ns and facts.window.contains(s.event_ns[0])
    )
    answers = tokens / answer.mean
    if not prefills or not alone.size:
        return
    off = max(0.0, 1 - float(np.median(alone)) / cycle) * (answers / prefills - 1)
    if abs(off) > CUT_WAVE_NOTE_SHARE:
        yield facts.finding(
            FindingKind.WINDOW_TOO_SHORT,
            Severity.SUSPECT if abs(off) > CUT_WAVE_SHARE else Severity.NOTE,
            f"the window has the tokens of {answers:.0f} answers and the prefills of {prefills}: "
            f"it cuts through a wave of slots, and tok/s reads about {abs(off):.0%} "
            f"{'high' if off > 0 else 'low'}.",
        )


def few_requests(facts: CellFacts) -> Iterator[Finding]:
    """Whether one slow answer, or the place of the window in a wave, can move the figures."""
    if not isinstance(facts.window, Window) or not facts.measured:
        return
    told: list[str] = []
    count = len(facts.measured)
    if count < LEAST_REQUESTS:
        told.append(
            f"{count} requests were measured: one that takes twice as long changes tok/s by up to "
            f"{1 / (count + 1):.0%}, and p95 is the slowest"
        )
    long = _requests_long(facts, facts.window)
    if long < LEAST_PARTS:
        told.append(
            f"the window is {long:.1f} requests long: drift cannot be told from slots that move "
            "in waves"
        )
    if told:
        yield facts.finding(FindingKind.FEW_REQUESTS, Severity.NOTE, "; ".join(told) + ".")


def _requests_long(facts: CellFacts, window: Window) -> float:
    """The window's length in mean requests; 0 when no request ended well."""
    e2e = facts.measurement.e2e_ms
    return window.length_s * 1e3 / e2e.mean if e2e is not None and e2e.mean > 0 else 0.0
