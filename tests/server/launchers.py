"""A scenario with a launcher of one kind, and what stands at its other end."""

import contextlib
import getpass
import os
import shutil
import socket
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import psutil
import yaml

from bench.model import Timeouts
from bench.plan import make_plan
from bench.scenario import load_scenario
from bench.server import start_server
from bench.server.command import free_port

HERE = Path(__file__).parent
STAND_IN = HERE / "stand_in.py"
QUICK = Timeouts(ready_s=20, request_s=20, connect_s=5, drain_s=5, term_s=2)


def scenario(launcher, *arguments, environment=None):
    return {
        "name": "launched",
        "question": "Does it start?",
        "target": {"path": "org/model", "revision": "main"},
        "server": {
            "gpus": 0,
            "launcher": {"command": [sys.executable, str(STAND_IN)], **launcher},
            "arguments": ["--max-running-requests 8", *arguments],
            "environment": environment or {},
        },
        "arms": {"baseline": {}},
        "workloads": {"chat": {"max_output_tok": 8, "sampling": {"temperature": 0}}},
        "loads": {"concurrency": [1]},
    }


def planned_server(folder, launcher, *arguments, environment=None):
    """The server of the one launch that a scenario with this launcher plans."""
    path = folder / "launched.yaml"
    path.write_text(yaml.safe_dump(scenario(launcher, *arguments, environment=environment)))
    return make_plan(load_scenario(path)).launches[0].server


async def launched(folder, launcher, *arguments, timeouts=QUICK, environment=None):
    marked = (f"--download-dir {folder}", *arguments)
    config = planned_server(folder, launcher, *marked, environment=environment)
    return await start_server(config, log_path=folder / "server.log", timeouts=timeouts)


def stand_ins(folder):
    """Every stand-in server that runs on this machine and was launched from a folder."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            words = process.cmdline()
            runs = words[1:2] == [str(STAND_IN)] and str(folder) in words
            if runs and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found


@dataclass
class Sshd:
    """A real OpenSSH server on the loopback, with keys of its own."""

    port: int
    folder: Path

    @property
    def launcher(self):
        return {
            "kind": "ssh",
            "host": f"{getpass.getuser()}@127.0.0.1",
            "options": [
                *("-F", "/dev/null", "-p", str(self.port), "-i", str(self.folder / "user")),
                *("-o", "StrictHostKeyChecking=no", "-o", "LogLevel=ERROR"),
                *("-o", f"UserKnownHostsFile={self.folder / 'known'}"),
            ],
        }


def listens(port):
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@contextlib.contextmanager
def loopback_sshd(folder):
    sshd = shutil.which("sshd", path=f"{os.environ['PATH']}:/usr/sbin:/sbin")
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(exist_ok=True)  # it wants it, and packages make it at boot
    for name in ("host", "user"):
        key = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / name]
        subprocess.run(key, check=True)
    port = free_port()
    config = folder / "config"
    config.write_text(
        f"Port {port}\nListenAddress 127.0.0.1\nHostKey {folder / 'host'}\n"
        f"AuthorizedKeysFile {folder / 'user.pub'}\nPidFile none\nStrictModes no\n"
        "UsePAM no\nPasswordAuthentication no\nPermitRootLogin prohibit-password\n"
    )
    with (
        (folder / "sshd.log").open("wb") as log,
        subprocess.Popen([sshd, "-D", "-e", "-f", config], stderr=log) as process,
    ):
        try:
            while not listens(port):
                assert process.poll() is None, (folder / "sshd.log").read_text()
            yield Sshd(port, folder)
        finally:
            process.terminate()
