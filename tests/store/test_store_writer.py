"""A run is written whole or not at all, by one writer, and can be taken up again."""

import errno
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import store_examples as ex

from bench.errors import DiskError, StoreError
from bench.model import CellStatus
from bench.store import (
    RunStatus,
    check_resumable,
    create_run,
    disk,
    list_runs,
    load_run,
    load_samples,
    new_run_id,
    new_session,
    open_part_run,
    parquet,
)


def test_a_published_run_says_all_that_was_written(tmp_path):
    folder = ex.published(tmp_path)
    assert folder == tmp_path / "demo" / ex.RUN_ID
    run = load_run(folder)
    planned = [(launch, cell) for launch, cell in all_cells()]
    assert run.measurements == tuple(ex.measurement(cell, launch) for launch, cell in planned)
    assert run.findings == (*ex.findings(ex.cell(1, arm="eagle")), ex.SIMULATED)
    assert run.comparisons == (ex.COMPARISON,)
    assert run.manifest.launches == (ex.launch_record(0, "baseline"), ex.launch_record(1, "eagle"))
    assert (run.status, run.published, run.speed, run.simulated) == (
        RunStatus.COMPLETE,
        True,
        2,
        True,
    )
    assert load_samples(folder) == [sample for _, cell in planned for sample in ex.samples(cell)]
    assert (folder / "scenario.yaml").read_text() == ex.SCENARIO_TEXT


def all_cells():
    return [(ex.launch_id(x.ordinal, x.arm), cell) for x in ex.plan().launches for cell in x.cells]


def test_a_published_run_holds_these_files_and_their_hashes(tmp_path):
    folder = ex.published(tmp_path)
    found = sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
    logs = ["logs/L00-baseline-p0.log", "logs/L01-eagle-p0.log"]
    tables = ["measurements.parquet", "samples.parquet", "telemetry.parquet"]
    assert found == sorted([*logs, "manifest.json", "scenario.yaml", *tables])
    files = load_run(folder).manifest.files
    assert files == {
        name: disk.sha256_of(folder / name) for name in [*logs, "scenario.yaml", *tables]
    }


def test_the_manifest_is_strict_json_without_secrets_of_the_plan(tmp_path):
    with ex.begin(tmp_path) as writer:
        ex.fill(writer)
        folder = writer.publish([], [replace(ex.COMPARISON, ci95_high=float("inf"))], [])

    def refuse(constant):
        raise AssertionError(constant)

    text = (folder / "manifest.json").read_text()
    assert json.loads(text, parse_constant=refuse)["comparisons"][0]["ci95_high"] is None
    assert "abc" not in text


def test_findings_of_cells_given_again_are_kept_once(tmp_path):
    with ex.begin(tmp_path) as writer:
        ex.fill(writer)
        folder = writer.publish([], [], [*ex.findings(ex.cell(1, arm="eagle")), ex.SIMULATED])
    assert len(load_run(folder).findings) == 2


def test_what_the_whole_run_judges_otherwise_takes_the_place_of_what_was_stored(tmp_path):
    with ex.begin(tmp_path) as writer:
        ex.fill(writer)
        first, second, *others = writer.measurements()
        assert writer.findings() == ex.findings(ex.cell(1, arm="eagle"))
        judged = replace(second, status=CellStatus.INVALID)
        folder = writer.publish([judged], [], [])
    assert load_run(folder).measurements == (first, judged, *others)


def test_a_launch_is_brought_up_to_date_in_its_place(tmp_path):
    with ex.begin(tmp_path) as writer:
        first, second = ex.launch_record(0, "baseline"), ex.launch_record(1, "eagle")
        writer.write_launch(replace(first, ready_ns=None, effective=None))
        writer.write_launch(second)
        writer.write_launch(first)
        assert writer.launches() == (first, second)
        assert load_run(writer.folder).manifest.launches == (first, second)


def test_run_ids_name_time_and_scenario_and_differ():
    made = {new_run_id("kimi-k2.5") for _ in range(50)}
    assert len(made) == 50
    assert all(
        len(name) == len("20261129T160346Z-kimi-k2.5-1a2b3c") and "Z-kimi-k2.5-" in name
        for name in made
    )


