"""What `tuner export` writes: golden files, its marks, and what it never overwrites."""

from __future__ import annotations

import json
import re
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from studies import KIMI, LOSING, ONE_WINNER, STUDY_ID, make_study, study_folder

from bench.errors import InputError
from bench.plan import make_plan
from bench.scenario import load_scenario
from bench.store.study import read_study
from tuner.export import default_folder, export_study, export_text

GOLDEN = Path(__file__).parents[1] / "golden" / "export"
CASES = {
    "deploy": {},
    "leave-off": {"law": LOSING, "answer": "leave_off", "simulated": True},
}


def exported(tmp_path, study, **folder):
    out = tmp_path / "out"
    return export_study(study_folder(tmp_path / "results", study, **folder), study, out), out


def run_by_a_shell(script):
    """NCCL_DEBUG and the words that the script's python3 would be given."""
    shown = script.replace("exec python3", "printf '%s\\0' \"$NCCL_DEBUG\"")
    run = subprocess.run(["sh", "-c", shown], check=True, capture_output=True, text=True)
    return run.stdout.removesuffix("\0").split("\0")


@pytest.mark.parametrize("name", CASES)
def test_files_are_the_golden_ones(name, tmp_path):
    told, out = exported(tmp_path, make_study(**CASES[name]))
    found = {path.name: path.read_text() for path in out.iterdir()}
    found["printed.txt"] = export_text(told).replace(str(out), "OUT")
    golden = {path.name: path.read_text() for path in (GOLDEN / name).iterdir()}
    assert found == golden


@pytest.mark.parametrize("name", CASES)
def test_the_scenario_is_planned_with_loads_on_both_sides_of_every_threshold(name, tmp_path):
    study = make_study(**CASES[name])
    _, out = exported(tmp_path, study)
    plan = make_plan(load_scenario(out / "kimi-eagle3-tuned.yaml"), simulated=study.simulated)
    keys = json.loads((out / "adaptive-pinned.json").read_text())
    thresholds = sorted(int(key) for key in keys if key.isdigit())[1:]
    loads = {cell.load.concurrency for launch in plan.launches for cell in launch.cells}
    assert {launch.arm for launch in plan.launches} >= {
        "baseline",
        "adaptive-pinned",
        "adaptive-responsive",
    }
    for threshold in thresholds:
        below = max(load for load in loads if load < threshold)
        assert threshold in loads
        assert below >= threshold / 2 or below == threshold - 1
    assert {1, 8, 64} <= loads


def test_the_study_that_is_read_back_gives_the_same_files(tmp_path):
    study = make_study()
    folder = study_folder(tmp_path / "results", study)
    export_study(folder, study, tmp_path / "a")
    export_study(folder, read_study(folder), tmp_path / "b")
    for path in (tmp_path / "a").iterdir():
        assert path.read_bytes() == (tmp_path / "b" / path.name).read_bytes()


def test_a_simulated_study_is_marked_in_every_file_and_in_the_text(tmp_path):
    told, out = exported(tmp_path, make_study(simulated=True))
    for path in out.iterdir():
        text = path.read_text()
        assert "SIMULATED" in text or json.loads(text)["simulated"] is True, path.name
    assert export_text(told).startswith("SIMULATED")
    assert export_text(told).rstrip().endswith("--sim")


def test_a_measured_study_is_not_marked(tmp_path):
    told, out = exported(tmp_path, make_study())
    assert "SIMULATED" not in export_text(told) + "".join(p.read_text() for p in out.iterdir())


def test_a_study_without_a_conclusion_is_refused_with_what_to_do(tmp_path):
    study = make_study(concluded=False)
    folder = study_folder(tmp_path / "results", study)
    with pytest.raises(InputError, match=r"yet after 12 of 24 launches: it is running"):
        export_study(folder, study, tmp_path / "out")
    stopped = replace(study, status="interrupted")
    with pytest.raises(InputError) as error:
        export_study(folder, stopped, tmp_path / "out")
    assert STUDY_ID in error.value.hint
    # A final that is being held has a leader, which nobody has confirmed yet.
    with pytest.raises(InputError, match="it is running"):
        export_study(folder, replace(make_study(), status="running"), tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("answer", "present", "begins"),
    [
        ("deploy", None, "Deploy EAGLE3 3-1-4: +74.0 % tok/s over off"),
        ("leave_off", None, "Leave speculation off. The best of it, EAGLE3 3-1-4"),
        ("keep_present", 2, "Keep what you have, EAGLE3 2-1-3. The best found, EAGLE3 3-1-4"),
        ("undecided", None, "UNDECIDED (EAGLE3 3-1-4: "),
        ("undecided", 2, "UNDECIDED (EAGLE3 3-1-4: "),
    ],
)
def test_every_answer_is_said_and_its_own_configuration_handed_over(
    answer, present, begins, tmp_path
):
    study = make_study(answer=answer, present=present)
    told, out = exported(tmp_path, study)
    assert told.answer.startswith(begins)
    steps = study.configurations[study.conclusion.deploy].num_steps
    words = run_by_a_shell((out / "launch.sh").read_text())
    found = words[words.index("--speculative-num-steps") + 1 :][:1] if steps else []
    assert found == ([str(steps)] if steps else [])
    assert ("--speculative-algorithm" in words) == (steps is not None)
    if answer == "undecided":
        label = study.configurations[study.conclusion.deploy].label
        assert told.answer.endswith(f"{label} is handed over.")
        assert study.conclusion.reason in told.answer


