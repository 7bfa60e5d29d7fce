"""Ctrl-C, kill -9 and dying servers: nothing is left running, no finished cell is lost."""

import json
import os
import re
import shlex
import signal
import time

import pytest
from bench_command import TINY, Command, run_bench

ONE_ARM = ("--only", "arm=baseline")
LONG_CELLS = ("--set", "sim.measure.steady_s=3")  # about a second of the world each


def begin(tmp_path, *options):
    """A run that is in its second cell."""
    command = Command("run", TINY, "--sim", "--json", *LONG_CELLS, *options, cwd=tmp_path)
    command.wait_for("[1/")
    time.sleep(0.3)
    return command


def listed(tmp_path):
    code, out, _ = run_bench("list", "--json", cwd=tmp_path)
    assert code == 0
    (run,) = json.loads(out)["runs"]
    return run


def test_ctrl_c_stops_everything_and_the_command_it_tells_goes_on(tmp_path):
    command = begin(tmp_path, *ONE_ARM, "--out", "else where")
    command.process.send_signal(signal.SIGINT)
    code, out, err = command.end()
    assert (code, out) == (130, "")
    assert command.processes() == []
    assert "stopping: the cell in hand is given up" in err
    told = re.search(r"1 of 2 cells stored; `bench (resume .+)` measures the rest", err)[1]

    code, out, _ = run_bench("show", "--out", "else where", cwd=tmp_path)
    assert code == 0
    assert "This run was not finished (interrupted): 1 of 2 cells stored; missing: " in out
    assert "baseline chat load 2 pair 0" in out
    assert f"`bench {told}` measures the rest" in out

    code, out, err = run_bench(*shlex.split(told), "--json", cwd=tmp_path)
    assert code in {0, 4}
    assert "2 cells in 1 launch (1 cell finished already)" in err
    answer = json.loads(out)
    assert (answer["status"], len(answer["cells"])) == ("complete", 2)


def test_term_and_impatience_stop_as_well(tmp_path):
    command = begin(tmp_path)
    for number in (signal.SIGTERM, *[signal.SIGINT] * 4):
        command.process.send_signal(number)
        time.sleep(0.01)
    code, out, err = command.end()
    assert (code, out) == (130, "")
    assert "Traceback" not in err
    assert "1 of 4 cells stored; `bench resume" in err
    assert command.processes() == []


def test_kill_9_of_bench_leaves_no_process_and_no_finished_cell_is_lost(tmp_path):
    command = begin(tmp_path, *ONE_ARM)
    assert len(command.processes()) >= 3  # supervisor, server, load worker
    command.process.kill()
    assert command.end()[0] == -signal.SIGKILL
    assert command.leaves_nothing()
    run = listed(tmp_path)
    assert (run["status"], run["cells_finished"], run["pid"]) == ("interrupted", 1, None)
    code, out, _ = run_bench("resume", "latest", "--json", cwd=tmp_path)
    assert code in {0, 4}
    answer = json.loads(out)
    assert (answer["run"], len(answer["cells"])) == (run["run_id"], 2)
    assert "launch_split" in {finding["kind"] for finding in answer["findings"]}


@pytest.mark.parametrize(
    ("victim", "told"),
    [
        ("bench.simulator", "the server of L00-baseline-p0 ended (signal SIGKILL) at load 2"),
        ("bench.load.worker", "the load worker ended: exit status -9"),
    ],
)
def test_kill_9_of_a_part_costs_only_the_cell_in_hand(tmp_path, victim, told):
    command = begin(tmp_path, *ONE_ARM)
    os.kill(command.find(victim), signal.SIGKILL)
    code, out, err = command.end()
    assert code in {0, 4}
    assert told in err
    assert [cell["failed_ct"] for cell in json.loads(out)["cells"]] == [0, 0]
    assert command.processes() == []


def test_a_part_run_that_is_being_written_is_shown_and_not_resumed(tmp_path):
    command = begin(tmp_path, "--set", "sim.measure.steady_s=40")  # it must outlast two commands
    run_id = command.said.partition(":")[0]
    showing = Command("show", cwd=tmp_path)
    code, _, err = run_bench("resume", run_id, cwd=tmp_path)
    assert code == 2
    assert f"is being written by process {command.process.pid}" in err
    code, out, _ = showing.end()
    assert code == 0
    assert "This run is being written: " in out
    assert " of 4 cells finished so far; missing: " in out
    command.process.send_signal(signal.SIGINT)
    assert command.end()[0] == 130
