"""`bench nightly` as it is typed: nights that run, fail, meet, and what their end says."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pandas as pd
import pytest
from nightly_examples import Event, night, points

from bench.nightly.history import LOCK, add, read_history
from bench.store.disk import take_lock

BENCH = str(Path(sys.executable).with_name("bench"))
TINY = Path(__file__).parents[1] / "cli" / "tiny.yaml"
BAD = (Event(night=30, accept=-0.06, facts={"draft.weights": "bbbb"}),)


def bench(*arguments, cwd, **environment):
    done = subprocess.run(
        [BENCH, "nightly", *map(str, arguments)],
        cwd=cwd,
        env={**os.environ, "NO_COLOR": "1", "COLUMNS": "80", **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert "Traceback" not in done.stdout + done.stderr, done.stderr
    return done.returncode, done.stdout, done.stderr


@pytest.fixture
def history(tmp_path):
    """A history with a draft that was swapped on the thirtieth night."""
    rows, environments = points(BAD, nights=50)
    folder = tmp_path / "results" / "nightly"
    add(folder, kind="import", night=night(49), points=rows, facts=environments.values())
    return folder


def write_suite(tmp_path, text):
    path = tmp_path / "suite.yaml"
    path.write_text(text)
    return path


def test_two_simulated_nights(tmp_path):
    suite = write_suite(tmp_path, f"name: demo\nscenarios: [{{scenario: {TINY}, sim: true}}]\n")
    for number in range(2):
        code, out, err = bench("run", suite, cwd=tmp_path)
        assert code == 0, err
        assert "not enough yet" in out
        assert "SIMULATED" in out
        assert f"pair {number}" in err  # the order of arms alternates by the pair
    first, second = (
        [line.split()[2] for line in read_manifest(run)]
        for run in sorted((tmp_path / "results" / "tiny").iterdir())
    )
    assert first == second[::-1]
    frame = pd.read_parquet(tmp_path / "results" / "nightly" / "points")
    begin, end = sorted(set(frame["night"]))
    assert (end - begin).days == 1  # simulated nights need not be waited for
    assert frame["source_id"].nunique() == 2
    assert set(frame["hardware"]) == {"simulated h200-x8"}
    assert frame["simulated"].all()
    lines = (tmp_path / "results" / "nightly" / "series.jsonl").read_text().splitlines()
    assert {json.loads(line)["nights"] for line in lines} == {2}
    page = (tmp_path / "results" / "nightly" / "index.html").read_text()
    assert "SIMULATED" in page


def read_manifest(run):
    """`launch ORDINAL ARM` of each launch, in order."""
    manifest = json.loads((run / "manifest.json").read_text())
    return [f"launch {x['ordinal']} {x['arm']}" for x in manifest["launches"]]


def test_a_night_that_fails_leaves_a_dated_failure_and_ends_with_3(tmp_path):
    suite = write_suite(
        tmp_path,
        f"""
name: demo
scenarios:
  - scenario: {TINY}
    attach: {{baseline: "http://127.0.0.1:9", eagle3: "http://127.0.0.1:9"}}
