"""Servers that an earlier run left behind: looked for before anything is started."""

import pytest
from bench_stand_ins import SCENARIO, begin

from bench.errors import MachineError
from bench.runner import Asked, Noted, run, start_run
from bench.server import orphans
from bench.server.orphans import note_for, notes_in, write_note
from bench.store import LOGS, open_part_run

NAME = "specdyno-0123456789ab"


def shell(script):
    return ("sh", "-c", f"{script} # {NAME}")


@pytest.fixture
def left(tmp_path, monkeypatch):
    """A part-run that nobody writes, and the note of a server that it left."""
    monkeypatch.setattr(orphans, "GONE_S", 0.2)
    _, writer = begin(tmp_path)
    lives = tmp_path / "lives"
    lives.touch()

    def make(**commands):
        given = {
            "alive": shell(f"test ! -e {lives} || echo yes"),
            "stop": shell(f"rm -f {lives}"),
            "force_stop": shell("true"),
            **commands,
        }
        write_note(writer.log_path("L00-baseline-p0"), note_for(name=NAME, term_s=0.2, **given))
        writer.close()
        return writer.folder / LOGS

    make.lives = lives
    return make


async def begun_anew(tmp_path, *, on_hardware=True):
    path = tmp_path / "anew.yaml"
    path.write_text(SCENARIO)
    asked = Asked(
        scenario=path,
        simulated=not on_hardware,
        only=("arm=baseline", "load=1"),
        overrides=("server.launcher.resolve=[]", "measure.steady_s=0.1"),
    )
    plan, writer = start_run(asked, tmp_path / "results", command_line=["bench", "run"])
    events = []
    try:
        await run(plan, writer, on_event=events.append)
    finally:
        writer.close()
    return [event.text for event in events if isinstance(event, Noted)]


async def test_it_is_ended_before_anything_is_started_and_told(world, tmp_path, left):
    logs = left()
    told = await begun_anew(tmp_path)
    assert not left.lives.exists()
    assert told == [f"{NAME}, a server that an earlier run left, was ended"]
    assert notes_in(logs) == {}
    assert await begun_anew(tmp_path) == []


async def test_one_that_would_not_end_ends_the_run(world, tmp_path, left):
    left(stop=shell("true"))
    with pytest.raises(MachineError, match=f"the server {NAME} of an earlier run") as told:
        await begun_anew(tmp_path)
    assert f"End it by hand: sh -c 'true # {NAME}'" in told.value.hint
    assert world.journal == []


async def test_one_that_cannot_be_proved_to_be_ours_is_told_and_left_alone(world, tmp_path, left):
    logs = left(alive=("echo", "yes"))
    (told,) = await begun_anew(tmp_path)
    assert "may still be there" in told
    assert "do not name it" in told
    assert f"sh -c 'true # {NAME}'" in told
    assert left.lives.exists()
    assert len(notes_in(logs)) == 1


async def test_simulated_runs_do_not_look(world, tmp_path, left):
    left()
    assert await begun_anew(tmp_path, on_hardware=False) == []
    assert left.lives.exists()


async def test_a_server_of_a_run_that_is_being_written_is_not_looked_for(world, tmp_path, left):
    logs = left()
    with open_part_run(logs.parent):
        assert await begun_anew(tmp_path) == []
    assert left.lives.exists()
