"""Part-runs taken up again, and told about."""

import os
import signal

import pytest
from bench_stand_ins import always, begin, forever

from bench.cli.answer import print_answer
from bench.cli.tables import print_runs
from bench.errors import Interrupted, ServerError, StoreError
from bench.model import Verdict
from bench.runner import answer_so_far, resume_run, run
from bench.store import RunStatus, list_runs, load_run

FAILED = "launch_failed"


async def part_run(world, tmp_path, *, until, pairs=2):
    """A run that is stopped in the cell `until`, an (arm, load, pair)."""

    async def loads(cell):
        if (cell.arm, cell.load.label, cell.pair) == until:
            os.kill(os.getpid(), signal.SIGINT)
            await forever()

    world.loads = loads
    plan, writer = begin(tmp_path, pairs=pairs)
    with pytest.raises(Interrupted):
        await run(plan, writer)
    writer.close()
    world.loads = None
    world.journal.clear()
    return writer.folder


def take_up(name, tmp_path):
    return resume_run(name, tmp_path / "results", command_line=["bench", "resume", name])


async def test_only_the_missing_cells_are_measured(world, tmp_path):
    folder = await part_run(world, tmp_path, until=("eagle3", "2", 0))
    done_before = {m.cell_id: m for m in load_run(folder).measurements}
    plan, writer = take_up("latest", tmp_path)
    stored = load_run(await run(plan, writer))
    assert [step for step in world.journal if step.startswith(("start", "load"))] == [
        *("start eagle3", "load 2"),
        *("start eagle3", "load 1", "load 2"),
        *("start baseline", "load 1", "load 2"),
    ]
    assert stored.status is RunStatus.COMPLETE
    assert stored.run_id == writer.run_id
    assert len(stored.measurements) == 8
    kept = {m.cell_id: m for m in stored.measurements if m.cell_id in done_before}
    assert {i: m.output_tok_per_s for i, m in kept.items()} == {
        i: m.output_tok_per_s for i, m in done_before.items()
    }
    assert [r.launch_id for r in stored.manifest.launches] == [
        "L00-baseline-p0",
        "L01-eagle3-p0",
        "L01-eagle3-p0.1",
        "L02-eagle3-p1",
        "L03-baseline-p1",
    ]
    assert [session.first_launch for session in stored.manifest.sessions] == [0, 2]
    (split,) = [f for f in stored.findings if f.kind == "launch_split"]
    assert "L01-eagle3-p0, L01-eagle3-p0.1" in split.message
    assert [c.verdict for c in stored.comparisons] == [Verdict.FASTER] * 2


async def test_a_run_stopped_while_it_was_published_only_needs_publishing(
    world, tmp_path, monkeypatch
):
    plan, writer = begin(tmp_path)

    def interrupted(*_arguments, **_named):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("bench.runner.runs.publish", interrupted)
        with pytest.raises(KeyboardInterrupt):
            await run(plan, writer)
    writer.close()
    world.journal.clear()
    plan, writer = take_up(writer.run_id, tmp_path)
    assert load_run(await run(plan, writer)).status is RunStatus.COMPLETE
    assert world.journal == []


async def test_failed_launches_are_tried_again(world, tmp_path):
    world.starts = always()
    plan, writer = begin(tmp_path)
    with pytest.raises(ServerError):
        await run(plan, writer)
    writer.close()
    world.starts = None
    stored = load_run(await run(*take_up("latest", tmp_path)))
    assert len(stored.measurements) == 4
    assert "launch_failed" not in {f.kind for f in stored.findings}


async def test_latest_is_the_newest_run_that_can_be_resumed(world, tmp_path):
    folder = await part_run(world, tmp_path, until=("baseline", "2", 0))
    plan, writer = begin(tmp_path)  # newer, and published
    await run(plan, writer)
    _, resumed = take_up("latest", tmp_path)
    assert resumed.folder == folder
    with pytest.raises(StoreError, match=r"no run in .* can be resumed"):
        take_up("latest", tmp_path)  # it is being written now
    resumed.close()


async def test_another_scenario_is_refused_and_the_part_run_left_as_it_is(world, tmp_path):
    folder = await part_run(world, tmp_path, until=("baseline", "2", 0))
    manifest = (folder / "manifest.json").read_bytes()
    scenario = tmp_path / "stand-in.yaml"
    scenario.write_text(scenario.read_text() + "\n# another\n")
    with pytest.raises(StoreError, match="scenario_sha256"):
        take_up("latest", tmp_path)
    assert (folder / "manifest.json").read_bytes() == manifest
    scenario.unlink()
    with pytest.raises(StoreError, match="is not there any more") as told:
        take_up("latest", tmp_path)
    assert str(folder / "scenario.yaml") in told.value.hint
    assert "latest" not in str(told.value)


async def test_a_part_run_is_compared_as_far_as_it_got(world, tmp_path):
    folder = await part_run(world, tmp_path, until=("eagle3", "2", 1))
    before = sorted(path.name for path in folder.rglob("*"))
    stored = load_run(folder)
    assert stored.comparisons == ()
    so_far = answer_so_far(stored)
    assert {c.load: c.pairs for c in so_far.comparisons} == {"1": 1, "2": 1}
    assert all(c.speedup > 1.5 and c.verdict is None for c in so_far.comparisons)
    assert sorted(path.name for path in folder.rglob("*")) == before


async def test_a_part_run_of_an_unreadable_scenario_is_told_without_comparisons(world, tmp_path):
    folder = await part_run(world, tmp_path, until=("eagle3", "2", 1))
    (folder / "scenario.yaml").write_text("name: stand-in\n")
    assert answer_so_far(load_run(folder)).comparisons == ()


