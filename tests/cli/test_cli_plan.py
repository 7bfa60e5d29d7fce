"""`bench run --dry-run`.

To renew a golden plan: `bench run tests/cli/tiny.yaml --dry-run > tests/golden/plan/hardware.txt`.
"""

import json

import pytest
from bench_command import GOLDEN, SCENARIOS, TINY, run_bench

ATTACHED = ("--attach", "http://a:1", "--attach", "eagle3=http://b:2")


@pytest.mark.parametrize(
    ("golden", "options"),
    [
        ("hardware", ()),
        ("simulated", ("--sim", "--only", "load=2", "--add-pairs", "1")),
        ("attached", ATTACHED),
    ],
)
def test_the_plan_is_printed_as_it_was_and_nothing_is_started(golden, options, bench, tmp_path):
    wanted = (GOLDEN / "plan" / f"{golden}.txt").read_text()
    assert bench("run", TINY, *options, "--dry-run") == (0, wanted, "")
    assert list(tmp_path.iterdir()) == []


def test_the_plan_as_json(bench):
    code, out, _ = bench("run", TINY, "--sim", "--dry-run", "--json")
    assert code == 0
    plan = json.loads(out)
    assert list(plan) == [
        *("scenario", "question", "simulated", "speed", "pairs", "cells", "hours", "gpu_hours"),
        *("launches", "findings"),
    ]
    assert plan["findings"] == []
    assert (plan["scenario"], plan["simulated"], plan["cells"]) == ("tiny", True, 4)
    assert [launch["arm"] for launch in plan["launches"]] == ["baseline", "eagle3"]
    for launch in plan["launches"]:
        assert [cell["load"] for cell in launch["cells"]] == ["1", "2"]
        assert "--max-running-requests" in launch["arguments"]
    hours = sum(launch["estimated_s"] for launch in plan["launches"]) / 3600
    assert plan["hours"] == pytest.approx(hours)


def test_who_answers_for_the_arguments_is_told(bench):
    by = "SGLang itself could not be asked (SGLang cannot be imported)."
    assert json.loads(bench("run", TINY, "--dry-run", "--json")[1])["arguments_told_by"].endswith(
        by
    )


def test_what_sglang_refuses_is_the_user_s_error_and_leaves_nothing(tmp_path):
    srt = tmp_path / "sglang" / "srt"
    srt.mkdir(parents=True)
    (tmp_path / "sglang" / "version.py").write_text("__version__ = '0.5.24'")
    (srt / "server_args.py").write_text(
        "def prepare_server_args(argv): raise ValueError('tp_size is odd')"
    )
    for options in (["--dry-run"], ["--no-doctor"]):
        code, out, err = run_bench("run", TINY, *options, cwd=tmp_path, PYTHONPATH=str(tmp_path))
        assert (code, out) == (2, "")
        assert "tiny.yaml:8 server.arguments.0: arms baseline, eagle3: SGLang 0.5.24" in err
    assert "Nothing was measured, and nothing is kept of this run." in err
    assert not list((tmp_path / "results").glob("*/*"))


def test_what_the_rules_advise_is_told_before_a_run(bench):
    wide = ("--set", "arms.eagle3.speculative.num_draft_tokens=9")
    plan = json.loads(bench("run", TINY, "--sim", "--dry-run", "--json", *wide)[1])
    [finding] = plan["findings"]
    assert (finding["kind"], finding["arm"]) == ("arguments_advice", "eagle3")
    assert finding["message"].startswith("num_draft_tokens was 9 and becomes")
    assert finding["message"].endswith("(rule C3, docs/arguments.md).")
    printed = bench("run", TINY, "--sim", "--dry-run", *wide)[1]
    assert "NOTE arguments_advice" in printed
    assert "num_draft_tokens was 9" in printed


def rows(printed):
    """The launches as printed: arm, pair, cells, what they are expected to take."""
    lines = printed.partition("launch  arm")[2].partition("\n\n")[0].splitlines()[1:]
    return [line.split(maxsplit=1)[1] for line in lines]


def test_a_budget_says_first_what_fits_and_marks_what_is_dropped(bench):
    whole = json.loads(bench("run", TINY, "--dry-run", "--json")[1])
    took_s = [launch["estimated_s"] for launch in whole["launches"]]
    budget = f"{sum(took_s[:3]):.0f}s"  # the first pair, and no part of the second
    code, out, err = bench("run", TINY, "--dry-run", "--budget", budget)
    assert (code, err) == (0, "")
    title, kept, dropped, *_ = out.splitlines()
    assert title.startswith("tiny:")
    assert "4 of 12 cells fit, in 2 of 6 launches" in kept
    assert dropped.startswith("Dropped, later pairs first")
    assert "pairs 1, 2: chat load 1, chat" in dropped
    assert [" dropped " in row for row in rows(out)] == [False] * 2 + [True] * 4
    assert "4 cells in 2 launches: about" in out
    answer = json.loads(bench("run", TINY, "--dry-run", "--budget", budget, "--json")[1])
    assert answer["budget"]["fits"] is True
    assert len(answer["budget"]["dropped_cells"]) == 8
    assert len(answer["launches"]) == 6


def test_a_budget_for_all_of_it_drops_nothing(bench):
    code, out, _ = bench("run", TINY, "--dry-run", "--budget", "9h")
    assert code == 0
    assert "Budget 9.0 h: all of it fits" in out
    assert "dropped" not in out


@pytest.mark.parametrize("more", [(), ("--json",)])
def test_a_budget_that_a_run_would_refuse_is_refused(bench, more):
    refused = bench("run", TINY, "--budget", "5m")
    code, out, err = bench("run", TINY, "--dry-run", "--budget", "5m", *more)
    assert (code, err) == (refused[0], refused[2])
    assert code == 2
    assert "--budget: 5 min are not enough" in err
    if more:
        assert json.loads(out)["budget"]["fits"] is False
    else:
        assert "Budget 5 min: nothing fits" in out
        assert all(" dropped " in row for row in rows(out))


def test_the_main_job_fits_a_morning_on_hardware_and_two_minutes_simulated(bench):
    kimi = str(SCENARIOS / "kimi.yaml")
    on_hardware = json.loads(bench("run", kimi, "--dry-run", "--json")[1])
    assert on_hardware["hours"] <= 4
    simulated = json.loads(bench("run", kimi, "--dry-run", "--json", "--sim")[1])
    assert simulated["hours"] * 3600 <= 120
    assert simulated["cells"] == on_hardware["cells"]
