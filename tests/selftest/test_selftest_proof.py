"""What a plan needs, what is proven, what is remembered, and how many workers there are."""

import asyncio
import dataclasses
import os
import sys

import pytest

from bench.load.cores import keep_off
from bench.model import ClientStats, Load
from bench.selftest import examining, proof
from bench.selftest.accuracy import accuracy
from bench.selftest.examining import examine
from bench.selftest.need import DEFAULT, MOST_WORKERS, Need, need_of, workers_for
from bench.selftest.proof import Proof, prove, recall, remember
from bench.selftest.serving import Pace
from bench.selftest.trial import TrialResult, paced, scheduled

NEED = Need(streams=16, event_per_s=1000.0)


def result(*, is_right=True, workers=1):
    none = accuracy([], [], Pace(), is_open=False)
    faulty = dataclasses.replace(none, ttft_error_mean_ms=5.0)
    return TrialResult(
        accuracy=none if is_right else faulty,
        client=ClientStats(
            send_late_p50_ms=0.0,
            send_late_p99_ms=0.0,
            loop_lag_p99_ms=0.0,
            cpu_share=0.1,
            events_per_s=1000.0,
            max_in_flight=16,
            workers=workers,
        ),
        event_per_s=1000.0,
        cpu_us_per_event=10.0,
        is_compiled=True,
    )


def event_per_s(asked):
    return asked.load.concurrency / asked.pace.interval_us * 1e6


@pytest.fixture
def good_up_to(monkeypatch, tmp_path):
    """A client that is exact up to a load, and the loads that were tried."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    tried = []

    def make(limit):
        async def run_trial(asked, *, workers):
            if not asked.pace.interval_us or asked.load.kind != "closed":
                return result(workers=workers)
            tried.append(round(event_per_s(asked)))
            return result(is_right=event_per_s(asked) <= limit * 1.001, workers=workers)

        for module in (proof, examining):
            monkeypatch.setattr(module, "run_trial", run_trial)
        return tried

    return make


async def test_a_proof_is_made_once(good_up_to):
    tried = good_up_to(5000)
    made = await prove(NEED, workers=1)
    assert (made.event_per_s, made.is_new, made.faults) == (1000, True, ())
    again = await prove(NEED, workers=1)
    assert again == dataclasses.replace(made, is_new=False)
    assert tried == [1000]


async def test_more_streams_events_or_workers_need_another(good_up_to):
    tried = good_up_to(5000)
    await prove(NEED, workers=1)
    await prove(dataclasses.replace(NEED, event_per_s=2000.0), workers=1)
    await prove(dataclasses.replace(NEED, streams=32), workers=1)
    await prove(NEED, workers=2)
    assert len(tried) == 4


async def test_a_load_that_is_too_much_is_tried_twice_then_less(good_up_to):
    tried = good_up_to(400)
    made = await prove(NEED, workers=1)
    assert tried == [1000, 1000, 400]
    assert made.event_per_s == 400
    assert made.faults == ("TTFT off by 5.00 ms",)


async def test_a_client_that_is_never_exact_is_proven_for_nothing(good_up_to):
    good_up_to(0)
    made = await prove(NEED, workers=1)
    assert (made.event_per_s, made.cpu_us_per_event) == (0, None)
    assert recall(1) is None


def test_the_better_proof_is_kept(good_up_to):
    good_up_to(0)
    best = Proof(event_per_s=5000.0, streams=64, workers=1, cpu_us_per_event=9.0)
    remember(best)
    remember(dataclasses.replace(best, event_per_s=100.0))
    assert recall(1) == dataclasses.replace(best, is_new=False)


@pytest.mark.parametrize("text", ["", "[]", "{", '{"KEY": {"event_per_s": 1}}'])
def test_a_damaged_memory_is_none(text, good_up_to):
    good_up_to(0)
    proof._path().write_text(text.replace("KEY", proof._key(1)))
    assert recall(1) is None


async def test_the_ladder_goes_up_to_the_first_load_that_is_wrong(good_up_to):
    good_up_to(2000)
    found = await examine(NEED, workers=1)
    assert found.proven_event_per_s == 1500
    assert found.refused_event_per_s == 2250
    assert found.is_good_enough
    assert found.is_remembered
    assert recall(1).event_per_s == 1500


async def test_what_cannot_be_kept_is_not_said_to_be(good_up_to, tmp_path, monkeypatch):
    good_up_to(2000)
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    found = await examine(NEED, workers=1)
    assert found.is_good_enough
    assert not found.is_remembered


async def test_the_ladder_goes_down_to_the_first_load_that_is_right(good_up_to):
    good_up_to(500)
    found = await examine(NEED, workers=1)
    assert found.proven_event_per_s == pytest.approx(1000 / 2.25)
    assert found.refused_event_per_s == pytest.approx(1000 / 1.5)
    assert not found.is_good_enough


def test_a_load_that_needs_more_streams_has_them():
    assert paced(streams=8, event_per_s=20_000, seconds=1).load.concurrency == 20
    asked = paced(streams=64, event_per_s=6400, seconds=1)
    assert (asked.load.concurrency, asked.pace.interval_us) == (64, 10_000)
    assert asked.requests * asked.output_tok == 6400


def test_an_open_load_brings_what_is_asked():
    asked = scheduled(rate_per_s=20, event_per_s=400, seconds=2)
    assert asked.load == Load(kind="open", rate_per_s=20)
    assert (asked.requests, asked.output_tok) == (40, 20)


def test_no_launch_needs_the_default():
    assert need_of([]) == DEFAULT


def test_workers_follow_the_load_and_leave_cores_to_the_server(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(64)))
    assert [workers_for(x) for x in (1.0, 30_000.0, 100_000.0)] == [1, 1, 3]
    assert workers_for(100_000.0, cpu_us_per_event=5.0) == 1
    assert workers_for(1e9) == MOST_WORKERS
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    assert workers_for(1e9) == 1


SPIN = "import os, sys\nos.sched_setaffinity(0, {int(sys.argv[1])})\nprint()\nwhile True: pass"
REST = "import time\nprint()\ntime.sleep(60)"


async def started(*argv):
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-uc", *argv, stdout=asyncio.subprocess.PIPE
    )
    await process.stdout.readline()
    return process


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two processors")
async def test_workers_are_bound_to_processors_that_the_server_leaves():
    core = min(os.sched_getaffinity(0))
    server, worker = await started(SPIN, str(core)), await started(REST)
    try:
        free = await keep_off(server.pid, [worker.pid])
        assert free == os.sched_getaffinity(0) - {core}
        assert os.sched_getaffinity(worker.pid) == free
    finally:
        for process in (server, worker):
            process.kill()
            await process.wait()


async def test_workers_are_free_where_the_server_uses_no_processor_to_speak_of():
    server, worker = await started(REST), await started(REST)
    try:
        assert await keep_off(server.pid, [worker.pid]) is None
        assert os.sched_getaffinity(worker.pid) == os.sched_getaffinity(0)
    finally:
        for process in (server, worker):
            process.kill()
            await process.wait()