def test_two_runs_never_share_a_folder(tmp_path):
    with ex.begin(tmp_path), pytest.raises(StoreError, match="already"):
        ex.begin(tmp_path)
    with ex.begin(tmp_path, "20261129T160346Z-demo-ffffff") as other:
        ex.fill(other)
        other.publish([], [], [])
    with pytest.raises(StoreError, match="already"):
        ex.begin(tmp_path, "20261129T160346Z-demo-ffffff")
    assert not list(tmp_path.glob("demo/.partial-*ffffff"))


@pytest.mark.parametrize("name", ["../evil", "a/b", "", ".hidden"])
def test_names_that_lead_elsewhere_are_refused(tmp_path, name):
    with pytest.raises(StoreError, match="part of a path"):
        create_run(tmp_path, scenario_text="", manifest=replace(ex.manifest(), scenario=name))
    with ex.begin(tmp_path) as writer, pytest.raises(StoreError, match="part of a path"):
        writer.log_path(name)


def test_a_cell_is_written_once_and_with_its_own_measurement(tmp_path):
    with ex.begin(tmp_path) as writer:
        cell = ex.cell(0)
        ex.write(writer, cell, "L00")
        with pytest.raises(StoreError, match="already"):
            ex.write(writer, cell, "L00")
        with pytest.raises(StoreError, match="measurement of cell c0001"):
            writer.write_cell(ex.cell(2), "L00", [], [], ex.measurement(ex.cell(1), "L00"), [])
        assert writer.finished_cells() == {"c0000"}


# ----------------------------------------------------------------------------------------- resume


def test_a_part_run_is_taken_up_where_it_stopped(tmp_path):
    with ex.begin(tmp_path) as writer:
        assert ex.fill(writer, limit=2) == ["c0000", "c0002"]
        writer.mark("interrupted")
        folder = writer.folder
    with open_part_run(folder) as writer:
        check_resumable(writer.manifest, ex.manifest())
        writer.begin_session(new_session(["bench", "resume"]))
        assert load_run(folder).status is RunStatus.RUNNING
        assert writer.finished_cells() == {"c0000", "c0002"}
        assert [m.cell_id for m in writer.measurements()] == ["c0000", "c0002"]
        assert writer.samples_of_cell("c0002") == ex.samples(ex.cell(2))
        assert writer.scenario_text == ex.SCENARIO_TEXT
        assert ex.fill(writer) == ["c0001", "c0003"]
        folder = writer.publish([], [], [])
    run = load_run(folder)
    assert [m.cell_id for m in run.measurements] == ["c0000", "c0002", "c0001", "c0003"]
    assert [session.first_launch for session in run.manifest.sessions] == [0, 2]


def test_a_part_run_shows_its_finished_cells_and_their_findings(tmp_path):
    with ex.begin(tmp_path) as writer:
        ex.fill(writer, limit=3)
    run = load_run(writer.folder)
    assert [m.cell_id for m in run.measurements] == ["c0000", "c0002", "c0001"]
    assert run.findings == tuple(ex.findings(ex.cell(1, arm="eagle")))
    assert (run.published, run.comparisons, run.status) == (False, (), RunStatus.INTERRUPTED)


def test_resume_says_what_differs_and_both_values():
    stored = ex.manifest(
        fingerprint={"identity": {"gpus": [{"driver": "570.1"}], "python": "3.11"}, "context": 1}
    )
    same = ex.manifest(
        fingerprint={"identity": {"gpus": [{"driver": "570.1"}], "python": "3.11"}, "context": 2}
    )
    check_resumable(stored, replace(same, run_id="other"))
    new = ex.manifest(
        fingerprint={
            "identity": {"gpus": [{"driver": "575.2"}], "python": "3.11", "loop": "uvloop"}
        }
    )
    with pytest.raises(StoreError) as caught:
        check_resumable(
            stored,
            replace(new, scenario_sha256="0" * 64, plan_arguments={"only": [], "add_pairs": 0}),
        )
    message = str(caught.value)
    assert "fingerprint.gpus[0].driver: it has '570.1', now '575.2'" in message
    assert "fingerprint.loop: it has None, now 'uvloop'" in message
    assert f"scenario_sha256: it has {stored.scenario_sha256!r}, now '{'0' * 64}'" in message
    assert "plan_arguments.only: it has ['load=1'], now []" in message
    assert "python" not in message


def test_tuples_and_lists_are_the_same_to_resume():
    check_resumable(
        replace(ex.manifest(), plan_arguments={"only": ["a"]}),
        replace(ex.manifest(), plan_arguments={"only": ("a",)}),
    )


