"""Servers started through other programs: a daemon of containers, and a real sshd."""

import asyncio
import contextlib
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from launchers import QUICK, STAND_IN, launched, loopback_sshd, stand_ins

from bench.errors import ServerError
from bench.model import FindingKind, Severity, Timeouts
from bench.server.keeper import STILL_ALIVE
from bench.server.starting import StartError
from bench.sglang.failures import FailureClass

HERE = Path(__file__).parent
DOCKER = {"kind": "docker", "image": "sglang:test"}
ASKED = {"NCCL_ALGO": "Ring", "WITH_SPACES": "two words; $HOME 'quoted'"}


@pytest.fixture(autouse=True)
def _nothing_left(tmp_path):
    """A test that fails must not leave its server to the next."""
    yield
    left = stand_ins(tmp_path)
    for process in left:
        process.kill()
    assert left == []


@pytest.fixture
def docker(tmp_path, monkeypatch):
    """A `docker` on the PATH, and the daemon behind it; its arguments change how it behaves."""
    with contextlib.ExitStack() as stack:

        def start(**environment):
            folder = tmp_path / "docker"
            folder.mkdir()
            monkeypatch.setenv("PATH", f"{HERE / 'fake_bin'}:{os.environ['PATH']}")
            monkeypatch.setenv("FAKE_DOCKER", str(folder))
            daemon = stack.enter_context(
                subprocess.Popen(
                    [sys.executable, HERE / "fake_dockerd.py", folder],
                    env={**os.environ, **environment},
                    stdout=subprocess.PIPE,
                )
            )
            stack.callback(daemon.stdout.close)
            stack.callback(daemon.kill)
            assert daemon.stdout.readline() == b"ready\n"
            return folder

        yield start


@pytest.fixture(scope="module")
def sshd(tmp_path_factory):
    if not (shutil.which("sshd", path=f"{os.environ['PATH']}:/usr/sbin") and shutil.which("ssh")):
        pytest.skip("no sshd here: apt-get install openssh-server")
    with loopback_sshd(tmp_path_factory.mktemp("sshd")) as server:
        yield server


def kinds(server):
    return {finding.kind: finding for finding in server.findings("c1")}


def subprocess_status(*command):
    return subprocess.run(command, check=False).returncode


async def until(condition):
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110  # what is waited for is another process
            await asyncio.sleep(0.02)


# ------------------------------------------------------------------------------------- containers


async def test_a_container_is_started_by_name_and_gone_after_stop(tmp_path, docker):
    folder = docker()
    server = await launched(tmp_path, DOCKER, environment=ASKED)
    assert server.argv[:3] == ("docker", "run", "--detach")
    assert server.argv[-4:-2] == ("--host", "127.0.0.1")
    assert "NCCL_ALGO=Ring" in server.argv
    assert kinds(server) == {}  # and so the environment has arrived
    assert server.exited() is None
    assert len(stand_ins(tmp_path)) == 1
    await server.between_cells()
    await server.stop()
    assert stand_ins(tmp_path) == []
    name = server.argv[server.argv.index("--name") + 1]
    assert (folder / "removed").read_text() == f"{name}\n"
    assert (folder / "images").read_text() == "sglang:test\n"
    assert "fired up and ready" in (tmp_path / "server.log").read_text()


async def test_a_wrapper_that_drops_the_environment_is_found_out(tmp_path, docker):
    docker(DROP_ENVIRONMENT="1")
    server = await launched(tmp_path, DOCKER, environment=ASKED)
    await server.stop()
    finding = kinds(server)[FindingKind.ENVIRONMENT_LOST]
    assert finding.severity is Severity.SUSPECT
    assert "NCCL_ALGO is not set there" in finding.message
    assert finding.advice


async def test_what_detaches_and_ignores_term_is_ended_all_the_same(tmp_path, docker):
    docker(WEAK_STOP="1")
    hurried = Timeouts(ready_s=20, request_s=20, term_s=0.3)
    server = await launched(tmp_path, DOCKER, "--acting ignores-term", timeouts=hurried)
    assert len(stand_ins(tmp_path)) == 1
    await server.stop()
    assert stand_ins(tmp_path) == []


async def test_a_container_that_dies_is_noticed(tmp_path, docker):
    docker()
    server = await launched(tmp_path, DOCKER)
    stand_ins(tmp_path)[0].kill()
    await until(lambda: server.exited() is not None)
    assert server.exited() > 0
    await server.stop()


async def test_a_start_that_fails_in_a_container_is_told_and_cleared_up(tmp_path, docker):
    folder = docker()
    with pytest.raises(StartError) as caught:
        await launched(tmp_path, DOCKER, "--acting oom")
    assert caught.value.failure_class is FailureClass.CUDA_OOM
    assert (folder / "removed").exists()


