"""Where the steps were switched: every place that what was observed allows.

A place is the count of verify batches, modulo two intervals, with which a cell began. The higher
steps' accepted drafts, the order of lines in the log and the period rule out all but a few.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tuner.evaluate.phase_records import GAUGE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench.model import TelemetryPoint
    from bench.sglang.switch_lines import LogSection, SwitchLine
    from tuner.evaluate.alternation import Alternation
    from tuner.evaluate.verifies import Batches

_OVERLAP_SLACK: Final = 2
"""With overlapped scheduling a batch begins before the last one has been looked at: log lines may
be this many batches from where they are without."""

_OVERLAP_LAG: Final = 1
"""Likewise the steps of a batch: behind a prefill they are decided by one batch more."""

_GAUGE_SLACK: Final = 3
"""Batches by which an event may be read earlier or later than a scrape of the same moment."""

_SCRAPE_NS: Final = 50_000_000
"""How long a scrape takes at most, as a rule, from being answered to being read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hypothesis:
    """One place that agrees with all that was observed.

    Attributes:
        offset: Count of verify batches before the cell's first, modulo two intervals; below one
            interval the lower steps run.
        unseen: Batches that pass unseen whenever all requests have ended: with overlapped
            scheduling one more was begun.
    """

    offset: int
    unseen: int


def agreeing(
    batches: Batches, sections: Sequence[LogSection], asked: Alternation, *, overlapped: bool
) -> list[Hypothesis]:
    """All hypotheses that agree with the accepted drafts and with a section of the log.

    Args:
        batches: The cell's.
        sections: Parts of the log that may be the cell's.
        asked: What took turns.
        overlapped: Whether the server may schedule a batch before the last one's end.
    """
    slack, lag = (_OVERLAP_SLACK, _OVERLAP_LAG) if overlapped else (0, 0)
    period = 2 * asked.interval
    found = []
    for unseen in (0, 1) if overlapped else (0,):
        count = _counts(batches, unseen)
        deep = {
            count[at] % period
            for at, correct in enumerate(batches.correct)
            if max(correct) > asked.few
        }
        for offset in range(period):
            if not all(_may_be_many(at + offset, asked, lag) for at in deep):
                continue
            switches = _switches(count, offset, asked, slack)
            if any(_logged(section, switches, batches, slack) for section in sections):
                found.append(Hypothesis(offset=offset, unseen=unseen))
    return found


def _may_be_many(count: int, asked: Alternation, lag: int) -> bool:
    return any((count + off) // asked.interval % 2 for off in range(-lag, lag + 1))


def _counts(batches: Batches, unseen: int) -> list[int]:
    """Verify batches before each of the cell's, from its first on."""
    return [at + unseen * idle for at, idle in enumerate(batches.idle_ct)]


def _switches(
    count: Sequence[int], offset: int, asked: Alternation, slack: int
) -> list[tuple[int, int]]:
    """(first batch, its steps) of each phase whose switch a log of the cell may have.

    The last may be one that the cell's last batch brought about, after its end.
    """
    reach = [count[0] - k for k in range(slack + 1, 0, -1)]
    reach += [*count, *(count[-1] + k for k in range(1, slack + 2))]
    found = []
    for turn in range(
        -(-(reach[1] + offset) // asked.interval), (reach[-1] + offset) // asked.interval + 1
    ):
        at = bisect_left(reach, turn * asked.interval - offset) - slack - 1
        if 1 - slack <= at <= len(count) + slack:
            found.append((at, asked.many if turn % 2 else asked.few))
    return found


def _logged(
    section: LogSection, switches: Sequence[tuple[int, int]], batches: Batches, slack: int
) -> bool:
    """Whether a part of the log has these switches, in this order and between these requests."""
    lines, last = section.switches, len(batches.running)
    required = [place for place, (at, _) in enumerate(switches) if 1 + slack <= at <= last - slack]
    for start in range(len(switches) - len(lines) + 1):
        if required and not (start <= required[0] and required[-1] < start + len(lines)):
            continue
        taken = switches[start : start + len(lines)]
        if all(_is_there(*switch, line, batches, slack) for switch, line in zip(taken, lines)):  # noqa: B905  # alike
            return True
    return False


def _is_there(at: int, steps: int, line: SwitchLine, batches: Batches, slack: int) -> bool:
    """Whether a line can be of this switch, by the requests that had been prefilled."""
    joined, started = batches.joined, line.started_ct
    if line.after != steps:
        return False
    after_last = started == 0 or joined[started - 1] <= at - 1 + slack
    before_next = started >= len(joined) or joined[started] >= at - slack
    return after_last and before_next


def steps_by_batch(
    batches: Batches, fits: Sequence[Hypothesis], asked: Alternation, *, overlapped: bool
) -> list[int | None]:
    """The steps of each batch; None where the hypotheses differ: it may straddle a switch."""
    import numpy as np  # noqa: PLC0415  # heavy

    low, high = np.ones(len(batches.running), int), np.zeros(len(batches.running), int)
    lag = _OVERLAP_LAG if overlapped else 0
    for fit in fits:
        count = np.array(_counts(batches, fit.unseen)) + fit.offset
        for off in range(-lag, lag + 1):
            turn = (count + off) // asked.interval % 2
            low, high = np.minimum(low, turn), np.maximum(high, turn)
    names = (asked.few, asked.many)
    return [names[a] if a == b else None for a, b in zip(low.tolist(), high.tolist(), strict=True)]


def gauge_agreement(
    batches: Batches,
    steps: Sequence[int | None],
    telemetry: Sequence[TelemetryPoint],
    asked: Alternation,
    *,
    every: int | None,
) -> tuple[int, int]:
    """(agreed, compared) readings of the gauge.

    The gauge is set at the last of every so many batches, `--decode-log-interval`: it must be the
    steps of one of as many batches before the reading. Readings whose batches have both steps are
    not compared.

    Args:
        batches: The cell's.
        steps: Of each batch (`steps_by_batch`).
        telemetry: The cell's.
        asked: What took turns.
        every: The decode log interval; None: not known, nothing is compared.
    """
    agreed = compared = 0
    if every is None or every + 2 * _GAUGE_SLACK >= asked.interval:
        return 0, 0
    for point in telemetry:
        if point.name != GAUGE or point.value is None:
            continue
        asked_at = bisect_right(batches.end_ns, point.t_ns - _SCRAPE_NS)
        first = asked_at - every - _GAUGE_SLACK
        end = bisect_right(batches.end_ns, point.t_ns) + _GAUGE_SLACK
        if first < 0 or end > len(steps):
            continue
        before = steps[first:end]
        if len(set(before)) != 1 or before[0] is None:
            continue
        compared += 1
        agreed += int(point.value) == before[0]
    return agreed, compared
