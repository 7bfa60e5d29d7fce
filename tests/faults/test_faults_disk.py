"""No space, no right to write: at any write the run ends with a message, and nothing is lost."""

import errno
import os
import subprocess
import tempfile
from pathlib import Path

import pytest
from bench_command import BENCH, Command, run_bench
from bench_stand_ins import World, begin
from full_disk import FullDisk
from rehearsal import write_scenario

import bench.runner.beginning
from bench.errors import DiskError
from bench.runner import CellFinished, resume_run, run
from bench.store import load_run

FILL = [(errno.ENOSPC, 14), (errno.EROFS, 5)]
"""An error, and at how many places of a run it is met."""


@pytest.fixture
def disk(monkeypatch):
    disk = FullDisk(monkeypatch)
    yield disk
    disk.make_room()


@pytest.fixture
def folder(tmp_path):
    """In memory where it can be: hundreds of flushes would take long on a disk."""
    memory = Path("/dev/shm")
    if not os.access(memory, os.W_OK):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir=memory) as made:
        yield Path(made)


async def measure(folder, told):
    plan, writer = begin(folder)

    def on_event(event):
        if isinstance(event, CellFinished):
            told[event.measurement.cell_id] = event.measurement

    with writer:
        return await run(plan, writer, on_event=on_event)


@pytest.mark.parametrize(("number", "places"), FILL)
async def test_refused_at_any_write_no_finished_cell_is_lost(
    disk, folder, monkeypatch, number, places
):
    World().install(monkeypatch)
    machine = bench.runner.beginning.fingerprint()
    monkeypatch.setattr("bench.runner.beginning.fingerprint", lambda: machine)
    disk.fill(folder, 10**9)
    (folder / "whole").mkdir()
    whole = load_run(await measure(folder / "whole", {}))
    wanted = sorted((m.arm, m.load) for m in whole.measurements)
    writes = disk.taken
    assert writes > 50
    for left in sorted({writes * place // places for place in range(places)}):
        out = folder / str(left)
        out.mkdir()
        told = {}
        disk.fill(out / "results", left, number)
        with pytest.raises(DiskError, match="cannot write") as caught:
            await measure(out, told)
        disk.make_room()
        assert caught.value.hint
        if not list(out.glob("results/*/.partial-*")):  # refused before there was a run
            assert not told
            continue
        plan, writer = resume_run("latest", out / "results", command_line=["bench", "resume"])
        with writer:
            assert writer.finished_cells() >= set(told)
            stored = load_run(await run(plan, writer))
        assert sorted((m.arm, m.load) for m in stored.measurements) == wanted
        kept = {m.cell_id: m for m in stored.measurements}
        for cell_id, measurement in told.items():  # as it was told, but for what the run judges
            assert kept[cell_id].launch_id == measurement.launch_id
            assert kept[cell_id].output_tok_per_s == measurement.output_tok_per_s


@pytest.mark.parametrize("most_bytes", [0, 30720])
def test_a_command_whose_files_may_not_grow_says_so_and_is_resumed(tmp_path, most_bytes):
    scenario = str(write_scenario(tmp_path, {}))
    limit = ["prlimit", f"--fsize={most_bytes}", BENCH]
    found = subprocess.run(
        [*limit, "run", scenario, "--sim", "--json"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, "NO_COLOR": "1"},
    )
    assert found.returncode == 3, found.stderr
    assert found.stdout == ""
    assert "Traceback" not in found.stderr
    assert "File too large" in found.stderr
    if not list(tmp_path.glob("results/*/.partial-*")):
        return
    assert "bench resume" in found.stderr
    code, _, err = run_bench("resume", "latest", "--json", cwd=tmp_path)
    assert code in {0, 4}, err


def test_two_runs_of_one_scenario_at_once_have_a_folder_each(tmp_path):
    scenario = str(write_scenario(tmp_path, {}))
    first, second = (Command("run", scenario, "--sim", "--quiet", cwd=tmp_path) for _ in range(2))
    assert {first.end()[0], second.end()[0]} <= {0, 4}
    runs = [path for path in (tmp_path / "results/rehearsal").iterdir() if path.is_dir()]
    assert len(runs) == 2
    assert {len(load_run(path).measurements) for path in runs} == {1}
    assert first.leaves_nothing()
    assert second.leaves_nothing()
