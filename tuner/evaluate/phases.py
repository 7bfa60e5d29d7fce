"""Two step counts measured in one launch: the phases told apart, and compared.

Two accounts tell the phases, each exactly or not at all:

- the requests' streams, a verify step an event (`switches`): the log tells in which order steps
  were switched and between which requests; the period is known; and a batch that accepted more
  drafts than the lower steps has was one of the higher. Every place of the first switch that
  agrees with all of this is kept, and a batch is used only where all of them give it the same
  steps. The gauge `sglang:spec_num_steps` is compared with the result.
- the log alone (`log_phases`), where a server put several steps into one event: its decode lines
  stand between the lines of the switches.

What is found holds within one launch: it ranks step counts free of what launches draw anew. It has
no verdict, which takes launches. Simulated where `simulated` is set.
"""

from __future__ import annotations

import math
import statistics
from itertools import pairwise
from typing import TYPE_CHECKING, Final, Literal

from bench.metrics.speedup import Estimate, estimate_speedup
from bench.sglang.switch_lines import switch_sections
from tuner.evaluate.log_phases import log_phases
from tuner.evaluate.phase_records import (
    NotTold,
    Phase,
    StepComparison,
    StepFigures,
    Untold,
)
from tuner.evaluate.switches import Hypothesis, agreeing, gauge_agreement, steps_by_batch
from tuner.evaluate.verifies import Batches, batches_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench.model import EffectiveConfig, RequestSample, TelemetryPoint
    from bench.sglang.switch_lines import LogSection
    from tuner.evaluate.alternation import Alternation

LEAST_USED: Final = 0.5
"""A smaller share of batches whose steps are known is no exact telling."""

LEAST_GAUGE: Final = 0.9
_FEW_READINGS: Final = 10
_LEAST_PAIRS: Final = 3
_ENOUGH: Final = 0.5  # of an interval: shorter phases enter no pair
_UNEVEN: Final = 0.1  # of an output, and beyond chance: the step counts met different parts of it
_BEYOND_CHANCE: Final = 4.0  # standard errors
_PAIRS_TO_JUDGE: Final = 6  # fewer are uneven by chance


def compare_steps(
    samples: Sequence[RequestSample],
    telemetry: Sequence[TelemetryPoint],
    log: str,
    *,
    asked: Alternation,
    effective: EffectiveConfig,
) -> StepComparison | Untold:
    """Compare the two step counts that took turns while a cell was measured.

    Args:
        samples: All requests of the cell, warm-up included.
        telemetry: Its telemetry.
        log: The server's log, from its start; what came after the cell does no harm.
        asked: What was to take turns.
        effective: What the server said of itself.

    Returns:
        The comparison, or why it cannot be told exactly.
    """
    try:
        _require_alternating(effective, asked)
        sections = _sections(log, asked)
        try:
            return _by_streams(samples, telemetry, sections, asked, effective)
        except NotTold as of_streams:
            try:
                return _by_log(samples, telemetry, sections, asked, effective)
            except NotTold as of_log:
                raise NotTold(f"{of_streams}; and by the log: {of_log}") from None
    except NotTold as reason:
        return Untold(reason=str(reason))


def _require_alternating(effective: EffectiveConfig, asked: Alternation) -> None:
    speculative, other = dict(effective.speculative), dict(effective.other)
    if speculative.get("adaptive") is not True:
        raise NotTold("the server does not adapt its steps")
    if speculative.get("eagle_topk") not in {None, 1}:
        raise NotTold("the server drafts trees")
    if speculative.get("num_steps") not in {asked.few, asked.many}:
        raise NotTold(
            f"the server began with {speculative.get('num_steps')} steps, not with {asked.few} "
            f"or {asked.many}"
        )
    if other.get("dp_size", "1") != "1":
        raise NotTold(f"each of {other['dp_size']} data-parallel ranks switches by its own count")


def _sections(log: str, asked: Alternation) -> list[LogSection]:
    sections = switch_sections(log.splitlines())
    known = {asked.few, asked.many}
    if any({s.before, s.after} - known for section in sections for s in section.switches):
        raise NotTold(f"the log has switches other than between {asked.few} and {asked.many}")
    return sections


