"""What is done when servers, load workers, disks and our own code fail."""

import pytest
from bench_stand_ins import always, begin, failed, once

from bench.errors import DiskError, LoadError, MachineError, ServerError
from bench.model import RequestStatus
from bench.runner import LaunchEnded, Noted, run
from bench.store import RunStatus, load_run


def kinds(stored):
    return [finding.kind for finding in stored.findings]


def steps(world, *beginnings):
    return [step for step in world.journal if step.startswith(beginnings)]


# ---------------------------------------------------------------------- servers that do not start


async def test_a_launch_that_does_not_start_is_told_and_the_others_are_measured(world, tmp_path):
    world.starts = lambda arm: always("no GPU")(arm) if arm == "eagle3" else None
    plan, writer = begin(tmp_path)
    stored = load_run(await run(plan, writer))
    assert {m.arm for m in stored.measurements} == {"baseline"}
    (finding,) = [f for f in stored.findings if f.kind == "launch_failed"]
    assert (finding.arm, finding.severity) == ("eagle3", "invalid")
    assert "arm eagle3, pair 0: no GPU" in finding.message
    assert finding.advice == "look at the log"
    baseline, eagle3 = stored.manifest.launches
    assert (eagle3.failure, eagle3.ready_ns, eagle3.effective) == ("no GPU", None, None)
    assert eagle3.stopped_ns is not None
    assert baseline.failure is None


async def test_an_arm_that_failed_to_start_twice_is_not_tried_again(world, tmp_path):
    world.starts = lambda arm: always("no GPU")(arm) if arm == "eagle3" else None
    plan, writer = begin(tmp_path, pairs=4)
    stored = load_run(await run(plan, writer))
    assert steps(world, "start").count("start eagle3") == 2
    assert steps(world, "start").count("start baseline") == 4
    messages = [f.message for f in stored.findings if f.kind == "launch_failed"]
    assert len(messages) == 4
    assert sum("not tried, since 2 starts failed" in message for message in messages) == 2


async def test_one_failed_start_is_no_reason_to_skip_the_next_pair(world, tmp_path):
    world.starts = once(ServerError("port taken"))
    plan, writer = begin(tmp_path, pairs=2)
    stored = load_run(await run(plan, writer))
    assert len(steps(world, "start")) == 4
    assert [(m.arm, m.pair) for m in stored.measurements if m.load == "1"] == [
        *(("eagle3", 0), ("eagle3", 1), ("baseline", 1))
    ]


async def test_a_run_without_a_single_cell_is_an_error_with_the_first_reason(world, tmp_path):
    world.starts = always("no GPU\nits last lines:\n  boom")
    plan, writer = begin(tmp_path, pairs=2)
    with pytest.raises(ServerError, match=r"no cell was measured.*arm baseline: no GPU") as told:
        await run(plan, writer)
    assert told.value.hint == "look at the log"
    stored = load_run(writer.folder)
    assert (stored.published, stored.manifest.status) == (False, RunStatus.FAILED)
    assert [record.failure for record in stored.manifest.launches] == ["no GPU"] * 4


async def test_a_log_is_named_by_a_path_that_outlives_the_part_run(world, tmp_path):
    plan, writer = begin(tmp_path)
    log = writer.log_path("L01-eagle3-p0")
    error = ServerError(f"boom, see {log}", hint=f"Log: {log}")
    world.starts = lambda arm: once(error)(arm) if arm == "eagle3" else None
    stored = load_run(await run(plan, writer))
    (finding,) = [f for f in stored.findings if f.kind == "launch_failed"]
    assert finding.message.endswith("boom, see logs/L01-eagle3-p0.log")
    assert finding.advice == "Log: logs/L01-eagle3-p0.log"
    assert (stored.folder / "logs/L01-eagle3-p0.log").is_file()


# ------------------------------------------------------------------------------- servers that die


