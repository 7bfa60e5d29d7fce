"""Why readings are missing reaches the findings of a cell."""

from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
from bench_stand_ins import begin

from bench.model import FindingKind
from bench.runner import run
from bench.store import load_run
from bench.telemetry import Readings


@pytest.fixture
def unread(world, monkeypatch):
    """Set what cannot be read, and why."""

    def make(*, metrics=None, gpus=None, unseen=None):
        @asynccontextmanager
        async def watch(_base_url, **asked):
            readings = Readings()
            world.asked = asked
            yield readings
            readings.missing_reason, readings.gpu_missing_reason = metrics, gpus

        async def start_server(*arguments, **more):
            server = await world.start_server(*arguments, **more)
            server.effective = replace(server.effective, simulated=False)
            server.gpus_unseen = unseen
            server.worker_urls = ("http://w:1",)
            return server

        monkeypatch.setattr("bench.runner.measuring.watch", watch)
        monkeypatch.setattr("bench.runner.measuring.start_server", start_server)

    return make


async def told(tmp_path):
    plan, writer = begin(tmp_path, only=("arm=baseline", "load=1"))
    stored = load_run(await run(plan, writer))
    return [f.message for f in stored.findings if f.kind is FindingKind.TELEMETRY_MISSING]


async def test_reasons_of_server_and_gpus_are_told(tmp_path, unread, world):
    unread(metrics="the server has no /metrics", gpus="ssh ended with status 255")
    metrics, gpus = await told(tmp_path)
    assert "could not be read (the server has no /metrics)" in metrics
    assert "could not be watched (ssh ended with status 255)" in gpus
    assert world.asked["worker_urls"] == ("http://w:1",)


async def test_gpus_that_nobody_asked_for_have_a_reason_too(tmp_path, unread):
    unread(unseen="the launcher has no gpu_watch command")
    metrics, gpus = await told(tmp_path)
    assert "could not be read: queueing" in metrics
    assert "could not be watched (the launcher has no gpu_watch command)" in gpus
