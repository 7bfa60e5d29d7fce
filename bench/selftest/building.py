"""The ground-truth server as a command: compiled on demand where a compiler is, else in Python."""

from __future__ import annotations

import atexit
import functools
import hashlib
import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Final

_COMPILERS: Final = ("cc", "gcc", "clang")
_COMPILE_S: Final = 60.0
_PRIVATE: Final = 0o700
_OTHERS_MAY_WRITE: Final = 0o022


@dataclass(frozen=True, slots=True, kw_only=True)
class TruthCommand:
    """How to run the ground-truth server.

    Attributes:
        argv: Without options.
        is_compiled: Whether it is the one in C, whose own cost and lateness are least.
        why_not: Why it is not.
    """

    argv: tuple[str, ...]
    is_compiled: bool
    why_not: str | None = None


def truth_command() -> TruthCommand:
    """The ground-truth server: the one in C, compiled once a version, if that can be had."""
    source = resources.files("bench.selftest").joinpath("truth_server.c").read_bytes()
    compiler = _compiler()
    if compiler is None:
        return _in_python("no C compiler was found")
    words = " ".join((*compiler, platform.machine(), platform.libc_ver()[1]))
    name = hashlib.sha256(source + words.encode()).hexdigest()[:16]
    failure: Exception | None = None
    for folder in (cache_folder, _own_folder):
        try:
            program = folder() / f"truth_server-{name}"
            if not program.exists():
                _compile(compiler, source, program)
            _require_runnable(program)
        except (OSError, subprocess.SubprocessError) as error:
            failure = failure or error
        else:
            return TruthCommand(argv=(str(program),), is_compiled=True)
    return _in_python(f"the C one could not be compiled: {failure}")


def cache_folder() -> Path:
    """Where specdyno keeps what can be made again: private, since programs in it are run.

    Raises:
        OSError: It cannot be made, or somebody else could have put something there.
    """
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    folder = Path(base) / "specdyno" / "selftest"
    folder.mkdir(mode=_PRIVATE, parents=True, exist_ok=True)
    status = folder.stat()
    if status.st_uid != os.getuid() or status.st_mode & _OTHERS_MAY_WRITE:
        raise PermissionError(f"others may write into {folder}")
    return folder


@functools.cache
def _own_folder() -> Path:
    """Where the cache cannot be used: a folder that goes with this process."""
    folder = tempfile.TemporaryDirectory(prefix="specdyno-")
    atexit.register(folder.cleanup)
    return Path(folder.name)


def _require_runnable(program: Path) -> None:
    if not os.access(program, os.X_OK):  # mounted noexec, as home folders of clusters may be
        raise PermissionError(f"no program may be run from {program.parent}")


def _compiler() -> tuple[str, ...] | None:
    asked = shlex.split(os.environ.get("CC", ""))
    for words in (asked, *([name] for name in _COMPILERS)):
        if words and (found := shutil.which(words[0])):
            return (found, *words[1:])
    return None


def _compile(compiler: tuple[str, ...], source: bytes, program: Path) -> None:
    with tempfile.TemporaryDirectory(dir=program.parent) as folder:
        text, made = Path(folder) / "truth_server.c", Path(folder) / "truth_server"
        text.write_bytes(source)
        subprocess.run(
            [*compiler, "-O2", "-o", str(made), str(text)],
            check=True,
            capture_output=True,
            timeout=_COMPILE_S,
        )
        made.replace(program)  # another process may be doing the same


def _in_python(why_not: str) -> TruthCommand:
    argv = (sys.executable, "-m", "bench.selftest.truth_server")
    return TruthCommand(argv=argv, is_compiled=False, why_not=why_not)