def dying(world, *, times):
    """A hook: the server dies under load 1, the first `times` times."""
    left = [None] * times

    def hook(cell):
        if cell.load.label == "1" and left:
            left.pop()
            world.server.exit_code = -9

    return hook


async def test_a_server_that_dies_is_started_again_and_the_fatal_cell_measured_last(
    world, tmp_path
):
    world.loads = dying(world, times=1)
    plan, writer = begin(tmp_path, only=("arm=baseline",))
    events = []
    stored = load_run(await run(plan, writer, on_event=events.append))
    assert steps(world, "start", "load", "stop") == [
        *("start baseline", "load 1", "stop"),
        *("start baseline", "load 2", "load 1", "stop"),
    ]
    assert {m.load: m.launch_id for m in stored.measurements} == dict.fromkeys(
        "12", "L00-baseline-p0.1"
    )
    died, again = stored.manifest.launches
    assert died.failure.startswith(
        "the server of L00-baseline-p0 ended (signal SIGKILL) at load 1"
    )
    assert (died.exit_code, again.failure) == (-9, None)
    assert "launch_split" not in kinds(stored)  # all its cells are of the second start
    assert [e.record.failure is None for e in events if isinstance(e, LaunchEnded)] == [
        False,
        True,
    ]


async def test_cells_of_two_starts_are_told_as_a_split_launch(world, tmp_path):
    def loads(cell):
        if cell.load.label == "2" and len(world.servers) == 1:
            world.server.exit_code = 1

    world.loads = loads
    plan, writer = begin(tmp_path, only=("arm=baseline",))
    stored = load_run(await run(plan, writer))
    assert [m.launch_id for m in stored.measurements] == ["L00-baseline-p0", "L00-baseline-p0.1"]
    (split,) = [f for f in stored.findings if f.kind == "launch_split"]
    assert "L00-baseline-p0, L00-baseline-p0.1" in split.message
    assert (split.severity, split.arm) == ("note", "baseline")


async def test_an_attached_server_that_is_measured_load_by_load_is_no_split_launch(
    world, tmp_path
):
    plan, writer = begin(tmp_path, attach=(("", "http://a"), ("eagle3", "http://b")))
    stored = load_run(await run(plan, writer))
    assert len(stored.measurements) == 4
    assert "launch_split" not in kinds(stored)
    assert all(record.log_file is None for record in stored.manifest.launches)


async def test_a_load_that_kills_servers_costs_no_other_cell(world, tmp_path):
    def loads(cell):
        if (cell.arm, cell.load.label) == ("eagle3", "1"):
            world.server.exit_code = 1

    world.loads = loads
    plan, writer = begin(tmp_path, pairs=3)
    stored = load_run(await run(plan, writer))
    measured = [(m.arm, m.load) for m in stored.measurements]
    assert measured.count(("baseline", "1")) == measured.count(("baseline", "2")) == 3
    assert measured.count(("eagle3", "2")) == 3
    assert ("eagle3", "1") not in measured
    # A death is not a failed start: the arm is tried in the next pair too, twice each time.
    assert steps(world, "start").count("start eagle3") == 6
    assert kinds(stored).count("launch_failed") == 3


async def test_an_attached_server_that_is_gone_is_no_measured_cell(world, tmp_path):
    plain = world.samples
    world.samples = lambda cell: failed(plain(cell), RequestStatus.REFUSED)
    plan, writer = begin(tmp_path, only=("arm=baseline",))
    with pytest.raises(ServerError, match=r"nothing answers at .* any more"):
        await run(plan, writer)
    assert writer.finished_cells() == set()
    assert writer.folder.exists()  # a server was started: its log is worth keeping


async def test_of_attached_servers_that_do_not_answer_nothing_is_kept(world, tmp_path):
    world.starts = always("no connection")
    plan, writer = begin(tmp_path, attach=(("", "http://a"), ("eagle3", "http://b")))
    with pytest.raises(ServerError, match=r"nothing was measured\. Arm baseline: "):
        await run(plan, writer)
    assert list((tmp_path / "results").iterdir()) == []


