"""A verdict for machines and mailboxes: JSON, JSON lines, Markdown, a webhook."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from bench.errors import InputError, MachineError
from bench.http import open_session
from bench.metrics.change_words import group_line, grouped, headline, warnings
from bench.model.nightly import SeriesState

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.model.nightly import ChangePoint, Factor, NightlyVerdict, SeriesJudgement

MOST_TOLD = 20
WEBHOOK_S = 10.0


def verdict_json(verdict: NightlyVerdict) -> dict[str, Any]:
    """A verdict as plain JSON data, without its points."""
    regressions = verdict.regressions
    return {
        "suite": verdict.suite,
        "newest": None if verdict.newest is None else verdict.newest.isoformat(),
        "judged_at": verdict.judged_at.isoformat(),
        "regression": bool(regressions),
        "states": {
            state.value: count
            for state in SeriesState
            if (count := sum(judged.state is state for judged in verdict.series))
        },
        "regressions": [_change_json(change) for change in regressions],
        "failures": [
            {"night": f.night.isoformat(), "scenario": f.scenario, "reason": f.reason}
            for f in verdict.failures
        ],
        "damaged": [{"file": path, "reason": why} for path, why in verdict.damaged],
        "warnings": warnings(verdict),
    }


def series_lines(verdict: NightlyVerdict) -> Iterator[dict[str, Any]]:
    """A line a series, for JSONL."""
    for judged in verdict.series:
        yield {"suite": verdict.suite, **_key_json(judged), **_series_json(judged)}


def _key_json(judged: SeriesJudgement) -> dict[str, Any]:
    key = judged.key
    return {
        "scenario": key.scenario,
        "workload": key.workload,
        "load": key.load,
        "arm": key.arm,
        "metric": key.metric,
        "hardware": key.hardware,
    }


def _series_json(judged: SeriesJudgement) -> dict[str, Any]:
    last, level = judged.points[-1], judged.levels[-1] if judged.levels else None
    return {
        "state": judged.state.value,
        "nights": len(judged.points),
        "nights_wanted": judged.nights_wanted,
        "night": last.night.isoformat(),
        "value": last.value,
        "suspect": last.suspect,
        "simulated": last.simulated,
        "level": None if level is None else level.value,
        "noise": judged.noise,
        "seen_in_2_nights": judged.seen_in_2_nights,
        "seen_in_7_nights": judged.seen_in_7_nights,
        "margin": judged.margin,
        "changes": [_change_json(change) for change in judged.changes],
        "incidents": [
            {
                "night": i.night.isoformat(),
                "nights": i.nights,
                "ln_change": i.ln_change,
                "ended": i.ended,
            }
            for i in judged.incidents
        ],
    }


def _change_json(change: ChangePoint) -> dict[str, Any]:
    why = change.attribution
    return {
        "series": change.key.label,
        "metric": change.key.metric,
        "kind": change.kind.value,
        "night": change.night.isoformat(),
        "night_before": change.night_before.isoformat(),
        "nights": change.nights,
        "suspect_nights": change.suspect_nights,
        "ln_change": change.ln_change,
        "half_width": change.half_width,
        "worse": change.worse,
        "standing": change.standing,
        "ack": None if change.ack is None else {"reason": change.ack.reason, "by": change.ack.by},
        "cause": None if why is None else why.cause.value,
        "confidence": None if why is None else why.confidence,
        "factors": None
        if why is None
        else {
            name: _factor_json(getattr(why, name))
            for name in ("accept_len", "cycle", "residual", "baseline", "speedup", "clock")
        },
        "fields": []
        if why is None
        else [
            {
                "name": f.name,
                "before": f.before,
                "after": f.after,
                "nights_off": f.nights_off,
                "fits": f.fits,
            }
            for f in why.fields
        ],
    }


def _factor_json(factor: Factor | None) -> dict[str, Any] | None:
    if factor is None:
        return None
    return {
        "ln_change": factor.ln_change,
        "half_width": factor.half_width,
        "moved": factor.moved,
    }


def summary_markdown(verdict: NightlyVerdict) -> str:
    """A verdict for a page that renders Markdown, such as GitHub's step summary."""
    groups = grouped(verdict.regressions)
    lines = [f"### Nightly {_plain(verdict.suite)}: {headline(verdict)}", ""]
    lines += [f"- {_plain(group_line(*group))}" for group in groups[:MOST_TOLD]]
    if len(groups) > MOST_TOLD:
        lines.append(f"- and {len(groups) - MOST_TOLD} more")
    lines += [f"- {_plain(warning)}" for warning in warnings(verdict)[:MOST_TOLD]]
    counts = [
        (state.value, sum(judged.state is state for judged in verdict.series))
        for state in SeriesState
    ]
    lines += ["", "| state | series |", "|---|---:|"]
    lines += [f"| {state} | {count} |" for state, count in counts if count]
    return "\n".join(lines) + "\n"


def _plain(text: str) -> str:
    """Text that Markdown leaves as it is."""
    flat = " ".join(text.split())
    return "".join(f"\\{c}" if c in r"\`*_{}[]<>|#" else c for c in flat)


def post(url: str, body: object) -> None:
    """Send JSON to a webhook.

    Raises:
        InputError: It is no http(s) address.
        MachineError: It could not be reached, or did not take it.
    """
    asyncio.run(_post(url, body))


async def _post(url: str, body: object) -> None:
    import aiohttp  # noqa: PLC0415  # loads only where there is a webhook
    from yarl import URL  # noqa: PLC0415

    address = URL(url)
    if address.scheme not in {"http", "https"} or not address.host:
        raise InputError("the webhook is no http:// or https:// address.")
    try:
        async with (
            asyncio.timeout(WEBHOOK_S),
            open_session(str(address.origin())) as session,
            session.post(address.raw_path_qs.lstrip("/"), json=body) as answer,
        ):
            if answer.status >= 400:
                raise MachineError(f"the webhook answered with HTTP status {answer.status}.")
    except (aiohttp.ClientError, OSError, TimeoutError) as error:
        reason = str(error) or type(error).__name__
        raise MachineError(f"the webhook could not be reached: {reason}") from error
