"""What is measured of a plan for which there is no time."""

from dataclasses import replace

import pytest
from bench_stand_ins import begin, forever

from bench import clock
from bench.errors import InputError, ServerError
from bench.model import FindingKind
from bench.runner import Asked, Noted, run, start_run
from bench.store import load_run


def with_budget(writer, seconds):
    arguments = {**writer.manifest.plan_arguments, "budget_s": seconds}
    writer.manifest = replace(writer.manifest, plan_arguments=arguments)


def pair_s(plan):
    return sum(launch.estimated_s for launch in plan.launches if launch.pair == 0)


@pytest.fixture
def taking(world, monkeypatch):
    """Make every launch take so many seconds more than it really does."""

    def take(seconds):
        skipped_ns = [0]
        now_ns = clock.now_ns
        monkeypatch.setattr(clock, "now_ns", lambda: now_ns() + skipped_ns[0])

        def start(_arm):
            skipped_ns[0] += int(seconds * 1e9)

        world.starts = start

    return take


async def test_what_does_not_fit_is_not_measured_and_told(world, tmp_path, taking):
    plan, writer = begin(tmp_path, pairs=3)
    with_budget(writer, 2.4 * pair_s(plan))
    taking(plan.launches[0].estimated_s)
    events = []
    stored = load_run(await run(plan, writer, on_event=events.append))
    assert {m.pair for m in stored.measurements if m.load == "2"} == {0, 1}
    (finding,) = [f for f in stored.findings if f.kind is FindingKind.BUDGET_DROPPED]
    assert "4 cells" in finding.message
    assert "pair 2" in finding.message
    assert any("left out: pair 2" in e.text for e in events if isinstance(e, Noted))


async def test_launches_that_take_longer_than_expected_leave_fewer(world, tmp_path, taking):
    plan, writer = begin(tmp_path, pairs=3)
    with_budget(writer, 3 * pair_s(plan))
    taking(2.2 * plan.launches[0].estimated_s)
    stored = load_run(await run(plan, writer))
    assert {m.pair for m in stored.measurements} == {0}


async def test_what_turns_out_to_fit_is_measured_after_all(world, tmp_path):
    plan, writer = begin(tmp_path, pairs=3)
    with_budget(writer, 2.4 * pair_s(plan))
    stored = load_run(await run(plan, writer))
    assert {m.pair for m in stored.measurements} == {0, 1, 2}
    assert FindingKind.BUDGET_DROPPED not in {f.kind for f in stored.findings}


async def test_without_a_budget_nothing_is_dropped(world, tmp_path):
    plan, writer = begin(tmp_path, pairs=2)
    stored = load_run(await run(plan, writer))
    assert len(stored.measurements) == 8
    assert FindingKind.BUDGET_DROPPED not in {f.kind for f in stored.findings}


def test_a_budget_for_nothing_is_refused_before_anything_is_written(world, tmp_path):
    _, writer = begin(tmp_path)
    writer.close()
    asked = Asked(scenario=tmp_path / "stand-in.yaml", simulated=True, budget_s=0.1)
    with pytest.raises(InputError, match="--budget") as caught:
        start_run(asked, tmp_path / "other", command_line=["bench"])
    assert caught.value.hint
    assert not (tmp_path / "other").exists()


# ------------------------------------------------------------------------- starts that take long


@pytest.fixture
def skip(monkeypatch):
    """Make time pass: seconds of the world."""
    monkeypatch.setattr("bench.runner.waiting.LOOK_S", 0.01)

    def pass_by(seconds):
        now_ns = clock.now_ns  # setting the clock's speed sets it anew: only now is it known
        monkeypatch.setattr(clock, "now_ns", lambda: now_ns() + int(seconds * 1e9))

    return pass_by


async def test_a_start_that_is_not_over_when_the_time_is_is_cut_short(world, tmp_path, skip):
    plan, writer = begin(tmp_path, pairs=2)

    async def starts(arm):
        if arm == "eagle3":
            skip(1000)
            await forever()

    world.starts = starts
    with_budget(writer, 100)
    events = []
    stored = load_run(await run(plan, writer, on_event=events.append))
    assert world.journal[-1] == "start given up"
    assert {(m.arm, m.pair) for m in stored.measurements} == {("baseline", 0)}
    assert len(stored.measurements) == 2  # all that was finished stays
    cut = stored.manifest.launches[-1]
    assert cut.failure.startswith("cut short: its start was not over")
    assert (cut.ready_ns, cut.stopped_ns is None) == (None, False)
    assert FindingKind.LAUNCH_FAILED not in {f.kind for f in stored.findings}
    (finding,) = [f for f in stored.findings if f.kind is FindingKind.BUDGET_DROPPED]
    assert finding.message.startswith("6 cells did not fit")
    assert "pair 0: chat load 1, chat load 2 (eagle3)" in finding.message
    told = " ".join(event.text for event in events if isinstance(event, Noted))
    assert "pair 0: chat load 1, chat load 2 (eagle3)" in told
    assert "pair 1" in told


async def test_a_first_start_that_is_cut_short_says_so(world, tmp_path, skip):
    plan, writer = begin(tmp_path)

    async def starts(_arm):
        skip(1000)
        await forever()

    world.starts = starts
    with_budget(writer, 100)
    with pytest.raises(
        ServerError, match=r"no cell was measured\. Arm baseline: cut short"
    ) as told:
        await run(plan, writer)
    assert "--budget" in told.value.hint
    assert load_run(writer.folder).manifest.launches[0].failure.startswith("cut short")


async def test_cells_for_which_no_time_is_left_are_not_begun(world, tmp_path, skip):
    """Nor is a cell that was begun cut short."""
    plan, writer = begin(tmp_path)
    with_budget(writer, 100)
    world.starts = lambda _arm: skip(90)
    world.loads = lambda _cell: skip(9)
    stored = load_run(await run(plan, writer))
    assert [(m.arm, m.load) for m in stored.measurements] == [("baseline", "1")]
    (finding,) = [f for f in stored.findings if f.kind is FindingKind.BUDGET_DROPPED]
    assert finding.message.startswith("3 cells did not fit")
    assert "chat load 2 (baseline, eagle3)" in finding.message


async def test_without_a_budget_a_start_takes_as_long_as_it_needs(world, tmp_path, skip):
    plan, writer = begin(tmp_path)
    world.starts = lambda _arm: skip(1e6)
    stored = load_run(await run(plan, writer))
    assert len(stored.measurements) == 4
