"""How `tuner` words an answer, a stopped study and a launch, of studies that are made up."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

sys.path.append(str(Path(__file__).parents[1] / "tuner"))

from studies import STUDY_ID, make_study, study_folder

from bench.errors import StoreError
from bench.model.study import TrialState
from bench.store.study import find_study
from tuner.cli.answer_text import answer, in_short
from tuner.cli.commands import app
from tuner.cli.study_text import launched, print_status, print_study, study_json, trial_result
from tuner.cli.sweep_steps import SweepProgress
from tuner.evaluate.readings import beside
from tuner.sweep.events import TrialStarting


def concluded(study, **changes):
    return replace(study, conclusion=replace(study.conclusion, **changes))


def short_final(study):
    """The study as if its final had launched the best, the baseline, and the best once more."""
    best = study.conclusion.best
    final = [t for t in study.trials if t.block is not None]
    of_best = [t for t in final if t.configuration == best]
    [base, *_] = [t for t in final if t.configuration == 0]
    kept = [replace(of_best[0], block=0), replace(base, block=0), replace(of_best[1], block=1)]
    trials = (*(t for t in study.trials if t.block is None), *kept)
    return concluded(replace(study, trials=trials), blocks=2)


def marked(study, place, *marks):
    trials = tuple(
        replace(t, marks=marks) if t.configuration == place and t.block == 0 else t
        for t in study.trials
    )
    return replace(study, trials=trials)


def stopped(tmp_path, *, status="running"):
    """A part-run's folder that nobody writes, with one launch cut off and two cells stored."""
    study = make_study(concluded=False)
    trials = (*study.trials[:3], replace(study.trials[4], state=TrialState.RUNNING, gain=None))
    trials = (*trials[:3], replace(trials[3], value=(None,) * 4, number=3))
    study = replace(study, trials=trials, status=status)
    folder = study_folder(tmp_path / "results", study)
    part = folder.rename(folder.with_name(f".partial-{STUDY_ID}"))
    for name in ("a", "b"):
        (part / "cells" / name).mkdir(parents=True)
    return study, part


# ------------------------------------------------------------------------------------- the answer


def test_whole_blocks_are_called_blocks():
    [ratio, verdict, *_] = answer(make_study())
    assert "x as fast as no speculation [" in ratio
    assert ratio.endswith("], re-tested in 4 blocks of neighbouring launches.")
    assert verdict == "FASTER. Deploy EAGLE3 3-1-4."


def test_a_short_final_is_told_by_what_was_launched():
    [ratio, *_] = answer(short_final(make_study()))
    assert ratio.endswith("], re-tested in 2 launches beside 1 without speculation.")


@pytest.mark.parametrize(
    ("objective", "whole", "short"),
    [
        (
            "goodput",
            "x the goodput (requests a second within the slo) of no speculation [",
            "% goodput",
        ),
        (
            "tok_per_s_per_user",
            "x the tok/s of a user of no speculation [",
            "% tok/s of a user",
        ),
        ("energy", "x the tokens a joule of no speculation [", "% tokens a joule"),
    ],
)
def test_a_gain_that_is_not_of_speed_says_of_what_it_is(objective, whole, short):
    study = replace(make_study(), objective=objective)
    ratio, _, search, *_ = answer(study)
    assert "as fast" not in ratio
    assert whole in ratio
    assert f"{short}, of which" in search
    measured = next(t for t in study.trials if t.configuration == 5)
    assert f"{short} over the baseline" in trial_result(measured, objective)
    assert "% over the baseline" in trial_result(measured, "tok_per_s")


def test_progress_lines_name_the_objective_and_the_turns(capsys):
    prepared = SimpleNamespace(tune=SimpleNamespace(objective="goodput"), launches=20)
    progress = SweepProgress(prepared, "x", quiet=False)
    trial = replace(make_study().trials[4], launch_id=None, predicted_gain=0.05)
    progress.on_trial(TrialStarting(trial=trial, label="EAGLE3 3-1-4", cut_off=0))
    progress.on_trial(
        TrialStarting(trial=replace(trial, why="steps"), label="EAGLE3 3-1-4", cut_off=0)
    )
    first, second = capsys.readouterr().err.splitlines()
    assert first == "[5/20] EAGLE3 3-1-4 (search, +5.1 % goodput expected)"
    assert second.startswith("[5/20] two step counts in turn (EAGLE3 3-1-4 and its neighbour)")


def test_why_there_is_no_verdict_is_said_with_what_there_is():
    reason = "only one of the final's 2 blocks is whole, and a verdict needs two"
    study = concluded(make_study(), verdict=None, reason=reason, answer="undecided", blocks=1)
    ratio, verdict, *rest = answer(study)
    assert " was 1.7" in ratio
    assert "], in 5 launches against 6." in ratio
    assert "without repeats" not in ratio
    assert verdict.startswith(f"No verdict: {reason}. EAGLE3 3-1-4 is the best guess;")
    assert not any("a verdict needs two" in line for line in rest)


def test_without_repeats_is_said_where_there_were_none():
    study = concluded(make_study(), verdict=None, answer="undecided", reason="none is whole")
    kept, seen = [], set()
    for t in study.trials:
        if t.configuration not in seen:
            kept.append(t)
            seen.add(t.configuration)
    ratio, *_ = answer(replace(study, trials=tuple(kept)))
    assert ratio.endswith("], in 1 launch against 1, without repeats.")


