"""Phases by the server's log alone: the decode lines between two lines of a switch.

A decode line tells the accept length and the speed over an interval of batches. The first one
behind a switch has batches of before in it and is left out; with overlapped scheduling one batch
more begins under the old steps, and so the second as well. Lines whose interval has a prefill in
it, or a change of the batch's size, give no time; a step's time is its tokens over their rate.
"""

from __future__ import annotations

import statistics
from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from bench.model import RequestStatus
from tuner.evaluate.phase_records import GAUGE, NotTold, Phase
from tuner.evaluate.verifies import verify_steps_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bench.model import RequestSample, TelemetryPoint
    from bench.sglang.switch_lines import LogSection, PlacedLine
    from tuner.evaluate.alternation import Alternation

_SPEED: Final = "sglang:gen_throughput"
_ACCEPT_LEN: Final = "sglang:spec_accept_length"

_LINES_OFF: Final = 1.0
"""Decode lines between two switches may be one more or less: of what lies across a switch."""

_SAME_STEPS: Final = 0.05
"""The log's verify steps and the requests' own may differ by this share, and an interval's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogPhases:
    """What a log tells of a cell.

    Attributes:
        phases: In order.
        left_out: Share of decode lines that may be of either step count.
        gauge_agreed: Scrapes whose gauge of steps is that of the line it was set with.
        gauge_compared: Scrapes of which that line is known.
    """

    phases: list[Phase]
    left_out: float
    gauge_agreed: int
    gauge_compared: int


def log_phases(
    samples: Sequence[RequestSample],
    sections: Sequence[LogSection],
    asked: Alternation,
    *,
    every: int,
    overlapped: bool,
    telemetry: Sequence[TelemetryPoint] = (),
) -> LogPhases:
    """The phases of a cell.

    Args:
        samples: All requests of the cell, warm-up included.
        sections: The log's.
        asked: What took turns.
        every: Batches a decode line.
        overlapped: Whether a batch may begin before the last one has been looked at.
        telemetry: The cell's.

    Raises:
        NotTold: The log does not tell.
    """
    section = _section_of(samples, sections, every)
    _require_regular(section, asked, every, overlapped=overlapped)
    lines = _lines(section, overlapped=overlapped)
    found = [
        _phase(section, steps, own, every)
        for switch_ct, own in sorted(lines.items())
        if (steps := _steps(section, switch_ct)) is not None
    ]
    if any(phase.accept_len_tok > phase.steps + 1.005 for phase in found):
        raise NotTold("a decode line has a longer accept length than its steps allow")
    if {phase.steps for phase in found} != {asked.few, asked.many}:
        raise NotTold(
            f"between switches every {asked.interval} batches there are no decode lines, one "
            f"every {every}: give --decode-log-interval {asked.log_interval}"
        )
    used = sum(len(own) for own in lines.values())
    agreed, compared = _gauge_agreement(section, lines, telemetry)
    return LogPhases(
        phases=found,
        left_out=1 - used / len(section.decodes),
        gauge_agreed=agreed,
        gauge_compared=compared,
    )


def _lines(section: LogSection, *, overlapped: bool) -> dict[int, list[tuple[int, PlacedLine]]]:
    """The decode lines wholly inside a phase, with their places, by the switches before them."""
    skipped = 2 if overlapped else 1
    lines: dict[int, list[tuple[int, PlacedLine]]] = defaultdict(list)
    for place, placed in enumerate(section.decodes):
        if placed.since_switch >= skipped and not placed.line.is_truncated:
            lines[placed.switch_ct].append((place, placed))
    return lines


def _require_regular(
    section: LogSection, asked: Alternation, every: int, *, overlapped: bool
) -> None:
    """That between two switches there are as many lines as batches: no line was lost.

    With overlapped scheduling a batch more is counted whenever all requests have ended.
    """
    lines = Counter(placed.switch_ct for placed in section.decodes)
    for switch_ct in range(1, len(section.switches)):
        started = [s.started_ct for s in section.switches[switch_ct - 1 : switch_ct + 1]]
        unseen = started[1] - started[0] if overlapped else 0
        fewest, most = (asked.interval - unseen) / every, asked.interval / every
        if not fewest - _LINES_OFF <= lines[switch_ct] <= most + _LINES_OFF:
            raise NotTold(
                f"the log has {lines[switch_ct]} decode lines between two switches, one every "
                f"{every} of {asked.interval} batches: lines were lost"
            )


def _gauge_agreement(
    section: LogSection,
    lines: Mapping[int, Sequence[tuple[int, PlacedLine]]],
    telemetry: Sequence[TelemetryPoint],
) -> tuple[int, int]:
    """(agreed, compared) scrapes: the gauges of a line are set as the line is written.

    Speed and accept length tell which line's they are; where two lines have the same, or none has,
    there is no comparison.
    """
    scrapes: dict[int, dict[str, float]] = defaultdict(dict)
    for point in telemetry:
        if point.source == "server" and point.value is not None:
            scrapes[point.t_ns][point.name] = point.value
    seen = Counter(
        _fingerprint(p.line.gen_tok_per_s, p.line.accept_len_tok) for p in section.decodes
    )
    steps_of = {
        _fingerprint(placed.line.gen_tok_per_s, placed.line.accept_len_tok): _steps(
            section, switch_ct
        )
        for switch_ct, own in lines.items()
        for _, placed in own
    }
    agreed = compared = 0
    for scrape in scrapes.values():
        gauge = scrape.get(GAUGE)
        print_ = _fingerprint(scrape.get(_SPEED), scrape.get(_ACCEPT_LEN))
        if gauge is None or seen[print_] != 1 or steps_of.get(print_) is None:
            continue
        compared += 1
        agreed += int(gauge) == steps_of[print_]
    return agreed, compared


def _fingerprint(speed: float | None, accept_len: float | None) -> tuple[str, str] | None:
    """As a log prints them."""
    return None if speed is None or accept_len is None else (f"{speed:.2f}", f"{accept_len:.2f}")


def _section_of(
    samples: Sequence[RequestSample], sections: Sequence[LogSection], every: int
) -> LogSection:
    """The part of the log that is the cell's: with its prefills and its verify steps."""
    if any(sample.status is not RequestStatus.OK for sample in samples):
        raise NotTold("a request failed: which steps were the cell's is not known")
    told = [verify_steps_of(sample) for sample in samples]
    counted = sum(steps or 0 for steps in told)
    if None in told or not counted:
        raise NotTold("the server does not tell the verify steps of its requests")
    most_running = max((d.line.running_ct or 0 for s in sections for d in s.decodes), default=0)
    fits = []
    for section in sections:
        steps = every * sum(placed.line.running_ct or 0 for placed in section.decodes)
        # Batches since the last line are in none.
        slack = _SAME_STEPS * counted + every * most_running
        if section.started_ct == len(samples) and abs(steps - counted) <= slack:
            fits.append(section)
    if len(fits) != 1:
        raise NotTold(
            f"{len(fits)} parts of the log have the cell's {len(samples)} prefills and "
            f"{counted} verify steps"
        )
    return fits[0]


