"""The process that owns a server: `python -m bench.server.supervisor`.

The bench starts one supervisor for each server, in a session of its own, and holds the other end
of its stdin. Whatever becomes of the bench, a kill -9 included, that end closes, and the
supervisor then stops the server with everything the server has started. It imports nothing but the
standard library, so that it is up at once and costs nothing while measuring.

Protocol, one JSON object a line. In, first the order::

    {"argv": ["python3", "-m", …], "env": {…}, "cwd": null, "log": "/…/server.log", "term_s": 30,
     "redactions": [["pattern", "replacement"], …], "secrets": ["…"]}

then at most `stop`; the end of input means the same. Out, in this order::

    {"event": "started", "pid": 4711}     or   {"event": "failed", "reason": "…"}   and the end
    {"event": "log", "reason": "…"}                           when the log cannot be written
    {"event": "exited", "code": 0}                            negative: the signal that ended it
    {"event": "gone", "left": []}      pids that even KILL did not end within KILL_S, and the end

Stopping: TERM to the server's main process, and once that is gone to what is left of its
descendants; after `term_s`, KILL to all of them. Descendants are found by parentage: as a child
subreaper this process inherits those that lost their parents, whatever session they moved to. A
server must stay in the foreground: when its main process ends, the rest is ended too.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import json
import os
import re
import selectors
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

KILL_S = 10
"""How long to wait for processes that were sent KILL; only a hung driver keeps them that long."""

LEFT_S = 5
"""How long descendants that outlive their main process may take to end by themselves."""

POLL_S = 0.05
LINE_BYTES = 256 * 1024
"""A line longer than this is written in parts."""

MOST_LOG_BYTES = 64 * 1024 * 1024
"""A log longer than this has only its newest lines behind that."""

TAIL_BYTES = 256 * 1024
"""So much of the newest is kept then, which has why a server died."""

SAME_LINES = 100
"""A line that comes more often in a row is counted from then on."""

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
PIPE_BYTES = 1024 * 1024
READ_BYTES = 64 * 1024


def main() -> int:
    """Run one server from its order on stdin to its end."""
    wake_fd = _take_signals()
    _libc().prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    order = _read_order()
    try:
        log = _Log(order["log"], order["redactions"], order["secrets"])
        process, output_fd = _start(order)
    except OSError as error:
        _tell(event="failed", reason=f"{error.strerror}: {error.filename}")
        return 1
    _tell(event="started", pid=process.pid)
    _Supervisor(process, output_fd, log, order["term_s"], wake_fd).run()
    return 0


def _take_signals() -> int:
    """Signals become bytes on a pipe; a terminal's Ctrl-C and hang-up are the bench's business."""
    read_fd, write_fd = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGCHLD, signal.SIGALRM, signal.SIGTERM):
        # a handler, not SIG_IGN, which the server would inherit
        signal.signal(number, lambda _number, _frame: None)
    signal.set_wakeup_fd(write_fd, warn_on_full_buffer=False)
    return read_fd


def _read_order() -> dict[str, Any]:
    text = b""
    while not text.endswith(b"\n"):
        part = os.read(0, 65536)
        if not part:
            sys.exit(0)  # the bench died before it had ordered anything
        text += part
    order: dict[str, Any] = json.loads(text)
    return order


def _start(order: dict[str, Any]) -> tuple[subprocess.Popen[bytes], int]:
    read_fd, write_fd = os.pipe2(os.O_CLOEXEC)
    with contextlib.suppress(OSError):  # a larger pipe only makes it rarer that the server waits
        fcntl.fcntl(write_fd, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
    try:
        process = subprocess.Popen(
            order["argv"],
            env=order["env"],
            cwd=order["cwd"],
            stdin=subprocess.DEVNULL,
            stdout=write_fd,
            stderr=write_fd,
            start_new_session=True,
            # this process has one thread; without the supervisor the server must not live on
            preexec_fn=lambda: _libc().prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0),  # noqa: PLW1509
        )
    finally:
        os.close(write_fd)
    os.set_blocking(read_fd, False)
    return process, read_fd


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _tell(**message: object) -> None:
    with contextlib.suppress(OSError):  # the bench is gone; nobody listens
        os.write(1, json.dumps(message).encode() + b"\n")


# --------------------------------------------------------------------------------------- the log


class _Log:
    """Writes the server's output to the log, a line at a time, redacted; never fails.

    A server that floods it fills no disk: lines that repeat themselves are counted, and past a
    limit what lies between the beginning and the end is left out. Notes say so.
    """

    def __init__(self, path: str, redactions: list[list[str]], secrets: list[str]) -> None:
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        self._patterns = [(re.compile(pattern), with_what) for pattern, with_what in redactions]
        self._secrets = [secret for secret in secrets if secret]
        self._rest = b""
        self._dropped_bytes = 0
        self._line = b""
        self._line_ct = 0
        self._written_bytes = 0
        self._tail = b""
        self._left_out_bytes = 0

    def take(self, data: bytes) -> None:
        """Write what makes whole lines; a progress bar ends its lines with a carriage return."""
        text = self._rest + data
        end = max(text.rfind(b"\n"), text.rfind(b"\r")) + 1
        if end == 0 and len(text) > LINE_BYTES:
            end = text.rfind(b" ", 0, LINE_BYTES) + 1 or LINE_BYTES
        self._rest = text[end:]
        if end:
            self._write(text[:end])

    def finish(self) -> None:
        """Write what is left without an end of line."""
        if self._rest:
            rest, self._rest = self._rest, b""
            self._write(rest)
        self.flush()

    def flush(self) -> None:
        """Write what was held back, for whoever reads the log now."""
        if note := self._told_repeats():
            self._put(note)
        self._line, self._line_ct = b"", 0
        if self._tail:
            note = b"[specdyno: %d bytes of the log are left out here]\n" % self._left_out_bytes
            tail, self._tail, self._left_out_bytes = self._tail, b"", 0
            self._put(note + tail.partition(b"\n")[2])

    def _write(self, raw: bytes) -> None:
        raw = self._without_repeats(raw)
        room = max(MOST_LOG_BYTES - self._written_bytes, 0)
        if len(raw) > room:
            cut = raw.rfind(b"\n", 0, room) + 1
            self._tail += raw[cut:]
            self._left_out_bytes += max(len(self._tail) - TAIL_BYTES, 0)
            self._tail = self._tail[-TAIL_BYTES:]
            self._written_bytes = MOST_LOG_BYTES  # what is shorter would stand behind what is not
            raw = raw[:cut]
        self._written_bytes += len(raw)
        if raw:
            self._put(raw)

    def _without_repeats(self, raw: bytes) -> bytes:
        kept = []
        for line in raw.splitlines(keepends=True):
            if line != self._line:
                kept.append(self._told_repeats())
                self._line, self._line_ct = line, 0
            self._line_ct += 1
            if self._line_ct <= SAME_LINES:
                kept.append(line)
        return b"".join(kept)

    def _told_repeats(self) -> bytes:
        more = self._line_ct - SAME_LINES
        return b"[specdyno: the line before came %d times more]\n" % more if more > 0 else b""

    def _put(self, raw: bytes) -> None:
        text = raw.decode("utf-8", "replace")
        for secret in self._secrets:
            text = text.replace(secret, "[redacted]")
        for pattern, with_what in self._patterns:
            text = pattern.sub(with_what, text)
        data = text.encode("utf-8", "replace")
        if self._dropped_bytes:
            note = f"[specdyno: {self._dropped_bytes} bytes of the log could not be written]\n"
            data = note.encode() + data
        try:
            _write_all(self._fd, data)
        except OSError as error:  # a full disk, most likely: the server must go on all the same
            if not self._dropped_bytes:
                _tell(event="log", reason=error.strerror)
            self._dropped_bytes += len(raw)
        else:
            self._dropped_bytes = 0


def _write_all(fd: int, data: bytes) -> None:
    while data:
        data = data[os.write(fd, data) :]


# -------------------------------------------------------------------------------- the processes


def _descendants() -> list[int]:
    """Every living process below this one."""
    children: dict[int, list[int]] = {}
    for entry in os.scandir("/proc"):
        if not entry.name.isdecimal():
            continue
        try:
            stat = Path(f"/proc/{entry.name}/stat").read_bytes()
        except OSError:
            continue  # it ended meanwhile
        state, parent = stat[stat.rindex(b")") + 2 :].split()[:2]
        if state not in {b"Z", b"X"}:
            children.setdefault(int(parent), []).append(int(entry.name))
    found: list[int] = []
    pending = [os.getpid()]
    while pending:
        below = children.get(pending.pop(), [])
        found += below
        pending += below
    return found


class _Supervisor:
    """The loop over signals, the bench's wishes and the server's output."""

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        output_fd: int,
        log: _Log,
        term_s: float,
        wake_fd: int,
    ) -> None:
        self._process = process
        self._output_fd = output_fd
        self._log = log
        self._term_s = term_s
        self._wake_fd = wake_fd
        self._selector = selectors.DefaultSelector()
        self._stop_asked = False
        self._exited = False
        self._killing = False
        self._given_up = False

    def run(self) -> None:
        """Until the server and all its descendants are gone."""
        for fd, take in (
            (0, self._take_wish),
            (self._wake_fd, self._take_signals),
            (self._output_fd, self._take_output),
        ):
            self._selector.register(fd, selectors.EVENT_READ, take)
        left = [self._process.pid]
        while left and not self._given_up:
            # descendants that are not our children end without telling us
            for key, _ in self._selector.select(POLL_S if self._exited or self._killing else None):
                key.data()
            if self._killing:
                _send(signal.SIGKILL, _descendants())
            if self._exited:
                left = _descendants()
        signal.setitimer(signal.ITIMER_REAL, 0)
        self._take_output()
        self._log.finish()
        _tell(event="gone", left=left)

    def _take_wish(self) -> None:
        wish = os.read(0, 4096)
        if not wish:
            self._selector.unregister(0)
        if not wish or b"stop" in wish:
            self._stop()

    def _take_signals(self) -> None:
        numbers = os.read(self._wake_fd, 4096)
        if signal.SIGTERM in numbers:
            self._stop()
        if signal.SIGALRM in numbers:
            self._given_up = self._killing
            self._killing = True
            signal.setitimer(signal.ITIMER_REAL, KILL_S)
        self._reap()

    def _take_output(self) -> None:
        """Write what has come, a pipe full at most; its end comes with the last descendant's."""
        with contextlib.suppress(BlockingIOError):
            for _ in range(PIPE_BYTES // READ_BYTES):
                data = os.read(self._output_fd, READ_BYTES)
                if not data:
                    with contextlib.suppress(KeyError):
                        self._selector.unregister(self._output_fd)
                    return
                self._log.take(data)

    def _stop(self) -> None:
        if self._stop_asked or self._exited:
            return
        self._stop_asked = True
        _send(signal.SIGTERM, [self._process.pid])
        signal.setitimer(signal.ITIMER_REAL, max(self._term_s, POLL_S))

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid == self._process.pid:
                self._end_rest(os.waitstatus_to_exitcode(status))

    def _end_rest(self, code: int) -> None:
        """The main process has ended: end what it left behind."""
        self._process.returncode = code
        self._exited = True
        self._take_output()  # whoever is told of the end will read the log for its reason
        self._log.flush()
        _tell(event="exited", code=code)
        if not self._killing:
            _send(signal.SIGTERM, _descendants())
        if not self._stop_asked:
            signal.setitimer(signal.ITIMER_REAL, LEFT_S)


def _send(number: signal.Signals, pids: list[int]) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


if __name__ == "__main__":
    sys.exit(main())
