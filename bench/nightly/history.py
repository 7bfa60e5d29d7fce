"""The history on disk: a folder that is only ever added to.

    entries/<entry_id>.json       a night begun or measured, an import, a failure, an ack
    points/<entry_id>.parquet     its values, a row a point
    fingerprints/<hash>.json      an environment, named by the hash of its facts
    lock                          held while a night is measured

Nothing is rewritten, so writers need not wait for one another: each adds files with names of its
own, whole or not at all. A file of points comes last and makes its entry count. Every file has the
format's version; a newer one is refused before anything is read from the rest or added to it.

    pandas.read_parquet("results/nightly/points")
    duckdb: SELECT * FROM 'results/nightly/points/*.parquet'
"""

from __future__ import annotations

import hashlib
import json
import secrets
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import IO, TYPE_CHECKING, Any, Final, Literal

import msgspec

from bench import __version__
from bench.clock import utc_now
from bench.errors import DiskError, StoreError
from bench.model.nightly import Ack, NightFailure, Point, SeriesKey
from bench.nightly.points_file import (
    FORMAT,
    NewerHistoryError,
    checked_version,
    points_bytes,
    read_points,
)
from bench.store.disk import flush_folder, sha256_of, write_flushed, writing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

ENTRIES: Final = "entries"
POINTS: Final = "points"
FINGERPRINTS: Final = "fingerprints"
LOCK: Final = "lock"
_HASH_CHARS: Final = 16
_AGAIN: Final = "`bench nightly import` takes in {runs} again"