""",
    )
    code, _, err = bench("run", suite, "--quiet", cwd=tmp_path)
    assert code == 3, err
    assert "tiny was not measured" in err
    [failure] = read_history(tmp_path / "results" / "nightly").failures
    assert failure.scenario == "tiny"
    assert failure.night is not None


def test_two_nights_never_overlap(tmp_path):
    suite = write_suite(tmp_path, f"name: demo\nscenarios: [{{scenario: {TINY}, sim: true}}]\n")
    folder = tmp_path / "results" / "nightly"
    folder.mkdir(parents=True)
    handle = take_lock(folder / LOCK)
    try:
        code, _, err = bench("run", suite, cwd=tmp_path)
    finally:
        os.close(handle)
    assert code == 3
    assert "another night is being measured" in err
    assert f"process {os.getpid()}" in err
    [failure] = read_history(folder).failures
    assert "still being measured" in failure.reason


def test_a_suite_without_the_baseline_is_refused_before_anything_starts(tmp_path):
    suite = write_suite(
        tmp_path,
        f"name: demo\nscenarios: [{{scenario: {TINY}, attach: {{eagle3: 'http://127.0.0.1:9'}}}}]\n",
    )
    code, _, err = bench("run", suite, cwd=tmp_path)
    assert code == 2
    assert "without the baseline" in err
    assert not (tmp_path / "results").exists()


@pytest.mark.parametrize(
    ("scenarios", "said"),
    [
        (f"[{{scenario: {TINY}, sim: true, only: [load=99]}}]", "suite.yaml:2 scenarios.0: "),
        (
            f"[{{scenario: {TINY}, sim: true}}, {{scenario: {TINY}, sim: true, set: [x=1]}}]",
            "suite.yaml:2 scenarios.1: ",
        ),
        (f"[{{scenario: {TINY}, sim: true}}, {{scenario: {TINY}, sim: true}}]", "twice"),
    ],
)
def test_what_no_night_could_measure_is_told_with_its_place(tmp_path, scenarios, said):
    suite = write_suite(tmp_path, f"name: demo\nscenarios: {scenarios}\n")
    code, _, err = bench("run", suite, cwd=tmp_path)
    assert code == 2
    assert said in err
    assert not (tmp_path / "results").exists()


def test_a_night_that_is_killed_or_stopped_leaves_its_date(tmp_path):
    suite = write_suite(tmp_path, f"name: demo\nscenarios: [{{scenario: {TINY}, sim: true}}]\n")
    entries = tmp_path / "results" / "nightly" / "entries"
    for number, way in enumerate((signal.SIGKILL, signal.SIGTERM), start=1):
        with subprocess.Popen([BENCH, "nightly", "run", suite, "--quiet"], cwd=tmp_path) as night_:
            while (
                night_.poll() is None
                and not list(tmp_path.glob("results/tiny/.partial-*/logs/*"))[number - 1 :]
            ):
                time.sleep(0.02)
            night_.send_signal(way)
        assert night_.returncode == (-signal.SIGKILL, 130)[number - 1]
    told = sorted(f.reason for f in read_history(entries.parent).failures)
    assert told == [
        "begun and not finished: it is being measured now, or was killed",
        "stopped by hand",
    ]
    code, out, _ = bench("judge", cwd=tmp_path)
    assert code == 0
    assert "stopped by hand" in out


def test_a_regression_ends_with_5_until_it_is_acknowledged(tmp_path, history):
    summary = tmp_path / "summary.md"
    code, out, err = bench("judge", cwd=tmp_path, GITHUB_STEP_SUMMARY=str(summary))
    assert code == 5, err
    assert "draft.weights aaaa → bbbb (sole change)" in out
    assert "1 regression" in summary.read_text()
    assert (history / "index.html").exists()

    code, out, _ = bench("ack", night(30), "--reason", "the new draft", cwd=tmp_path)
    assert code == 0
    assert out.count("expected: ") == 3
    code, out, _ = bench("judge", "--json", cwd=tmp_path)
    assert code == 0
    assert json.loads(out)["regression"] is False


def test_an_ack_of_one_series_leaves_the_others(tmp_path, history):
    arguments = ("ack", night(31), "--reason", "r", "--series", "accept_len_tok", "--by", "ann")
    code, out, _ = bench(*arguments, cwd=tmp_path)
    assert (code, out.count("expected: ")) == (0, 1)
    assert bench("judge", "--no-report", cwd=tmp_path)[0] == 5
    assert read_history(history).acks[0].by == "ann"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("ack", "2026-13-01", "--reason", "r"), "is no date"),
        (("ack", "2026-01-05", "--reason", "r"), "nothing changed"),
        (("ack", "2026-01-31", "--reason", " "), "without a reason"),
        (("bisect",), "wants a suite"),
        (("bisect", "--compare", "nowhere"), "no finished run"),
        (("import", "nowhere"), "no such file"),
        (("import", "."), "no run of ours"),
        (("judge", "nowhere.yaml"), "cannot be read"),
    ],
)
def test_a_users_mistake_is_told(tmp_path, history, arguments, said):
    code, _, err = bench(*arguments, cwd=tmp_path)
    assert code == 2
    assert said in err


def test_an_empty_history_is_no_regression(tmp_path):
    code, out, _ = bench("judge", cwd=tmp_path)
    assert (code, out) == (0, "everything: no night yet in results/nightly\n")


def test_a_newer_history_is_refused(tmp_path, history):
    [entry] = (history / "entries").iterdir()
    entry.write_text(json.dumps(json.loads(entry.read_text()) | {"version": 99}))
    code, _, err = bench("judge", cwd=tmp_path)
    assert code == 2
    assert "Update specdyno" in err


def test_past_results_of_bench_serving_are_imported(tmp_path):
    rows = [
        {"backend": "sglang", "max_concurrency": 4, "output_throughput": 100.0 + i} for i in (0, 1)
    ]
    (tmp_path / "r_20261101.jsonl").write_text("\n".join(map(json.dumps, rows)))
    arguments = ("import", "r_20261101.jsonl", "--scenario", "past", "--arm", "eagle3")
    code, out, _ = bench(*arguments, cwd=tmp_path)
    assert code == 0
    assert out == "2 sources taken in (2 points), 0 known already, 0 refused.\n"
    assert "0 sources taken in (0 points), 2 known" in bench(*arguments, cwd=tmp_path)[1]
