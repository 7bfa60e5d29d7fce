"""Starting the ranks: one process group a setting, its output read, killed when it hangs."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

from tuner.nccl.perf_output import parse_perf, perf_calls, perf_command
from tuner.nccl.torch_script import MARKER

_MOST_BYTES: Final = 8 << 20
_GRACE_S: Final = 10.0
_TOLD_CHARS: Final = 300
_GRAPH_CALLS: Final = 20
_REPLAYS: Final = 10
_BLOCKS: Final = 5
_FOR_LOG: Final[Mapping[str, str | None]] = {
    "NCCL_DEBUG": "INFO",
    "NCCL_DEBUG_SUBSYS": "TUNING,ENV",
    "NCCL_DEBUG_FILE": None,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """What one start of the ranks gave.

    Attributes:
        us: µs of one all-reduce by message bytes; as far as it got where it failed.
        failure: Why it is not to be used; None: it is.
        log: Lines of NCCL's own log.
    """

    us: Mapping[int, float] = field(default_factory=dict)
    failure: str | None = None
    log: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """What a Python says of its torch.

    Attributes:
        torch: Its version; None: it cannot be imported.
        gpus: GPUs it sees.
        names: Their names.
        nccl: The version of its NCCL; None without GPUs.
        failure: Why it could not be asked.
    """

    torch: str | None = None
    gpus: int = 0
    names: tuple[str, ...] = ()
    nccl: str | None = None
    failure: str | None = None


Purpose = Literal["times", "log"]
Start = Callable[[Mapping[str, str | None], Purpose], Awaitable[Started]]
"""Starts the ranks with these variables (None: removed), for times or for NCCL's log alone."""


async def probe_torch(
    python: Sequence[str], environment: Mapping[str, str | None], *, timeout_s: float
) -> Probe:
    """Ask a Python for its torch, GPUs and NCCL."""
    job = {"task": "probe", "environment": environment}
    ended = await _run(_command(python, job), environment, timeout_s)
    told = next((line for line in ended.told if line["kind"] == "probe"), None)
    if told is None:
        return Probe(failure=_failure_of(ended, timeout_s) or "it printed nothing of its torch")
    return Probe(
        torch=told["torch"], gpus=told["gpus"], names=tuple(told["names"]), nccl=told["nccl"]
    )


def torch_start(
    python: Sequence[str],
    *,
    backend: str,
    ranks: int,
    sizes: Sequence[int],
    element_bytes: int,
    timeout_s: float,
) -> Start:
    """Starts through torch.distributed.

    Args:
        python: The command of a Python that has torch.
        backend: nccl or gloo.
        ranks: Processes, a GPU each.
        sizes: Bytes to time.
        element_bytes: Of an element.
        timeout_s: For a whole start; what is still there then is killed.
    """

    async def start(environment: Mapping[str, str | None], purpose: Purpose) -> Started:
        job = {
            "task": "time",
            "backend": backend,
            "world_size": ranks,
            "sizes": sorted(sizes),
            "element_bytes": element_bytes,
            "calls": _GRAPH_CALLS,
            "replays": 1 if purpose == "log" else _REPLAYS,
            "blocks": 1 if purpose == "log" else _BLOCKS,
            "timeout_s": timeout_s,
            "environment": {**environment, **(_FOR_LOG if purpose == "log" else {})},
        }
        # Given twice: a launcher's program may keep variables from its Python, and some variables
        # count only for a process that begins with them.
        ended = await _run(_command(python, job), environment, timeout_s + _GRACE_S)
        rows = [line for line in ended.told if line["kind"] == "size"]
        us = {row["bytes"]: row["us"] for row in rows if row["us"] > 0}
        failure = _failure_of(ended, timeout_s)
        wrong = next((row["bytes"] for row in rows if not row["right"]), None)
        if failure is None and wrong is not None:
            failure = f"wrong sums at {wrong} bytes"
        if failure is None and set(us) != set(sizes):
            failure = f"only {len(us)} of {len(set(sizes))} sizes came back"
        return Started(us=us, failure=failure, log=tuple(ended.log))

    return start