def test_what_is_kept_is_named_once(tmp_path):
    told, _ = exported(tmp_path, make_study(answer="keep_present", present=3))
    assert told.answer.startswith("Keep what you have, EAGLE3 3-1-4: nothing better was found. +")
    assert told.answer.count("EAGLE3 3-1-4") == 1


def test_the_objective_is_said_in_words(tmp_path):
    told, _ = exported(tmp_path, replace(make_study(), objective="tok_per_s_per_user"))
    assert "% tok/s of a user over off" in told.answer


def test_the_environment_is_the_one_that_the_study_told(tmp_path):
    told = (("NCCL_DEBUG", "INFO"), ("NCCL_PROTO", "LL"))
    _, out = exported(tmp_path, replace(make_study(), environment=told))
    script = (out / "launch.sh").read_text()
    assert re.findall(r"^export (\w+)=(\w+)$", script, re.MULTILINE) == list(told)


def test_the_command_is_shell_quoted_and_secrets_stay_out(tmp_path):
    study = make_study()
    words = (*study.argv, "--chat-template", "a file.jinja", "--api-key", "sk-verysecretvalue123")
    study = replace(study, argv=words)
    told, out = exported(tmp_path, study)
    everything = export_text(told) + "".join(path.read_text() for path in out.iterdir())
    assert "sk-verysecretvalue123" not in everything
    script = (out / "launch.sh").read_text()
    assert run_by_a_shell(script) == ["WARN", *words[1:-1], "[redacted]"]
    assert "Put in by hand what stands as [redacted]" in script


def test_a_secret_variable_is_named_and_not_told(tmp_path):
    study = make_study()
    winner = replace(study.configurations[3], environment=(("HF_TOKEN", "hf_abcdefghijklmnop"),))
    configurations = (*study.configurations[:3], winner, *study.configurations[4:])
    study = replace(study, configurations=configurations)
    folder = study_folder(tmp_path / "results", study)
    with pytest.raises(InputError, match=r"HF_TOKEN") as error:
        export_study(folder, study, tmp_path / "out")
    assert "hf_abcdefghijklmnop" not in str(error.value)


# -------------------------------------------------------------------------------- what is replaced


def test_an_export_is_written_again_over_itself(tmp_path):
    study = make_study()
    folder = study_folder(tmp_path / "results", study)
    out = tmp_path / "out"
    export_study(folder, study, out)
    (out / "notes.txt").write_text("mine")
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    export_study(folder, study, out)
    assert before == {path.name: path.read_bytes() for path in out.iterdir()}


def test_what_the_same_study_no_longer_hands_over_is_removed(tmp_path):
    study = make_study()
    out = tmp_path / "out"
    export_study(study_folder(tmp_path / "one", study), study, out)
    later = make_study(law=ONE_WINNER)
    told = export_study(study_folder(tmp_path / "two", later), later, out)
    assert {path.name for path in out.iterdir()} == set(told.files)
    assert "adaptive-pinned.json" not in told.files


def test_another_studys_export_is_kept(tmp_path):
    study = make_study()
    folder = study_folder(tmp_path / "results", study)
    other = replace(study, study_id=STUDY_ID.replace("1a2b3c", "ffffff"))
    out = tmp_path / "out"
    export_study(study_folder(tmp_path / "other", other), other, out)
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    with pytest.raises(InputError, match=r"holds the export of study .*ffffff"):
        export_study(folder, study, out)
    assert before == {path.name: path.read_bytes() for path in out.iterdir()}


@pytest.mark.parametrize("name", ["launch.sh", "kimi-eagle3-tuned.yaml", "export.json"])
def test_a_file_that_is_not_an_exports_is_kept(name, tmp_path):
    study = make_study()
    out = tmp_path / "out"
    out.mkdir()
    (out / name).write_text("mine\n")
    with pytest.raises(InputError, match=name):
        export_study(study_folder(tmp_path / "results", study), study, out)
    assert {path.name: path.read_text() for path in out.iterdir()} == {name: "mine\n"}


def test_an_edited_file_of_an_export_is_kept(tmp_path):
    study = make_study()
    folder = study_folder(tmp_path / "results", study)
    out = tmp_path / "out"
    export_study(folder, study, out)
    script = out / "launch.sh"
    script.write_text(script.read_text() + "# mine\n")
    with pytest.raises(InputError, match=r"launch\.sh is there and is not, or not any more"):
        export_study(folder, study, out)
    assert script.read_text().endswith("# mine\n")


def test_an_export_that_was_cut_short_is_completed(tmp_path):
    study = make_study()
    folder = study_folder(tmp_path / "results", study)
    out = tmp_path / "out"
    export_study(folder, study, out)
    whole = {path.name: path.read_bytes() for path in out.iterdir()}
    (out / "export.json").unlink()
    (out / "accept-lengths.json").unlink()
    export_study(folder, study, out)
    assert whole == {path.name: path.read_bytes() for path in out.iterdir()}


def test_a_file_in_place_of_the_folder_is_kept(tmp_path):
    study = make_study()
    (tmp_path / "out").write_text("mine")
    with pytest.raises(InputError, match="is a file"):
        export_study(study_folder(tmp_path / "results", study), study, tmp_path / "out")


def test_the_default_folder_is_named_after_the_scenario():
    study = make_study()
    assert default_folder(study) == Path("kimi-eagle3-tuned")
    assert default_folder(replace(study, scenario="kimi-tuned")) == Path("kimi-tuned")
    assert KIMI.is_file()
