"""Writing that survives: whole files or none, whole folders or none, and one writer a run.

A file is written beside its place, flushed to the disk and renamed into it, and the folder is
flushed too; so a crash at any byte leaves the old file or the new one. What the disk refuses
becomes a `DiskError` that says what to do.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import struct
from contextlib import contextmanager, suppress
from typing import IO, TYPE_CHECKING

from bench.errors import DiskError, StoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_REFUSED = {errno.EROFS, errno.EACCES, errno.EPERM}
# struct flock of Linux: type, whence, start, length, pid. Locks of the open file, not the older
# ones of the process, which it loses as soon as any part of it closes any handle of the file.
_FLOCK = struct.Struct("hhqqi0q")


@contextmanager
def writing(what: str, path: Path) -> Iterator[None]:
    """Turn what the disk refuses while writing into a DiskError.

    Args:
        what: What was being written, for the message.
        path: Where.
    """
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        raise DiskError(
            f"cannot write {what} to {path}: {reason}", hint=_hint(error.errno)
        ) from error


def _hint(number: int | None) -> str:
    if number in _FULL:
        return "make room, then `bench resume` the run: its finished cells are kept"
    if number in _REFUSED:
        return "make the folder writable, or name another with --out"
    return "check the disk and the path; finished cells are kept"


def replace_file(path: Path, write: Callable[[IO[bytes]], object]) -> None:
    """Write a file whole or not at all, replacing the old one.

    Raises:
        OSError: The disk refused; the old file, if any, is as it was.
    """
    part = path.with_name(f".{path.name}.tmp")
    try:
        write_flushed(part, write)
        part.replace(path)
    except BaseException:
        with suppress(OSError):
            part.unlink(missing_ok=True)
        raise
    flush_folder(path.parent)


def write_flushed(path: Path, write: Callable[[IO[bytes]], object]) -> None:
    """Write a file and have it reach the disk; not atomic by itself."""
    with path.open("wb") as file:
        write(file)
        file.flush()
        os.fsync(file.fileno())


def flush_folder(path: Path) -> None:
    """Have a folder's entries (renames, new files) reach the disk."""
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def sha256_of(path: Path) -> str:
    """The SHA-256 of a file, in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def take_lock(path: Path) -> int:
    """Become the one writer of a run, until the handle is closed or the process ends.

    Args:
        path: The run's lock file.

    Returns:
        The open handle that holds the lock.

    Raises:
        StoreError: Another process holds it, or the run is gone (it was published a moment ago).
        DiskError: The file system has no locks, or refuses the file.
    """
    with writing("the run's lock", path):
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        _lock(handle, path)
    except BaseException:
        os.close(handle)
        raise
    return handle


def _lock(handle: int, path: Path) -> None:
    try:
        fcntl.fcntl(handle, fcntl.F_OFD_SETLK, _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0))
    except OSError as error:
        if error.errno in {errno.EAGAIN, errno.EACCES}:
            raise StoreError(
                f"{path.parent} is being written by process {_pid_in(handle) or 'unknown'}",
                hint="wait until it has ended, or stop it",
            ) from error
        raise DiskError(
            f"cannot lock {path}: {error.strerror}",
            hint="name a folder on a local disk with --out: not every file system has locks",
        ) from error
    # The folder may have been renamed between opening and locking: then this is no run's lock.
    if not path.exists() or not os.path.samestat(os.fstat(handle), path.stat()):
        raise StoreError(f"{path.parent} is gone: the run has just been published")
    with writing("the run's lock", path):
        os.ftruncate(handle, 0)
        os.pwrite(handle, str(os.getpid()).encode(), 0)


def lock_holder(path: Path) -> int | None:
    """The pid of the process that holds a lock (0: it cannot be told); None when nobody does."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        asked = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        answer = fcntl.fcntl(handle, fcntl.F_OFD_GETLK, asked)
        held = _FLOCK.unpack(answer)[0] != fcntl.F_UNLCK
        return (_pid_in(handle) or 0) if held else None
    except OSError:
        return None
    finally:
        os.close(handle)


def _pid_in(handle: int) -> int | None:
    text = os.pread(handle, 32, 0).decode(errors="replace").strip()
    return int(text) if text.isdigit() else None
