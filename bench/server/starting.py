"""From a started process to a server that generates: waiting, watching, saying why not."""

from __future__ import annotations

import asyncio
import re
import signal
from dataclasses import replace
from typing import TYPE_CHECKING

from bench import clock
from bench.errors import ServerError
from bench.server.spinning import SpinWatch
from bench.sglang import control
from bench.sglang.failures import (
    HANG_S,
    Failure,
    FailureClass,
    find_end,
    find_failure,
    find_hang,
)
from bench.sglang.start_lines import meaningful_lines, start_phase

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    import aiohttp

    from bench.model import Timeouts
    from bench.server.process import ServerProcess

SHOWN_LINES = 15
TAIL_BYTES = 256 * 1024
_FIRST_POLL_NS = 30_000_000
_LAST_POLL_NS = 1_000_000_000
_WATCH_NS = 250_000_000
_WORK_STEP_BYTES = 64 * 1024 * 1024
"""Memory taken or disk read by at least so much more than ever before is progress."""

_TIMES = re.compile(r"\d{4}-\d\d-\d\d[ T]|\d\d:\d\d:\d\d([.,]\d+)?")
_MOST_HEARD = 20_000
_SAME_ANSWERS = 10
_SAME_ANSWERS_NS = 30_000_000_000
"""The same answer without a token so often, and for so long, is no start-up any more."""

_LET_GO = (
    "it ended as if all was well: a command that leaves its server in the background needs a "
    "launcher of kind: template (docs/launchers.md)"
)
_OF_ONE_ANSWER = re.compile(r"[0-9a-f-]{8,}|\d+(\.\d+)?")
"""Request ids and times in an answer, in which alike answers differ."""


class StartError(ServerError):
    """A server that did not start.

    Attributes:
        failure_class: What its log tells; None: nothing known.
    """

    def __init__(
        self, message: str, *, hint: str | None, failure_class: FailureClass | None
    ) -> None:
        super().__init__(message, hint=hint)
        self.failure_class = failure_class


async def until_ready(
    process: ServerProcess,
    session: aiohttp.ClientSession,
    log: LogTail,
    *,
    gpus: Sequence[int] = (),
    timeouts: Timeouts,
    on_progress: Callable[[str], None] | None,
) -> None:
    """Wait until the server has generated tokens.

    Args:
        process: The server.
        session: To it.
        log: Its log from where this start began.
        gpus: NVML indices of its GPUs, where they are this machine's.
        timeouts: `ready_s` bounds the time without progress, `request_s` the time from the first
            answer over HTTP to the first generation.
        on_progress: Told in a few words what the server is doing.

    Raises:
        StartError: The process ended, made no progress, or refuses to generate.
    """
    ready = asyncio.create_task(
        until_generating(session, request_s=timeouts.request_s, on_progress=on_progress)
    )
    ended = asyncio.create_task(process.wait_exited())
    stalled = asyncio.create_task(
        _until_stalled(
            process.pid, log, gpus=gpus, ready_s=timeouts.ready_s, on_progress=on_progress
        )
    )
    tasks = (ready, ended, stalled)
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    if not ended.cancelled():
        raise ended_error(ended.result(), log)
    if not ready.cancelled():
        refusal = ready.exception()
        if refusal is None:
            return
        raise StartError(
            f"the server answers, but does not generate: {refusal}",
            hint=getattr(refusal, "hint", None) or f"its log: {log.path}",
            failure_class=None,
        ) from refusal
    raise _spin_error(log) if stalled.result() else _stalled_error(log, timeouts.ready_s)


