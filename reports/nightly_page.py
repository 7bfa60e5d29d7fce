"""The page of a suite: every series at a glance, what changed and why, and every night."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bench.metrics.change_words import CAUSES, group_line, grouped, headline, percent, warnings
from bench.metrics.watched import metric_of
from bench.model import BASELINE
from bench.model.nightly import SeriesState
from reports.blocks import Column, Page, Remark, Section, Table, Value, figure_number, text
from reports.nightly_nights import (
    MOST_FIELDS,
    environment_blocks,
    failures_blocks,
    incidents_blocks,
    nights_blocks,
)
from reports.view import load_order

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench.model.nightly import ChangePoint, Factor, NightlyVerdict, SeriesJudgement
    from reports.blocks import Block

MOST_TOLD = 6
MOST_CHANGES = 60

_TONES = {
    SeriesState.REGRESSION: "bad",
    SeriesState.DRIFT: "bad",
    SeriesState.INCIDENT: "warn",
    SeriesState.SILENT: "warn",
    SeriesState.IMPROVEMENT: "good",
}


def nightly_page(verdict: NightlyVerdict) -> Page:
    """The page of a verdict.

    Args:
        verdict: From `bench.nightly.judge`.
    """
    arms = dict.fromkeys(j.key.arm for j in sorted(verdict.series, key=lambda j: j.key))
    ordered = sorted(arms, key=lambda arm: arm != BASELINE)
    start = 0 if BASELINE in arms else 1
    numbers = {arm: number for number, arm in enumerate(ordered, start=start)}
    simulated = any(p.simulated for j in verdict.series for p in j.points)
    return Page(
        kind="nightly",
        title=f"Nightly {verdict.suite}: {headline(verdict)}",
        subtitle=_subtitle(verdict),
        answer=tuple(_answer(verdict)),
        warnings=tuple(warnings(verdict)),
        series=tuple(numbers.items()),
        sections=(
            Section(anchor="glance", title="Every series", blocks=_glance(verdict)),
            Section(anchor="changes", title="What changed, and why", blocks=_changes(verdict)),
            Section(
                anchor="nights", title="Night by night", blocks=nights_blocks(verdict, numbers)
            ),
            Section(anchor="incidents", title="Incidents", blocks=incidents_blocks(verdict)),
            Section(
                anchor="environment", title="What was changed", blocks=environment_blocks(verdict)
            ),
            Section(
                anchor="failures", title="Nights without figures", blocks=failures_blocks(verdict)
            ),
        ),
        simulated=simulated,
    )


def _subtitle(verdict: NightlyVerdict) -> str:
    nights = len({p.night for j in verdict.series for p in j.points})
    return (
        f"{len(verdict.series)} series over {nights} nights · "
        f"judged {verdict.judged_at:%Y-%m-%d %H:%M} UTC"
    )


def _answer(verdict: NightlyVerdict) -> list[str]:
    groups = grouped(verdict.regressions)
    if groups:
        told = [f"{group_line(*group)}." for group in groups[:MOST_TOLD]]
        more = len(groups) - MOST_TOLD
        return told + ([f"{more} more are in the table below."] if more > 0 else [])
    wanted = max((j.nights_wanted for j in verdict.series), default=0)
    if wanted and all(j.noise is None for j in verdict.series):
        return [f"Not enough yet: the first verdict takes {wanted} more nights."]
    return ["No series is worse than before by more than its noise, but for what was expected."]


# --- every series


def _glance(verdict: NightlyVerdict) -> tuple[Block, ...]:
    if not verdict.series:
        return ("There is no series yet.",)
    table = Table(
        name="series",
        caption="The last change first; what a series can see is at even odds",
        columns=(
            Column(name="scenario", label="scenario", numeric=False),
            Column(name="workload", label="workload", numeric=False),
            Column(name="load", label="load"),
            Column(name="arm", label="arm", numeric=False),
            Column(name="metric", label="metric", numeric=False),
            Column(name="hardware", label="hardware", numeric=False),
            Column(name="state", label="state", numeric=False),
            Column(name="value", label="last night"),
            Column(name="level", label="level"),
            Column(name="last_change", label="last change"),
            Column(name="since", label="since", numeric=False),
            Column(name="noise", label="noise"),
            Column(name="seen_in_2_nights", label="sees in 2 nights"),
            Column(name="seen_in_7_nights", label="in 7"),
            Column(name="nights", label="nights"),
        ),
        rows=tuple(_series_row(judged) for judged in verdict.series),
    )
    return (table,)


def _series_row(judged: SeriesJudgement) -> tuple[Value, ...]:
    key, metric = judged.key, metric_of(judged.key.metric)
    last = judged.changes[-1] if judged.changes else None
    point = judged.points[-1]
    state = judged.state.value
    if judged.state is SeriesState.NOT_ENOUGH:
        state = f"{state}: {judged.nights_wanted} more nights"
    tool, colon, _ = key.metric.rpartition(":")
    return (
        text(key.scenario),
        text(key.workload),
        Value(text=key.load, raw=load_order(key.load)[1]),
        text(key.arm),
        text(f"{tool}{colon}{' ' if tool else ''}{metric.label}"),
        text(key.hardware),
        text(state, tone=_TONES.get(judged.state, "")),
        figure_number(point.value, metric.digits, tone="warn" if point.suspect else ""),
        figure_number(judged.levels[-1].value if judged.levels else None, metric.digits),
        _change_value(last),
        text(None if last is None else last.night.isoformat()),
        _plus_minus(judged.noise),
        _plus_minus(judged.seen_in_2_nights),
        _plus_minus(judged.seen_in_7_nights),
        figure_number(len(judged.points), 0),
    )


def _change_value(change: ChangePoint | None) -> Value:
    if change is None:
        return Value(text="–", raw=None)
    tone = "" if change.ack else "bad" if change.worse else "good"
    return Value(text=percent(change.ln_change), raw=change.ln_change, tone=tone)


def _plus_minus(value: float | None) -> Value:
    return Value(text="–" if value is None else f"±{100 * value:.2f} %", raw=value)


# --- what changed


def _changes(verdict: NightlyVerdict) -> tuple[Block, ...]:
    every = sorted(
        (c for j in verdict.series for c in j.changes),
        key=lambda c: (c.night, c.key),
        reverse=True,
    )
    if not every:
        return ("Nothing has changed so far by more than the noise of its series.",)
    blocks: list[Block] = [
        _remark(change) for change, _ in grouped(verdict.regressions)[:MOST_TOLD]
    ]
    blocks.append(_change_table(every[:MOST_CHANGES]))
    if len(every) > MOST_CHANGES:
        blocks.append(f"{len(every) - MOST_CHANGES} older changes are left out here.")
    return tuple(blocks)


def _remark(change: ChangePoint) -> Remark:
    why = change.attribution
    fields = why.fields[:MOST_FIELDS] if why else ()
    told = "; ".join(f"{f.name}: {f.before} → {f.after}" for f in fields)
    factors = _factor_words(change)
    key = change.key
    return Remark(
        tone="bad",
        title=f"{metric_of(key.metric).label} {percent(change.ln_change)} since {change.night}",
        where=f"{key.scenario}, {key.workload}, load {key.load}, {key.arm}, {key.hardware}",
        text=" ".join(
            filter(
                None,
                (
                    f"{CAUSES[why.cause].capitalize()}." if why else "",
                    factors,
                    f"Recorded there ({why.confidence}): {told}." if why and told else "",
                    f"Recorded change: {why.confidence}." if why and not told else "",
                ),
            )
        ),
        advice=f"bench nightly bisect SUITE {change.night} prints the commands that re-run old "
        f"against new; bench nightly ack {change.night} --reason … if it was expected.",
    )


def _factor_words(change: ChangePoint) -> str:
    why = change.attribution
    if why is None:
        return ""
    told = (
        ("accept length", why.accept_len),
        ("cycle", why.cycle),
        ("the rest", why.residual),
        ("baseline", why.baseline),
        ("speedup", why.speedup),
        ("SM clock", why.clock),
    )
    parts = [f"{name} {percent(f.ln_change)}" for name, f in told if f is not None]
    return f"Moved: {', '.join(parts)}." if parts else ""


def _change_table(changes: Sequence[ChangePoint]) -> Table:
    return Table(
        name="changes",
        caption="Every change; factors are marked where they moved by more than their noise",
        columns=(
            Column(name="night", label="since", numeric=False),
            Column(name="scenario", label="scenario", numeric=False),
            Column(name="workload", label="workload", numeric=False),
            Column(name="load", label="load"),
            Column(name="arm", label="arm", numeric=False),
            Column(name="metric", label="metric", numeric=False),
            Column(name="kind", label="kind", numeric=False),
            Column(name="ln_change", label="change"),
            Column(name="half_width", label="±"),
            Column(name="accept_len", label="accept length"),
            Column(name="cycle", label="cycle"),
            Column(name="residual", label="the rest"),
            Column(name="baseline", label="baseline"),
            Column(name="cause", label="cause", numeric=False),
            Column(name="recorded", label="recorded there", numeric=False),
            Column(name="stands", label="now", numeric=False),
        ),
        rows=tuple(_change_row(change) for change in changes),
    )


def _change_row(change: ChangePoint) -> tuple[Value, ...]:
    why, key = change.attribution, change.key
    recorded = None
    if why is not None:
        names = ", ".join(f.name for f in why.fields[:3] if f.fits)
        recorded = f"{names} ({why.confidence})" if names else why.confidence
    return (
        text(change.night.isoformat()),
        text(key.scenario),
        text(key.workload),
        Value(text=key.load, raw=load_order(key.load)[1]),
        text(key.arm),
        text(metric_of(key.metric).label),
        text(change.kind.value),
        _change_value(change),
        _plus_minus(change.half_width),
        _factor(why.accept_len if why else None),
        _factor(why.cycle if why else None),
        _factor(why.residual if why else None),
        _factor(why.baseline if why else None),
        text(why.cause.value.replace("_", " ") if why else None),
        text(recorded),
        text(_stands(change)),
    )


def _factor(factor: Factor | None) -> Value:
    if factor is None:
        return Value(text="–", raw=None)
    return Value(
        text=percent(factor.ln_change), raw=factor.ln_change, tone="warn" if factor.moved else ""
    )


def _stands(change: ChangePoint) -> str:
    if change.ack is not None:
        return f"expected by {change.ack.by}: {change.ack.reason}"
    if not change.worse:
        return "better"
    return "stands" if change.standing else "made up for"
