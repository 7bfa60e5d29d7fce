"""Which running trials of a study are stale: their process is gone, or nobody knows of it.

A trial that runs carries a lease, a user attribute of the Optuna trial: who runs it, and until
when that is to be believed. Where the writer lived on this machine, since its last boot, the
process table decides: a server may take minutes to start, and a process that is busy or was
stopped for a while is not dead. Elsewhere the lease's age decides. Optuna's own heartbeat knows
only ages, and nothing of a trial whose first heartbeat was never written (optuna/optuna#6085).
"""

from __future__ import annotations

import math
import os
import platform
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Final

from bench import clock

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

ATTRIBUTE: Final = "lease"
"""The trial's user attribute that holds it."""

INTERVAL_S: Final = 60.0
"""How often a lease is renewed."""

MISSED: Final = 3.0
"""A lease from elsewhere ends after so many intervals without a renewal."""

SKEW_S: Final = 120.0
"""How far the clocks of two machines may be apart."""

_UNKNOWN: Final = ""
_LARGEST: Final = 2**62
_TEXTS: Final = ("host", "boot_id", "pid_namespace")
_COUNTS: Final = ("pid", "started_ticks")
_TIMES: Final = ("renewed_at_s", "interval_s")


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """Who runs a trial, as of its last renewal.

    Attributes:
        host: Name of the machine.
        boot_id: Of its boot: process ids of another boot mean nothing.
        pid_namespace: In which the process id is counted: containers of one machine have their
            own.
        pid: The process.
        started_ticks: When that process began, in the kernel's ticks since boot: an id is used
            again, with another start.
        renewed_at_s: Seconds since 1970 by the writer's clock.
        interval_s: When the next renewal is due.
    """

    host: str
    boot_id: str
    pid_namespace: str
    pid: int
    started_ticks: int
    renewed_at_s: float
    interval_s: float = INTERVAL_S


@dataclass(frozen=True, slots=True, kw_only=True)
class Here:
    """This machine, and which of the asked processes live on it.

    Attributes:
        host: As in `Lease`.
        boot_id: As in `Lease`.
        pid_namespace: As in `Lease`.
        started_ticks: When each living process began; a dead one is absent. None: it lives, and
            when it began may not be read.
    """

    host: str
    boot_id: str
    pid_namespace: str
    started_ticks: Mapping[int, int | None]


class Condition(StrEnum):
    """What a lease says of its trial."""

    LIVING = "living"
    STALE = "stale"
    UNKNOWN = "unknown"  # it cannot be told: whoever resumes must be asked


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """One running trial.

    Attributes:
        number: The trial's.
        condition: What holds of it.
        why: In a few words.
    """

    number: int
    condition: Condition
    why: str


def judge(
    leases: Mapping[int, Lease | None], now_s: float, here: Here, *, grace_s: float | None = None
) -> tuple[Judged, ...]:
    """Which of a study's running trials are stale.

    Args:
        leases: Of each trial that is marked as running, by its number; None: it has none.
        now_s: Seconds since 1970 by this machine's clock.
        here: This machine (`here`), with the processes of these leases looked up.
        grace_s: How old a lease from elsewhere may be; None: MISSED intervals and SKEW_S.

    Returns:
        One judgement a trial, by number.
    """
    return tuple(
        Judged(number=number, condition=condition, why=why)
        for number, lease in sorted(leases.items())
        for condition, why in (_judged(lease, now_s, here, grace_s),)
    )


def _judged(
    lease: Lease | None, now_s: float, here: Here, grace_s: float | None
) -> tuple[Condition, str]:
    if lease is None:
        return Condition.UNKNOWN, "it has no lease: nobody can tell whether it still runs"
    if is_of_here(lease, here):
        return _by_process(lease, here)
    # Another boot of this name may be another machine of the same name: its age decides as well.
    return _by_age(lease, now_s, grace_s)


def is_of_here(lease: Lease, here: Here) -> bool:
    """Whether this machine's process table has a say: the same host, boot and namespace."""
    mine = (here.host, here.boot_id, here.pid_namespace)
    return _UNKNOWN not in mine and mine == (lease.host, lease.boot_id, lease.pid_namespace)


