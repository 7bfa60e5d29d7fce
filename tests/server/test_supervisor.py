import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.http import SECRET_PATTERNS
from bench.server import supervisor

SLEEP = "import time; time.sleep(600)"


class Supervised:
    """A supervisor, its protocol spoken by hand."""

    def __init__(self, tmp_path, code, *, log=None, term_s=5.0, **more):
        self.log = log or tmp_path / "log"
        self.process = subprocess.Popen(
            [sys.executable, "-m", "bench.server.supervisor"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        order = {
            "argv": [sys.executable, "-c", code],
            "env": dict(os.environ),
            "cwd": None,
            "log": str(self.log),
            "term_s": term_s,
            "redactions": [[pattern.pattern, new] for pattern, new in SECRET_PATTERNS],
            "secrets": [],
        }
        self.process.stdin.write(json.dumps({**order, **more}).encode() + b"\n")
        self.process.stdin.flush()

    def hear(self, event):
        message = json.loads(self.process.stdout.readline())
        assert message["event"] == event, message
        return message

    def stop(self):
        self.process.stdin.write(b"stop\n")
        self.process.stdin.flush()

    def text(self):
        return self.log.read_text()


@pytest.fixture
def supervise(tmp_path):
    opened = []

    def _supervise(code, **more):
        opened.append(Supervised(tmp_path, code, **more))
        return opened[-1]

    yield _supervise
    for supervised in opened:
        supervised.process.stdin.close()
        supervised.process.stdout.close()
        supervised.process.wait(timeout=20)


def wait_for(condition):
    """Poll; a test that waits for ever is ended by pytest's own time-out."""
    while not (value := condition()):
        time.sleep(0.01)
    return value


def alive(pid):
    with contextlib.suppress(psutil.Error):
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    return False


def pids_in(path, count):
    def read():
        pids = [int(word) for word in path.read_text().split()] if path.exists() else []
        return pids if len(pids) == count else None

    return wait_for(read)


def writes_pid(path, then=SLEEP):
    return f"import os; open({str(path)!r}, 'a').write(f'{{os.getpid()}}\\n'); {then}"


def test_output_and_exit_code_come_through(supervise):
    supervised = supervise("import sys; print('out'); print('err', file=sys.stderr); sys.exit(3)")
    assert supervised.hear("started")["pid"] > 0
    assert supervised.hear("exited")["code"] == 3
    assert supervised.hear("gone")["left"] == []
    assert sorted(supervised.text().split()) == ["err", "out"]
    assert supervised.process.wait() == 0


def test_the_log_is_redacted_as_it_is_written(supervise):
    supervised = supervise(
        "print('--api-key xyz-in-the-open Bearer abcdefghijkl and my-own-secret')",
        secrets=["my-own-secret"],
    )
    supervised.hear("started")
    supervised.hear("exited")
    supervised.hear("gone")
    text = supervised.text()
    assert "redacted" in text
    assert not any(word in text for word in ("xyz-in-the-open", "abcdefghijkl", "my-own-secret"))


def test_strange_output_is_kept(supervise):
    supervised = supervise(
        "import os; os.write(1, b'\\xff\\xfe bytes\\n'); "
        "os.write(1, b'x' * 1_000_000); os.write(1, b'\\rhalf\\rno end')"
    )
    supervised.hear("started")
    supervised.hear("exited")
    supervised.hear("gone")
    text = supervised.log.read_bytes().decode()
    assert text.startswith("\ufffd\ufffd bytes\n")
    assert text.count("x") == 1_000_000
    assert text.endswith("\rhalf\rno end")


def test_a_full_disk_does_not_stop_the_server(supervise):
    supervised = supervise(
        "print('x' * 100_000, flush=True); print('y', flush=True); raise SystemExit(4)",
        log=Path("/dev/full"),
    )
    supervised.hear("started")
    assert supervised.hear("log")["reason"] == "No space left on device"
    assert supervised.hear("exited")["code"] == 4
    supervised.hear("gone")


@pytest.mark.parametrize(
    ("order", "reason"),
    [
        ({"argv": ["no-such-program"]}, "No such file or directory: no-such-program"),
        ({"cwd": "/no/such/folder"}, "No such file or directory: /no/such/folder"),
        ({"argv": ["/etc/passwd"]}, "Permission denied: /etc/passwd"),
        ({"log": "/no/such/folder/log"}, "No such file or directory: /no/such/folder/log"),
    ],
)
def test_what_cannot_be_started_is_told(supervise, order, reason):
    supervised = supervise("", **order)
    assert supervised.hear("failed")["reason"] == reason
    assert supervised.process.wait() == 1


def test_stop_ends_children_in_other_sessions_and_orphans(supervise, tmp_path):
    pids = tmp_path / "pids"
    # a daemon: its parent is gone, it leads a session of its own, and it ignores TERM
    daemon = writes_pid(
        pids, "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); " + SLEEP
    )
    middle = (
        "import subprocess, sys; "
        f"subprocess.Popen([sys.executable, '-c', {daemon!r}], start_new_session=True)"
    )
    main = (
        "import subprocess, sys; "
        f"subprocess.run([sys.executable, '-c', {middle!r}]); "
        f"subprocess.Popen([sys.executable, '-c', {writes_pid(pids)!r}]); " + writes_pid(pids)
    )
    supervised = supervise(main, term_s=0.3)
    supervised.hear("started")
    three = pids_in(pids, 3)
    supervised.stop()
    assert supervised.hear("exited")["code"] == -signal.SIGTERM
    assert supervised.hear("gone")["left"] == []
    assert not any(alive(pid) for pid in three)


def test_a_server_may_take_its_time_to_end_after_term(supervise, tmp_path):
    code = (
        "import signal, sys, time\n"
        "def end(*_):\n    time.sleep(0.2); print('drained', flush=True); sys.exit(0)\n"
        "signal.signal(signal.SIGTERM, end)\n"
        "print('up', flush=True)\n" + SLEEP
    )
    supervised = supervise(code)
    supervised.hear("started")
    wait_for(lambda: supervised.log.exists() and "up" in supervised.text())
    supervised.stop()
    assert supervised.hear("exited")["code"] == 0
    supervised.hear("gone")
    assert "drained" in supervised.text()


def test_a_server_that_ignores_term_is_killed(supervise):
    code = (
        "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); "
        + SLEEP
    )
    supervised = supervise(code, term_s=0.2)
    supervised.hear("started")
    wait_for(lambda: supervised.log.exists() and "up" in supervised.text())
    supervised.stop()
    assert supervised.hear("exited")["code"] == -signal.SIGKILL
    supervised.hear("gone")


def test_what_a_crashed_server_leaves_is_ended(supervise, tmp_path):
    pids = tmp_path / "pids"
    supervised = supervise(
        "import os, subprocess, sys, time; "
        f"subprocess.Popen([sys.executable, '-c', {writes_pid(pids)!r}], start_new_session=True)\n"
        f"while not os.path.exists({str(pids)!r}): time.sleep(0.01)\n"
        "os.abort()"
    )
    supervised.hear("started")
    assert supervised.hear("exited")["code"] == -signal.SIGABRT
    assert supervised.hear("gone")["left"] == []
    assert not alive(pids_in(pids, 1)[0])


def test_the_end_of_its_input_stops_the_server(supervise):
    supervised = supervise(SLEEP)
    pid = supervised.hear("started")["pid"]
    supervised.process.stdin.close()
    supervised.hear("exited")
    supervised.hear("gone")
    assert not alive(pid)


@pytest.mark.parametrize("ending", ["stop", "end of input"])
@pytest.mark.parametrize("flood", [b"x" * 65536, b"x" * 1000 + b"\n"], ids=["a line", "lines"])
def test_a_flood_of_output_does_not_keep_it_from_stopping(supervise, flood, ending):
    code = f"import os\nwhile True: os.write(1, {flood!r})"
    supervised = supervise(code, log=Path("/dev/null"))
    pid = supervised.hear("started")["pid"]
    if ending == "stop":
        supervised.stop()
    else:
        supervised.process.stdin.close()
    assert supervised.hear("exited")["code"] == -signal.SIGTERM
    assert supervised.hear("gone")["left"] == []
    assert not alive(pid)


def test_a_line_that_repeats_itself_is_counted(supervise):
    code = "print('first')\nfor _ in range(200_000): print('again')\nprint('last')"
    supervised = supervise(code)
    for event in ("started", "exited", "gone"):
        supervised.hear(event)
    lines = supervised.text().splitlines()
    assert lines[:2] == ["first", "again"]
    assert lines[-2:] == ["[specdyno: the line before came 199900 times more]", "last"]
    assert len(lines) == 103


def test_a_server_that_repeats_itself_for_ever_fills_no_disk(supervise):
    supervised = supervise("import os\nwhile True: os.write(1, b'y\\n' * 5000)")
    supervised.hear("started")
    while not supervised.log.exists() or not supervised.text():
        time.sleep(0.01)
    supervised.stop()
    supervised.hear("exited")
    assert len(supervised.text()) < 1000
    assert supervised.text().endswith(" times more]\n")


def test_of_a_log_that_is_too_long_beginning_and_end_are_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(supervisor, "MOST_LOG_BYTES", 50_000)
    monkeypatch.setattr(supervisor, "TAIL_BYTES", 5_000)
    log = supervisor._Log(str(tmp_path / "log"), [["secret", "[redacted]"]], ["hidden"])
    for number in range(100_000):
        log.take(b"line %d, a secret that is hidden\n" % number)
    log.finish()
    lines = (tmp_path / "log").read_text().splitlines()
    assert (tmp_path / "log").stat().st_size < 70_000
    note = next(i for i, line in enumerate(lines) if line.startswith("[specdyno: "))
    assert lines[0] == "line 0, a [redacted] that is [redacted]"
    assert lines[-1] == "line 99999, a [redacted] that is [redacted]"
    assert lines[note].endswith(" bytes of the log are left out here]")
    for part in (lines[:note], lines[note + 1 :]):
        numbers = [int(line.split()[1].strip(",")) for line in part]
        assert numbers == list(range(numbers[0], numbers[-1] + 1))


@given(
    st.lists(st.lists(st.sampled_from([b"a\n", b"b\n", b"\r", b"c", b"\n"]), max_size=300)),
    st.integers(1, 2000),
)
@settings(deadline=None, max_examples=50)
def test_no_log_is_longer_than_its_limit(tmp_path_factory, chunks, limit):
    path = tmp_path_factory.mktemp("log") / "log"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(supervisor, "MOST_LOG_BYTES", limit)
        patch.setattr(supervisor, "TAIL_BYTES", 100)
        patch.setattr(supervisor, "SAME_LINES", 3)
        log = supervisor._Log(str(path), [], [])
        for chunk in chunks:
            log.take(b"".join(chunk))
        log.finish()
    notes = 2 * len("[specdyno: 100000 bytes of the log are left out here]\n")
    assert path.stat().st_size <= limit + 100 + notes
    whole = b"".join(part for chunk in chunks for part in chunk)
    if b"specdyno" not in path.read_bytes():
        assert path.read_bytes() == whole


def test_ctrl_c_and_hang_up_are_not_its_business(supervise):
    supervised = supervise(SLEEP)
    pid = supervised.hear("started")["pid"]
    supervised.process.send_signal(signal.SIGINT)
    supervised.process.send_signal(signal.SIGHUP)
    supervised.stop()
    assert supervised.hear("exited")["code"] == -signal.SIGTERM
    supervised.hear("gone")
    assert not alive(pid)


def test_the_server_hears_signals_as_usual(supervise):
    supervised = supervise(
        "import signal; print([signal.getsignal(s) is not signal.SIG_IGN"
        " for s in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM, signal.SIGCHLD)])"
    )
    supervised.hear("started")
    supervised.hear("exited")
    supervised.hear("gone")
    assert supervised.text() == "[True, True, True, True]\n"


def test_it_imports_nothing_but_the_standard_library():
    code = "import sys, bench.server.supervisor; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    roots = {name.partition(".")[0] for name in loaded.stdout.split()}
    by_sites = {"sitecustomize", "usercustomize", "_distutils_hack", "_virtualenv", "__main__"}
    strangers = roots - set(sys.stdlib_module_names) - by_sites
    assert {name for name in strangers if not name.startswith("__editable__")} == {"bench"}


BENCH = """
import asyncio, os, sys, uvloop
from pathlib import Path
from bench.server.process import ProcessOrder, start_process

async def main():
    await start_process(ProcessOrder(
        argv=[sys.executable, "-c", sys.argv[1]], environment=dict(os.environ), working_dir=None,
        log_path=Path(sys.argv[2]), term_s=0.3))
    await asyncio.sleep(600)

uvloop.run(main())
"""


def test_a_killed_bench_leaves_nothing(tmp_path):
    pids = tmp_path / "pids"
    child = writes_pid(
        pids, "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); " + SLEEP
    )
    server = (
        f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {child!r}]); "
        + writes_pid(pids)
    )
    with subprocess.Popen([sys.executable, "-c", BENCH, server, str(tmp_path / "log")]) as bench:
        two = pids_in(pids, 2)
        supervisor = psutil.Process(bench.pid).children()[0].pid
        bench.kill()
    wait_for(lambda: not any(alive(pid) for pid in (*two, supervisor)))


def test_a_killed_supervisor_takes_the_server_with_it(supervise):
    supervised = supervise(SLEEP)
    pid = supervised.hear("started")["pid"]
    supervised.process.kill()
    wait_for(lambda: not alive(pid))