def perf_start(
    program: str,
    *,
    ranks: int,
    sizes: Sequence[int],
    element_bytes: int,
    timeout_s: float,
) -> Start:
    """Starts through nccl-tests' all_reduce_perf; arguments as of `torch_start`."""
    calls = perf_calls(sizes)

    async def start(environment: Mapping[str, str | None], purpose: Purpose) -> Started:
        changes = {**environment, **(_FOR_LOG if purpose == "log" else {})}
        us: dict[int, float] = {}
        log: list[str] = []
        for call in calls:
            words = perf_command(
                program,
                call,
                ranks=ranks,
                element_bytes=element_bytes,
                graphs=1 if purpose == "log" else _REPLAYS,
            )
            ended = await _run(words, changes, timeout_s)
            log += ended.log
            found = parse_perf("\n".join(ended.log))
            failure = _failure_of(ended, timeout_s)
            if failure is not None and found.failure is not None:
                failure = found.failure
            wrong = next((row for row in found.rows if row.wrong), None)
            if failure is None and wrong is not None:
                failure = f"{wrong.wrong} wrong elements at {wrong.message_bytes} bytes"
            us |= {row.message_bytes: row.us for row in found.rows if row.message_bytes in sizes}
            if failure is not None:
                return Started(us=us, failure=failure, log=tuple(log))
        missing = sorted(set(sizes) - set(us))
        failure = f"no row of {missing[0]} bytes in its output" if missing else None
        return Started(us=us, failure=failure, log=tuple(log))

    return start


# ------------------------------------------------------------------------------------ the process


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ended:
    """How a command ended: its status (None: killed for time), our lines, all other lines."""

    status: int | None
    told: list[dict[str, Any]]
    log: list[str]


def _command(python: Sequence[str], job: Mapping[str, object]) -> tuple[str, ...]:
    script = Path(__file__).with_name("torch_script.py").read_text(encoding="utf-8")
    return (*python, "-c", script, json.dumps(job))


async def _run(
    words: Sequence[str], changes: Mapping[str, str | None], timeout_s: float
) -> _Ended:
    """Run a command in a session of its own, and kill all of it when it takes too long."""
    environment = {**os.environ, **{n: v for n, v in changes.items() if v is not None}}
    for name in (name for name, value in changes.items() if value is None):
        environment.pop(name, None)
    try:
        process = await asyncio.create_subprocess_exec(
            *words,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env=environment,
            start_new_session=True,
        )
    except OSError as error:
        return _Ended(status=127, told=[], log=[f"{words[0]}: {error.strerror or error}"])
    kept = bytearray()
    status = None
    try:
        async with asyncio.timeout(timeout_s):
            assert process.stdout is not None
            while part := await process.stdout.read(1 << 16):
                kept += part
                del kept[:-_MOST_BYTES]
            status = await process.wait()
    except TimeoutError:
        pass
    finally:
        # Also after an end of its own: a rank may have outlived the one that started it.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
    return _told(status, kept.decode(errors="replace"))


def _told(status: int | None, text: str) -> _Ended:
    told, log = [], []
    for line in text.splitlines():
        if not line.startswith(MARKER):
            log += [line] if line.strip() else []
            continue
        with contextlib.suppress(ValueError):
            said = json.loads(line.removeprefix(MARKER))
            if isinstance(said, dict) and "kind" in said:
                told.append(said)
    return _Ended(status=status, told=told, log=log)


def _failure_of(ended: _Ended, timeout_s: float) -> str | None:
    """Why a command failed, in its own words where it has any."""
    error = next((line["text"] for line in ended.told if line["kind"] == "error"), None)
    if error is None and ended.status is None:
        return f"no end within {timeout_s:g} s: a hang; its processes were killed"
    if error is None and ended.status == 0:
        return None
    if error is None:
        last = ended.log[-1] if ended.log else "nothing"
        error = f"exit status {ended.status}, and at the end {last}"
    warned = next((line for line in ended.log if "NCCL WARN" in line), None)
    text = error if warned is None else f"{error} ({warned.partition('NCCL WARN')[2].strip()})"
    return " ".join(text.split())[:_TOLD_CHARS]
