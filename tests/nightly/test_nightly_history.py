"""The history outlives writers that meet, die and are newer than we are."""

import json
import os
import subprocess
import sys
import tempfile
from datetime import date
from pathlib import Path

import pandas as pd
import pytest
from nightly_examples import key, points

from bench.errors import DiskError, StoreError
from bench.model.nightly import Ack
from bench.nightly.history import add, fingerprint_of, read_history
from bench.nightly.points_file import NewerHistoryError

STEPS = {"open", "os.mkdir", "os.rename", "os.remove"}
ROWS, ENVIRONMENTS = points((), nights=3)
NIGHT = date(2026, 1, 3)


class Killed(BaseException):
    """The writer is no more."""


class Disk:
    """Lets a writer do so many steps on the disk and none after that."""

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
def folder(tmp_path):
    memory = Path("/dev/shm")
    if not os.access(memory, os.W_OK):
        yield tmp_path / "history"
        return
    with tempfile.TemporaryDirectory(dir=memory) as place:
        yield Path(place) / "history"


def add_nights(folder, nights=(0, 1, 2)):
    for number in nights:
        rows = [p for p in ROWS if p.source_id == f"run-kimi-{number}"]
        add(
            folder,
            kind="night",
            night=rows[0].night,
            points=rows,
            facts=ENVIRONMENTS.values(),
            suite="kimi",
            ordinal=number,
        )


def stored(history):
    return [point for series in history.series.values() for point in series]


def by_name(rows):
    return sorted(rows, key=lambda p: (p.key, p.at))


def test_a_history_that_is_not_there_is_empty(folder):
    history = read_history(folder)
    assert (history.entries, history.failures, history.damaged) == ((), (), ())
    assert not history.series
    assert not folder.exists()


def test_what_is_added_is_read_back(folder):
    add_nights(folder)
    ack = Ack(key=key(), night=NIGHT, reason="new draft", by="ann", at=ROWS[0].at)
    add(folder, kind="ack", night=NIGHT, acks=[ack])
    add(folder, kind="failure", night=NIGHT, scenario="kimi", reason="no GPU")
    history = read_history(folder)
    assert by_name(stored(history)) == by_name(ROWS)
    assert history.facts == ENVIRONMENTS
    assert history.acks == (ack,)
    assert [(f.night, f.reason) for f in history.failures] == [(NIGHT, "no GPU")]
    assert history.nights_of("kimi") == 3
    assert history.nights_of("another") == 0
    assert history.damaged == ()


def test_what_was_begun_and_never_ended_is_a_dated_failure(folder):
    part = {"night": NIGHT, "suite": "s", "ordinal": 0}
    for name in ("a", "b", "c"):
        add(folder, kind="begun", scenario=name, **part)
    add(folder, kind="failure", scenario="b", reason="no GPU", **part)
    add(folder, kind="night", scenario="a", points=ROWS[:6], facts=ENVIRONMENTS.values(), **part)
    history = read_history(folder)
    assert [(f.scenario, f.night) for f in history.failures] == [("c", NIGHT), ("b", NIGHT)]
    assert "begun and not finished" in history.failures[0].reason
    assert history.nights_of("s") == 1


def test_one_line_of_pandas_reads_it(folder):
    add_nights(folder)
    frame = pd.read_parquet(folder / "points")
    assert len(frame) == len(ROWS)
    assert set(frame["metric"]) >= {"output_tok_per_s", "speedup"}


def test_one_line_of_duckdb_reads_it(folder):
    duckdb = pytest.importorskip("duckdb", reason="DuckDB is not installed here")
    add_nights(folder)
    [(count,)] = duckdb.sql(f"SELECT count(*) FROM '{folder}/points/*.parquet'").fetchall()
    assert count == len(ROWS)


def test_what_came_in_twice_counts_once(folder):
    add_nights(folder)
    add_nights(folder, (1,))
    assert by_name(stored(read_history(folder))) == by_name(ROWS)


