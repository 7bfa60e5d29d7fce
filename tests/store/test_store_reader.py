"""Runs are listed, found by name and read; damage is told, never a crash."""

import json
import shutil
from pathlib import Path

import pytest
import store_examples as ex

from bench.errors import StoreError
from bench.store import RunStatus, find_run, list_runs, load_run, load_samples
from bench.store.layout import run_folders

OLDER = "20261128T000000Z-demo-aaaaaa"
NEWER = "20261130T000000Z-demo-1a2bff"


@pytest.fixture(scope="module")
def three(tmp_path_factory):
    """Two published runs and, newest of all, a part-run."""
    out = tmp_path_factory.mktemp("three")
    ex.published(out, OLDER)
    ex.published(out)
    ex.begin(out, NEWER).close()
    return out


def test_runs_are_listed_oldest_first_with_their_counts(tmp_path):
    ex.published(tmp_path)
    with ex.begin(tmp_path, NEWER) as writer:
        ex.fill(writer, limit=1)
    ex.published(tmp_path, OLDER, cells=2)
    listed = [
        (run.run_id, run.status, run.published, run.cells_finished, run.cells_total)
        for run in list_runs(tmp_path)
    ]
    assert listed == [
        (OLDER, "complete", True, 2, 2),
        (ex.RUN_ID, "complete", True, 4, 4),
        (NEWER, "interrupted", False, 1, 4),
    ]


def test_a_listed_run_says_what_it_is(tmp_path):
    ex.published(tmp_path)
    (run,) = list_runs(tmp_path / "demo")
    assert (run.scenario, run.question, run.simulated, run.note) == (
        "demo",
        "Does it pay?",
        True,
        None,
    )
    assert run.started_at == "2026-11-29T16:03:46+00:00"
    assert run.folder == tmp_path / "demo" / ex.RUN_ID


def break_manifest(folder: Path) -> None:
    (folder / "manifest.json").write_text('{"schema_version": 1')


def break_manifest_fields(folder: Path) -> None:
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["launches"] = [{"launch_id": 5}]
    (folder / "manifest.json").write_text(json.dumps(manifest))


def no_manifest(folder: Path) -> None:
    (folder / "manifest.json").unlink()


def manifest_is_a_list(folder: Path) -> None:
    (folder / "manifest.json").write_text("[]")


def no_version(folder: Path) -> None:
    (folder / "manifest.json").write_text("{}")


def cut_samples(folder: Path) -> None:
    data = (folder / "samples.parquet").read_bytes()
    (folder / "samples.parquet").write_bytes(data[: len(data) // 2])


def no_telemetry(folder: Path) -> None:
    (folder / "telemetry.parquet").unlink()


def no_scenario(folder: Path) -> None:
    (folder / "scenario.yaml").unlink()


DAMAGES = {
    break_manifest: "manifest.json is damaged",
    break_manifest_fields: "launches",
    no_manifest: "No such file",
    manifest_is_a_list: "not a JSON object",
    no_version: "schema_version",
    cut_samples: "samples.parquet",
    no_telemetry: "telemetry.parquet",
    no_scenario: "scenario.yaml",
}


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
def test_a_damaged_run_is_listed_with_the_reason_beside_the_others(three, tmp_path, damage):
    out = tmp_path / "results"
    shutil.copytree(three, out)
    damage(out / "demo" / ex.RUN_ID)
    older, damaged, newer = list_runs(out)
    assert (damaged.run_id, damaged.status) == (ex.RUN_ID, "damaged")
    assert DAMAGES[damage] in damaged.note
    assert (older.status, newer.status) == (RunStatus.COMPLETE, RunStatus.INTERRUPTED)


def test_a_newer_run_is_refused_and_said_to_be_newer(tmp_path):
    folder = ex.published(tmp_path)
    manifest = json.loads((folder / "manifest.json").read_text())
    (folder / "manifest.json").write_text(json.dumps(manifest | {"schema_version": 99}))
    with pytest.raises(StoreError, match=r"schema version 99.*up to 1") as caught:
        load_run(folder)
    assert "update" in caught.value.hint
    (listed,) = list_runs(tmp_path)
    assert "schema version 99" in listed.note


def test_a_table_that_was_changed_after_publishing_is_told(tmp_path):
    folder, other = ex.published(tmp_path), ex.published(tmp_path / "other", cells=2)
    for name in ("measurements.parquet", "samples.parquet"):
        (folder / name).write_bytes((other / name).read_bytes())
    with pytest.raises(StoreError, match=r"measurements.parquet is not what was published"):
        load_run(folder)
    with pytest.raises(StoreError, match=r"samples.parquet is not what was published"):
        load_samples(folder)


def test_a_damaged_cell_of_a_part_run_is_told(tmp_path):
    with ex.begin(tmp_path) as writer:
        ex.fill(writer, limit=1)
    (writer.folder / "cells" / "c0000" / "cell.json").write_text(
        '{"findings": [{"kind": "no such"}]}'
    )
    with pytest.raises(StoreError, match=r"cell.json is damaged"):
        load_run(writer.folder)
    (writer.folder / "cells" / "c0000" / "cell.json").write_text("{}")
    with pytest.raises(StoreError, match=r"cell.json is damaged"):
        load_run(writer.folder)


# --------------------------------------------------------------------------------- finding by name


@pytest.mark.parametrize(
    ("name", "found"),
    [
        (ex.RUN_ID, ex.RUN_ID),
        ("20261129", ex.RUN_ID),
        ("1a2b3c", ex.RUN_ID),
        ("1a2bff", f".partial-{NEWER}"),
        (NEWER, f".partial-{NEWER}"),
        ("latest", f".partial-{NEWER}"),
    ],
)
def test_a_run_is_found_by_id_beginning_end_or_latest(three, name, found):
    assert find_run(three, name) == three / "demo" / found


def test_a_run_is_found_by_its_path_wherever_it_is(three, monkeypatch):
    folder = three / "demo" / ex.RUN_ID
    assert find_run(Path("nowhere"), str(folder)) == folder
    monkeypatch.chdir(three / "demo")
    assert find_run(Path("nowhere"), ex.RUN_ID) == folder


@pytest.mark.parametrize("name", ["2026", "202611"])
def test_a_name_of_several_runs_names_them(three, name):
    with pytest.raises(StoreError, match="could be 3 runs") as caught:
        find_run(three, name)
    assert all(run_id in str(caught.value) for run_id in (OLDER, ex.RUN_ID, NEWER))


@pytest.mark.parametrize("name", ["", "zzz", "demo"])
def test_a_name_of_no_run_is_refused(three, name):
    with pytest.raises(StoreError, match="no run"):
        find_run(three, name)


def test_no_folder_and_no_runs_are_told_apart(tmp_path):
    assert list_runs(tmp_path) == []
    with pytest.raises(StoreError, match="no run in"):
        find_run(tmp_path, "latest")
    with pytest.raises(StoreError, match="no results folder"):
        list_runs(tmp_path / "absent")
    with pytest.raises(StoreError, match="no results folder"):
        find_run(tmp_path / "absent", "x")


def test_runs_are_found_one_level_deeper_and_other_folders_left_alone(tmp_path):
    kept = ex.published(tmp_path / "reference")
    (tmp_path / "demo" / "notes").mkdir(parents=True)
    (tmp_path / "README.md").write_text("")
    assert list(run_folders(tmp_path)) == [kept]
