"""Commands that ask for a server or end it, and the keeper that runs them."""

import json
import os
import signal
import subprocess
import sys
import time

import psutil
import pytest

from bench.errors import ServerError
from bench.server.asking import MOST_BYTES, run_command
from bench.server.environment import environments_elsewhere
from bench.server.keeper import ORDER, STILL_ALIVE

LONG = "sleep 300"


async def test_what_a_command_leaves_behind_is_not_waited_for(tmp_path):
    ran = await run_command(["sh", "-c", f"{LONG} & echo $! >{tmp_path}/pid; echo out"], most_s=60)
    assert (ran.status, ran.output) == (0, b"out\n")
    os.kill(int((tmp_path / "pid").read_text()), signal.SIGKILL)


async def test_a_command_that_does_not_end_is_killed_with_its_children(tmp_path):
    script = f"{LONG} & echo $! >{tmp_path}/pid; echo so far; wait"
    ran = await run_command(["sh", "-c", script], most_s=0.5)
    assert ran.status is None
    assert ran.output == b"so far\n"
    child = int((tmp_path / "pid").read_text())
    assert not psutil.pid_exists(child) or psutil.Process(child).status() == psutil.STATUS_ZOMBIE


async def test_of_much_output_the_beginning_is_kept():
    ran = await run_command(["sh", "-c", "yes | head -c 3000000; echo no >&2; exit 3"], most_s=60)
    assert (ran.status, len(ran.output), ran.errors) == (3, MOST_BYTES, b"no\n")


async def test_a_command_that_cannot_be_run_says_so():
    with pytest.raises(FileNotFoundError):
        await run_command(["/nonexistent/command"], most_s=1)
    with pytest.raises(ServerError, match="cannot be run: No such file"):
        await environments_elsewhere(["/nonexistent/command"], {})


async def test_environments_are_read_though_a_child_has_the_output_open(tmp_path):
    script = f"{LONG} & echo $! >{tmp_path}/pid; printf 'PATH=/bin\\0A=b\\0'"
    assert await environments_elsewhere(["sh", "-c", script], os.environ) == b"PATH=/bin\0A=b\0"
    os.kill(int((tmp_path / "pid").read_text()), signal.SIGKILL)


# ------------------------------------------------------------------------------------- the keeper


class Kept:
    """A keeper and what it prints."""

    def __init__(self, folder, **order):
        nothing = {key: [] for key in ("alive", "stop", "force_stop", "log", "forward")}
        whole = {**nothing, "term_s": 0.5, "gone_s": 0.5, **order}
        self.output = folder / "output"
        with self.output.open("wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "bench.server.keeper"],
                env={**os.environ, ORDER: json.dumps(whole)},
                stdout=output,
                stderr=output,
            )

    def ended(self):
        """Its exit status; what takes so long as to time out has failed."""
        return self.process.wait(timeout=40)

    def text(self):
        return self.output.read_text()


@pytest.fixture
def keep(tmp_path):
    kept = []

    def _keep(**order):
        kept.append(Kept(tmp_path, **order))
        return kept[-1]

    yield _keep
    for one in kept:
        if one.process.poll() is None:
            one.process.kill()
            one.process.wait()


def shell(script):
    return ["sh", "-c", script]


def lives(folder):
    return shell(f"kill -0 $(cat {folder}/pid) 2>/dev/null && echo yes; exit 0")


def test_why_a_start_failed_is_not_hidden_by_what_cleans_up(keep):
    kept = keep(
        start=shell("echo out of paper; exit 3"),
        alive=shell("echo no such server >&2; exit 1"),
        stop=shell("echo nothing to stop >&2; exit 1"),
        force_stop=shell("echo nothing to end >&2; exit 1"),
        log=shell("echo no such log; exit 1"),
    )
    assert kept.ended() == 3
    assert kept.text() == "out of paper\n"


def test_a_server_that_would_not_end_is_told_with_what_was_tried(keep, tmp_path):
    kept = keep(
        start=["true"],
        alive=shell(f"touch {tmp_path}/asked; echo yes"),
        stop=shell("echo the bus is late >&2; exit 7"),
        force_stop=["/nonexistent/end"],
    )
    while not (tmp_path / "asked").exists():
        time.sleep(0.02)
    kept.process.terminate()
    assert kept.ended() == STILL_ALIVE
    assert "[specdyno: stop: ended with status 7: the bus is late]" in kept.text()
    assert "[specdyno: force_stop: /nonexistent/end cannot be run: No such" in kept.text()
    assert kept.text().endswith("[specdyno: the server is still alive: it would not end]\n")


def test_a_stop_that_failed_is_told_though_force_stop_made_up_for_it(keep, tmp_path):
    kept = keep(
        start=shell(f"echo $$ >{tmp_path}/pid; echo up; exec {LONG}"),
        alive=lives(tmp_path),
        stop=shell("echo you may not >&2; exit 5"),
        force_stop=shell(f"kill -9 $(cat {tmp_path}/pid)"),
        term_s=0.1,
    )
    while "up" not in kept.text():
        time.sleep(0.02)
    kept.process.terminate()
    assert kept.ended() == 0
    assert kept.text().endswith("[specdyno: stop: ended with status 5: you may not]\n")


def test_a_stop_may_leave_something_in_the_background(keep, tmp_path):
    kept = keep(
        start=shell(f"echo $$ >{tmp_path}/pid; echo up; exec {LONG}"),
        alive=lives(tmp_path),
        stop=shell(f"{LONG} & echo $! >{tmp_path}/behind; kill $(cat {tmp_path}/pid)"),
    )
    while not (tmp_path / "pid").exists() or "up" not in kept.text():
        time.sleep(0.02)
    kept.process.terminate()
    assert kept.ended() in {0, -signal.SIGTERM, 128 + signal.SIGTERM}
    os.kill(int((tmp_path / "behind").read_text()), signal.SIGKILL)


def test_a_log_command_that_there_is_not_is_told(keep, tmp_path):
    kept = keep(
        start=shell(f"echo $$ >{tmp_path}/pid; exec {LONG}"),
        alive=lives(tmp_path),
        stop=shell(f"kill $(cat {tmp_path}/pid)"),
        log=["/nonexistent/log"],
    )
    while "cannot be run" not in kept.text():
        time.sleep(0.02)
    kept.process.terminate()
    kept.ended()
    assert kept.text() == (
        "[specdyno: log: /nonexistent/log cannot be run: No such file or directory]\n"
    )


def test_a_log_that_leaves_something_behind_is_read_to_its_end(keep, tmp_path):
    kept = keep(
        start=shell(f"echo $$ >{tmp_path}/pid; exec {LONG}"),
        alive=lives(tmp_path),
        stop=shell(f"kill $(cat {tmp_path}/pid)"),
        log=shell(f"{LONG} & echo $! >>{tmp_path}/behind; echo first; sleep 1.5; echo second"),
    )
    while "second" not in kept.text():
        time.sleep(0.02)
    kept.process.terminate()
    kept.ended()
    for pid in (tmp_path / "behind").read_text().split():
        os.kill(int(pid), signal.SIGKILL)
    assert kept.text().startswith("first\nsecond\n")
