"""The script that re-runs old against new, and what is made of its runs."""

import shlex
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest
from nightly_examples import Event, history, night, points

sys.path.insert(0, str(Path(__file__).parents[1] / "reports"))
from report_examples import stored_run

from bench.clock import utc_now
from bench.errors import InputError
from bench.model.nightly import FieldChange
from bench.nightly import bisect_script, compare_reruns, load_suite
from bench.nightly.bisecting import rerun_of
from bench.nightly.judge import Watch, judge
from bench.scenario import load_scenario

TINY = Path(__file__).parents[1] / "cli" / "tiny.yaml"


@pytest.fixture
def suite(tmp_path):
    path = tmp_path / "suite.yaml"
    path.write_text(f"name: demo\nscenarios: [{{scenario: {TINY}, sim: true}}]\n")
    return load_suite(path)


def script_of(suite, facts, **more):
    events = (Event(night=30, step=0.06, facts=facts),)
    held = history(*points(events, nights=50, scenario="tiny"))
    verdict = judge(held, Watch(suite="demo"), judged_at=utc_now())
    return bisect_script(verdict, suite, night(30), series="", runs=Path("out"), **more)


def words_of(script, side):
    [line] = [line for line in script.splitlines() if line.startswith(f"{side}()")]
    return shlex.split(line.partition("{")[2].rpartition("||")[0])


def test_both_sides_alternate_and_are_valid_shell(suite, tmp_path):
    script = script_of(suite, {"environment.NCCL_ALGO": "Tree"})
    path = tmp_path / "bisect.sh"
    path.write_text(script)
    subprocess.run(["sh", "-n", str(path)], check=True)
    assert script.splitlines()[-7:-1] == ["old", "new", "new", "old", "old", "new"]
    assert script.splitlines()[-1] == "bench nightly bisect --compare out"
    old, new = words_of(script, "old"), words_of(script, "new")
    assert old[:3] == ["env", "-u", "NCCL_ALGO"]
    assert new[:3] == ["bench", "run", str(TINY)]
    assert "arm=baseline" in new
    assert "arm=eagle3" in new
    assert "out/old" in old
    assert "out/new" in new


def test_the_old_arguments_are_ones_the_scenario_takes(suite):
    script = script_of(suite, {"server: attention_backend": "trtllm"})
    old = words_of(script, "old")
    overrides = [b for a, b in pairwise(old) if a == "--set"]
    loaded = load_scenario(TINY, overrides)
    assert loaded.scenario.server.arguments[-1] == "--attention-backend fa3"
    assert len(loaded.scenario.server.arguments) > 1


def test_old_packages_are_installed_beside_the_new(suite):
    script = script_of(suite, {"packages.nvidia-nccl-cu12": "2.28.9", "server: version": "0.5.23"})
    assert "out/old-venv/bin/pip install nvidia-nccl-cu12==2.27.3 sglang==0.5.22" in script
    old = words_of(script, "old")
    assert any("old-venv/bin/python" in word for word in old)
    overrides = [b for a, b in pairwise(old) if a == "--set"]
    assert load_scenario(TINY, overrides).scenario.server.launcher.command[0].endswith("python")


def test_what_no_command_puts_back_is_said(suite):
    script = script_of(suite, {"gpus.driver": "575.20"})
    assert "# By hand, before every `old`, and back before every `new`: gpus.driver" in script


def test_a_draft_is_named_by_its_commit(suite):
    field = FieldChange(name="draft.commit", before="abc", after="def", nights_off=0, fits=True)
    rerun = rerun_of([field], suite.scenarios[0], Path("out"))
    assert rerun.overrides == ("draft.revision=abc",)


def test_a_night_without_a_change_names_those_with_one(suite):
    held = history(*points((Event(night=30, step=0.06),), nights=50, scenario="tiny"))
    verdict = judge(held, Watch(suite="demo"), judged_at=utc_now())
    with pytest.raises(InputError, match="nothing changed") as caught:
        bisect_script(verdict, suite, night(10), series="", runs=Path("out"))
    assert str(night(30)) in caught.value.hint


def test_old_and_new_runs_are_compared_over_all_their_launches(tmp_path):
    stored_run(tmp_path / "old", gain=lambda _: 1.0)
    stored_run(tmp_path / "new", gain=lambda _: 1.2)
    changes = {(c.arm, c.load): c for c in compare_reruns(tmp_path)}
    assert changes["eagle3", "1"].ratio == pytest.approx(1.2, rel=0.05)
    assert changes["baseline", "1"].ratio == pytest.approx(1.0, rel=0.05)
    assert changes["eagle3", "1"].launches == (2, 2)


def test_a_side_without_runs_is_told(tmp_path):
    with pytest.raises(InputError, match="no finished run"):
        compare_reruns(tmp_path)
