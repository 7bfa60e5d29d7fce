"""A whole run on the simulator, and what is told of it afterwards."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from bench_command import BENCH, TINY, Command, run_bench

CELL_KEYS = {
    *("arm", "workload", "load", "pair", "status", "output_tok_per_s"),
    *("output_tok_per_s_per_user", "accept_len_tok", "accept_len_server_tok"),
    *("accept_at_position", "cycle_ms", "ttft_ms", "tpot_ms", "chunk_gap_ms"),
}
COMPARISON_KEYS = {
    *("arm", "workload", "load", "speedup", "ci95_low", "ci95_high", "pairs", "verdict"),
    "break_even_accept_len_tok",
}


def test_the_answer_as_json_has_the_promised_keys(finished):
    answer = finished.answer
    assert {"run", "simulated", "cells", "comparisons", "findings"} <= answer.keys()
    assert answer["simulated"] is True
    assert [(c["arm"], c["load"], c["pair"]) for c in answer["cells"]] == [
        *(("baseline", "1", 0), ("baseline", "2", 0), ("eagle3", "1", 0), ("eagle3", "2", 0))
    ]
    for cell in answer["cells"]:
        assert cell.keys() >= CELL_KEYS
        assert cell["simulated"] is True
        assert set(cell["ttft_ms"]) == {"mean", "p50", "p90", "p95", "p99", "n"}
        assert cell["output_tok_per_s"] > 0
        assert (cell["accept_len_tok"] is None) == (cell["arm"] == "baseline")
    assert [(c["arm"], c["load"]) for c in answer["comparisons"]] == [
        *(("eagle3", "1"), ("eagle3", "2"))
    ]
    for comparison in answer["comparisons"]:
        assert comparison.keys() >= COMPARISON_KEYS
        assert comparison["speedup"] > 1
        assert (comparison["pairs"], comparison["verdict"]) == (1, None)
    for finding in answer["findings"]:
        assert finding["message"]
        assert finding["advice"]


def test_the_exit_code_says_whether_a_comparison_has_a_valid_cell(finished):
    """On a busy machine a fast simulation may be SUSPECT throughout."""
    is_valid = any(cell["status"] == "VALID" for cell in finished.answer["cells"])
    assert finished.code == (0 if is_valid else 4)


def test_progress_is_told_on_stderr(finished):
    lines = finished.said.splitlines()
    assert lines[0].startswith(f"{finished.answer['run']}: 4 cells in 2 launches, about ")
    assert lines[1].startswith("SIMULATED servers at 10× speed")
    assert "launch 1/2 baseline, pair 0: starting the server" in lines
    done = [line.split()[0] for line in lines if line.startswith("  [")]
    assert done == ["[1/4]", "[2/4]", "[3/4]", "[4/4]"]
    (last,) = [line for line in lines if "[4/4]" in line]
    assert "eagle3 chat load 2: " in last
    assert "tok/s, accept length " in last


def test_quiet_says_nothing_on_the_way(tmp_path):
    one_cell = ("--only", "arm=baseline", "--only", "load=1")
    code, out, err = run_bench("run", TINY, "--sim", "--quiet", *one_cell, cwd=tmp_path)
    assert code in {0, 4}
    assert err == ""
    # One arm alone has its own figures in place of a comparison.
    assert "speedup" not in out
    (row,) = [line.split() for line in out.splitlines() if line.startswith("chat")]
    assert row[:4] == ["chat", "1", "baseline", "0"]
    assert float(row[4]) > 0
    assert row[8] == "–"  # no accept length
    assert row[10] == "0/15" or row[10].startswith("0/")


def test_show_prints_the_stored_answer_again(finished, bench):
    out = ("--out", str(finished.place / "results"))
    for name in ("latest", finished.answer["run"], finished.answer["run"][-6:]):
        code, again, _ = bench("show", name, *out, "--json")
        assert code == 0
        assert json.loads(again) == finished.answer
    code, again, _ = bench("show", str(finished.folder), "--json")
    assert json.loads(again) == finished.answer
    code, text, _ = bench("show", *out)
    assert code == 0
    assert f"{finished.answer['run']}: Is the bench sound?" in text
    assert "SIMULATED at 10× speed" in text
    assert "no verdict" in text
    assert f"Results: {finished.folder}" in text
    for comparison in finished.answer["comparisons"]:
        assert f"{comparison['speedup']:.3f}" in text
        assert f"{comparison['break_even_accept_len_tok']:.2f}" in text


def test_list_names_the_run(finished, bench):
    code, text, _ = bench("list", "--out", str(finished.place / "results"))
    assert code == 0
    heading, row = text.splitlines()
    assert heading.split() == ["run", "scenario", "status", "cells", "simulated", "note"]
    assert row.split() == [finished.answer["run"], "tiny", "complete", "4/4", "SIMULATED"]
    code, text, _ = bench("list", "--out", str(finished.place / "results"), "--json")
    (run,) = json.loads(text)["runs"]
    assert run["run_id"] == finished.answer["run"]
    assert run["folder"] == str(finished.folder)


def test_a_published_run_is_not_resumed(finished, bench):
    code, _, err = bench(
        "resume", finished.answer["run"], "--out", str(finished.place / "results")
    )
    assert code == 2
    assert "there is nothing to resume" in err


def test_two_lines_of_python_read_the_results(finished):
    import bench

    frames = bench.results(finished.place / "results")
    assert list(frames.measurements.arm) == ["baseline", "baseline", "eagle3", "eagle3"]


# ------------------------------------------------------------------------ where the output goes


def show(finished, **options):
    return subprocess.run(
        [BENCH, "show", "--out", str(finished.place / "results")],
        check=False,
        text=True,
        stderr=subprocess.PIPE,
        env={**os.environ, **options.pop("env", {})},
        **options,
    )


def test_the_reader_of_stdout_may_leave(finished):
    read_fd, write_fd = os.pipe()
    os.close(read_fd)
    with os.fdopen(write_fd, "w") as nobody:
        done = show(finished, stdout=nobody)
    assert (done.returncode, done.stderr) == (0, "")


def test_without_a_stdout_there_is_nothing_to_say(finished):
    done = show(finished, preexec_fn=lambda: os.close(1))
    assert (done.returncode, done.stderr) == (0, "")


def test_a_full_disk_below_stdout_is_told(finished):
    with Path("/dev/full").open("w") as full:
        done = show(finished, stdout=full)
    assert done.returncode == 3
    assert "cannot print the answer: No space left on device" in done.stderr


def test_a_terminal_without_unicode_gets_question_marks(finished):
    done = show(finished, stdout=subprocess.PIPE, env={"PYTHONIOENCODING": "ascii"})
    assert done.returncode == 0
    assert "SIMULATED at 10? speed" in done.stdout


def test_a_narrow_terminal_loses_no_figure(finished):
    """The table is folded by the terminal, not cut by us."""
    script = ("script", "-qec", f"{BENCH} show --out {finished.place / 'results'}", "/dev/null")
    done = subprocess.run(
        script,
        check=True,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        env={**os.environ, "COLUMNS": "60", "TERM": "xterm"},
    )
    assert "no verdict" in done.stdout
    assert "…" not in done.stdout.partition("workload")[2].partition("No verdict")[0]


@pytest.mark.parametrize("unbuffered", ["1", ""])
def test_progress_that_nobody_reads_stops_no_run(tmp_path, unbuffered):
    asked = ("run", TINY, "--sim", "--json", "--only", "load=1")
    command = Command(*asked, cwd=tmp_path, PYTHONUNBUFFERED=unbuffered)
    command.wait_for("[1/2]")
    command.process.stderr.close()
    with command.process.stdout as stdout:
        out = stdout.read()
    assert command.process.wait(timeout=60) in {0, 4}
    assert len(json.loads(out)["cells"]) == 2


@pytest.mark.parametrize("unbuffered", ["1", ""])
def test_a_mistake_that_nobody_reads_of_is_a_mistake_all_the_same(tmp_path, unbuffered):
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "wb") as nobody:
        done = subprocess.run(
            [BENCH, "run", "nothing.yaml"],
            check=False,
            cwd=tmp_path,
            stderr=nobody,
            env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
        )
    assert done.returncode == 2


def test_importing_the_command_is_light():
    """`bench --help` must not wait for numpy, pyarrow or pydantic."""
    code = "import sys, bench.cli.commands; print(sorted(set(sys.modules) & set(sys.argv[1:])))"
    heavy = ("numpy", "pyarrow", "pydantic", "aiohttp", "scipy", "pandas")
    done = subprocess.run(
        [sys.executable, "-c", code, *heavy], check=True, capture_output=True, text=True
    )
    assert done.stdout == "[]\n"
