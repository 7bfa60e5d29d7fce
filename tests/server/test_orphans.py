"""Servers whose keeper was killed: found by name, ended by name, and nothing else is."""

import json
import shlex
import socket
from dataclasses import asdict, replace

import psutil
import pytest
from launchers import launched, stand_ins
from test_launchers import DOCKER, docker, until  # noqa: F401  # docker is a fixture

from bench.errors import ServerError
from bench.server import orphans
from bench.server.orphans import Fate, end_orphan, forget_note, note_for, notes_in, write_note

NAME = "specdyno-0123456789ab"


def shell(script):
    return ("sh", "-c", script)


def a_note(folder, *, alive=None, stop=None, force_stop=None, term_s=0.2):
    """The note of a server that lives as long as the file `lives` is there."""
    lives = folder / f"lives-{NAME}"
    lives.touch()
    return note_for(
        name=NAME,
        alive=alive or shell(f"test ! -e {lives} || echo {NAME}"),
        stop=stop or shell(f"rm {lives}; echo stop >> {folder}/asked"),
        force_stop=force_stop or shell(f"rm -f {lives}; echo force_stop >> {folder}/asked"),
        term_s=term_s,
    )


@pytest.fixture(autouse=True)
def _brief(monkeypatch):
    monkeypatch.setattr(orphans, "GONE_S", 0.3)
    monkeypatch.setattr(orphans, "ASK_S", 0.02)


async def test_a_server_that_is_there_is_ended_in_order_and_cleared_up(tmp_path):
    assert await end_orphan(a_note(tmp_path)) is Fate.ENDED
    assert (tmp_path / "asked").read_text().split() == ["stop", "force_stop"]


async def test_force_ends_what_order_does_not(tmp_path):
    note = a_note(tmp_path, stop=shell(f"true {NAME}"))
    assert await end_orphan(note) is Fate.ENDED
    assert (tmp_path / "asked").read_text().split() == ["force_stop"]


async def test_a_server_that_is_gone_is_let_be(tmp_path):
    note = a_note(tmp_path)
    (tmp_path / f"lives-{NAME}").unlink()
    assert await end_orphan(note) is Fate.GONE
    assert list(tmp_path.iterdir()) == []


async def test_what_no_command_ends_is_told(tmp_path):
    nothing = shell(f"true {NAME}")
    note = a_note(tmp_path, stop=nothing, force_stop=nothing)
    assert await end_orphan(note) is Fate.ALIVE
    with pytest.raises(ServerError, match="still lives") as told:
        await orphans.require_ended(note)
    assert told.value.hint == f"End it by hand: {shlex.join(nothing)}"


@pytest.mark.parametrize("alive", [shell(f"exit 1 # {NAME}"), ("/no/such", NAME)])
async def test_a_launcher_that_tells_nothing_is_no_reason_to_end_anything(tmp_path, alive):
    assert await end_orphan(a_note(tmp_path, alive=alive)) is Fate.UNKNOWN
    assert (tmp_path / f"lives-{NAME}").exists()


@pytest.mark.parametrize("which", ["alive", "stop", "force_stop"])
async def test_commands_that_do_not_name_the_server_are_not_run(tmp_path, which):
    unnamed = {which: shell(f"touch {tmp_path}/ran; echo x")}
    assert await end_orphan(a_note(tmp_path, **unnamed)) is Fate.NOT_OURS_TO_END
    assert not (tmp_path / "ran").exists()
    assert (tmp_path / f"lives-{NAME}").exists()


async def test_another_machines_server_is_left_alone(tmp_path):
    note = replace(a_note(tmp_path), host=f"not-{socket.gethostname()}")
    assert await end_orphan(note) is Fate.NOT_OURS_TO_END
    assert (tmp_path / f"lives-{NAME}").exists()


def test_notes_are_read_back_and_damaged_ones_left_out(tmp_path):
    log = tmp_path / "L00-baseline-p0.log"
    note = a_note(tmp_path)
    write_note(log, note)
    (tmp_path / "L01.server.json").write_text("{")
    (tmp_path / "L02.server.json").write_text(json.dumps({**asdict(note), "more": 1}))
    assert notes_in(tmp_path) == {log: note}
    forget_note(log)
    assert notes_in(tmp_path) == {}


async def test_a_note_lies_there_as_long_as_the_server_lives(tmp_path, docker):  # noqa: F811
    docker()
    server = await launched(tmp_path, DOCKER)
    ((log, note),) = notes_in(tmp_path).items()
    assert log == tmp_path / "server.log"
    assert note.ends_by_name
    assert note.name in server.argv
    await server.stop()
    assert notes_in(tmp_path) == {}


async def test_a_server_whose_keeper_was_killed_is_ended_by_name(tmp_path, docker):  # noqa: F811
    removed = docker() / "removed"
    server = await launched(tmp_path, DOCKER)
    (note,) = notes_in(tmp_path).values()
    psutil.Process(server.pid).kill()
    await until(lambda: server.exited() is not None)
    assert len(stand_ins(tmp_path)) == 1  # its container does not notice
    await server.stop()
    assert stand_ins(tmp_path) == []
    assert removed.read_text() == f"{note.name}\n"
    assert notes_in(tmp_path) == {}


async def test_a_bystander_with_nearly_the_same_name_is_left_alone(tmp_path, docker):  # noqa: F811
    docker()
    server = await launched(tmp_path, DOCKER)
    (note,) = notes_in(tmp_path).values()
    other = replace(
        note,
        **{
            key: tuple(word.replace(note.name, f"{note.name}x") for word in getattr(note, key))
            for key in ("alive", "stop", "force_stop")
        },
        name=f"{note.name}x",
    )
    assert await end_orphan(other) is Fate.GONE
    assert len(stand_ins(tmp_path)) == 1
    await server.stop()