def test_killed_at_any_step_what_was_there_stays_and_the_rest_can_be_added(folder, disk):
    before = by_name(p for p in ROWS if p.source_id == "run-kimi-0")
    both = by_name(p for p in ROWS if p.source_id in {"run-kimi-0", "run-kimi-1"})
    partly = 0
    for steps in range(200):
        place = folder / str(steps)
        add_nights(place, (0,))
        disk.left = steps
        try:
            add_nights(place, (1,))
        except Killed:
            pass
        else:
            break
        finally:
            disk.left = None
        history = read_history(place)
        assert by_name(stored(history)) in (before, both)
        assert len(pd.read_parquet(place / "points")) % len(before) == 0
        assert history.damaged == ()
        partly += bool(history.failures)
        add_nights(place, (1,))
        assert by_name(stored(read_history(place))) == both
    assert steps > 8
    assert partly  # a night that was cut between its entry and its points is told
    assert by_name(stored(read_history(place))) == both


WRITER = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
from pathlib import Path
from nightly_examples import points
from bench.nightly.history import add
rows, environments = points((), nights=12, scenario=sys.argv[2])
for number in range(12):
    night = [p for p in rows if p.source_id.endswith(f"-{{number}}")]
    add(Path(sys.argv[1]), kind="night", night=night[0].night, points=night,
        facts=environments.values())
"""


def test_two_writers_lose_nothing(folder):
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, str(folder), name]) for name in ("a", "b")
    ]
    assert [writer.wait(timeout=120) for writer in writers] == [0, 0]
    history = read_history(folder)
    assert history.damaged == ()
    assert len(stored(history)) == 2 * 12 * 6
    assert {len(series) for series in history.series.values()} == {12}


@pytest.mark.parametrize("kind", ["points", "entries", "fingerprints"])
@pytest.mark.parametrize("keep", [0, 0.5, 0.99])
def test_a_cut_file_is_told_and_all_else_is_read(folder, kind, keep):
    add_nights(folder)
    victim = min((folder / kind).iterdir())
    content = victim.read_bytes()
    victim.write_bytes(content[: int(len(content) * keep)])
    history = read_history(folder)
    assert [path for path, _ in history.damaged] == [str(victim)]
    lost = {"points": 6, "entries": 0, "fingerprints": 0}[kind]
    assert len(stored(history)) == len(ROWS) - lost
    add(folder, kind="failure", night=NIGHT, reason="x")  # one can still add to it
    assert victim.read_bytes() == content[: int(len(content) * keep)]


def test_a_changed_file_of_points_is_no_measurement(folder):
    add_nights(folder, (0, 1))
    first, second = sorted((folder / "points").iterdir())
    [source] = set(pd.read_parquet(first).source_id)
    first.write_bytes(second.read_bytes())
    [(path, why)] = read_history(folder).damaged
    assert path == str(first)
    assert "SHA-256" in why
    assert f"`bench nightly import` takes in {source} again" in why


def files(folder):
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


@pytest.mark.parametrize("kind", ["entries", "fingerprints"])
def test_a_newer_version_is_refused_before_anything_is_changed(folder, kind):
    add_nights(folder)
    path = min((folder / kind).iterdir())
    path.write_text(json.dumps(json.loads(path.read_text()) | {"version": 2, "new": {}}))
    before = files(folder)
    with pytest.raises(NewerHistoryError, match=r"format 2.*up to 1") as caught:
        read_history(folder)
    assert "Update specdyno" in caught.value.hint
    with pytest.raises(NewerHistoryError):
        add(folder, kind="failure", night=NIGHT, reason="x")
    assert files(folder) == before


def test_newer_points_are_refused_too(folder):
    import pyarrow.parquet as pq

    add_nights(folder, (0,))
    [path] = (folder / "points").iterdir()
    [entry] = (folder / "entries").iterdir()
    table = pq.read_table(path)
    pq.write_table(table.replace_schema_metadata({b"specdyno_nightly": b"7"}), path)
    entry.unlink()  # even where no entry tells of the version
    with pytest.raises(NewerHistoryError, match="format 7"):
        read_history(folder)


def test_the_same_facts_have_the_same_name():
    assert fingerprint_of({"a": "1", "b": "2"}) == fingerprint_of({"b": "2", "a": "1"})
    assert fingerprint_of({"a": "1"}) != fingerprint_of({"a": "2"})


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_cannot_be_written_is_told(folder):
    folder.mkdir()
    folder.chmod(0o500)
    with pytest.raises(DiskError, match="history"):
        add_nights(folder)


def test_a_file_where_the_folder_should_be_is_told(folder):
    folder.mkdir()
    (folder / "entries").write_text("")
    with pytest.raises(StoreError, match="entries"):
        read_history(folder)