def _steps(section: LogSection, switch_ct: int) -> int | None:
    """Those between two switches; the two lines must agree."""
    switches = section.switches
    before = switches[switch_ct - 1].after if switch_ct else None
    after = switches[switch_ct].before if switch_ct < len(switches) else None
    if before is not None and after is not None and before != after:
        raise NotTold("the log lost a switch")
    return before if before is not None else after


def _phase(
    section: LogSection, steps: int, own: Sequence[tuple[int, PlacedLine]], every: int
) -> Phase:
    verify_ct, correct_ct, timed, timed_ns = 0, 0.0, 0, 0.0
    contexts = []
    for place, placed in own:
        line = placed.line
        if not line.running_ct or line.accept_len_tok is None:
            continue
        verify_ct += every * line.running_ct
        correct_ct += every * line.running_ct * (line.accept_len_tok - 1)
        contexts.append((line.kv_tok or 0) / line.running_ct)
        if _is_steady(section, place) and line.gen_tok_per_s:
            timed += every
            tokens = every * line.running_ct * line.accept_len_tok
            timed_ns += tokens / line.gen_tok_per_s * 1e9
    if not verify_ct:
        raise NotTold("decode lines without accept lengths")
    return Phase(
        steps=steps,
        first=every * own[0][0],
        batches=every * len(own),
        verify_ct=verify_ct,
        correct_ct=correct_ct,
        histogram=None,
        timed=timed,
        timed_ns=timed_ns,
        context_tok=statistics.fmean(contexts),
    )


def _is_steady(section: LogSection, place: int) -> bool:
    """Whether nothing but decoding, of the same requests, is in a line's interval."""
    if not place:
        return False
    last, placed = section.decodes[place - 1], section.decodes[place]
    same = last.line.running_ct == placed.line.running_ct
    return same and last.started_ct == placed.started_ct
