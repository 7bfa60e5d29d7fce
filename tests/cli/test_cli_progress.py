"""The live line and the time left."""

from dataclasses import replace
from pathlib import Path

import pytest
from bench_command import TINY

from bench import clock
from bench.cli.output import Printer
from bench.cli.progress import Progress, TimeLeft
from bench.load.generator import Progress as LoadProgress
from bench.model import LaunchRecord
from bench.runner import (
    Asked,
    CellProgress,
    LaunchEnded,
    LaunchProgress,
    LaunchReady,
    LaunchStarting,
    plan_of,
)


@pytest.fixture(scope="module")
def plan():
    made, _ = plan_of(Asked(scenario=Path(TINY), simulated=True))
    return replace(
        made, launches=tuple(replace(launch, estimated_s=20.0) for launch in made.launches)
    )


@pytest.fixture
def terminal(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(Printer, "is_terminal", True)


def record_of(launch, **more):
    return LaunchRecord(
        launch_id="L00",
        ordinal=launch.ordinal,
        arm=launch.arm,
        pair=launch.pair,
        server_key="k",
        argv=(),
        started_ns=0,
        **more,
    )


def measuring(cell):
    progress = LoadProgress(
        done=3,
        total=9,
        in_flight=1,
        output_tok_per_s=215.4,
        accept_len_tok=2.758,
        phase="measuring",
    )
    return CellProgress(cell=cell, progress=progress)


def test_a_terminal_has_a_live_line(plan, terminal, capsys):
    launch = plan.launches[1]
    with Progress(plan, "run-1", finished=set(), quiet=False) as progress:
        progress.on_event(LaunchStarting(launch=launch, launches=2))
        progress.on_event(measuring(launch.cells[0]))
    live = capsys.readouterr().err
    assert "launch 2/2 eagle3, pair 0: starting the server" in live
    wanted = "eagle3 chat load 1: measuring 3/9, 215 tok/s, accept length 2.76, 40 s left"
    assert wanted in live


def test_a_log_line_is_no_markup_and_is_cut_to_the_terminal(plan, terminal, capsys):
    with Progress(plan, "run-1", finished=set(), quiet=False) as progress:
        progress.on_event(LaunchStarting(launch=plan.launches[0], launches=2))
        progress.on_event(LaunchProgress(text="[/red] [2026-11-29 12:00:00] loading " + "x" * 200))
    live = capsys.readouterr().err
    assert "[/red] [2026-11-29 12:00:00] load" in live
    assert "x" * 60 not in live
    assert "…" in live


def attached_plan(*urls):
    attach = tuple(zip(("baseline", "eagle3"), urls, strict=False))
    made, _ = plan_of(Asked(scenario=Path(TINY), attach=attach))
    return made


def test_servers_that_run_already_take_turns_and_are_not_launched(capsys):
    made = attached_plan("http://a:1", "http://b:2")
    with Progress(made, "run-1", finished=set(), quiet=False) as progress:
        for launch in made.launches:
            progress.on_event(LaunchStarting(launch=launch, launches=4))
        progress.on_event(LaunchEnded(record=record_of(made.launches[1], failure="gone")))
    beginning, *turns, failed = capsys.readouterr().err.splitlines()
    assert beginning.startswith("run-1: 4 cells on 2 running servers, about ")
    assert turns == [
        "turn 1/4 baseline: measuring the server at http://a:1",
        "turn 2/4 eagle3: measuring the server at http://b:2",
        "turn 3/4 eagle3: measuring the server at http://b:2",
        "turn 4/4 baseline: measuring the server at http://a:1",
    ]
    assert failed == "  eagle3 failed: gone"


def test_one_running_server_has_no_turns(capsys):
    made = attached_plan("http://a:1")
    with Progress(made, "run-1", finished=set(), quiet=False) as progress:
        progress.on_event(LaunchStarting(launch=made.launches[0], launches=1))
    assert capsys.readouterr().err.splitlines()[1:] == [
        "baseline: measuring the server at http://a:1"
    ]


def test_what_a_start_was_spent_on_is_told(plan, capsys):
    launch = plan.launches[0]
    ready = record_of(launch, ready_ns=600 * 10**9, load_s=300.0, capture_s=45.4)
    for is_simulated in (True, False):
        made = replace(plan, simulated=is_simulated)
        with Progress(made, "run-1", finished=set(), quiet=False) as progress:
            progress.on_event(LaunchReady(record=ready))
            progress.on_event(LaunchReady(record=replace(ready, load_s=None, capture_s=None)))
    told = [line for line in capsys.readouterr().err.splitlines() if "ready" in line]
    assert told == [
        "  ready after 10 min (weights 5 min, CUDA graphs 45 s)",
        "  ready after 10 min",
    ]


def test_elsewhere_there_is_no_live_line(plan, capsys):
    with Progress(plan, "run-1", finished=set(), quiet=False) as progress:
        progress.on_event(measuring(plan.launches[0].cells[0]))
    assert capsys.readouterr().err.splitlines() == [
        "run-1: 4 cells in 2 launches, about 40 s",
        "SIMULATED servers at 10× speed: nothing below was measured on hardware.",
    ]


def test_cells_of_a_failed_start_are_not_waited_for(plan, capsys):
    launch = plan.launches[0]
    record = record_of(launch, failure="no GPU")
    with Progress(plan, "run-1", finished=set(), quiet=False) as progress:
        progress.on_event(LaunchStarting(launch=launch, launches=2))
        progress.on_event(LaunchEnded(record=record))
        assert progress._left() == ", 20 s left"
    assert "  L00 failed: no GPU" in capsys.readouterr().err


class Watch:
    """A clock that is set."""

    def __init__(self, monkeypatch):
        self.now_s = 1000.0
        monkeypatch.setattr(clock, "monotonic_ns", lambda: int(self.now_s * 1e9))


def test_time_left_is_the_estimate_until_the_first_cell_then_what_it_took(plan, monkeypatch):
    watch = Watch(monkeypatch)
    cells = [cell.cell_id for launch in plan.launches for cell in launch.cells]
    time = TimeLeft(plan, set())
    assert time.left_s() == 40
    watch.now_s += 5
    assert time.left_s() == 35
    watch.now_s += 15  # the first cell took 20 s, 10 s were estimated
    time.finished(cells[0])
    assert time.left_s() == pytest.approx(30 * 21 / 11)
    watch.now_s += 1000
    assert time.left_s() == 0  # late, and never negative
    for cell_id in cells[1:]:
        time.finished(cell_id)
    assert time.left_s() is None


def test_time_left_of_a_resumed_run_is_that_of_the_missing_cells(plan, monkeypatch):
    watch = Watch(monkeypatch)
    cells = [cell.cell_id for launch in plan.launches for cell in launch.cells]
    time = TimeLeft(plan, set(cells[:3]))
    assert time.left_s() == 10
    watch.now_s += 10
    time.finished(cells[3])
    assert time.left_s() is None
