"""Nights with a known truth: what happened when, and the history that a suite would have of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta

import numpy as np

from bench.clock import utc_now
from bench.metrics.watched import METRICS
from bench.model.nightly import NightFailure, Point, SeriesKey
from bench.nightly.history import History, fingerprint_of
from bench.nightly.judge import Watch, judge

FIRST = date(2026, 1, 1)
HARDWARE = "8x NVIDIA H200"
FACTS = {
    "gpus.driver": "570.10",
    "kernel": "Linux 6.8.0",
    "packages.nvidia-nccl-cu12": "2.27.3",
    "server: version": "0.5.22",
    "server: attention_backend": "fa3",
    "draft.weights": "aaaa",
    "work: asked of chat, load 8": "k1",
}


@dataclass(frozen=True, kw_only=True)
class Event:
    """What happened from one night on, in ln; `until` is the first night without it."""

    night: int
    until: int | None = None
    accept: float = 0.0
    step: float = 0.0  # of baseline and cycle alike: positive is slower
    cycle: float = 0.0  # of the cycle alone
    residual: float = 0.0
    facts: dict = field(default_factory=dict)


def key(arm="eagle3", metric="output_tok_per_s", **more):
    named = {"scenario": "kimi", "workload": "chat", "load": "8", "hardware": HARDWARE}
    return SeriesKey(arm=arm, metric=metric, **{**named, **more})


def points(
    events,
    *,
    nights,
    noise=0.006,
    missing=(),
    odd=(),
    seed=0,
    scenario="kimi",
    simulated=False,
):
    """(points, {fingerprint: facts}) of an arm and the baseline at one place, night by night.

    What a night is as a whole (its heat, say) is in both arms; it is half of the noise.
    """
    rng = np.random.default_rng(seed)
    rows, environments = [], {}
    for night in range(nights):
        shared, own_base, own_arm, own_accept = rng.normal(0, noise / 2, 4)
        if night in missing:
            continue
        live = [e for e in events if e.night <= night and (e.until is None or night < e.until)]
        facts = dict(FACTS)
        for event in events:
            if event.night <= night:
                facts |= event.facts
        environments[fingerprint_of(facts)] = facts
        step = sum(e.step for e in live) + shared + own_base + (0.15 if night in odd else 0)
        accept = np.log(2.4) + sum(e.accept for e in live) + own_accept / 4
        cycle = np.log(24) + step - own_base + own_arm + sum(e.cycle for e in live)
        residual = sum(e.residual for e in live)
        base = np.log(1000 / 10.5) - step
        arm = accept + np.log(1000) - cycle + residual
        values = {
            ("baseline", "output_tok_per_s"): base,
            ("baseline", "cycle_ms"): np.log(1000) - base,
            ("eagle3", "output_tok_per_s"): arm,
            ("eagle3", "accept_len_tok"): accept,
            ("eagle3", "cycle_ms"): cycle,
            ("eagle3", "speedup"): arm - base,
        }
        at = datetime.combine(FIRST, time(2), tzinfo=UTC) + timedelta(days=night)
        rows += [
            Point(
                key=key(arm=name, metric=metric, scenario=scenario),
                night=at.date(),
                at=at,
                value=float(np.exp(value)),
                suspect=False,
                simulated=simulated,
                fingerprint=fingerprint_of(facts),
                source="bench",
                source_id=f"run-{scenario}-{night}",
            )
            for (name, metric), value in values.items()
        ]
    return rows, environments


def history(rows, environments, *, acks=(), failures=()):
    series = {}
    for point in rows:
        series.setdefault(point.key, []).append(point)
    return History(
        folder=None,
        entries=(),
        series={k: tuple(v) for k, v in series.items()},
        facts=environments,
        failures=tuple(failures),
        acks=tuple(acks),
        damaged=(),
    )


def night(number):
    return FIRST + timedelta(days=number)


DRIVER, DRAFT, NCCL, DEFAULT, HOT, COOL = 25, 50, 75, 100, 125, 139
HALF_YEAR = (
    Event(night=DRIVER, step=0.04, facts={"gpus.driver": "575.20"}),
    Event(night=DRAFT, accept=-0.06, facts={"draft.weights": "bbbb"}),
    Event(night=NCCL, cycle=0.05, facts={"packages.nvidia-nccl-cu12": "2.28.9"}),
    Event(
        night=DEFAULT,
        step=0.03,
        facts={"server: version": "0.5.23", "server: attention_backend": "trtllm"},
    ),
    Event(night=HOT, until=COOL, step=0.05),
)
MISSING = (60, 61, 62)
ODD = 90


def judged_half_year(*, nights=180, seed=0, name="kimi"):
    """The verdict of half a year with everything that happens in one."""
    rows = points(HALF_YEAR, nights=nights, missing=MISSING, odd=(ODD,), seed=seed, scenario=name)
    failures = [NightFailure(night=night(n), scenario=name, reason=name) for n in MISSING]
    watch = Watch(suite=name, metrics=tuple(METRICS))
    return judge(history(*rows, failures=failures), watch, judged_at=utc_now())
