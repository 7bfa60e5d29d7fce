"""Whole runs in this process, against simulated servers that have faults."""

import asyncio
import json
from pathlib import Path

import yaml

from bench.runner import Asked, resume_run, run, start_run
from bench.store import load_run, load_samples

SCENARIO = Path(__file__).with_name("faults.yaml")
SPECULATIVE = {"algorithm": "EAGLE3", "num_steps": 3, "eagle_topk": 1, "num_draft_tokens": 4}


class Rehearsal:
    """What became of a run.

    Attributes:
        run: As the store has it.
        events: What the console was told.
    """

    def __init__(self, folder, events):
        self.folder = folder
        self.run = load_run(folder)
        self.events = events

    def cell(self, arm, load="2"):
        """An arm's measurement."""
        (found,) = [m for m in self.run.measurements if (m.arm, m.load) == (arm, load)]
        return found

    def findings(self, arm, load="2"):
        """(kind, severity) of what is told of an arm's cell."""
        cell_id = self.cell(arm, load).cell_id
        return {(f.kind, f.severity) for f in self.run.findings if f.cell_id == cell_id}

    def message(self, arm, kind):
        """The message of an arm's finding."""
        ids = {m.cell_id for m in self.run.measurements if m.arm == arm}
        (found,) = [
            f for f in self.run.findings if f.kind == kind and (f.arm == arm or f.cell_id in ids)
        ]
        return f"{found.message} {found.advice}"

    def samples(self, arm, load="2"):
        """A cell's requests."""
        cell_id = self.cell(arm, load).cell_id
        return [s for s in load_samples(self.folder) if s.cell_id == cell_id]

    def launches(self, arm):
        """How each start of an arm went."""
        return [launch for launch in self.run.manifest.launches if launch.arm == arm]

    def log(self, arm):
        """The log of an arm's last start."""
        return (self.folder / self.launches(arm)[-1].log_file).read_text()


def write_scenario(folder, arms, **changes):
    """The scenario with these arms: name → list of faults, or a mapping as in a scenario.

    `changes` are merged into its blocks.
    """
    scenario = yaml.safe_load(SCENARIO.read_text())
    for name, arm in arms.items():
        speculative = {} if name == "baseline" else {"speculative": SPECULATIVE}
        faulty = {"sim": {"faults": arm}} | speculative
        scenario["arms"][name] = faulty if isinstance(arm, list) else arm
    for block, values in changes.items():
        scenario[block] = {**scenario.get(block, {}), **values}
    path = folder / "rehearsal.yaml"
    path.write_text(json.dumps(scenario))
    return path


def rehearse(folder, arms, *, overrides=(), **changes):
    """Measure a baseline and these arms to the end."""
    path = write_scenario(folder, arms, **changes)
    asked = Asked(scenario=path, simulated=True, overrides=tuple(overrides))
    plan, writer = start_run(asked, folder / "results", command_line=["bench", "run"])
    events = []
    with writer:
        return Rehearsal(asyncio.run(run(plan, writer, on_event=events.append)), events)


def resume(folder):
    """Take up the newest part-run."""
    plan, writer = resume_run("latest", folder / "results", command_line=["bench", "resume"])
    with writer:
        return Rehearsal(asyncio.run(run(plan, writer)), [])
