"""`bench report` and `bench compare`: pages where they were asked for, mistakes told."""

import re

import pytest
from bench_command import TINY, run_bench


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    folder = tmp_path_factory.mktemp("report")
    code, out, err = run_bench("run", TINY, "--sim", "--quiet", cwd=folder)
    assert code in {0, 4}, err
    return folder, out


def the_run(folder):
    (run,) = (folder / "results" / "tiny").glob("2*")
    return run


def test_a_run_ends_with_its_page_and_names_it(measured):
    folder, out = measured
    page = the_run(folder) / "report.html"
    assert f"Page:    {page.relative_to(folder)}" in out
    assert "SIMULATED" in page.read_text()


def test_a_run_needs_no_page(tmp_path):
    code, out, _ = run_bench("run", TINY, "--sim", "--quiet", "--no-report", cwd=tmp_path)
    assert code in {0, 4}
    assert "Page:" not in out
    assert not (the_run(tmp_path) / "report.html").exists()


def test_a_page_that_cannot_be_written_changes_no_answer(tmp_path, measured):
    folder, _ = measured
    page = the_run(folder) / "report.html"
    before = page.read_text()
    page.unlink()
    page.mkdir()
    try:
        code, _, err = run_bench("report", "latest", cwd=folder)
    finally:
        page.rmdir()
        page.write_text(before)
    assert code == 3
    assert re.search(r"bench: .*report\.html cannot be written", err)
    assert "Traceback" not in err


def test_the_page_figures_and_data_go_where_they_are_asked(measured, tmp_path):
    folder, _ = measured
    options = ("--page", "p.html", "--figures", tmp_path / "f", "--data", tmp_path / "d")
    code, out, err = run_bench("report", "latest", *map(str, options), cwd=folder)
    assert (code, err) == (0, "")
    assert out.startswith("p.html\n")
    assert (folder / "p.html").is_file()
    assert (tmp_path / "f" / "speedup.svg").is_file()
    assert (tmp_path / "d" / "cells.csv").is_file()


def test_markdown_for_a_pull_request(measured):
    folder, _ = measured
    code, out, _ = run_bench("report", "latest", "--markdown", cwd=folder)
    assert code == 0
    assert out.startswith("### Is the bench sound?\n")
    assert "**SIMULATED" in out


def test_a_run_is_not_compared_with_itself(measured):
    folder, _ = measured
    code, out, err = run_bench("compare", "latest", "latest", cwd=folder)
    assert (code, out) == (2, "")
    assert "against itself" in err


def test_two_runs_compared_are_answered_on_the_console_and_on_a_page(measured):
    folder, _ = measured
    before = the_run(folder).name
    code, _, err = run_bench("run", TINY, "--sim", "--quiet", "--out", "again", cwd=folder)
    assert code in {0, 4}, err
    (after,) = (folder / "again" / "tiny").glob("2*")
    code, out, err = run_bench("compare", before, str(after), "--page", "c.html", cwd=folder)
    assert (code, err) == (0, "")
    assert out.startswith("SIMULATED")
    assert out.endswith("c.html\n")
    assert "There is no verdict: one launch" in out
    assert "SIMULATED" in (folder / "c.html").read_text()


def test_a_run_that_is_not_there(measured):
    folder, _ = measured
    for command in (("report", "nothing"), ("compare", "nothing", "latest")):
        code, out, err = run_bench(*command, cwd=folder)
        assert (code, out) == (2, "")
        assert "no run 'nothing'" in err


def test_markdown_is_all_that_stdout_holds(measured, tmp_path):
    folder, _ = measured
    files = ("--figures", str(tmp_path / "f"), "--data", str(tmp_path / "d"))
    _, alone, _ = run_bench("report", "latest", "--markdown", cwd=folder)
    code, out, err = run_bench("report", "latest", "--markdown", *files, cwd=folder)
    assert code == 0
    assert out == alone
    assert err.count("files in") == 2