async def until_generating(
    session: aiohttp.ClientSession,
    *,
    request_s: float,
    on_progress: Callable[[str], None] | None,
) -> None:
    """Ask until the server has generated a few tokens.

    Args:
        session: To the server.
        request_s: How long after its first answer over HTTP it may take.
        on_progress: Told what it answers instead of tokens, once for each such answer.

    Raises:
        ServerError: It answers over HTTP, but refuses to generate, gives the same answer without
            tokens again and again, or does not generate within `request_s`.
    """
    poll_ns, answered_ns = _FIRST_POLL_NS, None
    same, same_ct, same_since_ns = None, 0, 0
    while True:
        try:
            await control.model_info(session)
            answered_ns = answered_ns or clock.now_ns()
            await control.generate_once(session, timeout_s=request_s)
        except ServerError as error:
            refused = isinstance(error, control.CallRefusedError) and 400 <= error.status < 500
            late = answered_ns is not None and clock.now_ns() - answered_ns > request_s * 1e9
            if refused or late:
                raise
            if isinstance(error, control.NothingGeneratedError):
                answer = _OF_ONE_ANSWER.sub("", str(error))
                if answer != same:
                    same, same_ct, same_since_ns = answer, 0, clock.now_ns()
                    if on_progress is not None:
                        on_progress(f"does not generate yet: {error}")
                same_ct += 1
                if same_ct >= _SAME_ANSWERS and clock.now_ns() - same_since_ns >= _SAME_ANSWERS_NS:
                    raise
            else:
                same = None
        else:
            return
        await clock.sleep_ns(poll_ns)
        poll_ns = min(poll_ns * 3 // 2, _LAST_POLL_NS)


async def _until_stalled(
    pid: int,
    log: LogTail,
    *,
    gpus: Sequence[int],
    ready_s: float,
    on_progress: Callable[[str], None] | None,
) -> bool:
    """Watch log, memory and disk; returns when none of them moved for `ready_s`.

    Returns:
        True, and before `ready_s`, when its GPUs spin in a collective that will not end.
    """
    moved_ns, said, seen, heard = clock.now_ns(), None, (0, 0), set[str]()
    spin = SpinWatch(gpus)
    while clock.now_ns() - moved_ns < ready_s * 1e9:
        if spin.is_hang(since_ns=moved_ns):
            return True
        await clock.sleep_ns(_WATCH_NS)
        lines = log.new_lines()
        work = _work_bytes(pid)
        if said_anew(lines, heard) or any(
            now > then + _WORK_STEP_BYTES for now, then in zip(work, seen, strict=True)
        ):
            moved_ns = clock.now_ns()
            seen = (max(work[0], seen[0]), max(work[1], seen[1]))
        says = doing(lines)
        if on_progress is not None and says is not None and says != said:
            said = says
            on_progress(says)
    return False


def said_anew(lines: Iterable[str], heard: set[str]) -> bool:
    """Whether lines tell something that was not heard yet, whatever the time; `heard` grows.

    A server that says the same again and again is waiting for something.
    """
    texts = {_TIMES.sub("", line) for line in lines}
    is_new = not texts <= heard
    if len(heard) + len(texts) > _MOST_HEARD:
        heard.clear()
    heard |= texts
    return is_new


def doing(lines: list[str]) -> str | None:
    """What new log lines say the server does, in a few words; None when they say nothing."""
    for line in reversed(lines):
        phase = start_phase(line)
        if phase is not None:
            return phase
    last = meaningful_lines(lines, 1)
    return last[0].partition("] ")[2][:80] or last[0][:80] if last else None


def _work_bytes(pid: int) -> tuple[int, int]:
    """Memory held and bytes read from disk by the process and its descendants."""
    import psutil  # noqa: PLC0415  # only while a server starts

    memory = read = 0
    try:
        root = psutil.Process(pid)
        processes = [root, *root.children(recursive=True)]
    except psutil.Error:
        return 0, 0
    for process in processes:
        try:
            memory += process.memory_info().rss
            read += process.io_counters().read_bytes
        except (psutil.Error, OSError):
            continue
    return memory, read


class LogTail:
    """A growing log, from where it ends now."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._start = self._size()
        self._read = self._start

    def _size(self) -> int:
        return self.path.stat().st_size if self.path.exists() else 0

    def new_lines(self) -> list[str]:
        """Lines that came since the last call (a line may come in two parts)."""
        text = self._text(self._read)
        self._read = self._size()
        return text.splitlines()

    def all_lines(self) -> list[str]:
        """Every line since this tail was made."""
        return self._text(self._start).splitlines()

    def last_lines(self) -> list[str]:
        """The newest lines since this tail was made, at most TAIL_BYTES of them."""
        return self._text(max(self._start, self._size() - TAIL_BYTES)).splitlines()

    def _text(self, start: int) -> str:
        if not self.path.exists():
            return ""
        with self.path.open("rb") as file:
            file.seek(start)
            return file.read().decode("utf-8", "replace")


# ------------------------------------------------------------------------------------ saying why


def ended_error(exit_code: int, log: LogTail) -> StartError:
    """A server that ended before it was ready."""
    what = f"ended with {exit_text(exit_code)} before it was ready"

    def find(lines: list[str]) -> Failure:
        failure = find_end(lines, exit_code)
        if exit_code == 0 and failure.failure_class is FailureClass.CHILD_DIED:
            return replace(failure, advice=_LET_GO)
        return failure

    return _error(what, log, find)


def _stalled_error(log: LogTail, ready_s: float) -> StartError:
    what = f"made no progress for {ready_s:g} s (log, memory, disk) and was stopped"
    return _error(what, log, lambda lines: find_failure(lines) or find_hang(lines))


def _spin_error(log: LogTail) -> StartError:
    failure = find_hang(log.last_lines())
    spinning = Failure(
        failure_class=FailureClass.GPU_SPIN_HANG,
        line=failure.line,
        advice="a collective hangs: check NCCL_P2P_LEVEL and NCCL_P2P_DISABLE, IOMMU and ACS, "
        "and start again",
    )
    what = f"made no progress for {HANG_S:g} s while its GPUs spun, and was stopped"
    return _error(what, log, lambda lines: find_failure(lines) or spinning)


def _error(what: str, log: LogTail, find: Callable[[list[str]], Failure]) -> StartError:
    lines = log.last_lines()
    failure = find(lines)
    shown = meaningful_lines(lines, SHOWN_LINES)
    line = failure.line[:200] or "its log tells no reason"
    reason = f"{failure.failure_class}: {line}"
    said = (
        "\n".join(["its last lines:", *(f"  {line[:300]}" for line in shown)])
        if shown
        else "it wrote nothing"
    )
    return StartError(
        f"the server {what}; {reason}\n{said}",
        hint=f"{failure.advice}. Log: {log.path}",
        failure_class=failure.failure_class,
    )


def told_failure(log_path: Path) -> Failure | None:
    """What the end of a server's log tells of its death; None: nothing known, or no log."""
    try:
        with log_path.open("rb") as file:
            file.seek(max(0, log_path.stat().st_size - TAIL_BYTES))
            lines = file.read().decode("utf-8", "replace").splitlines()
    except OSError:
        return None
    return find_failure(lines)


def exit_text(exit_code: int) -> str:
    """`exit status 2`, or the signal's name."""
    if exit_code >= 0:
        return f"exit status {exit_code}"
    try:
        return f"signal {signal.Signals(-exit_code).name}"
    except ValueError:
        return f"signal {-exit_code}"