async def test_what_was_measured_of_attached_servers_is_kept(world, tmp_path):
    world.stops = always("processes 7 are left")
    plan, writer = begin(tmp_path, attach=(("", "http://a"),))
    with pytest.raises(MachineError):
        await run(plan, writer)
    assert len(writer.finished_cells()) == 2


async def test_a_server_that_will_not_end_ends_the_run(world, tmp_path):
    """The next server would find its GPUs taken."""
    world.stops = always("processes 7 are left, even after KILL")
    plan, writer = begin(tmp_path, pairs=2)
    with pytest.raises(MachineError, match="processes 7 are left") as told:
        await run(plan, writer)
    assert not isinstance(told.value, ServerError)
    assert steps(world, "start") == ["start baseline"]
    (record,) = load_run(writer.folder).manifest.launches
    assert record.failure == "processes 7 are left, even after KILL"
    assert len(writer.finished_cells()) == 2


# ------------------------------------------------------------------- load workers, disks, mistakes


async def test_a_cell_whose_load_worker_died_is_measured_once_more(world, tmp_path):
    plain, lost = world.samples, [True]

    def samples(cell):
        rows = plain(cell)
        return failed(rows, RequestStatus.WORKER_LOST, "it was killed") if lost.pop() else rows

    lost[:] = [False, False, True]  # the last is taken first
    world.samples = samples
    plan, writer = begin(tmp_path, only=("arm=baseline",))
    events = []
    stored = load_run(await run(plan, writer, on_event=events.append))
    assert steps(world, "load") == ["load 1", "load 1", "load 2"]
    assert len(steps(world, "start")) == 1
    assert [m.failed_ct for m in stored.measurements] == [0, 0]
    (note,) = [event for event in events if isinstance(event, Noted)]
    assert "it was killed" in note.text
    assert "once more" in note.text


async def test_a_load_worker_that_dies_twice_in_a_cell_ends_the_run(world, tmp_path):
    plain = world.samples
    world.samples = lambda cell: failed(plain(cell), RequestStatus.WORKER_LOST, "it was killed")
    plan, writer = begin(tmp_path)
    with pytest.raises(LoadError, match="it was killed"):
        await run(plan, writer)
    assert world.journal[-2:] == ["close client", "stop"]
    assert writer.finished_cells() == set()


async def test_a_full_disk_ends_the_run_with_the_server_stopped_and_cells_kept(
    world, tmp_path, monkeypatch
):
    plan, writer = begin(tmp_path)
    write_cell, write_launch = type(writer).write_cell, type(writer).write_launch
    is_full = []

    def full_write_cell(self, cell, *arguments):
        if cell.load.label == "2":
            is_full.append(True)
            raise DiskError("cannot write the cell: No space left on device")
        write_cell(self, cell, *arguments)

    def full_write_launch(self, record):
        if is_full:
            raise DiskError("cannot write the manifest: No space left on device")
        write_launch(self, record)

    monkeypatch.setattr(type(writer), "write_cell", full_write_cell)
    monkeypatch.setattr(type(writer), "write_launch", full_write_launch)
    with pytest.raises(DiskError, match="cannot write the cell"):
        await run(plan, writer)
    assert world.journal[-2:] == ["close client", "stop"]
    assert len(writer.finished_cells()) == 1


async def test_a_mistake_of_ours_leaves_no_server_and_loses_no_cell(world, tmp_path):
    def loads(cell):
        if cell.load.label == "2":
            raise ZeroDivisionError

    world.loads = loads
    plan, writer = begin(tmp_path)
    with pytest.raises(ZeroDivisionError):
        await run(plan, writer)
    assert world.journal[-3:] == ["watched", "close client", "stop"]
    assert len(writer.finished_cells()) == 1
