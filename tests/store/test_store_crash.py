"""kill -9 at any moment: the reader sees exactly the finished cells; the run can be completed."""

import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
import store_examples as ex

from bench.store import list_runs, load_run, load_samples, open_part_run

HERE = Path(__file__).parent
STEPS = {"open", "os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.scandir"}
WANTED = [(ex.launch_id(x.ordinal, x.arm), cell) for x in ex.plan(2).launches for cell in x.cells]
LAST_STEP = 200  # more than a run of two cells takes


class Killed(BaseException):
    """The writer is no more."""


class Disk:
    """Lets a writer do so many steps on the disk and none after that, as if it had been killed.

    An audit hook sees every opening, making, renaming and removing; it can be told to be quiet but
    never be removed.
    """

    def __init__(self):
        self.left = None
        sys.addaudithook(self)

    def __call__(self, event, _arguments):
        if self.left is None or event not in STEPS:
            return
        if self.left == 0:
            raise Killed
        self.left -= 1


@pytest.fixture(scope="module")
def disk():
    disk = Disk()
    yield disk
    disk.left = None


@pytest.fixture
def out(tmp_path):
    """A folder in memory where there is one: thousands of flushes would take long on a disk."""
    memory = Path("/dev/shm")
    if not os.access(memory, os.W_OK):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir=memory) as folder:
        yield Path(folder)


def write_until_killed(out, disk, steps):
    """Write a run; returns what had been said to be finished when the disk stopped."""
    said = []
    writer = None
    disk.left = steps
    try:
        writer = ex.begin(out, cells=2)
        for launch, cell in WANTED:
            ex.write(writer, cell, launch)
            said.append(cell.cell_id)
        writer.publish([], [ex.COMPARISON], [ex.SIMULATED])
        said.append("published")
    except Killed:
        pass
    finally:
        disk.left = None
        if writer is not None:
            writer.close()  # as the death of a process does
    return said


def completed(folder):
    """Take up what was left, complete and publish it."""
    if load_run(folder).published:
        return folder
    with open_part_run(folder) as writer:
        for launch, cell in WANTED:
            if cell.cell_id not in writer.finished_cells():
                ex.write(writer, cell, launch)
        return writer.publish([], [ex.COMPARISON], [ex.SIMULATED])


def assert_whole(folder):
    run = load_run(folder)
    assert run.published
    assert run.measurements == tuple(ex.measurement(cell, launch) for launch, cell in WANTED)
    assert load_samples(folder) == [sample for _, cell in WANTED for sample in ex.samples(cell)]
    assert run.comparisons == (ex.COMPARISON,)


def test_stopped_at_any_step_no_finished_cell_is_lost_or_half_there(out, disk):
    before = None
    for steps in range(LAST_STEP):
        place = out / str(steps)
        place.mkdir()
        said = write_until_killed(place, disk, steps)
        files = {str(path.relative_to(place)): path.stat().st_size for path in place.rglob("*")}
        if (said, files) == before:
            continue  # this step changed nothing on the disk
        before = (said, files)
        runs = list_runs(place)
        if not runs or runs[0].status == "damaged":
            # It had not begun: at most there is a folder without a manifest.
            assert said == []
            continue
        (listed,) = runs
        found = [m.cell_id for m in load_run(listed.folder).measurements]
        cells = [name for name in said if name != "published"]
        # One more may be there: stopped between its renaming and the news of it.
        assert found[: len(cells)] == cells
        assert len(found) <= len(cells) + 1
        assert_whole(completed(listed.folder))
        assert [run.status for run in list_runs(place)] == ["complete"]
        shutil.rmtree(place)
        if said[-1:] == ["published"]:
            break
    assert said == ["c0000", "c0001", "published"]
    assert steps > 40


KILLED_AT_A_RENAME = f"""
import os, signal, sys
sys.path.insert(0, {str(HERE)!r})
from pathlib import Path
import store_examples as ex
def hook(event, arguments):
    if event == "os.rename":
        if sys.argv[2] in str(arguments[1]):
            os.kill(os.getpid(), signal.SIGKILL)
sys.addaudithook(hook)
with ex.begin(Path(sys.argv[1]), cells=2) as writer:
    for launch in ex.plan(2).launches:
        for cell in launch.cells:
            ex.write(writer, cell, ex.launch_id(launch.ordinal, launch.arm))
    writer.publish([], [ex.COMPARISON], [ex.SIMULATED])
"""


@pytest.mark.parametrize(
    ("at", "cells"),
    [("cells/c0001", 1), (f"/{ex.RUN_ID}", 2)],
)
def test_a_writer_killed_at_a_rename_leaves_the_cells_before_it(out, at, cells):
    script = [sys.executable, "-c", KILLED_AT_A_RENAME, str(out), at]
    assert subprocess.run(script, check=False).returncode == -signal.SIGKILL
    (listed,) = list_runs(out)
    assert (listed.published, listed.pid, listed.cells_finished) == (False, None, cells)
    assert_whole(completed(listed.folder))


ENDLESS = f"""
import sys
sys.path.insert(0, {str(HERE)!r})
from pathlib import Path
import store_examples as ex
with ex.begin(Path(sys.argv[1]), cells=400) as writer:
    print("begun", flush=True)
    for launch in ex.plan(400).launches:
        for cell in launch.cells:
            ex.write(writer, cell, ex.launch_id(launch.ordinal, launch.arm))
            print(cell.cell_id, flush=True)
"""


@pytest.mark.parametrize("seed", [1, 2])
def test_killed_at_a_random_moment_the_finished_cells_are_there(out, seed):
    """This one also hits the middle of a file."""
    script = [sys.executable, "-c", ENDLESS, str(out)]
    with subprocess.Popen(script, stdout=subprocess.PIPE, text=True) as writer:
        lines = random.Random(seed).randint(2, 12)
        said = [writer.stdout.readline().strip() for _ in range(lines)]
        os.kill(writer.pid, signal.SIGKILL)
        said += writer.stdout.read().split()
    (listed,) = list_runs(out)
    assert (listed.status, listed.pid) == ("interrupted", None)
    run = load_run(listed.folder)
    found = [m.cell_id for m in run.measurements]
    assert found[: len(said) - 1] == said[1:]
    assert len(found) <= len(said)
    with open_part_run(listed.folder) as again:
        for cell_id in found:
            assert again.samples_of_cell(cell_id) == ex.samples(ex.cell(int(cell_id[1:])))
        folder = again.publish([], [], [])
    assert len(load_samples(folder)) == 6 * len(found)
