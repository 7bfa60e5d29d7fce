"""Which run `bench resume` takes, and how those that it could take are listed."""

import json
from pathlib import Path

import pytest
from bench_command import TINY

from bench.runner import Asked, start_run


@pytest.fixture(autouse=True)
def _nothing_is_measured(monkeypatch):
    def measure(_plan, writer, **_rest):
        writer.close()

    monkeypatch.setattr("bench.cli.commands.measure", measure)


@pytest.fixture
def begun(tmp_path):
    """Begin a run of the tiny scenario in `results`; it is being written until it is closed."""

    def begin():
        asked = Asked(scenario=Path(TINY), simulated=True)
        return start_run(asked, tmp_path / "results", command_line=["bench", "run"])[1]

    return begin


def test_latest_is_named_with_what_it_is(bench, begun):
    writer = begun()
    writer.mark("failed")
    writer.close()
    code, out, err = bench("resume", "latest")
    assert (code, out) == (0, "")
    when = writer.manifest.started_at[:16].replace("T", " ")
    assert err == f"latest is {writer.run_id}, begun {when} UTC, 0 of 4 cells stored\n"
    assert bench("resume", "latest", "--quiet") == (0, "", "")


def test_an_old_run_is_not_taken_without_a_word(bench, begun):
    old = begun()
    old.close()
    new = begun()  # and is being written
    err = bench("resume", "latest")[2]
    assert err.startswith(f"latest is {old.run_id}, ")
    assert err.endswith("; 1 run begun later cannot be taken up\n")
    new.close()
    assert bench("resume", "latest")[2].startswith(f"latest is {new.run_id}, ")


def test_a_run_that_was_named_is_not_named_again(bench, begun):
    writer = begun()
    writer.close()
    assert bench("resume", writer.run_id) == (0, "", "")


def test_part_runs_are_listed_with_how_they_stand(bench, begun):
    failed, written = begun(), begun()
    failed.mark("failed")
    failed.close()
    lines = bench("list")[1].splitlines()
    assert [line.split()[0] for line in lines[1:]] == [failed.run_id, written.run_id]
    assert " failed " in lines[1]
    assert "`bench resume` goes on with it" in lines[1]
    assert "0/4" in lines[1]
    assert "being written by process" in lines[2]
    written.close()
    stored = json.loads(bench("list", "--json")[1])["runs"]
    assert [run["status"] for run in stored] == ["failed", "interrupted"]
    assert [run["published"] for run in stored] == [False, False]
