"""`bench selftest` as it is printed, for an examination that is given."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from bench.cli.commands import app
from bench.model import ClientStats
from bench.selftest import examining
from bench.selftest.accuracy import accuracy
from bench.selftest.examining import Examination
from bench.selftest.serving import Pace
from bench.selftest.trial import TrialResult

SCENARIO = Path(__file__).parents[2] / "scenarios" / "quick.yaml"


def trial(event_per_s, *, is_compiled=True):
    return TrialResult(
        accuracy=accuracy([], [], Pace(), is_open=False),
        client=ClientStats(
            send_late_p50_ms=0.0,
            send_late_p99_ms=0.0,
            loop_lag_p99_ms=1.0,
            cpu_share=0.1,
            events_per_s=event_per_s,
            max_in_flight=8,
            events_per_read=1.25,
        ),
        event_per_s=event_per_s,
        cpu_us_per_event=12.34,
        is_compiled=is_compiled,
        why_not_compiled=None if is_compiled else "no C compiler was found",
    )


@pytest.fixture
def selftest(monkeypatch):
    """The command, with what its examination found in place of one."""

    def run(*words, proven=8000.0, refused=None, is_compiled=True, is_remembered=True):
        asked = {}

        async def examine(need, *, workers, on_step):
            asked.update(need=need, workers=workers)
            on_step("something")
            return Examination(
                need=need,
                workers=workers,
                at_need=trial(5000.0, is_compiled=is_compiled),
                at_rate=trial(400.0),
                at_most=trial(80_000.0),
                light=trial(400.0),
                proven_event_per_s=proven,
                refused_event_per_s=refused,
                faults=("TTFT off by 1.50 ms",) if refused else (),
                is_remembered=is_remembered,
            )

        monkeypatch.setattr(examining, "examine", examine)
        done = CliRunner().invoke(app, ["selftest", *words], catch_exceptions=False)
        assert done.exit_code == 0
        assert "trying something" in done.stderr
        return done.stdout, asked

    return run


def test_what_it_is_good_for_is_said_in_words(selftest):
    out, asked = selftest()
    assert asked["need"].streams == 64
    assert "Errors stay under 1 ms and 1 % up to 8000 events/s." in out
    assert "GOOD ENOUGH" in out
    assert "12.3" in out


def test_a_load_that_is_not_proven_is_said_with_its_faults(selftest):
    out, _ = selftest(proven=None, refused=5000.0, is_compiled=False)
    assert "At 5000 events/s: TTFT off by 1.50 ms." in out
    assert "NOT PROVEN" in out
    assert "ran in Python (no C compiler was found)" in out


def test_a_proof_that_cannot_be_kept_is_said(selftest):
    assert "No later run" not in selftest()[0]
    assert "No later run" in selftest(is_remembered=False)[0]
    assert "No later run" not in selftest(is_remembered=False, proven=None)[0]


def test_the_same_as_json(selftest):
    found = json.loads(selftest("--json", "--workers", "3", refused=9000.0)[0])
    assert found["workers"] == 3
    assert found["proven_event_per_s"] == 8000
    assert found["is_good_enough"] is True
    assert found["ground_truth_server"] == "c"
    assert found["at_most"]["event_per_s"] == 80_000
    assert found["faults"] == ["TTFT off by 1.50 ms"]


def test_a_scenario_says_what_is_needed(selftest):
    _, asked = selftest(str(SCENARIO))
    assert asked["need"].streams == 8
    assert 1000 < asked["need"].event_per_s < 10_000
