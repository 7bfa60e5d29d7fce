"""The ground-truth server, in C and in Python, and what the client records of it."""

import os
import shutil
import stat
from pathlib import Path

import pytest

from bench.model import Api, Load, RequestStatus
from bench.selftest import building
from bench.selftest import trial as trials
from bench.selftest.building import cache_folder, truth_command
from bench.selftest.serving import Pace
from bench.selftest.trial import Trial, record_trial

needs_compiler = pytest.mark.skipif(
    not any(map(shutil.which, ("cc", "gcc", "clang"))), reason="no C compiler"
)
SLOW = Pace(ttft_us=5000, interval_us=2000, tok_per_event=3)
FAST = Pace()


def closed(pace, *, streams=4, requests=8, tokens=10):
    load = Load(kind="closed", concurrency=streams)
    return Trial(load=load, requests=requests, output_tok=tokens, pace=pace)


def check(record, *, requests, tokens, events):
    assert [s.status for s in record.samples] == [RequestStatus.OK] * requests
    assert [answer.index for answer in record.answers] == list(range(requests))
    assert {answer.output_tok for answer in record.answers} == {tokens}
    for sample, answer in zip(record.samples, record.answers, strict=True):
        assert sample.output_tok == tokens
        assert len(sample.event_ns) == len(answer.event_ns) == events
        assert sample.sent_ns < answer.received_ns < answer.event_ns[0]
        written_first = zip(answer.event_ns, sample.event_ns, strict=True)
        assert all(written <= read for written, read in written_first)


@needs_compiler
@pytest.mark.parametrize(("pace", "events"), [(SLOW, 4), (FAST, 10)])
async def test_the_client_reads_what_the_server_in_c_wrote(pace, events):
    record = await record_trial(closed(pace), workers=1)
    assert record.is_compiled
    check(record, requests=8, tokens=10, events=events)


@pytest.mark.usefixtures("no_compiler")
@pytest.mark.parametrize(("pace", "events"), [(SLOW, 4), (FAST, 10)])
async def test_without_a_compiler_one_in_python_serves(pace, events):
    record = await record_trial(closed(pace), workers=1)
    assert not record.is_compiled
    check(record, requests=8, tokens=10, events=events)


@pytest.mark.parametrize("api", list(Api))
@pytest.mark.parametrize("usage", [True, False])
@pytest.mark.parametrize("compiled", [pytest.param(True, marks=needs_compiler), False])
async def test_every_api_is_served(api, usage, compiled, monkeypatch, request):
    if not compiled:
        request.getfixturevalue("no_compiler")
    monkeypatch.setattr(trials, "Api", type("Asked", (), {"CHAT": api}))
    pace = Pace(tok_per_event=2, usage_on_events=usage)
    record = await record_trial(closed(pace, tokens=7), workers=1)
    assert record.is_compiled is compiled
    check(record, requests=8, tokens=7, events=4)


@needs_compiler
async def test_events_are_never_written_before_they_are_due():
    record = await record_trial(closed(SLOW, tokens=30), workers=1)
    for answer in record.answers:
        for place, written_ns in enumerate(answer.event_ns):
            assert written_ns >= answer.received_ns + 5_000_000 + place * 2_000_000


@needs_compiler
def test_it_is_compiled_once_into_a_private_folder():
    first = truth_command()
    program = first.argv[0]
    made = Path(program).stat().st_mtime_ns
    assert truth_command() == first
    assert Path(program).stat().st_mtime_ns == made
    assert stat.S_IMODE(cache_folder().stat().st_mode) == 0o700


@needs_compiler
def test_a_cache_that_others_may_write_is_not_trusted(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    cache_folder().chmod(0o777)
    command = truth_command()
    assert command.is_compiled
    assert not Path(command.argv[0]).is_relative_to(tmp_path)


@needs_compiler
def test_where_no_program_may_be_run_python_serves(monkeypatch):
    def may_be_run(path, mode):  # as where mounted noexec
        return "truth_server-" not in str(path) and access(path, mode)

    access = os.access
    monkeypatch.setattr(building.os, "access", may_be_run)
    command = truth_command()
    assert not command.is_compiled
    assert "no program may be run from" in command.why_not


def test_a_broken_compiler_is_none(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("CC", "false")
    command = truth_command()
    assert not command.is_compiled
    assert "could not be compiled" in command.why_not
