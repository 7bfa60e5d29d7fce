"""A disk that takes so many writes and refuses every one after that."""

import errno
import os
import sys
from pathlib import Path

WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT
NAMED = {"os.mkdir": 0, "os.rename": 1}
"""Where events of the interpreter have the path that is written."""


class FullDisk:
    """Refuses what is written below a folder: opening, making, renaming, flushing.

    An audit hook sees it all; it can be told to be quiet, but never be removed.

    Attributes:
        left: How many writes are still taken; None: all.
        taken: How many were.
        number: The errno of a refusal.
    """

    def __init__(self, monkeypatch):
        self.folder = "/nowhere"
        self.left = None
        self.taken = 0
        self.number = errno.ENOSPC
        sys.addaudithook(self)
        fsync = os.fsync

        def flush(file):
            number = file if isinstance(file, int) else file.fileno()
            self._write(Path(f"/proc/self/fd/{number}").readlink())
            fsync(file)

        monkeypatch.setattr(os, "fsync", flush)

    def fill(self, folder, after, number=errno.ENOSPC):
        """From now on take `after` writes below `folder`."""
        self.folder, self.left, self.taken, self.number = str(folder), after, 0, number

    def make_room(self):
        """Take everything again."""
        self.left = None

    def __call__(self, event, arguments):
        if self.left is None:
            return
        if event == "open" and isinstance(arguments[2], int) and arguments[2] & WRITES:
            self._write(arguments[0])
        elif event in NAMED:
            self._write(arguments[NAMED[event]])

    def _write(self, path):
        if self.left is None or not str(path).startswith(self.folder):
            return
        if self.left == 0:
            raise OSError(self.number, os.strerror(self.number), str(path))
        self.left -= 1
        self.taken += 1
