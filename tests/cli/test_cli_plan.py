"""`bench run --dry-run`.

To renew a golden plan: `bench run tests/cli/tiny.yaml --dry-run > tests/golden/plan/hardware.txt`.
"""

import json

import pytest
from bench_command import GOLDEN, SCENARIOS, TINY

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


def test_what_the_rules_advise_is_told_before_a_run(bench):
    wide = ("--set", "arms.eagle3.speculative.num_draft_tokens=9")
    plan = json.loads(bench("run", TINY, "--sim", "--dry-run", "--json", *wide)[1])
    [finding] = plan["findings"]
    assert (finding["kind"], finding["arm"]) == ("arguments_advice", "eagle3")
    assert finding["message"].startswith("C3: num_draft_tokens was 9 and becomes")
    printed = bench("run", TINY, "--sim", "--dry-run", *wide)[1]
    assert "NOTE arguments_advice" in printed
    assert "C3: num_draft_tokens was 9" in printed


def test_the_main_job_fits_a_morning_on_hardware_and_two_minutes_simulated(bench):
    kimi = str(SCENARIOS / "kimi.yaml")
    on_hardware = json.loads(bench("run", kimi, "--dry-run", "--json")[1])
    assert on_hardware["hours"] <= 4
    simulated = json.loads(bench("run", kimi, "--dry-run", "--json", "--sim")[1])
    assert simulated["hours"] * 3600 <= 120
    assert simulated["cells"] == on_hardware["cells"]
