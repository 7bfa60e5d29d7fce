"""DataFrames of all published runs: typed, complete, each row saying which run it is of."""

import json
import subprocess
import sys

import pandas as pd
import pytest
import store_examples as ex

import bench
from bench.errors import StoreError
from bench.store import columns as c
from bench.store import open_results

OTHER = "20261130T000000Z-demo-ffffff"
IDENTITY = [column.name for column in c.IDENTITY]
ENGINE = [column.name for column in c.ENGINE]
CELL_KEYS = [column.name for column in c.CELL_KEYS]


@pytest.fixture(scope="module")
def out(tmp_path_factory):
    out = tmp_path_factory.mktemp("results")
    ex.published(out)
    ex.published(out, OTHER, cells=2)
    with ex.begin(out, "20261201T000000Z-demo-aaaaaa") as writer:
        ex.fill(writer)
    return out


@pytest.fixture(scope="module")
def results(out):
    return bench.results(out)


def test_two_lines_give_every_published_run(results):
    runs = results.runs.set_index("run_id")
    assert list(runs.index) == [ex.RUN_ID, OTHER]
    assert runs["cell_ct"].to_list() == [4, 2]
    assert runs["planned_cell_ct"].to_list() == [4, 2]
    assert runs["engine_version"].to_list() == ["0.5.23", "0.5.23"]
    assert runs["started_at"].iloc[0] == pd.Timestamp("2026-11-29T16:03:46Z")
    assert results.damaged == {}


def test_measurements_have_distributions_as_columns(results):
    frame = results.measurements
    assert list(frame.columns[:5]) == IDENTITY + ENGINE
    assert frame.groupby("run_id").size().to_dict() == {ex.RUN_ID: 4, OTHER: 2}
    row = frame[(frame.run_id == ex.RUN_ID) & (frame.cell_id == "c0003")].iloc[0]
    assert (row["arm"], row["load"], row["ttft_ms_mean"], row["ttft_ms_n"]) == (
        "eagle",
        "8",
        13.0,
        4,
    )
    assert (row["client_max_in_flight"], row["failures_by_kind"]) == (2, {"refused": 1})
    assert list(row["accept_at_position"]) == [1.0, 0.5]
    assert frame["ttfo_ms_p50"].isna().all()
    assert frame["ttfo_ms_n"].isna().all()
    assert frame["simulated"].all()


def test_missing_integers_stay_missing_and_the_others_stay_integers(results):
    frame = results.samples(ex.RUN_ID)
    assert str(frame["sent_ns"].dtype) == str(frame["ended_ns"].dtype) == "Int64"
    never_sent = frame[frame["status"] == "refused"]
    assert never_sent["sent_ns"].isna().all()
    assert len(never_sent) == 4
    assert frame["sent_ns"].dropna().iloc[0] == 10**15 + 10


def test_samples_say_run_cell_and_arm(results):
    frame = results.samples()
    own = [column.name for column in c.SAMPLES]
    assert list(frame.columns) == [*IDENTITY, *ENGINE, *CELL_KEYS, *own]
    assert frame.groupby("run_id").size().to_dict() == {ex.RUN_ID: 24, OTHER: 12}
    assert dict(zip(frame["cell_id"], frame["arm"], strict=True)) == {
        "c0000": "baseline",
        "c0001": "eagle",
        "c0002": "baseline",
        "c0003": "eagle",
    }
    assert list(frame["event_ns_delta"].iloc[0]) == [990, 4000, 4000]


def test_telemetry_says_run_cell_and_launch(results):
    frame = results.telemetry(OTHER)
    own = [column.name for column in c.TELEMETRY if column.name != "launch_id"]
    assert list(frame.columns) == [*IDENTITY, *ENGINE, *CELL_KEYS, *own]
    assert len(frame) == 40
    assert set(frame["launch_id"]) == {"L00-baseline-p0", "L01-eagle-p0"}
    assert frame["value"].isna().sum() == 2


def test_comparisons_and_findings_are_tables_too(results):
    assert list(results.comparisons.columns) == IDENTITY + [
        column.name for column in c.COMPARISONS
    ]
    assert results.comparisons["speedup"].to_list() == [1.25, 1.25]
    assert list(results.comparisons["config_differences"].iloc[0]) == [
        {"name": "page_size", "baseline": "1", "arm": "64"}
    ]
    assert list(results.findings.columns) == IDENTITY + [column.name for column in c.FINDINGS]
    assert results.findings["kind"].to_list() == ["window_too_short", "simulated"] * 2


def test_an_empty_folder_gives_empty_tables_with_all_columns(tmp_path, results):
    empty = open_results(tmp_path)
    for name in ("runs", "measurements", "comparisons", "findings"):
        assert len(getattr(empty, name)) == 0
        assert list(getattr(empty, name).columns) == list(getattr(results, name).columns)
    assert list(empty.samples().columns) == list(results.samples().columns)
    assert list(empty.telemetry().dtypes) == list(results.telemetry().dtypes)


def test_a_run_that_is_not_there_is_told(results, tmp_path):
    with pytest.raises(StoreError, match=r"no published run 'zzz'"):
        results.samples("zzz")
    with pytest.raises(StoreError, match="no results folder"):
        open_results(tmp_path / "absent")


def test_one_run_is_opened_by_its_folder(out):
    assert open_results(str(out / "demo" / OTHER)).runs["run_id"].to_list() == [OTHER]
    with pytest.raises(StoreError, match="not published"):
        open_results(out / "demo" / ".partial-20261201T000000Z-demo-aaaaaa")


def test_a_damaged_run_is_left_out_and_told_but_a_newer_one_stops_all(tmp_path):
    folder = ex.published(tmp_path)
    ex.published(tmp_path, OTHER)
    manifest = (folder / "manifest.json").read_text()
    (folder / "manifest.json").write_text("{")
    results = open_results(tmp_path)
    assert results.measurements["run_id"].unique().tolist() == [OTHER]
    assert "manifest.json is damaged" in results.damaged[folder]
    with pytest.raises(StoreError, match="damaged"):
        open_results(folder)
    (folder / "manifest.json").write_text(
        json.dumps(json.loads(manifest) | {"schema_version": 99})
    )
    with pytest.raises(StoreError, match="schema version 99"):
        open_results(tmp_path)


def test_a_launch_that_never_told_its_engine_has_none(tmp_path):
    with ex.begin(tmp_path) as writer:
        ex.write(writer, ex.cell(0), "L00-baseline-p0")
        writer.publish([], [], [])
    results = open_results(tmp_path)
    assert results.measurements["engine"].isna().all()
    assert results.samples()["engine_version"].isna().all()
    assert results.runs["engine"].isna().all()


def test_the_store_loads_no_pandas_until_it_makes_a_frame():
    code = (
        "import sys, bench; assert 'pyarrow' not in sys.modules; "
        "import bench.store; print('pandas' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