def test_what_cannot_be_resumed_is_refused(tmp_path):
    published = ex.published(tmp_path)
    with pytest.raises(StoreError, match="nothing to resume"):
        open_part_run(published)
    with pytest.raises(StoreError, match="no run"):
        open_part_run(tmp_path)
    empty = tmp_path / "demo" / ".partial-x"
    empty.mkdir()
    with pytest.raises(StoreError, match=r"cannot read .*manifest.json"):
        open_part_run(empty)
    assert list(empty.iterdir()) == []


def test_a_part_run_of_another_schema_is_refused(tmp_path, monkeypatch):
    with ex.begin(tmp_path) as writer:
        pass
    monkeypatch.setattr("bench.store.upgrade.SCHEMA_VERSION", 2)
    monkeypatch.setattr("bench.store.opening.SCHEMA_VERSION", 2)
    with pytest.raises(StoreError, match=r"schema_version is 1, this specdyno writes 2"):
        open_part_run(writer.folder)


def test_what_is_half_written_is_dropped_on_resume(tmp_path):
    with ex.begin(tmp_path) as writer:
        ex.fill(writer, limit=1)
    half = writer.folder / "cells" / ".tmp-c0002"
    half.mkdir()
    (half / "samples.parquet").write_bytes(b"PAR1")
    with open_part_run(writer.folder) as again:
        assert again.finished_cells() == {"c0000"}
        assert not half.exists()
        assert ex.fill(again) == ["c0002", "c0001", "c0003"]


# ------------------------------------------------------------------------------------------- lock


def test_a_run_that_is_being_written_is_not_resumed(tmp_path):
    with (
        ex.begin(tmp_path) as writer,
        pytest.raises(StoreError, match=f"being written by process {os.getpid()}"),
    ):
        open_part_run(writer.folder)
    open_part_run(writer.folder).close()


def test_looking_at_a_run_does_not_take_its_lock(tmp_path):
    with ex.begin(tmp_path) as writer:
        (seen,) = list_runs(tmp_path)
        assert (seen.status, seen.pid) == (RunStatus.RUNNING, os.getpid())
        (seen,) = list_runs(tmp_path)
        assert seen.pid == os.getpid()
    (seen,) = list_runs(tmp_path)
    assert (seen.status, seen.pid) == (RunStatus.INTERRUPTED, None)
    assert writer.folder == seen.folder


def test_another_process_sees_who_writes(tmp_path):
    code = (
        "import sys; from pathlib import Path; from bench.store import open_part_run; "
        "open_part_run(Path(sys.argv[1]))"
    )
    with ex.begin(tmp_path) as writer:
        asked = subprocess.run(
            [sys.executable, "-c", code, str(writer.folder)],
            capture_output=True,
            text=True,
            check=False,
        )
    assert f"being written by process {os.getpid()}" in asked.stderr


def test_the_lock_of_a_folder_that_was_just_published_is_no_lock(tmp_path, monkeypatch):
    with ex.begin(tmp_path) as writer:
        ex.fill(writer)
        folder = writer.folder
        real = disk.fcntl.fcntl

        def publish_first(handle, *arguments):
            monkeypatch.setattr(disk.fcntl, "fcntl", real)
            writer.publish([], [], [])
            return real(handle, *arguments)

        monkeypatch.setattr(disk.fcntl, "fcntl", publish_first)
        with pytest.raises(StoreError, match="just been published"):
            open_part_run(folder)


def test_a_file_system_without_locks_is_told(tmp_path, monkeypatch):
    def no_locks(*_):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(disk.fcntl, "fcntl", no_locks)
    with pytest.raises(DiskError, match="No locks available") as caught:
        ex.begin(tmp_path)
    assert "local disk" in caught.value.hint
    assert not list(tmp_path.glob("demo/.partial-*"))


# ------------------------------------------------------------------------------------- a bad disk


def full(*_, **__):
    raise OSError(errno.ENOSPC, "No space left on device")