async def test_a_container_without_progress_is_stopped_and_told(tmp_path, docker):
    folder = docker()
    hurried = Timeouts(ready_s=1.5, term_s=1)
    with pytest.raises(StartError, match="no progress") as caught:
        await launched(tmp_path, DOCKER, "--acting silent", timeouts=hurried)
    assert caught.value.failure_class is FailureClass.HANG_IN_GRAPH_CAPTURE
    assert (folder / "removed").exists()


BENCH = """
import asyncio, sys, uvloop
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from launchers import launched

async def main():
    await launched(Path(sys.argv[2]), {"kind": "docker", "image": "sglang:test"})
    print("ready", flush=True)
    await asyncio.sleep(600)

uvloop.run(main())
"""


@pytest.mark.parametrize("victim", ["bench", "supervisor"])
def test_when_bench_is_killed_its_container_is_stopped(tmp_path, docker, victim):
    removed = docker() / "removed"
    with subprocess.Popen(
        [sys.executable, "-c", BENCH, HERE, tmp_path], stdout=subprocess.PIPE
    ) as bench:
        try:
            assert bench.stdout.readline() == b"ready\n"
            if victim == "supervisor":
                (supervisor,) = psutil.Process(bench.pid).children()
                supervisor.kill()
            else:
                bench.kill()
            asyncio.run(until(removed.exists))
            asyncio.run(until(lambda: stand_ins(tmp_path) == []))
        finally:
            bench.kill()


# -------------------------------------------------------------------------------- other templates


async def test_a_server_that_no_command_ends_is_an_error(tmp_path, docker, monkeypatch):
    docker()
    monkeypatch.setattr("bench.server.command.GONE_S", 0.5)
    launcher = {
        **DOCKER,
        "stop": ["true"],
        "force_stop": ["true"],
    }
    hurried = Timeouts(ready_s=20, request_s=20, term_s=0.2)
    server = await launched(tmp_path, launcher, timeouts=hurried)
    with pytest.raises(ServerError, match="would not end") as told:
        await server.stop()
    assert "end it by hand, its log has what `stop`" in told.value.hint
    assert ": true. The next start" in told.value.hint  # its force_stop
    assert server.exited() == STILL_ALIVE
    for process in stand_ins(tmp_path):
        process.kill()


async def test_a_template_in_the_foreground_needs_no_alive(tmp_path):
    pid_file = tmp_path / "pid"
    launcher = {
        "kind": "template",
        "start": ["sh", "-c", f"echo $$ > {pid_file}; exec {{argv}}"],
        "stop": ["sh", "-c", f"kill $(cat {pid_file})"],
    }
    server = await launched(tmp_path, launcher, environment={"A": "1"})
    unproved = kinds(server)[FindingKind.ENVIRONMENT_NOT_PROVED]
    assert unproved.severity is Severity.NOTE
    assert "A; the launcher has no `environ`" in unproved.message
    assert len(stand_ins(tmp_path)) == 1
    await server.stop()
    assert stand_ins(tmp_path) == []


# -------------------------------------------------------------------------------------- a real ssh


async def test_a_server_is_started_and_ended_over_ssh(tmp_path, sshd):
    server = await launched(tmp_path, sshd.launcher, environment=ASKED)
    assert kinds(server) == {}  # both variables arrived, quoted as they were
    (process,) = stand_ins(tmp_path)
    assert process.environ()["WITH_SPACES"] == ASKED["WITH_SPACES"]
    await server.between_cells()
    await server.stop()
    assert stand_ins(tmp_path) == []
    assert "fired up and ready" in (tmp_path / "server.log").read_text()
    (pid_file,) = (word for word in shlex.split(server.argv[-1]) if word.endswith(".pid"))
    assert subprocess_status("test", "-e", pid_file) != 0


async def test_a_killed_ssh_does_not_leave_its_server_behind(tmp_path, sshd):
    server = await launched(tmp_path, sshd.launcher, "--acting ignores-term")
    keeper = psutil.Process(server.pid)
    (client,) = (one for one in keeper.children() if "-L" in one.cmdline())
    client.kill()
    await until(lambda: server.exited() is not None)
    assert server.exited() != 0
    await server.stop()
    assert stand_ins(tmp_path) == []


async def test_a_wrapper_behind_ssh_that_drops_the_environment(tmp_path, sshd):
    command = ["sh", "-c", f"env -i {sys.executable} {STAND_IN} $*; exit", "wrapper"]
    server = await launched(
        tmp_path, {**sshd.launcher, "command": command}, environment={"NCCL_ALGO": "Ring"}
    )
    await server.stop()
    assert FindingKind.ENVIRONMENT_LOST in kinds(server)
    assert stand_ins(tmp_path) == []


async def test_a_host_that_cannot_be_reached_says_so(tmp_path, sshd):
    launcher = {**sshd.launcher, "options": ["-F", "/dev/null", "-p", "9"]}
    with pytest.raises(StartError, match="exit status 255") as caught:
        await launched(tmp_path, launcher, timeouts=QUICK)
    assert "Connection refused" in str(caught.value)
