"""A sweep over the real SGLang on a CPU, through `tuner sweep scenarios/lab-tune.yaml`."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.sglang_long, pytest.mark.timeout(3600)]

ROOT = Path(__file__).parents[2]
SWEEP_S = 3300
VERDICTS = {"FASTER", "SLOWER", "SAME", "UNDECIDED"}
ACCEPT_LEN_ERROR_TOK = 0.05


@pytest.fixture(scope="module")
def study(lab, tmp_path_factory):
    folder = tmp_path_factory.mktemp("sweep")
    tuner = Path(sys.executable).with_name("tuner")
    done = subprocess.run(
        [tuner, "sweep", ROOT / "scenarios" / "lab-tune.yaml", "--out", folder, "--json"],
        env=dict(os.environ),
        capture_output=True,
        text=True,
        timeout=SWEEP_S,
        check=False,
    )
    print(done.stderr[-20_000:], file=sys.stderr)
    assert done.stdout, done.stderr[-5000:]
    assert done.returncode == 0
    return json.loads(done.stdout)


def test_it_ends_with_a_verdict(study):
    assert study["status"] == "complete"
    assert study["conclusion"]["verdict"].upper() in VERDICTS
    assert study["conclusion"]["blocks"] >= 2
    assert not study["simulated"]
    assert study["engine_version"] == "0.5.23"


def test_every_launch_ran_as_it_was_asked(study):
    assert [t["failure"] for t in study["trials"] if t["failure"]] == []
    assert all("config_not_as_asked" not in t["marks"] for t in study["trials"])


def test_accept_lengths_of_shallower_chains_were_predicted(study):
    """From the counts of a deeper chain, before they were launched."""
    configurations = study["configurations"]
    deepest = 0
    errors = []
    for trial in study["trials"]:
        of = configurations[trial["configuration"]]
        if of["algorithm"] != "EAGLE3" or of["eagle_topk"] != 1:
            continue
        if of["num_steps"] < deepest:
            pairs = zip(trial["predicted_accept_len_tok"], trial["accept_len_tok"], strict=True)
            errors += [abs(predicted - found) for predicted, found in pairs]
        deepest = max(deepest, of["num_steps"])
    assert errors
    assert max(errors) <= ACCEPT_LEN_ERROR_TOK
