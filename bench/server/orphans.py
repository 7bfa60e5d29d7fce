"""Servers that outlived the process that kept them, ended by name; never anything else.

A server started through another program (docker, ssh, srun, …) is no child of bench. If its keeper
is killed for certain (`kill -9`, a machine out of memory) nothing ends the server. So each start
leaves a note beside its log, with the name that only this server has and the commands that ask for
it and end it by that name; the note goes when the server is proved to be gone. What is left of a
run that nobody writes any more is found by these notes.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import shlex
import socket
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from bench.errors import ServerError
from bench.server.asking import run_command

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

ENDING: Final = ".server.json"
CALL_S: Final = 60.0
"""How long a command may take beside the server's own time, in seconds of the world."""

GONE_S: Final = 10.0
"""How long a server that was ended for certain may still be found, likewise."""

ASK_S: Final = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerNote:
    """What it takes to find one server again, and to end it.

    Attributes:
        name: What its launcher calls it: random, so that no other server has it.
        host: The machine of the bench that started it: its commands are meant to be run there.
        alive: Ends with status 0, and prints something if and only if the server lives.
        stop: Ends it in order.
        force_stop: Ends it for certain.
        term_s: How long `stop` may take, in seconds of the world.
    """

    name: str
    host: str
    alive: tuple[str, ...]
    stop: tuple[str, ...]
    force_stop: tuple[str, ...]
    term_s: float

    @property
    def ends_by_name(self) -> bool:
        """Whether every command names the server, so that it can touch no other."""
        ending = [words for words in (self.stop, self.force_stop) if words]
        named = (any(self.name in word for word in words) for words in (self.alive, *ending))
        return bool(self.alive) and bool(ending) and all(named)

    @property
    def by_hand(self) -> str:
        """The command that ends it, to be pasted."""
        return shlex.join(self.force_stop or self.stop)


class Fate(StrEnum):
    """What became of a server that was looked for."""

    GONE = "gone"  # it was not there any more
    ENDED = "ended"
    ALIVE = "alive"  # its commands did not end it
    UNKNOWN = "unknown"  # it could not be asked for
    NOT_OURS_TO_END = "not_ours_to_end"  # another machine's, or its commands do not name it


def note_for(
    *,
    name: str,
    alive: Sequence[str],
    stop: Sequence[str],
    force_stop: Sequence[str],
    term_s: float,
) -> ServerNote:
    """The note of a server that is started here."""
    return ServerNote(
        name=name,
        host=socket.gethostname(),
        alive=tuple(alive),
        stop=tuple(stop),
        force_stop=tuple(force_stop),
        term_s=term_s,
    )


def note_path(log_path: Path) -> Path:
    """Where the note of the server with this log lies."""
    return log_path.with_suffix(ENDING)


def write_note(log_path: Path, note: ServerNote) -> None:
    """Leave a note beside a log; a disk that refuses it costs the note alone."""
    with contextlib.suppress(OSError):
        note_path(log_path).write_text(json.dumps(asdict(note)), encoding="utf-8")


def forget_note(log_path: Path) -> None:
    """The server is gone."""
    with contextlib.suppress(OSError):
        note_path(log_path).unlink(missing_ok=True)


def notes_in(logs: Path) -> dict[Path, ServerNote]:
    """The notes in a run's folder of logs, by the path of each log; damaged ones are left out."""
    found = {}
    for path in sorted(logs.glob(f"*{ENDING}")):
        with contextlib.suppress(OSError, ValueError, TypeError):
            fields = json.loads(path.read_text(encoding="utf-8"))
            for key in ("alive", "stop", "force_stop"):
                fields[key] = tuple(fields[key])
            found[path.with_name(path.name.removesuffix(ENDING) + ".log")] = ServerNote(**fields)
    return found


async def end_orphan(note: ServerNote) -> Fate:
    """Look for a server by its name and, if it is there, end it by that name.

    `force_stop` comes last whatever `stop` did: it clears up as well.
    """
    if not note.ends_by_name or note.host != socket.gethostname():
        return Fate.NOT_OURS_TO_END
    is_alive = await _is_alive(note)
    if not is_alive:
        return Fate.UNKNOWN if is_alive is None else Fate.GONE
    for words, most_s in ((note.stop, note.term_s), (note.force_stop, GONE_S)):
        if words:
            await _output(words, most_s + CALL_S)
            is_alive = await _until_gone(note, most_s)
    return {True: Fate.ALIVE, False: Fate.ENDED, None: Fate.UNKNOWN}[is_alive]


async def require_ended(note: ServerNote) -> None:
    """End a server whose keeper was killed.

    Raises:
        ServerError: It is there all the same, or nothing tells.
    """
    fate = await end_orphan(note)
    if fate in {Fate.ALIVE, Fate.UNKNOWN, Fate.NOT_OURS_TO_END}:
        what = "still lives" if fate is Fate.ALIVE else "may still live"
        raise ServerError(
            f"the process that kept the server {note.name} was killed, and the server {what}.",
            hint=f"End it by hand: {note.by_hand}",
        )


async def _until_gone(note: ServerNote, most_s: float) -> bool | None:
    """Whether it lives after all, asked again and again until it does not."""
    is_alive = await _is_alive(note)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(most_s):
            while is_alive is not False:
                await asyncio.sleep(ASK_S)
                is_alive = await _is_alive(note)
    return is_alive


async def _is_alive(note: ServerNote) -> bool | None:
    """Whether it lives; None when it cannot be asked for."""
    output = await _output(note.alive, CALL_S)
    return None if output is None else bool(output)


async def _output(command: Sequence[str], most_s: float) -> str | None:
    """What a command prints if it ends with status 0."""
    try:
        ran = await run_command(command, most_s=most_s)
    except OSError:
        return None
    return ran.output.decode("utf-8", "replace").strip() if ran.status == 0 else None
