"""A server whose GPUs spin without a token ends its cell, which says why."""

import dataclasses
from contextlib import asynccontextmanager
from types import SimpleNamespace

import pytest
from bench_stand_ins import begin

from bench import clock
from bench.model import FindingKind, Severity, TelemetryPoint
from bench.runner import lost, run
from bench.runner.lost import SPUN_S, Patience
from bench.store import load_run

S = 1_000_000_000
SILENT = SimpleNamespace(output_tok_per_s=0.0, in_flight=4)


@pytest.fixture
def at(monkeypatch):
    """Set the clock to so many seconds."""
    now = SimpleNamespace(ns=1000 * S)
    monkeypatch.setattr(clock, "now_ns", lambda: now.ns)

    def set_to(seconds):
        now.ns = 1000 * S + round(seconds * S)

    return set_to


def readings(*, power_w=140.0, until_s=SPUN_S, gpus=2):
    return [
        TelemetryPoint(t_ns=1000 * S + k * S, source=source, name=name, rank=gpu, value=value)
        for k in range(round(until_s) + 1)
        for gpu in range(gpus)
        for source, name, value in [
            ("server", "sglang:num_running_reqs", 4.0),
            ("gpu", "utilisation_pct", 100.0),
            ("gpu", "power_w", power_w),
            ("gpu", "power_limit_w", 700.0),
            ("gpu", "memory_used_bytes", 31 * 2.0**30),
        ]
    ]


def spun(at, points, progress=SILENT, *, seconds=SPUN_S):
    at(0)
    patience = Patience(points)
    for second in range(1, round(seconds) + 1):
        at(second)
        patience.heard(progress)
    return patience.spun()


def test_gpus_that_spin_without_a_token_are_told(at):
    assert spun(at, readings())


@pytest.mark.parametrize(
    "more",
    [
        {"points": readings(power_w=500.0)},
        {"points": readings(until_s=40)},
        {"points": []},
        {"points": readings(), "seconds": SPUN_S - 5},
        {"points": readings(), "progress": SimpleNamespace(output_tok_per_s=3.0, in_flight=4)},
        {"points": readings(), "progress": SimpleNamespace(output_tok_per_s=None, in_flight=4)},
        {"points": readings(), "progress": SimpleNamespace(output_tok_per_s=0.0, in_flight=0)},
    ],
)
def test_work_a_token_idleness_and_what_is_not_watched_are_no_spin(at, more):
    assert not spun(at, **more)


async def test_a_cell_whose_server_spins_ends_with_the_finding(tmp_path, world, monkeypatch):
    """The load would never end: what ends it is the watch."""
    monkeypatch.setattr(lost.Patience, "spun", lambda _: True)

    async def never(_cell):
        await clock.sleep_ns(10**15)

    def stuck(cell):
        now_ns = clock.now_ns()
        return [
            dataclasses.replace(s, sent_ns=now_ns - 130 * S, ended_ns=now_ns, event_ns=())
            for s in made(cell)
        ]

    def spinning(_base_url, **_rest):
        begun = clock.now_ns() - 140 * S
        return [
            dataclasses.replace(p, t_ns=p.t_ns - 1000 * S + begun)
            for p in readings(until_s=140, gpus=8)
        ]

    made, world.samples, world.loads = world.samples, stuck, never
    watch, start = world.watch, world.start_server

    @asynccontextmanager
    async def watched(base_url, **rest):
        async with watch(base_url, **rest) as points:
            points.extend(spinning(base_url))
            yield points

    async def started(*arguments, **more):
        server = await start(*arguments, **more)
        server.effective = dataclasses.replace(server.effective, simulated=False)
        return server

    monkeypatch.setattr("bench.runner.measuring.watch", watched)
    monkeypatch.setattr("bench.runner.measuring.start_server", started)
    plan, writer = begin(tmp_path, only=("arm=baseline", "load=1"))
    stored = load_run(await run(plan, writer))
    [told] = [f for f in stored.findings if f.kind is FindingKind.GPU_SPIN_HANG]
    assert told.severity is Severity.INVALID
    assert "full utilisation" in told.message
