"""A run of the lab's scenario as the tests look at it, and what it might have left running."""

import contextlib
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import psutil

import bench

SECRET = "hf_this-must-not-be-stored"


@dataclass(frozen=True)
class LabRun:
    """What `bench run` left: its exit status, what it printed and where the results lie."""

    exit_code: int
    answer: dict[str, Any]
    progress: str
    out: Path

    @cached_property
    def results(self):
        return bench.results(self.out)

    @property
    def folder(self):
        return self.results.stored[0].folder

    @property
    def launches(self):
        return self.results.stored[0].manifest.launches

    @cached_property
    def samples(self):
        return self.results.samples()

    @cached_property
    def telemetry(self):
        return self.results.telemetry()

    def launch(self, arm):
        return next(launch for launch in self.launches if launch.arm == arm)

    def log(self, arm):
        return (self.folder / self.launch(arm).log_file).read_text()

    def findings(self, severity):
        found = self.results.findings
        return found[found.severity == severity]


def processes_in(folder: Path) -> list[psutil.Process]:
    """Processes that were started in a folder: SGLang's rename themselves, but do not move."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.status() != psutil.STATUS_ZOMBIE and Path(process.cwd()) == folder:
                found.append(process)
    return found
