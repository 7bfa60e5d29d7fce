"""A short proof that the client is exact at a load, remembered for this machine and version."""

from __future__ import annotations

import hashlib
import json
import platform
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import bench
from bench.provenance.machine import boot_id, cpu, host
from bench.selftest.building import cache_folder
from bench.selftest.trial import paced, run_trial

if TYPE_CHECKING:
    from bench.selftest.need import Need
    from bench.selftest.trial import TrialResult

TRIES: Final = (1.0, 1.0, 0.4, 0.1)
"""Loads that are tried, as shares of the need, until one is proven. The first is tried twice: a
machine that was busy with something else for a moment is no bad instrument."""
_TRIAL_S: Final = 0.4


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """What the client is good for.

    Attributes:
        event_per_s: Up to which load its errors stay under 1 ms and 1 %; 0: no load tried.
        streams: How many streams brought it.
        workers: How many worker processes shared it.
        cpu_us_per_event: What an event cost them; None: not known.
        is_new: Whether it was made just now, not remembered.
        faults: What was wrong at the load that was needed, where that was not proven.
    """

    event_per_s: float
    streams: int
    workers: int
    cpu_us_per_event: float | None
    is_new: bool = True
    faults: tuple[str, ...] = ()


async def prove(need: Need, *, workers: int) -> Proof:
    """Prove the client at the load that is needed, in about 2 seconds; or remember that it was.

    Raises:
        LoadError: The ground-truth server or a load worker does not start.
    """
    remembered = recall(workers)
    if remembered is not None and (
        remembered.event_per_s >= need.event_per_s and remembered.streams >= need.streams
    ):
        return remembered
    faults: tuple[str, ...] = ()
    for share in TRIES:
        trial = paced(streams=need.streams, event_per_s=share * need.event_per_s, seconds=_TRIAL_S)
        result = await run_trial(trial, workers=workers)
        if result.is_right:
            proof = proof_of(result, share * need.event_per_s, faults)
            remember(proof)
            return proof
        faults = faults or result.accuracy.faults()
    return Proof(
        event_per_s=0.0,
        streams=need.streams,
        workers=workers,
        cpu_us_per_event=None,
        faults=faults,
    )


def proof_of(result: TrialResult, event_per_s: float, faults: tuple[str, ...] = ()) -> Proof:
    """What a trial at a load has proven that went right."""
    return Proof(
        event_per_s=event_per_s,
        streams=result.client.max_in_flight,
        workers=result.client.workers,
        cpu_us_per_event=result.cpu_us_per_event,
        faults=faults,
    )


def recall(workers: int) -> Proof | None:
    """The best proof of this version on this machine since its boot; None: there is none."""
    entry = _read().get(_key(workers))
    try:
        return None if entry is None else Proof(**{**entry, "faults": (), "is_new": False})
    except TypeError:  # of a version that wrote it otherwise
        return None


def remember(proof: Proof) -> None:
    """Keep a proof for later runs, unless a better one is known; not keeping it is no error."""
    known = recall(proof.workers)
    if known is not None and known.event_per_s >= proof.event_per_s:
        return
    try:
        path = _path()
        entries = {**_read(), _key(proof.workers): asdict(proof)}
        with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False) as file:
            json.dump(entries, file)
        Path(file.name).replace(path)
    except OSError:
        return


def _path() -> Path:
    return cache_folder() / "proofs.json"


def _read() -> dict[str, dict[str, Any]]:
    try:
        found = json.loads(_path().read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _key(workers: int) -> str:
    """What a proof holds for: this version on this machine as it is, with so many workers."""
    facts = (
        bench.__version__,
        platform.python_version(),
        host(),
        boot_id(),
        cpu(),
        workers,
    )
    return hashlib.sha256(repr(facts).encode()).hexdigest()[:16]