def _overlapped(effective: EffectiveConfig) -> bool:
    """Whether the server may schedule a batch before the last one's end; if it does not say."""
    return dict(effective.other).get("disable_overlap_schedule") != "true"


def _whole(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdigit() else None


# ------------------------------------------------------------------------------- the two accounts


def _by_streams(
    samples: Sequence[RequestSample],
    telemetry: Sequence[TelemetryPoint],
    sections: Sequence[LogSection],
    asked: Alternation,
    effective: EffectiveConfig,
) -> StepComparison:
    batches = batches_of(samples)
    fits = _fitting(batches, sections, asked, overlapped=_overlapped(effective))
    steps = steps_by_batch(batches, fits, asked, overlapped=_overlapped(effective))
    left_out = steps.count(None) / len(steps)
    if left_out > 1 - LEAST_USED:
        raise NotTold(f"{left_out:.0%} of the verify batches may be of either step count")
    every = _whole(dict(effective.other).get("decode_log_interval"))
    agreed, compared = gauge_agreement(batches, steps, telemetry, asked, every=every)
    _require_gauge(agreed, compared)
    phases = _phases(batches, steps)
    return _comparison(phases, "streams", left_out, (agreed, compared), asked, effective)


def _by_log(
    samples: Sequence[RequestSample],
    telemetry: Sequence[TelemetryPoint],
    sections: Sequence[LogSection],
    asked: Alternation,
    effective: EffectiveConfig,
) -> StepComparison:
    every = _whole(dict(effective.other).get("decode_log_interval"))
    if every is None:
        raise NotTold("the server does not tell how often it logs")
    told = log_phases(
        samples,
        sections,
        asked,
        every=every,
        overlapped=_overlapped(effective),
        telemetry=telemetry,
    )
    _require_gauge(told.gauge_agreed, told.gauge_compared)
    gauge = (told.gauge_agreed, told.gauge_compared)
    return _comparison(told.phases, "log", told.left_out, gauge, asked, effective)


def _require_gauge(agreed: int, compared: int) -> None:
    if compared >= _FEW_READINGS and agreed < LEAST_GAUGE * compared:
        raise NotTold(f"the gauge of steps agrees in {agreed} of {compared} readings only")


def _fitting(
    batches: Batches, sections: Sequence[LogSection], asked: Alternation, *, overlapped: bool
) -> list[Hypothesis]:
    deepest = max(max(correct) for correct in batches.correct)
    if deepest > asked.many:
        raise NotTold(f"a verify step accepted {deepest} drafts of {asked.many}")
    exact = [section for section in sections if section.started_ct == len(batches.joined)]
    if not exact:
        raise NotTold(
            f"no part of the log has the cell's {len(batches.joined)} prefills: a prefill in "
            "several chunks, other traffic, or a log that was cut"
        )
    fits = agreeing(batches, exact, asked, overlapped=overlapped)
    if not fits:
        raise NotTold(
            f"no place of switches every {asked.interval} batches agrees with the log and with "
            "the drafts that were accepted: other traffic, or a log that was cut"
        )
    return fits


def _phases(batches: Batches, steps: Sequence[int | None]) -> list[Phase]:
    bounds = [0, *(at for at in range(1, len(steps)) if steps[at] != steps[at - 1]), len(steps)]
    found = []
    for first, end in pairwise(bounds):
        of = steps[first]
        if of is not None:
            found.append(_phase(batches, of, first, end))
    return found


def _phase(batches: Batches, steps: int, first: int, end: int) -> Phase:
    histogram = [0] * (steps + 1)
    for correct in batches.correct[first:end]:
        for k in correct:
            histogram[k] += 1
    # The first batch's cycle began under other steps: it has the switch in it.
    timed = [at for at in range(first + 1, end) if not batches.is_interrupted[at]]
    return Phase(
        steps=steps,
        first=first,
        batches=end - first,
        verify_ct=sum(batches.running[first:end]),
        correct_ct=sum(k * n for k, n in enumerate(histogram)),
        histogram=tuple(histogram),
        timed=len(timed),
        timed_ns=sum(batches.end_ns[at] - batches.end_ns[at - 1] for at in timed),
        context_tok=statistics.fmean(batches.position_tok[first:end]),
    )


# ------------------------------------------------------------------------------------ comparing


def _comparison(
    phases: Sequence[Phase],
    source: Literal["streams", "log"],
    left_out: float,
    gauge: tuple[int, int],
    asked: Alternation,
    effective: EffectiveConfig,
) -> StepComparison:
    """Figures of both, and their ratios; `gauge` is (agreed, compared)."""
    pairs = _pairs(phases, asked)
    if len(pairs) < _LEAST_PAIRS:
        raise NotTold(
            f"{len(pairs)} pairs of neighbouring phases; {_LEAST_PAIRS} are needed: a longer cell "
            "or a shorter interval has more"
        )
    _require_even(pairs, max(phase.context_tok for phase in phases))
    agreed, compared = gauge
    return StepComparison(
        few=_figures(asked.few, phases),
        many=_figures(asked.many, phases),
        gain=_estimate([_ratio(m.tok_per_s_per_user, f.tok_per_s_per_user) for f, m in pairs]),
        accept_len=_estimate([m.accept_len_tok / f.accept_len_tok for f, m in pairs]),
        cycle=_estimate([_ratio(m.cycle_ms, f.cycle_ms) for f, m in pairs]),
        source=source,
        left_out=left_out,
        gauge_compared=compared,
        gauge_agreed=agreed,
        ranks_only=asked.ranks_only,
        simulated=effective.simulated,
        phases=tuple(phases),
    )


def _pairs(phases: Sequence[Phase], asked: Alternation) -> list[tuple[Phase, Phase]]:
    """Neighbouring phases, (few, many), each phase once.

    In the first half of the cell one step count comes first, in the second half the other, so that
    what drifts steadily cancels.
    """
    half = len(phases) // 4 * 2
    least = _ENOUGH * asked.interval
    found = []
    for part in (phases[:half], phases[half + 1 :]):
        at = 0
        while at + 1 < len(part):
            one, next_ = part[at : at + 2]
            whole = all(p.batches >= least and p.timed >= least / 2 for p in (one, next_))
            if whole and next_.first - one.end < asked.interval and one.steps != next_.steps:
                few, many = sorted((one, next_), key=lambda p: p.steps)
                found.append((few, many))
                at += 2
            else:
                at += 1
    return found


def _require_even(pairs: Sequence[tuple[Phase, Phase]], most_tok: float) -> None:
    """That neither step count always met the beginnings, or the ends, of outputs."""
    if len(pairs) < _PAIRS_TO_JUDGE:
        return
    apart = [(many.context_tok - few.context_tok) / max(most_tok, 1.0) for few, many in pairs]
    mean = statistics.fmean(apart)
    error = statistics.stdev(apart) / math.sqrt(len(apart))
    if abs(mean) > _UNEVEN and abs(mean) > _BEYOND_CHANCE * error:
        raise NotTold(
            f"the two step counts met different parts of the outputs ({abs(mean):.0%} of their "
            "length apart): the interval goes along with the requests; take another"
        )


def _figures(steps: int, phases: Sequence[Phase]) -> StepFigures:
    own = [phase for phase in phases if phase.steps == steps]
    verify_ct = sum(phase.verify_ct for phase in own)
    accept_len_tok = 1 + sum(phase.correct_ct for phase in own) / verify_ct
    cycle_ms = sum(phase.timed_ns for phase in own) / sum(phase.timed for phase in own) / 1e6
    return StepFigures(
        steps=steps,
        phases=len(own),
        verify_ct=verify_ct,
        accept_len_tok=accept_len_tok,
        reach=_reach(steps, own, verify_ct),
        cycle_ms=cycle_ms,
        tok_per_s_per_user=accept_len_tok / cycle_ms * 1e3,
    )


def _reach(steps: int, own: Sequence[Phase], verify_ct: int) -> tuple[float, ...] | None:
    histograms = [phase.histogram for phase in own if phase.histogram is not None]
    if len(histograms) < len(own):
        return None
    counts = [sum(histogram[k] for histogram in histograms) for k in range(steps + 1)]
    return tuple(sum(counts[k:]) / verify_ct for k in range(1, steps + 1))


def _ratio(many: float | None, few: float | None) -> float:
    assert many is not None
    assert few is not None
    return many / few


def _estimate(ratios: Sequence[float]) -> Estimate:
    estimate = estimate_speedup(ratios)
    assert estimate is not None
    return estimate
