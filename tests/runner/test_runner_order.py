"""What is done in which order, when all goes well."""

from bench_stand_ins import begin

from bench.model import Severity, Verdict
from bench.runner import (
    CellFinished,
    CellStarting,
    LaunchEnded,
    LaunchProgress,
    LaunchReady,
    LaunchStarting,
    run,
)
from bench.store import RunStatus, load_run, load_samples


async def test_a_launch_is_started_once_for_all_its_cells_and_stopped(world, tmp_path):
    plan, writer = begin(tmp_path)
    await run(plan, writer)
    cell = ["between", "watch", "load {}", "watched"]
    cells = [step.format(load) for load in (1, 2) for step in cell]
    assert world.journal == [
        *("start baseline", *cells, "close client", "stop"),
        *("start eagle3", *cells, "close client", "stop"),
    ]


async def test_the_published_run_has_every_cell_and_how_each_launch_went(world, tmp_path):
    plan, writer = begin(tmp_path)
    folder = await run(plan, writer)
    stored = load_run(folder)
    assert stored.published
    assert stored.status is RunStatus.COMPLETE
    planned = [cell.cell_id for launch in plan.launches for cell in launch.cells]
    assert [m.cell_id for m in stored.measurements] == planned
    assert {sample.cell_id for sample in load_samples(folder)} == set(planned)
    for record, launch in zip(stored.manifest.launches, plan.launches, strict=True):
        assert (record.arm, record.pair, record.ordinal) == (launch.arm, 0, launch.ordinal)
        assert record.started_ns <= record.ready_ns <= record.stopped_ns
        assert (record.exit_code, record.failure) == (0, None)
        assert record.effective == world.server.effective
        assert (folder / record.log_file).read_text() == "log\n"


async def test_the_arm_that_gives_two_tokens_a_step_is_found_faster(world, tmp_path):
    plan, writer = begin(tmp_path, pairs=2)
    stored = load_run(await run(plan, writer))
    assert [c.load for c in stored.comparisons] == ["1", "2"]
    for comparison in stored.comparisons:
        assert comparison.pairs == 2
        assert comparison.speedup > 1.5
        assert comparison.verdict is Verdict.FASTER


async def test_pairs_alternate_and_every_launch_has_a_server_of_its_own(world, tmp_path):
    plan, writer = begin(tmp_path, pairs=2)
    await run(plan, writer)
    starts = [step for step in world.journal if step.startswith("start")]
    assert starts == [f"start {arm}" for arm in ("baseline", "eagle3", "eagle3", "baseline")]
    assert world.journal.count("stop") == 4
    assert len({id(server) for server in world.servers}) == 4


async def test_the_console_is_told_of_every_step(world, tmp_path):
    plan, writer = begin(tmp_path, only=("arm=baseline",))
    events = []
    await run(plan, writer, on_event=events.append)
    assert [type(event) for event in events] == [
        LaunchStarting,
        LaunchProgress,
        LaunchReady,
        *(CellStarting, CellFinished) * 2,
        LaunchEnded,
    ]
    assert [(e.done, e.total) for e in events if isinstance(e, CellFinished)] == [(1, 2), (2, 2)]


async def test_a_finding_over_several_cells_reaches_the_status_of_its_cell(world, tmp_path):
    """An arm that was sent other prompts is INVALID, though each cell is well by itself."""
    plain = world.samples
    world.samples = lambda cell: plain(
        cell, prompt_sha256=("ef" if cell.arm == "eagle3" else "ab") * 32
    )
    plan, writer = begin(tmp_path)
    stored = load_run(await run(plan, writer))
    kinds = {f.kind for f in stored.findings if f.severity is Severity.INVALID}
    assert kinds == {"work_not_the_same"}
    assert {m.arm: m.status for m in stored.measurements} == {
        "baseline": "VALID",
        "eagle3": "INVALID",
    }
    assert all(c.speedup is None for c in stored.comparisons)