Facts = dict[str, str]
EntryKind = Literal["begun", "night", "import", "failure", "ack"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One addition to the history.

    Attributes:
        version: Of the format.
        entry_id: UTC time, kind and six random hex digits.
        kind: What it is. A scenario that was `begun` and has neither figures nor a failure was
            cut off by a kill or a power failure.
        at: When it was added.
        night: The date it is about.
        suite: Name of the suite; None for imports by hand.
        ordinal: Of a night: how many nights of the suite came before; None where it could not
            begin.
        specdyno_version: The version that added it.
        points_sha256: Hash of its file of points; None: it has none.
        sources: Ids of the runs (or hashes of the foreign rows) its points are of.
        scenario: What was measured, or was to be; None: all.
        reason: Of a failure why, else a note.
        acks: Of an ack.
    """

    version: int = FORMAT
    entry_id: str
    kind: EntryKind
    at: datetime
    night: date
    suite: str | None = None
    ordinal: int | None = None
    specdyno_version: str = __version__
    points_sha256: str | None = None
    sources: tuple[str, ...] = ()
    scenario: str | None = None
    reason: str | None = None
    acks: tuple[Ack, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """All that a history holds.

    Attributes:
        folder: Where it is.
        entries: Oldest first.
        series: Points by series, oldest first.
        facts: Environments by fingerprint.
        failures: Nights without figures, oldest first.
        acks: Oldest first.
        damaged: Files that cannot be read, with the reason; all others are read.
    """

    folder: Path
    entries: tuple[Entry, ...]
    series: Mapping[SeriesKey, tuple[Point, ...]]
    facts: Mapping[str, Facts]
    failures: tuple[NightFailure, ...]
    acks: tuple[Ack, ...]
    damaged: tuple[tuple[str, str], ...]

    @property
    def sources(self) -> frozenset[str]:
        """Ids of every run and foreign row that is in it."""
        return frozenset(p.source_id for points in self.series.values() for p in points)

    def nights_of(self, suite: str) -> int:
        """How many nights of a suite were begun, failed ones included."""
        ordinals = [e.ordinal for e in self.entries if e.suite == suite and e.ordinal is not None]
        return max(ordinals, default=-1) + 1


# ------------------------------------------------------------------------------------------ adding


def fingerprint_of(facts: Mapping[str, str]) -> str:
    """The name of an environment: the same facts have the same everywhere."""
    return hashlib.sha256(_facts_bytes(facts)).hexdigest()[:_HASH_CHARS]


def add(  # noqa: PLR0913  # an entry's own fields
    folder: Path,
    *,
    kind: EntryKind,
    night: date,
    points: Sequence[Point] = (),
    facts: Iterable[Mapping[str, str]] = (),
    suite: str | None = None,
    ordinal: int | None = None,
    scenario: str | None = None,
    reason: str | None = None,
    acks: Sequence[Ack] = (),
) -> Entry:
    """Add an entry; it is in the history as a whole or not at all.

    Args:
        folder: The history; made where there is none.
        kind: What it is.
        night: The date it is about.
        points: Its values.
        facts: The environments that its points name.
        suite: Name of the suite.
        ordinal: Of a night: how many came before.
        scenario: What was measured, or was to be.
        reason: Of a failure why, else a note.
        acks: Of an ack.

    Raises:
        NewerHistoryError: A newer specdyno has written to it.
        DiskError: The disk refused; nothing was added.
    """
    check_versions(folder)
    now = utc_now()
    entry_id = f"{now:%Y%m%dT%H%M%SZ}-{kind}-{secrets.token_hex(3)}"
    content = points_bytes(points) if points else None
    entry = Entry(
        entry_id=entry_id,
        kind=kind,
        at=now,
        night=night,
        suite=suite,
        ordinal=ordinal,
        points_sha256=None if content is None else hashlib.sha256(content).hexdigest(),
        sources=tuple(dict.fromkeys(point.source_id for point in points)),
        scenario=scenario,
        reason=reason,
        acks=tuple(acks),
    )
    try:
        with writing("an entry", folder):
            for name in (ENTRIES, POINTS, FINGERPRINTS):
                (folder / name).mkdir(parents=True, exist_ok=True)
            for known in facts:
                path = folder / FINGERPRINTS / f"{fingerprint_of(known)}.json"
                if not path.exists():
                    _put(path, _facts_bytes(known))
            _put(folder / ENTRIES / f"{entry_id}.json", _json_bytes(msgspec.to_builtins(entry)))
            if content is not None:
                _put(folder / POINTS / f"{entry_id}.parquet", content)
    except DiskError as error:
        again = "then `bench nightly import` takes in the run" if points else "then do it again"
        raise DiskError(
            f"the history: {error}", hint=f"Make room or name another --history, {again}."
        ) from error
    return entry


def _put(path: Path, content: bytes) -> None:
    """Write a file whole or not at all; writers of the same file do not meet."""

    def write(file: IO[bytes]) -> object:
        return file.write(content)

    part = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        write_flushed(part, write)
        part.replace(path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
    flush_folder(path.parent)


def _facts_bytes(facts: Mapping[str, str]) -> bytes:
    return _json_bytes({"version": FORMAT, "facts": dict(sorted(facts.items()))})


def _json_bytes(value: object) -> bytes:
    text = json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False, allow_nan=False)
    return text.encode("utf-8", "backslashreplace") + b"\n"


# ----------------------------------------------------------------------------------------- reading


def read_history(folder: Path) -> History:
    """Read all of a history; what is damaged is told, and everything else is read.

    Args:
        folder: The history; one that is not there yet is empty.

    Raises:
        NewerHistoryError: A newer specdyno has written to it.
    """
    check_versions(folder)
    damaged: list[tuple[str, str]] = []

    def readable(path: Path, read: Callable[[Path], Any]) -> Any:  # noqa: ANN401  # what it reads
        try:
            return read(path)
        except NewerHistoryError:
            raise
        except StoreError as error:
            damaged.append((str(path), str(error)))
            return None

    entries = [
        e for path in _files(folder, ENTRIES, ".json") if (e := readable(path, _read_entry))
    ]
    known = {entry.entry_id: entry for entry in entries}
    points: list[Point] = []
    there = set()
    for path in _files(folder, POINTS, ".parquet"):
        entry = known.get(path.stem)
        there.add(path.stem)
        if entry is not None and sha256_of(path) != entry.points_sha256:
            runs = ", ".join(entry.sources)
            why = f"not what was written: its SHA-256 differs. {_AGAIN.format(runs=runs)}"
            damaged.append((str(path), why))
            continue
        points += readable(path, read_points) or ()
    facts = {
        path.stem: found
        for path in _files(folder, FINGERPRINTS, ".json")
        if (found := readable(path, _read_facts)) is not None
    }
    return History(
        folder=folder,
        entries=tuple(entries),
        series=_by_series(points),
        facts=facts,
        failures=tuple(_failures(entries, there)),
        acks=tuple(ack for entry in entries for ack in entry.acks),
        damaged=tuple(damaged),
    )


def _by_series(points: Iterable[Point]) -> dict[SeriesKey, tuple[Point, ...]]:
    """Points by series in the order of time; what came in twice counts once."""
    series: dict[SeriesKey, dict[str, Point]] = {}
    for point in points:
        series.setdefault(point.key, {}).setdefault(point.source_id, point)
    return {
        key: tuple(sorted(found.values(), key=lambda point: point.at))
        for key, found in sorted(series.items())
    }


def _failures(entries: Sequence[Entry], there: set[str]) -> list[NightFailure]:
    ended = {_part(entry) for entry in entries if entry.kind in {"night", "failure"}}
    failures = []
    for entry in entries:
        reason = entry.reason
        if entry.kind == "begun":
            if _part(entry) in ended:
                continue
            reason = "begun and not finished: it is being measured now, or was killed"
        elif entry.kind != "failure":
            if entry.points_sha256 is None or entry.entry_id in there:
                continue
            runs = ", ".join(entry.sources)
            reason = f"stopped while it was being stored. {_AGAIN.format(runs=runs)}"
        failures.append(
            NightFailure(night=entry.night, scenario=entry.scenario, reason=reason or "no reason")
        )
    return sorted(failures, key=lambda failure: failure.night)


def _part(entry: Entry) -> tuple[str | None, int | None, str | None]:
    """Which part of which night an entry is about."""
    return entry.suite, entry.ordinal, entry.scenario


def check_versions(folder: Path) -> None:
    """Refuse a history that a newer specdyno has written to.

    Raises:
        NewerHistoryError: Naming the file.
    """
    for name in (ENTRIES, FINGERPRINTS):
        for path in _files(folder, name, ".json"):
            try:
                stored = json.loads(path.read_bytes())
            except (OSError, ValueError):
                continue  # damaged: told where it is read
            version = stored.get("version") if isinstance(stored, dict) else None
            if isinstance(version, int):
                checked_version(version, path)


def _read_entry(path: Path) -> Entry:
    try:
        return msgspec.convert(_read_json(path), Entry)
    except msgspec.ValidationError as error:
        raise StoreError(f"damaged: {error}") from error


def _read_facts(path: Path) -> Facts:
    try:
        facts = msgspec.convert(_read_json(path).get("facts"), Facts)
    except msgspec.ValidationError as error:
        raise StoreError(f"damaged: {error}") from error
    if fingerprint_of(facts) != path.stem:
        raise StoreError("damaged: its facts are not those it is named after")
    return facts


def _read_json(path: Path) -> dict[str, Any]:
    try:
        stored = json.loads(path.read_bytes())
    except OSError as error:
        raise StoreError(str(error.strerror)) from error
    except ValueError as error:
        raise StoreError(f"damaged: {error}") from error
    if not isinstance(stored, dict):
        raise StoreError("damaged: no JSON object")
    return stored


def _files(folder: Path, name: str, ending: str) -> list[Path]:
    """Files of a sub-folder in the order of their names; what was not finished begins with a dot.

    Raises:
        StoreError: The folder is there and cannot be read.
    """
    try:
        return sorted(
            path
            for path in (folder / name).iterdir()
            if path.suffix == ending and not path.name.startswith(".")
        )
    except FileNotFoundError:
        return []
    except OSError as error:
        raise StoreError(f"cannot read {folder / name}: {error.strerror}") from error


def as_utc(moment: datetime) -> datetime:
    """A moment in UTC; one without a zone is UTC already."""
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
