"""`bench run --dry-run`; to renew: bench run scenarios/kimi.yaml --dry-run > tests/golden/dry-run/kimi.txt"""

import json

import pytest
from bench_command import GOLDEN, SCENARIOS, TINY, run_bench


@pytest.mark.parametrize(
    ("golden", "arguments"),
    [
        ("kimi", ("kimi.yaml",)),
        ("kimi-sim", ("kimi.yaml", "--sim")),
        ("quick-sim", ("quick.yaml", "--sim", "--only", "load=8", "--add-pairs", "1")),
        ("lab", ("lab.yaml",)),
        (
            "quick-attached",
            ("quick.yaml", "--attach", "http://a:1", "--attach", "eagle3=http://b:2"),
        ),
    ],
)
def test_the_plan_is_printed_as_it_was_and_nothing_is_started(golden, arguments, tmp_path):
    scenario, *options = arguments
    code, out, err = run_bench(
        "run", str(SCENARIOS / scenario), *options, "--dry-run", cwd=tmp_path
    )
    assert (code, err) == (0, "")
    assert out == (GOLDEN / "dry-run" / f"{golden}.txt").read_text()
    assert list(tmp_path.iterdir()) == []


def test_the_plan_as_json(tmp_path):
    code, out, _ = run_bench("run", TINY, "--sim", "--dry-run", "--json", cwd=tmp_path)
    assert code == 0
    plan = json.loads(out)
    assert list(plan) == [
        *("scenario", "question", "simulated", "speed", "pairs", "cells", "hours", "gpu_hours"),
        "launches",
    ]
    assert (plan["scenario"], plan["simulated"], plan["cells"]) == ("tiny", True, 4)
    assert [launch["arm"] for launch in plan["launches"]] == ["baseline", "eagle3"]
    for launch in plan["launches"]:
        assert [cell["load"] for cell in launch["cells"]] == ["1", "2"]
        assert "--max-running-requests" in launch["arguments"]
    hours = sum(launch["estimated_s"] for launch in plan["launches"]) / 3600
    assert plan["hours"] == pytest.approx(hours)
