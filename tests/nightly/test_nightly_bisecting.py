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
    lines = script.splitlines()
    [begin] = [n for n, line in enumerate(lines) if line == f"{side}() {{"]
    [line] = [line for line in lines[begin : lines.index("}", begin)] if " run " in line]
    return shlex.split(line.rpartition("||")[0])


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
    assert "by_hand old 'gpus.driver 570.10, not 575.20'" in script
    assert "by_hand new 'as it is now'" in script


def run_script(script, tmp_path):
    """What a script prints, with a stand-in for bench that tells what it is asked."""
    commands = tmp_path / "bin"
    commands.mkdir()
    (commands / "bench").write_text('#!/bin/sh\necho "bench $*"\n')
    (commands / "bench").chmod(0o755)
    path = tmp_path / "bisect.sh"
    path.write_text(script)
    done = subprocess.run(
        ["sh", str(path)], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True
    )
    return done.stdout.splitlines(), done.stderr.splitlines()


def test_the_script_runs_through_and_asks_by_hand_where_the_side_changes(suite, tmp_path):
    script = script_of(suite, {"gpus.driver": "575.20"}, commands=tmp_path / "bin")
    out, err = run_script(script, tmp_path)
    sides = ["old" if "out/old" in line else "new" for line in out[:-1]]
    assert sides == ["old", "new", "new", "old", "old", "new"]
    assert out[-1] == "bench nightly bisect --compare out"
    assert [line.partition(":")[0] for line in err] == [
        f"bisect, {side}" for side in ("old", "new", "old", "new")
    ]


def test_where_nothing_was_recorded_both_sides_are_one_but_for_what_hands_do(suite, tmp_path):
    script = script_of(suite, {}, commands=tmp_path / "bin")
    assert words_of(script, "old")[:-2] == words_of(script, "new")[:-2]
    _, err = run_script(script, tmp_path)
    assert "nothing recorded has changed" in err[0]


def test_without_hands_nothing_is_asked(suite, tmp_path):
    script = script_of(suite, {"environment.NCCL_ALGO": "Tree"}, commands=tmp_path / "bin")
    assert run_script(script, tmp_path)[1] == []


def test_draft_steps_are_put_back_in_the_scenario(suite):
    field = FieldChange(
        name="eagle3: speculative.num_steps", before="3", after="5", nights_off=0, fits=True
    )
    rerun = rerun_of([field], suite.scenarios[0], Path("out"))
    assert rerun.overrides == ("arms.eagle3.speculative.num_steps=3",)
    assert load_scenario(TINY, rerun.overrides).scenario.arms["eagle3"].speculative.num_steps == 3


def test_of_attached_servers_all_is_by_hand(suite):
    attached = suite.scenarios[0].model_copy(update={"sim": False, "attach": {"baseline": "u"}})
    field = FieldChange(
        name="server: attention_backend", before="fa3", after="x", nights_off=0, fits=True
    )
    rerun = rerun_of([field], attached, Path("out"))
    assert rerun.overrides == ()
    assert rerun.by_hand == ("server: attention_backend fa3, not x",)


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
    reruns = compare_reruns(tmp_path)
    assert not reruns.simulated
    assert len(reruns.suspect_ct) == len(reruns.changes)
    changes = {(c.arm, c.load): c for c in reruns.changes}
    assert changes["eagle3", "1"].ratio == pytest.approx(1.2, rel=0.05)
    assert changes["baseline", "1"].ratio == pytest.approx(1.0, rel=0.05)
    assert changes["eagle3", "1"].launches == (2, 2)


def test_a_side_without_runs_is_told(tmp_path):
    with pytest.raises(InputError, match="no finished run"):
        compare_reruns(tmp_path)
