"""What an older version wrote is read by this one."""

from pathlib import Path

import pyarrow as pa
import pytest
import store_examples as ex

from bench.errors import StoreError
from bench.store import columns, load_run, load_samples, open_results, upgrade

GOLDEN = Path(__file__).parents[1] / "golden" / "store"


def test_there_is_a_golden_run_of_every_version():
    wanted = {f"v{version}" for version in range(1, columns.SCHEMA_VERSION + 1)}
    assert {path.name for path in GOLDEN.iterdir()} == wanted


def test_the_run_of_version_1_is_read():
    (folder,) = (GOLDEN / "v1" / "demo").iterdir()
    run = load_run(folder)
    cells = [(launch, cell) for launch in ex.plan().launches for cell in launch.cells]
    assert run.measurements == tuple(
        ex.measurement(cell, ex.launch_id(launch.ordinal, launch.arm)) for launch, cell in cells
    )
    assert run.comparisons == (ex.COMPARISON,)
    assert run.manifest.launches == (ex.launch_record(0, "baseline"), ex.launch_record(1, "eagle"))
    assert load_samples(folder) == [sample for _, cell in cells for sample in ex.samples(cell)]
    assert len(open_results(GOLDEN / "v1").telemetry()) == 80


def test_steps_are_taken_one_version_after_the_other(monkeypatch):
    monkeypatch.setattr(upgrade, "SCHEMA_VERSION", 4)
    monkeypatch.setattr(
        upgrade,
        "MANIFEST_STEPS",
        {1: lambda old: old | {"a": 1}, 3: lambda old: old | {"b": old["a"] + 1}},
    )
    stored = {"schema_version": 1}
    assert upgrade.upgrade_manifest(stored, where="x") == {"schema_version": 1, "a": 1, "b": 2}
    assert stored == {"schema_version": 1}
    monkeypatch.setattr(
        upgrade,
        "TABLE_STEPS",
        {2: lambda name, table: table.append_column("new", pa.array([name] * table.num_rows))},
    )
    table = pa.table({"old": [1]})
    assert upgrade.upgrade_table("samples", table, version=2).to_pylist() == [
        {"old": 1, "new": "samples"}
    ]
    assert upgrade.upgrade_table("samples", table, version=3).column_names == ["old"]


@pytest.mark.parametrize("version", [None, 0, -1, "1", 1.0, True])
def test_what_is_no_version_is_refused(version):
    with pytest.raises(StoreError, match="no valid schema_version"):
        upgrade.checked_version(version, where="x")
