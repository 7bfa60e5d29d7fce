"""The error tree and the exit codes.

A failed request is data, an untrustworthy cell is a status; an exception is a failed harness or a
user's mistake::

    BenchError                  1   never raised itself
    ├── InputError              2   the user's input: a scenario, a flag, a path
    │   └── ScenarioError       2   a scenario's text, with file and line
    ├── MachineError            3   the server or the machine
    │   ├── ServerError         3   did not start, crashed, would not stop, refused a call
    │   └── LoadError           3   a load worker died or broke its protocol
    ├── StoreError              2   results that cannot be read, resumed or compared
    │   └── DiskError           3   results that cannot be written (full disk, read-only folder)
    └── Interrupted           130   Ctrl-C, after a clean stop

Exit codes of the commands: 0 answered (UNDECIDED is an answer), 2 input, 3 server or machine, 4 no
asked comparison has a VALID cell, 5 a regression was found (nightly), 130 Ctrl-C, 1 a bug in
specdyno.

Every message says what was asked, what was found and what to do; `hint` carries the last of these
on its own line.
"""

from __future__ import annotations

EXIT_ANSWERED = 0
EXIT_BUG = 1
EXIT_INPUT = 2
EXIT_MACHINE = 3
EXIT_NO_VALID_CELL = 4
EXIT_REGRESSION = 5
EXIT_INTERRUPTED = 130


class BenchError(Exception):
    """Base of every error that is told to the user without a traceback.

    Attributes:
        hint: What the user can do about it, or None when the message says it all.
    """

    exit_code = EXIT_BUG

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.hint = hint


class InputError(BenchError):
    """Something the user asked for cannot be done as asked."""

    exit_code = EXIT_INPUT


class ScenarioError(InputError):
    """A scenario's text is wrong; the message begins with `file:line key`."""


class MachineError(BenchError):
    """The server or the machine failed."""

    exit_code = EXIT_MACHINE


class ServerError(MachineError):
    """A server did not start, crashed, would not stop or refused a control call."""


class LoadError(MachineError):
    """A load worker died or broke its protocol."""


class StoreError(BenchError):
    """Stored results cannot be read, resumed or compared."""

    exit_code = EXIT_INPUT


class DiskError(StoreError):
    """Results cannot be written: full disk, read-only folder."""

    exit_code = EXIT_MACHINE


class Interrupted(BenchError):  # noqa: N818  # it is the user's wish, not an error
    """The user pressed Ctrl-C (or sent TERM); everything was stopped cleanly first."""

    exit_code = EXIT_INTERRUPTED
