"""The command `bench` as a process of its own, whose own processes can be found."""

import os
import subprocess
import sys
import time
import uuid
from pathlib import Path

BENCH = str(Path(sys.executable).with_name("bench"))
SCENARIOS = Path(__file__).parents[2] / "scenarios"
GOLDEN = Path(__file__).parents[1] / "golden"
TINY = str(Path(__file__).with_name("tiny.yaml"))
PATIENCE_S = 60

MARK = "SPECDYNO_TEST_MARK"


class Command:
    """A running `bench`; every process that it starts inherits its mark."""

    def __init__(self, *arguments, cwd, stdout=subprocess.PIPE, **environment):
        self.mark = uuid.uuid4().hex
        self.process = subprocess.Popen(
            [BENCH, *arguments],
            cwd=cwd,
            env={**os.environ, "COLUMNS": "80", "NO_COLOR": "1", MARK: self.mark, **environment},
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self.said = ""

    def wait_for(self, text):
        """Read stderr up to the line that has `text`."""
        for line in self.process.stderr:
            self.said += line
            if text in line:
                return
        raise AssertionError(f"bench ended without saying {text!r}:\n{self.said}")

    def end(self):
        """Wait for its end: (exit code, stdout, stderr)."""
        out, rest = self.process.communicate(timeout=PATIENCE_S)
        return self.process.returncode, out, self.said + rest

    def processes(self, what=""):
        """Pids of the processes it has started, itself left out, whose command has `what`."""
        found = []
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit() or int(entry.name) == self.process.pid:
                continue
            try:
                environment = (entry / "environ").read_bytes()
                command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            except OSError:
                continue
            if f"{MARK}={self.mark}".encode() in environment and what in command and command:
                found.append(int(entry.name))
        return found

    def find(self, what):
        """The pid of its process whose command has `what`, once there is one."""
        return _until(lambda: self.processes(what), f"no process {what}")[0]

    def leaves_nothing(self):
        """Whether all its processes end."""
        _until(lambda: not self.processes(), "processes are left")
        return True


def run_bench(*arguments, cwd, **environment):
    """Run to the end: (exit code, stdout, stderr). A traceback is no answer."""
    code, out, err = Command(*arguments, cwd=cwd, **environment).end()
    assert "Traceback" not in out + err, err
    return code, out, err


def _until(look, failure):
    for _ in range(PATIENCE_S * 50):
        if found := look():
            return found
        time.sleep(0.02)
    raise AssertionError(failure)