def _by_process(lease: Lease, here: Here) -> tuple[Condition, str]:
    if lease.pid not in here.started_ticks:
        return Condition.STALE, f"process {lease.pid} is gone"
    started = here.started_ticks[lease.pid]
    if started is not None and started != lease.started_ticks:
        return Condition.STALE, f"process {lease.pid} is gone; another has its number now"
    return Condition.LIVING, f"process {lease.pid} runs it"


def _by_age(lease: Lease, now_s: float, grace_s: float | None) -> tuple[Condition, str]:
    age_s = now_s - lease.renewed_at_s
    if not math.isfinite(age_s):
        return Condition.UNKNOWN, "its lease tells no time"
    grace_s = MISSED * lease.interval_s + SKEW_S if grace_s is None else grace_s
    if age_s < -max(grace_s, SKEW_S):
        return Condition.UNKNOWN, f"its lease is of {-age_s:.0f} s from now: a clock is wrong"
    if age_s > grace_s:
        return Condition.STALE, f"{lease.host} has not renewed it for {age_s:.0f} s"
    return Condition.LIVING, f"{lease.host} renewed it {max(age_s, 0.0):.0f} s ago"


# ------------------------------------------------------------------------------ what there is here


def here(pids: Iterable[int] = ()) -> Here:
    """This machine, and those of some processes that live on it (a zombie does not)."""
    return Here(
        host=platform.node(),
        boot_id=_read(Path("/proc/sys/kernel/random/boot_id")),
        pid_namespace=_pid_namespace(),
        started_ticks={
            pid: ticks for pid in set(pids) for lives, ticks in (_process(pid),) if lives
        },
    )


def own_lease(interval_s: float = INTERVAL_S) -> Lease:
    """A lease of this process, from now."""
    pid = os.getpid()
    machine = here([pid])
    return Lease(
        host=machine.host,
        boot_id=machine.boot_id,
        pid_namespace=machine.pid_namespace,
        pid=pid,
        started_ticks=machine.started_ticks.get(pid) or 0,
        renewed_at_s=now_s(),
        interval_s=interval_s,
    )


def renewed(lease: Lease, at_s: float | None = None) -> Lease:
    """The lease, from now on (or as of `at_s`)."""
    return replace(lease, renewed_at_s=now_s() if at_s is None else at_s)


def now_s() -> float:
    """Seconds since 1970 by this machine's clock."""
    return clock.utc_now().timestamp()


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return _UNKNOWN


def _pid_namespace() -> str:
    try:
        return str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        return _UNKNOWN


def _process(pid: int) -> tuple[bool, int | None]:
    """Whether a process lives, and its start in ticks since boot (`man 5 proc_pid_stat`)."""
    if pid <= 0:  # to `kill` these are groups
        return False, None
    stat = _read_stat(pid)
    if stat is not None:
        state, ticks = stat
        return state not in {"Z", "X", "x"}, ticks
    try:
        os.kill(pid, 0)  # sends nothing: asks whether there is such a process
    except PermissionError:
        return True, None
    except (OSError, OverflowError):
        return False, None
    return True, None


def _read_stat(pid: int) -> tuple[str, int] | None:
    try:
        # The command's name, in brackets, may hold anything: the fields begin after the last one.
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
        return fields[0].decode("ascii"), int(fields[19])
    except (OSError, IndexError, ValueError):
        return None


# ------------------------------------------------------------------------------- as an attribute


def as_attribute(lease: Lease) -> dict[str, str | int | float]:
    """What is stored as the trial's user attribute ATTRIBUTE."""
    return asdict(lease)


def read_attribute(value: object) -> Lease | None:
    """The lease of a trial's user attribute; None where there is none, or none that can be read.

    Args:
        value: `trial.user_attrs.get(ATTRIBUTE)`.
    """
    if not isinstance(value, dict):
        return None
    if not all(isinstance(value.get(name), str) for name in _TEXTS):
        return None
    if not all(_is_number(value.get(name), int) for name in _COUNTS):
        return None
    if not all(_is_number(value.get(name), (int, float)) for name in _TIMES):
        return None
    return Lease(**{name: value[name] for name in (*_TEXTS, *_COUNTS, *_TIMES)})


def _is_number(value: object, kinds: type | tuple[type, ...]) -> bool:
    if isinstance(value, bool) or not isinstance(value, kinds):
        return False
    return isinstance(value, (int, float)) and not abs(value) > _LARGEST