async def test_a_published_run_is_its_own_answer(world, tmp_path):
    plan, writer = begin(tmp_path)
    stored = load_run(await run(plan, writer))
    assert answer_so_far(stored) is stored


# ----------------------------------------------------------- published with launches that failed


async def published_in_part(world, tmp_path, *, failing="eagle3", pairs=1):
    """A run in which one arm's server never started."""
    world.starts = lambda arm: always("no GPU")(arm) if arm == failing else None
    plan, writer = begin(tmp_path, pairs=pairs)
    folder = await run(plan, writer)
    world.starts = None
    world.journal.clear()
    return folder


def retry(name, tmp_path):
    return resume_run(name, tmp_path / "results", command_line=["bench"], retry_failed=True)


def cell_files(folder):
    return {
        path.relative_to(folder): path.read_bytes()
        for path in (folder / "cells").rglob("*")
        if path.is_file()
    }


@pytest.mark.parametrize("name", ["latest", None])
async def test_failed_launches_of_a_published_run_are_tried_again(world, tmp_path, name):
    folder = await published_in_part(world, tmp_path)
    before, files = load_run(folder), cell_files(folder)
    plan, writer = retry(name or folder.name, tmp_path)
    assert writer.folder.name == f".partial-{folder.name}"
    assert cell_files(writer.folder) == files  # finished cells are untouched
    stored = load_run(await run(plan, writer))
    assert [step for step in world.journal if step.startswith(("start", "load"))] == [
        *("start eagle3", "load 1", "load 2")
    ]
    assert (stored.folder, stored.status) == (folder, RunStatus.COMPLETE)
    assert {m.arm for m in stored.measurements} == {"baseline", "eagle3"}
    kept = {m.cell_id: m for m in stored.measurements}
    assert all(kept[m.cell_id] == m for m in before.measurements)
    assert FAILED not in {f.kind for f in stored.findings}
    assert len(stored.comparisons) == 2
    assert not (folder / "cells").exists()


async def test_a_retry_that_fails_again_is_published_again(world, tmp_path):
    folder = await published_in_part(world, tmp_path)
    world.starts = always("still no GPU")
    stored = load_run(await run(*retry("latest", tmp_path)))
    assert stored.folder == folder
    (finding,) = [f for f in stored.findings if f.kind == FAILED]
    assert "still no GPU" in finding.message
    world.starts = None
    assert len(load_run(await run(*retry("latest", tmp_path))).measurements) == 4


async def test_without_the_option_the_message_says_what_to_do(world, tmp_path):
    folder = await published_in_part(world, tmp_path)
    with pytest.raises(StoreError, match="published, with 2 of 4 cells missing") as told:
        take_up(folder.name, tmp_path)
    assert f"`bench resume {folder.name} --retry-failed`" in told.value.hint
    with pytest.raises(StoreError, match=r"no run in .* can be resumed") as told:
        take_up("latest", tmp_path)
    assert "--retry-failed takes up a published run in which cells are missing" in told.value.hint
    (summary,) = list_runs(tmp_path / "results")
    assert (summary.cells_finished, summary.cells_total) == (2, 4)
    assert "--retry-failed" in summary.note


async def test_a_run_with_cells_missing_is_not_listed_as_complete(world, tmp_path, capsys):
    await published_in_part(world, tmp_path)
    runs = list_runs(tmp_path / "results")
    print_runs(runs, out=tmp_path / "results", as_json=False)
    assert " in part " in capsys.readouterr().out
    await run(*retry("latest", tmp_path))
    print_runs(list_runs(tmp_path / "results"), out=tmp_path / "results", as_json=False)
    assert " complete " in capsys.readouterr().out


async def test_the_answer_says_how_to_try_the_failed_launches_again(world, tmp_path, capsys):
    folder = await published_in_part(world, tmp_path)
    print_answer(load_run(folder), as_json=False)
    said = " ".join(capsys.readouterr().out.split())  # lines are folded
    assert "Only 2 of 4 cells could be measured; missing: eagle3 chat load 1 pair 0" in said
    assert f"`bench resume {folder.name} --out" in said
    assert "--retry-failed` tries the failed launches again." in said
    await run(*retry("latest", tmp_path))
    print_answer(load_run(folder), as_json=False)
    assert "--retry-failed" not in capsys.readouterr().out


async def test_a_published_run_stays_published_when_it_must_not_be_taken_up(world, tmp_path):
    folder = await published_in_part(world, tmp_path)
    scenario = tmp_path / "stand-in.yaml"
    scenario.write_text(scenario.read_text() + "\n# another\n")
    with pytest.raises(StoreError, match="scenario_sha256"):
        retry("latest", tmp_path)
    assert load_run(folder).published
    assert not folder.with_name(f".partial-{folder.name}").exists()


async def test_a_whole_run_has_nothing_to_retry(world, tmp_path):
    plan, writer = begin(tmp_path)
    folder = await run(plan, writer)
    with pytest.raises(StoreError, match="there is nothing to resume"):
        retry(folder.name, tmp_path)
    (summary,) = list_runs(tmp_path / "results")
    assert summary.note is None


async def test_a_part_run_is_taken_up_with_the_option_too(world, tmp_path):
    folder = await part_run(world, tmp_path, until=("eagle3", "2", 0))
    _, writer = retry(folder.name.removeprefix(".partial-"), tmp_path)
    assert writer.folder == folder
    writer.close()
