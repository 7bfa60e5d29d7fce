"""Two step counts that take turns in one launch of the real SGLang, beside launches of each."""

import json
import math
import os
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest
import yaml

from bench.sglang.switch_lines import switch_sections
from bench.store import load_run, load_samples
from bench.store.manifest import read_manifest
from bench.store.reader import stored_table
from bench.store.records import telemetry_of
from tuner.evaluate.alternation import alternation, alternation_config, alternation_obstacle
from tuner.evaluate.log_phases import log_phases
from tuner.evaluate.phases import StepComparison, compare_steps

pytestmark = [pytest.mark.sglang_long, pytest.mark.timeout(1800)]

ROOT = Path(__file__).parents[2]
RUN_S = 1500
ASKED = alternation(1, 3, 23)
LOG_INTERVAL = 4
LOADS = ("1", "4")
FAR = 4
"""Standard errors, of accept lengths whose steps have a standard deviation of at most 1."""


def scenario(folder: Path) -> Path:
    """scenarios/lab-wide.yaml with a chain of each step count, and one in which they alternate."""
    config = folder / "adaptive.json"
    config.write_text(alternation_config(ASKED.few, ASKED.many, ASKED.interval))
    made = yaml.safe_load((ROOT / "scenarios" / "lab-wide.yaml").read_text())
    for part in ("target", "draft"):
        made[part]["path"] = str(ROOT / "scenarios" / made[part]["path"])
    launcher = made["server"]["launcher"]
    for part in ("command", "resolve"):
        launcher[part] = [launcher[part][0], str(ROOT / "scenarios" / launcher[part][1])]
    made["server"]["arguments"].append(f"--decode-log-interval {LOG_INTERVAL}")
    chains = {
        steps: {
            "algorithm": "EAGLE3",
            "num_steps": steps,
            "eagle_topk": 1,
            "num_draft_tokens": steps + 1,
        }
        for steps in (ASKED.few, ASKED.many)
    }
    made["arms"] = {"baseline": {}} | {
        f"steps-{steps}": {"speculative": chain} for steps, chain in chains.items()
    }
    made["arms"]["alternating"] = {
        "speculative": chains[ASKED.many],
        "arguments": f"--speculative-adaptive --speculative-adaptive-config {config}",
    }
    made["workloads"]["generate"] |= {"max_output_tok": 96, "store_text": False}
    made["name"] = "lab-phases"
    made["question"] = "Do two step counts that take turns say what two launches say?"
    path = folder / "phases.yaml"
    path.write_text(yaml.safe_dump(made))
    return path


@pytest.fixture(scope="module")
def run_folder(lab, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("phases")
    command = Path(sys.executable).with_name("bench")
    done = subprocess.run(
        [command, "run", scenario(folder), "--out", folder / "out", "--json", "--no-report"],
        env=dict(os.environ),
        capture_output=True,
        text=True,
        timeout=RUN_S,
        check=False,
    )
    assert done.stdout, done.stderr[-5000:]
    assert json.loads(done.stdout)["cells"]
    return next((folder / "out").glob("*/*/manifest.json")).parent


class Alternated:
    """What was stored of the alternating launch's cell at a load."""

    def __init__(self, folder: Path, load: str) -> None:
        self.run = load_run(folder)
        self.launch = next(x for x in self.run.manifest.launches if x.arm == "alternating")
        self.log = (folder / self.launch.log_file).read_text()
        cell_id = self.measured("alternating", load).cell_id
        self.samples = [s for s in load_samples(folder) if s.cell_id == cell_id]
        table = stored_table(folder, read_manifest(folder), "telemetry")
        rows = [at for at, x in enumerate(table["cell_id"].to_pylist()) if x == cell_id]
        self.telemetry = telemetry_of(table.take(rows))

    def measured(self, arm: str, load: str):
        return next(m for m in self.run.measurements if (m.arm, m.load) == (arm, load))

    def compared(self) -> StepComparison:
        found = compare_steps(
            self.samples,
            self.telemetry,
            self.log,
            asked=ASKED,
            effective=self.launch.effective,
        )
        assert isinstance(found, StepComparison), found
        return found


@pytest.fixture(scope="module", params=LOADS)
def alternated(request, run_folder):
    return request.param, Alternated(run_folder, request.param)


def test_accept_lengths_are_those_of_separate_launches(alternated):
    load, cell = alternated
    found = cell.compared()
    for figures in (found.few, found.many):
        alone = cell.measured(f"steps-{figures.steps}", load)
        error = math.sqrt(1 / figures.verify_ct + 1 / alone.spec_verify_ct)
        assert figures.accept_len_tok == pytest.approx(alone.accept_len_tok, abs=FAR * error)
    assert found.accept_len.speedup > 1
    assert found.cycle.ci95_high > 1  # of a busy machine no more can be said


def test_log_and_gauge_agree_where_phases_are(alternated):
    found = alternated[1].compared()
    assert found.gauge_compared > 0
    assert found.gauge_agreed == found.gauge_compared


def test_most_of_the_cell_is_told_and_nothing_twice(alternated):
    cell = alternated[1]
    found = cell.compared()
    verify_ct = sum(sample.spec_verify_ct for sample in cell.samples)
    told = found.few.verify_ct + found.many.verify_ct
    assert 0.5 * verify_ct < told <= 1.05 * verify_ct
    assert found.left_out < 0.5
    assert all(one.end <= two.first for one, two in pairwise(found.phases))
    assert not found.ranks_only
    assert not found.simulated


def test_the_logs_own_account_is_the_same(alternated):
    cell = alternated[1]
    found = cell.compared()
    told = log_phases(
        cell.samples,
        switch_sections(cell.log.splitlines()),
        ASKED,
        every=LOG_INTERVAL,
        overlapped=False,
        telemetry=cell.telemetry,
    )
    for figures in (found.few, found.many):
        own = [phase for phase in told.phases if phase.steps == figures.steps]
        verify_ct = sum(phase.verify_ct for phase in own)
        accept_len = 1 + sum(phase.correct_ct for phase in own) / verify_ct
        assert accept_len == pytest.approx(figures.accept_len_tok, abs=FAR / math.sqrt(verify_ct))


def test_no_obstacle_was_seen_beforehand(alternated, tmp_path):
    config = tmp_path / "adaptive.json"
    config.write_text(alternation_config(ASKED.few, ASKED.many, ASKED.interval))
    argv = list(alternated[1].launch.argv)
    arguments = argv[argv.index("--served-model-name") :]
    assert alternation_obstacle(arguments, ASKED, str(config)) is None
    without = [word for word in arguments if word != "--disable-cuda-graph"]
    assert "--disable-cuda-graph" in alternation_obstacle(without, ASKED, str(config))
