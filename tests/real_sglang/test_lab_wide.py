"""Trees, n-grams and adaptive drafting on the real SGLang, through `bench run`."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.sglang_long, pytest.mark.timeout(1800)]

ROOT = Path(__file__).parents[2]
RUN_S = 1500
ARMS = ("tree-4-4-8", "ngram-8", "adaptive")
BUSY = {"client_late", "client_saturated", "drifting", "window_too_short", "output_degenerate"}


@pytest.fixture(scope="module")
def answer(lab, tmp_path_factory):
    folder = tmp_path_factory.mktemp("wide")
    scenario = ROOT / "scenarios" / "lab-wide.yaml"
    done = subprocess.run(
        [Path(sys.executable).with_name("bench"), "run", scenario, "--out", folder, "--json"],
        env=dict(os.environ),
        capture_output=True,
        text=True,
        timeout=RUN_S,
        check=False,
    )
    assert done.stdout, done.stderr[-5000:]
    return json.loads(done.stdout), folder


def cells(answer, arm):
    return [cell for cell in answer[0]["cells"] if cell["arm"] == arm]


@pytest.mark.parametrize("arm", ARMS)
def test_every_request_ends_well_and_is_counted(answer, arm):
    assert [cell["load"] for cell in cells(answer, arm)] == ["1", "4"]
    for cell in cells(answer, arm):
        assert cell["failed_ct"] == 0
        assert cell["spec_verify_ct"] > 0
        assert sum(cell["spec_correct_drafts_histogram"]) == cell["spec_verify_ct"]
        accepted = sum(k * n for k, n in enumerate(cell["spec_correct_drafts_histogram"]))
        assert accepted == cell["spec_num_correct_drafts"]
        assert cell["accept_len_tok"] == 1 + accepted / cell["spec_verify_ct"]
        assert cell["accept_len_tok"] > 1


def test_a_tree_is_never_deeper_than_its_steps(answer):
    for cell in cells(answer, "tree-4-4-8"):
        assert len(cell["accept_at_position"]) == 4


def test_no_accept_rate_where_the_depth_varied(answer):
    assert all(cell["accept_rate"] is None for cell in cells(answer, "adaptive"))


def test_nothing_is_distrusted_but_for_a_busy_machine(answer):
    grave = {f["kind"] for f in answer[0]["findings"] if f["severity"] != "note"}
    assert grave <= BUSY


@pytest.mark.parametrize("arm", ARMS)
def test_greedy_texts_are_the_baselines(answer, arm):
    import bench

    samples = bench.results(answer[1]).samples()
    measured = samples[samples["phase"] == "measure"]
    texts = {
        name: group.sort_values(["load", "index"])["text"].tolist()
        for name, group in measured.groupby("arm")
    }
    assert texts[arm] == texts["baseline"]
