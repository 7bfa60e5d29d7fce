"""All series of a history as they stand. Pure: the same history gives the same verdict."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from bench.metrics.watched import METRICS, WATCHED, metric_of, own_name
from bench.model.nightly import (
    ChangeKind,
    ChangePoint,
    Incident,
    Level,
    NightlyVerdict,
    SeriesJudgement,
    SeriesState,
)
from bench.nightly.attribute import attribute, ground_of
from bench.nightly.detect import FEWEST_NIGHTS, detect

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import date, datetime

    from bench.model.nightly import Ack, Point, SeriesKey
    from bench.nightly.attribute import Ground
    from bench.nightly.detect import Found, Move
    from bench.nightly.history import History

ACK_REACH_DAYS: Final = 4
"""How far a change may have been placed from where it was when it was acknowledged."""

RECENT_NIGHTS: Final = 14
"""How long a change for the better, or an expected one, is what a series' state tells."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Watch:
    """What is judged.

    Attributes:
        suite: Name of the suite.
        scenarios: Names of its scenarios; empty: all that the history has.
        metrics: Names of the metrics.
        margins: Share below which a change is of no practical use, by metric, where it is not the
            metric's own.
    """

    suite: str
    scenarios: tuple[str, ...] = ()
    metrics: tuple[str, ...] = WATCHED
    margins: Mapping[str, float] = field(default_factory=dict)

    def margin(self, metric: str) -> float:
        """The margin of a metric, as ln."""
        name = own_name(metric)
        return math.log1p(self.margins.get(name, METRICS[name].margin))


def judge(history: History, watch: Watch, *, judged_at: datetime) -> NightlyVerdict:
    """Judge every watched series.

    Args:
        history: From `bench.nightly.history.read_history`.
        watch: Which series, and what is of use.
        judged_at: Now.
    """
    known = {
        key: one_a_night(points)
        for key, points in history.series.items()
        if own_name(key.metric) in METRICS
        and (not watch.scenarios or key.scenario in watch.scenarios)
    }
    found = dict(
        zip(known, detect([[p.value for p in points] for points in known.values()]), strict=True)
    )
    ground = ground_of(known, found, history.facts)
    newest = _newest_nights(known)
    judged = [
        _judged(key, ground, watch, history.acks, newest[key.scenario])
        for key in known
        if own_name(key.metric) in watch.metrics
    ]
    return NightlyVerdict(
        suite=watch.suite,
        newest=max(newest.values(), default=None),
        judged_at=judged_at,
        series=tuple(sorted(judged, key=_last_change_first)),
        failures=tuple(
            f
            for f in history.failures
            if not watch.scenarios or f.scenario is None or f.scenario in watch.scenarios
        ),
        damaged=history.damaged,
        environments={name: dict(facts) for name, facts in history.facts.items()},
    )


def one_a_night(points: Sequence[Point]) -> tuple[Point, ...]:
    """Several runs of one night as one point, so that no night counts for two.

    Where the environment changed between them, those of the last one count. Their geometric mean
    is the value; it is SUSPECT when one of them is.

    Args:
        points: Of one series, oldest first.
    """
    nights: dict[date, list[Point]] = {}
    for point in points:
        runs = nights.setdefault(point.night, [])
        if runs and runs[-1].fingerprint != point.fingerprint:
            runs.clear()
        runs.append(point)
    return tuple(_mean_of(nights[night]) for night in sorted(nights))


def _mean_of(runs: Sequence[Point]) -> Point:
    if len(runs) == 1:
        return runs[0]
    value = math.exp(math.fsum(math.log(run.value) for run in runs) / len(runs))
    return replace(runs[-1], value=value, suspect=any(run.suspect for run in runs))


def _newest_nights(series: Mapping[SeriesKey, Sequence[Point]]) -> dict[str, date]:
    """The newest night of each scenario: a series without it has fallen silent."""
    newest: dict[str, date] = {}
    for key, points in series.items():
        night = points[-1].night
        newest[key.scenario] = max(newest.get(key.scenario, night), night)
    return newest


def _last_change_first(judged: SeriesJudgement) -> tuple[int, int, SeriesKey]:
    order = [*SeriesState]
    last = max((c.night.toordinal() for c in judged.changes), default=0)
    return order.index(judged.state), -last, judged.key