def test_what_the_gain_rests_on_is_told_with_its_marks():
    study = make_study()
    assert not any("marked" in line for line in answer(study))
    best = study.conclusion.best
    _, _, line, *_ = answer(marked(marked(study, best, "drifting", "kv_full"), 0, "throttled"))
    assert line.startswith(
        "It rests on marked launches: EAGLE3 3-1-4 (drifting in 1 of 4 launches, kv_full in 1 of "
        "4 launches) and no speculation (throttled in 1 of 6 launches)."
    )
    assert "`bench show`" in line
    assert answer(marked(study, 5, "drifting")) == answer(study)  # it is neither


def test_the_answer_in_a_line_begins_with_what_to_run():
    study = make_study(present=3, answer="keep_present", deploy=3)
    assert in_short(study).startswith("Keep what you have: EAGLE3 3-1-4. ")
    assert in_short(make_study(answer="leave_off", deploy=0)).startswith("Leave speculation off.")


# ----------------------------------------------------------------------- stopped, and its launches


@pytest.mark.parametrize("status", ["running", "interrupted"])
def test_a_stopped_study_says_what_was_cut_off_and_how_to_go_on(
    tmp_path, monkeypatch, capsys, status
):
    monkeypatch.chdir(tmp_path)
    study, folder = stopped(tmp_path, status=status)
    print_study(study, folder)
    out = capsys.readouterr().out
    assert "running" not in out
    assert "cut off" in out
    assert f"2 cells stored; `tuner resume {STUDY_ID}` goes on." in out
    assert [t["state"] for t in study_json(study, folder)["trials"]][-1] == "stale"
    print_status(tmp_path / "results", None, as_json=False)
    listed, told = capsys.readouterr().out.splitlines()
    assert listed.endswith("interrupted, 3 of at most 24 launches")
    assert told.strip().startswith("No answer yet, after 3 of at most 24 launches:")
    print_status(tmp_path / "results", None, as_json=True)
    [row] = json.loads(capsys.readouterr().out)
    assert (row["launches"], row["status"]) == (3, "interrupted")


def test_a_study_elsewhere_is_taken_up_and_exported_from_there(tmp_path, monkeypatch, capsys):
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    study, folder = stopped(tmp_path)
    print_study(study, folder)
    assert (
        f"`tuner resume {STUDY_ID} --out {tmp_path}/results` goes on." in capsys.readouterr().out
    )


def test_what_is_still_written_is_running(tmp_path, monkeypatch, capsys):
    study, folder = stopped(tmp_path)
    monkeypatch.setattr("bench.store.reader.writer_pid", lambda _: 4711)
    print_study(study, folder)
    out = capsys.readouterr().out
    assert "running" in out
    assert "tuner resume" not in out


def test_budgets_that_were_spent_before_a_final_ask_for_more(tmp_path, capsys):
    study, folder = stopped(tmp_path)
    print_study(replace(study, launches_budget=3), folder)
    assert "--launches N` goes on." in capsys.readouterr().out


def test_a_launch_of_two_step_counts_is_called_so():
    trial = make_study().trials[4]
    turns = replace(trial, why="steps", launch_id="L06-steps-1-3-p0")
    assert launched(turns, "EAGLE3 3-1-4") == "two step counts in turn (1 and 3)"
    assert launched(trial, "EAGLE3 3-1-4") == "EAGLE3 3-1-4"


# ---------------------------------------------------------------------------- limits, names, pages


@pytest.mark.parametrize(
    ("found", "limit", "told"),
    [(8.17, 8, "8.2"), (8.0004, 8, "8.0004"), (19.25, 12.85, "19"), (3.98, 4, "3.98")],
)
def test_a_figure_is_told_from_its_limit(found, limit, told):
    assert beside(found, limit) == told


def test_studies_are_found_by_latest_and_missed_as_studies(tmp_path):
    results = tmp_path / "results"
    results.mkdir()
    with pytest.raises(StoreError, match="no study in"):
        find_study(results, "latest")
    older = replace(make_study(), study_id="20261129T010000Z-kimi-eagle3-1a2b3c")
    study_folder(results, older)
    newest = study_folder(results, make_study())
    run = results / "other" / "20261230T010000Z-other-1a2b3c"
    run.mkdir(parents=True)
    (run / "manifest.json").write_text("{}")
    assert find_study(results, "latest")[0] == newest
    with pytest.raises(StoreError, match="no study 'nobody' in"):
        find_study(results, "nobody")


def tuner(*words, cwd):
    done = subprocess.run(
        [Path(sys.executable).with_name("tuner"), *words],
        cwd=cwd,
        env={**os.environ, "COLUMNS": "100"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_show_names_the_page_once_there_is_one(tmp_path):
    folder = study_folder(tmp_path / "results", make_study())
    assert "Page:" not in tuner("show", "latest", cwd=tmp_path)
    (folder / "study.html").write_text("<!DOCTYPE html>")
    shown = tuner("show", "latest", cwd=tmp_path)
    assert shown.endswith(f"Page: results/kimi-eagle3/{STUDY_ID}/study.html\n")


@pytest.mark.parametrize("command", ["show", "report", "export", "resume", "status"])
def test_latest_is_in_the_help(command):
    assert "`latest`" in CliRunner().invoke(app, [command, "--help"]).stdout