def test_a_full_disk_loses_only_the_cell_in_hand(tmp_path, monkeypatch):
    with ex.begin(tmp_path) as writer:
        ex.fill(writer, limit=1)
        with monkeypatch.context() as patched:
            patched.setattr(disk.os, "fsync", full)
            with pytest.raises(DiskError, match="No space left") as caught:
                ex.write(writer, ex.cell(2), ex.launch_id(0))
            assert "resume" in caught.value.hint
            with pytest.raises(DiskError, match="manifest"):
                writer.write_launch(ex.launch_record(5, "x"))
        assert writer.finished_cells() == {"c0000"}
        assert [path.name for path in (writer.folder / "cells").iterdir()] == ["c0000"]
        assert ex.fill(writer) == ["c0002", "c0001", "c0003"]
        assert len(load_run(writer.publish([], [], [])).measurements) == 4


def test_a_full_disk_while_publishing_leaves_the_part_run(tmp_path, monkeypatch):
    with ex.begin(tmp_path) as writer:
        ex.fill(writer)
        monkeypatch.setattr(parquet.pq.ParquetWriter, "write_table", full)
        with pytest.raises(DiskError, match="No space left"):
            writer.publish([], [], [])
        monkeypatch.undo()
        assert load_run(writer.folder).status is RunStatus.RUNNING
        assert not list(writer.folder.glob(".*.tmp"))
        assert len(load_run(writer.publish([], [], [])).measurements) == 4


def test_a_file_size_limit_is_a_disk_error_too(tmp_path):
    """A real refusal in the middle of a file, not a pretended one."""
    code = f"""
import resource, sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
from pathlib import Path
import store_examples as ex
from bench.errors import DiskError
with ex.begin(Path(sys.argv[1])) as writer:
    ex.fill(writer, limit=1)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))
    try:
        ex.write(writer, ex.cell(2), ex.launch_id(0))
    except DiskError as error:
        print(sorted(path.name for path in (writer.folder / "cells").iterdir()), error.hint)
"""
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert done.stdout.startswith("['c0000'] make room"), done.stderr


def test_a_folder_that_cannot_be_written_is_told(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    with pytest.raises(DiskError, match="cannot write a run"):
        ex.begin(tmp_path / "file")

    def read_only(*_, **__):
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(type(tmp_path), "mkdir", read_only)
    with pytest.raises(DiskError, match="Read-only") as caught:
        ex.begin(tmp_path)
    assert "--out" in caught.value.hint


def test_publishing_over_a_published_run_is_refused(tmp_path):
    with ex.begin(tmp_path) as writer:
        ex.fill(writer)
        (tmp_path / "demo" / ex.RUN_ID).mkdir()
        with pytest.raises(StoreError, match="published already"):
            writer.publish([], [], [])
        assert writer.finished_cells() == {"c0000", "c0001", "c0002", "c0003"}


def test_publishing_puts_together_a_bounded_number_of_rows(tmp_path, monkeypatch):
    def group_sizes(run_id):
        with ex.begin(tmp_path, run_id) as writer:
            ex.fill(writer)
            folder = writer.publish([], [], [])
        assert load_samples(folder) == [s for _, cell in all_cells() for s in ex.samples(cell)]
        file = parquet.pq.ParquetFile(folder / "samples.parquet").metadata
        return [file.row_group(i).num_rows for i in range(file.num_row_groups)]

    assert group_sizes("20261129T160346Z-demo-000001") == [24]
    monkeypatch.setattr(parquet, "_BATCH_ROWS", 4)
    monkeypatch.setattr(parquet, "_GROUP_BYTES", 1)
    assert group_sizes("20261129T160346Z-demo-000002") == [4, 2] * 4


def test_a_cell_reaches_the_disk_before_it_is_renamed_into_place(tmp_path, monkeypatch):
    calls = []
    flush, rename = os.fsync, type(tmp_path).rename

    def noted_flush(handle):
        calls.append(str(Path(f"/proc/self/fd/{handle}").readlink()).rpartition("cells/")[2])
        flush(handle)

    def noted_rename(path, target):
        calls.append(f"rename to {target.name}")
        return rename(path, target)

    with ex.begin(tmp_path) as writer:
        monkeypatch.setattr(disk.os, "fsync", noted_flush)
        monkeypatch.setattr(type(tmp_path), "rename", noted_rename)
        ex.write(writer, ex.cell(0), ex.launch_id(0))
    at = calls.index("rename to c0000")
    files = {"cell.json", "measurements.parquet", "samples.parquet", "telemetry.parquet"}
    assert set(calls[:at]) == {".tmp-c0000", *(f".tmp-c0000/{name}" for name in files)}
    assert len(calls[at + 1 :]) == 1
