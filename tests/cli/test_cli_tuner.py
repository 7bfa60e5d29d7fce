"""`tuner` as a user has it: what it prints, its exit codes, a sweep over simulated servers."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from bench_command import TINY

TUNE = """
tune:
  present: eagle3
  num_steps: [1, 3]
  eagle_topk: [1]
  budget: {launches: 6}
"""


def tuner(*words, cwd, **environment):
    done = subprocess.run(
        [Path(sys.executable).with_name("tuner"), *map(str, words)],
        cwd=cwd,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


def scenario(folder, tune=TUNE):
    path = folder / "tuned.yaml"
    path.write_text(Path(TINY).read_text() + tune)
    return path


@pytest.fixture(scope="module")
def swept(tmp_path_factory):
    folder = tmp_path_factory.mktemp("swept")
    return folder, tuner("sweep", scenario(folder), "--sim", "--json", cwd=folder)


def test_a_sweep_ends_with_its_answer(swept):
    _, (code, out, err) = swept
    assert code == 0, err
    study = json.loads(out)
    assert study["status"] == "complete"
    assert study["simulated"] is True
    assert len(study["trials"]) <= 6
    assert study["conclusion"]["blocks"] >= 2
    assert study["answer"]
    assert "SIMULATED servers" in err
    assert "[1/6] off (without speculation, against drift)" in err


def test_the_study_is_listed_shown_reported_and_exported(swept):
    folder, (_, out, _) = swept
    study_id = json.loads(out)["study"]
    code, listed, _ = tuner("status", cwd=folder)
    assert code == 0
    assert study_id in listed
    assert "complete (simulated), 6 of 6 launches" in listed
    code, shown, _ = tuner("show", study_id, cwd=folder)
    assert code == 0
    assert shown.startswith("SIMULATED: nothing here was measured on hardware.")
    assert "final 1" in shown
    code, page, _ = tuner("report", study_id, cwd=folder)
    assert code == 0
    assert (folder / page.strip()).read_text().startswith("<!")
    code, exported, err = tuner("export", study_id, "--to", "there", cwd=folder)
    assert code == 0, err
    assert "simulated" in exported.lower()
    assert (folder / "there" / "launch.sh").is_file()


def test_a_damaged_study_hides_no_other(swept, tmp_path):
    folder, (_, out, _) = swept
    results = shutil.copytree(folder / "results", tmp_path / "results")
    bad = results / "tiny" / "20260101T000000Z-tiny-abcdef"
    bad.mkdir()
    (bad / "study.json").write_text('{"format": 1, ')
    (bad / "manifest.json").write_text("{}")
    code, listed, err = tuner("status", cwd=tmp_path)
    assert code == 0
    assert json.loads(out)["study"] in listed
    assert "study.json cannot be read" in err


def test_a_dry_run_tells_the_space_and_starts_nothing(tmp_path):
    code, out, _ = tuner("sweep", scenario(tmp_path), "--sim", "--dry-run", cwd=tmp_path)
    assert code == 0
    assert "distinct configurations." in out
    assert "off   <- the baseline" in out
    assert "EAGLE3 3-1-4   <- in use now" in out
    assert not (tmp_path / "results").exists()
    code, out, _ = tuner("sweep", scenario(tmp_path), "--sim", "--dry-run", "--json", cwd=tmp_path)
    told = json.loads(out)
    assert told["distinct"] == len(told["configurations"]) == 3
    assert told["raw"] >= told["legal"] >= told["distinct"]


@pytest.mark.parametrize(
    ("tune", "said"),
    [
        ("\ntune:\n  num_stepz: [1]\n", "tune.num_stepz: unknown key"),
        ("\ntune:\n  num_steps: []\n", "tune.num_steps: is empty"),
        ("\ntune:\n  present: nobody\n", "no arm is called nobody"),
        ("\ntune:\n  present: eagle3\n  loads: {'99': 1}\n", "no load is called 99"),
        ("\ntune:\n  eagle_topk: [0]\n", "tune: no speculative configuration is legal"),
        ("", "tune: missing"),
    ],
)
def test_mistakes_are_told_with_file_and_line(tmp_path, tune, said):
    path = scenario(tmp_path, tune)
    code, out, err = tuner("sweep", path, "--sim", cwd=tmp_path)
    assert (code, out) == (2, "")
    assert said in err
    assert f"{path}:" in err
    assert "Traceback" not in err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("show", "nothing"), "no results folder"),
        (("resume", "nothing"), "no results folder"),
        (("export", "nothing"), "no results folder"),
        (("sweep", "nowhere.yaml"), "nowhere.yaml"),
    ],
)
def test_what_is_not_there_is_told(tmp_path, words, said):
    code, out, err = tuner(*words, cwd=tmp_path)
    assert (code, out) == (2, "")
    assert said in err
    assert err.startswith("tuner: ")


def test_a_finished_study_cannot_be_resumed(swept):
    folder, (_, out, _) = swept
    code, _, err = tuner("resume", json.loads(out)["study"], cwd=folder)
    assert code == 2
    assert "is complete" in err
