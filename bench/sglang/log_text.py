"""Lines of a log as their program wrote them: without what terminals and carriers put around.

Logs come through docker, Kubernetes, Slurm, systemd and torchrun, each of which may put something
in front of every line, and through terminals, which colour them.
"""

from __future__ import annotations

import codecs
import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path

MOST_CHARS: Final = 4096
"""Of a line, so much of its head and of its tail is read: the rest is somebody's data."""

_ESCAPES = re.compile(
    r"\x1b\[[0-?]{0,32}[ -/]{0,4}[@-~]"  # colours, cursor movements, erasing
    r"|\x1b\][^\x07\x1b]{0,256}(?:\x07|\x1b\\)"  # titles and links
    r"|\x1b[()][0-9A-B]|\x1b[=>78cM]|\ufeff"
)
_MOMENT = r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)"
_CARRIERS = tuple(
    re.compile(pattern)
    for pattern in (
        r"[\w.-]{1,80} {0,40}\| ?",  # docker compose
        rf"{_MOMENT} (?:(?:stdout|stderr) [FP] )?",  # Kubernetes, docker logs -t
        r"[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d [\w.-]{1,80} [\w./@-]{1,80}(?:\[\d{1,9}\])?: ",
        r"\[rank\d{1,6}\]: ?",  # PyTorch
        r"(?:\[\w{1,40}\d\]:|\d{1,6}: )",  # torchrun's, and srun --label
        r"\(\w{1,40} pid=\d{1,9}(?:, ip=[\w.:]{1,64})?\) ",  # Ray, vLLM
    )
)


def without_escapes(line: str) -> str:
    """A line without a terminal's escape sequences and byte-order marks."""
    return _ESCAPES.sub("", line) if "\x1b" in line or "\ufeff" in line else line


def clipped(line: str) -> str:
    """A line, or the head and the tail of one that is beyond measure."""
    if len(line) <= 2 * MOST_CHARS:
        return line
    return f"{line[:MOST_CHARS]} … {line[-MOST_CHARS:]}"


def as_written(line: str) -> str:
    """A line as its program wrote it: no escapes, none of what a carrier puts in front.

    The date that SGLang itself writes in a bracket stays, as do blanks in front.
    """
    text = without_escapes(clipped(line.rstrip("\r\n")))
    for carrier in _CARRIERS:
        found = carrier.match(text)
        if found:
            text = text[found.end() :]
    return text.rstrip()


_MARKS: Final = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)


def read_text(path: Path) -> str:
    """A file's text: UTF-8, or UTF-16 where its first bytes say so (a redirect of PowerShell's).

    Bytes that are no text become U+FFFD.

    Raises:
        OSError: It cannot be read.
    """
    data = path.read_bytes()
    encoding = next((name for mark, name in _MARKS if data.startswith(mark)), "utf-8")
    return data.decode(encoding, "replace")