def _judged(
    key: SeriesKey, ground: Ground, watch: Watch, acks: Sequence[Ack], newest: date
) -> SeriesJudgement:
    points, found = tuple(ground.points[key]), ground.found[key]
    margin = watch.margin(key.metric)
    own_acks = [ack for ack in acks if ack.key == key]
    changes = tuple(
        _change(key, place, ground, own_acks, margin)
        for place in _that_matter(found.moves, margin)
    )
    return SeriesJudgement(
        key=key,
        points=points,
        state=_state(points, found, changes, newest),
        noise=found.noise,
        seen_in_2_nights=found.smallest_seen(2),
        seen_in_7_nights=found.smallest_seen(7),
        margin=margin,
        levels=tuple(_levels(found)),
        changes=changes,
        incidents=tuple(
            Incident(
                index=odd.start,
                night=points[odd.start].night,
                nights=odd.stop - odd.start,
                ln_change=odd.ln_change,
                ended=odd.ended,
            )
            for odd in found.odd
        ),
        nights_wanted=max(0, FEWEST_NIGHTS - len(points)),
    )


def _that_matter(moves: Sequence[Move], margin: float) -> list[int]:
    """Places of the changes that are of use, alone or with the small ones before them."""
    kept = []
    reference: float | None = None
    for place, move in enumerate(moves):
        reference = move.before if reference is None else reference
        if max(abs(move.after - reference), abs(move.ln_change)) >= margin:
            kept.append(place)
            reference = move.after
    return kept


def _change(
    key: SeriesKey, place: int, ground: Ground, acks: Sequence[Ack], margin: float
) -> ChangePoint:
    found, points = ground.found[key], ground.points[key]
    move = found.moves[place]
    sign = 1 if metric_of(key.metric).higher_is_better else -1
    worse = sign * move.ln_change < 0
    now = found.pieces[-1].last
    # Made up for when the level is back to within the margin of what it was.
    standing = sign * (now - move.before) < -margin if worse else True
    end = found.moves[place + 1].index if place + 1 < len(found.moves) else len(points)
    return ChangePoint(
        key=key,
        kind=ChangeKind.DRIFT if move.slides else ChangeKind.STEP,
        index=move.index,
        last_index=move.stop,
        night=points[move.index].night,
        night_before=points[max(move.index - 1, 0)].night,
        ln_change=move.ln_change,
        half_width=move.half_width,
        nights=end - move.index,
        suspect_nights=sum(point.suspect for point in points[move.index : end]),
        worse=worse,
        standing=standing,
        ack=_ack_of(points[move.index].night, acks),
        attribution=attribute(key, found.moves, place, ground),
    )


def _ack_of(night: date, acks: Sequence[Ack]) -> Ack | None:
    near = [ack for ack in acks if abs((ack.night - night).days) <= ACK_REACH_DAYS]
    return min(near, key=lambda ack: abs((ack.night - night).days), default=None)


def _levels(found: Found) -> list[Level]:
    levels = []
    for piece in found.pieces:
        nights = piece.stop - piece.start
        half = 2 * (found.noise or 0.0) / math.sqrt(nights)
        levels.append(
            Level(
                start=piece.start,
                stop=piece.stop,
                value=math.exp(piece.last),
                value_at_start=math.exp(piece.first),
                ci95_low=math.exp(piece.last - half),
                ci95_high=math.exp(piece.last + half),
            )
        )
    return levels


def _state(
    points: Sequence[Point], found: Found, changes: Sequence[ChangePoint], newest: date
) -> SeriesState:
    bad = [c for c in changes if c.worse and c.standing and c.ack is None]
    goes_on = any(c.kind is ChangeKind.DRIFT and c.last_index is None for c in bad)
    last = changes[-1] if changes and changes[-1].nights <= RECENT_NIGHTS else None
    state = SeriesState.STEADY
    if bad:
        state = SeriesState.DRIFT if goes_on else SeriesState.REGRESSION
    elif points[-1].night < newest:
        state = SeriesState.SILENT
    elif found.noise is None:
        state = SeriesState.NOT_ENOUGH
    elif any(not odd.ended for odd in found.odd):
        state = SeriesState.INCIDENT
    elif last is not None and last.ack is not None:
        state = SeriesState.CHANGED_AS_EXPECTED
    elif last is not None and not last.worse:
        state = SeriesState.IMPROVEMENT
    return state
