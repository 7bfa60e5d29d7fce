"""Whole sweeps over stand-in servers whose truth is known."""

import asyncio
import json
import os
from pathlib import Path

import numpy as np
import pytest
from bench_stand_ins import MS, SCENARIO, World, forever
from decoded import decoded

from bench import runner
from bench.errors import InputError, Interrupted, ServerError, StoreError
from bench.model import Verdict
from bench.model.study import TrialState
from bench.sglang.failures import FailureClass
from bench.store import load_run
from bench.store.study import JOURNAL, STUDY, is_study, read_study, studies_in
from tuner.cli.study_text import answer
from tuner.sweep.beginning import Asked, prepare, resume_sweep, start_sweep
from tuner.sweep.events import TrialEnded, TrialStarting
from tuner.sweep.running import Sweep

TUNE = """\
tune:
  num_steps: [1, 2, 3, 4, 5]
  eagle_topk: [1]
  budget: {launches: 12}
"""
STEP_MS = {0: 10.0, 1: 12.0, 2: 12.5, 3: 13.2, 4: 16.0, 5: 19.0}
REACH = 0.7
"""P(each draft is accepted, given the one before it was)."""


def steps_of(arm):
    """`c002-eagle3-2-1-3` has 2 steps."""
    return 0 if arm == "baseline" or "off" in arm else int(arm.split("-")[2])


def accept_len(steps):
    return 1 + sum(REACH**k for k in range(1, steps + 1))


class Engine(World):
    """Servers that take STEP_MS a step, times noise of the launch."""

    def __init__(self, noise=0.0):
        super().__init__()
        self.noise = noise
        self.rng = np.random.default_rng(1)
        self.factor = 1.0
        self.samples = self.made
        self.arms = []

    async def start_server(self, config, **rest):
        self.factor = float(np.exp(self.noise * self.rng.standard_normal()))
        return await super().start_server(config, **rest)

    def made(self, cell):
        steps = steps_of(cell.arm)
        step_ns = int(STEP_MS[steps] * MS * self.factor)
        reach = [REACH**k for k in range(1, steps + 1)]
        return decoded(
            cell,
            steps=steps,
            step_ns=step_ns,
            verify_ct=40,
            tokens=round(40 * accept_len(steps)),
            at_least=[40, *(round(40 * r) for r in reach), 0],
        )


@pytest.fixture
def engine(monkeypatch):
    made = Engine()
    made.install(monkeypatch)
    return made


def scenario(folder, tune=TUNE):
    path = folder / "tuned.yaml"
    path.write_text(SCENARIO.replace("stand-in", "tuned") + tune)
    return path


def begin(folder, tune=TUNE, **asked):
    prepared = prepare(Asked(scenario=scenario(folder, tune), simulated=True, **asked))
    return prepared, start_sweep(prepared, folder / "results", command_line=["tuner", "sweep"])


def run(prepared, writer, events=None):
    told = [] if events is None else events

    async def whole():
        sweep = Sweep(prepared, writer, on_event=told.append, on_trial=told.append)
        return await sweep.run()

    with writer:
        return asyncio.run(whole())


def again(folder):
    [found] = studies_in(folder / "results")
    return resume_sweep(str(found), folder / "results", command_line=["tuner", "resume"])


def asked_for(engine):
    return [entry.split()[1] for entry in engine.journal if entry.startswith("start ")]


# ---------------------------------------------------------------------------------- a whole sweep


def test_the_best_is_found_confirmed_and_told(engine, tmp_path):
    events = []
    folder = run(*begin(tmp_path), events)
    study = read_study(folder)
    told = study.conclusion
    labels = {c.place: c.label for c in study.configurations}
    assert labels[told.deploy] == labels[told.best] == "EAGLE3 3-1-4"
    assert (told.verdict, told.answer) == (Verdict.FASTER, "deploy")
    [true_gain] = {round(t.gain, 3) for t in study.trials if t.configuration == told.best}
    assert told.ci95_low <= true_gain <= told.ci95_high
    assert told.gain == pytest.approx(true_gain, abs=0.01)
    assert told.blocks >= 2
    assert (study.status, len(study.trials)) == ("complete", 12)
    started = [e.label for e in events if isinstance(e, TrialStarting)]
    assert started[:2] == ["off", "EAGLE3 5-1-6"]
    ended = [e for e in events if isinstance(e, TrialEnded)]
    assert len(ended) == len(started) == 12
    assert all(e.trial.state is TrialState.MEASURED for e in ended)


def test_a_study_is_a_run_whose_every_launch_is_stored(engine, tmp_path):
    folder = run(*begin(tmp_path))
    stored = load_run(folder)
    assert stored.published
    assert is_study(folder)
    assert len(stored.manifest.launches) == 12
    assert len(stored.measurements) == 24
    assert stored.comparisons == ()  # equal pair numbers are no neighbours here
    study = read_study(folder)
    by_launch = {m.launch_id for m in stored.measurements}
    assert {t.launch_id for t in study.trials} == by_launch


def test_shallower_chains_are_predicted_from_the_deep_one(engine, tmp_path):
    study = read_study(run(*begin(tmp_path)))
    foreseen = [t for t in study.trials[2:] if t.why != "guest"]
    assert len(foreseen) >= 6
    for trial in foreseen:
        steps = study.configurations[trial.configuration].num_steps
        if steps:
            for predicted, found in zip(
                trial.predicted_accept_len_tok, trial.accept_len_tok, strict=True
            ):
                assert predicted == pytest.approx(found, abs=0.05)
                assert found == pytest.approx(accept_len(steps), abs=0.05)


def test_the_journal_is_optunas(engine, tmp_path):
    import optuna
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend

    folder = run(*begin(tmp_path))
    storage = JournalStorage(JournalFileBackend(str(folder / JOURNAL)))
    study = optuna.load_study(study_name=None, storage=storage)
    assert len(study.trials) == 12
    assert study.best_trial.params["num_steps"] == 3
    assert {t.params["algorithm"] for t in study.trials} == {"off", "EAGLE3"}


def test_no_configuration_is_launched_under_two_names(engine, tmp_path):
    study = read_study(run(*begin(tmp_path, TUNE + "  num_draft_tokens: [2, 4, 8]\n")))
    labels = [study.configurations[t.configuration].label for t in study.trials]
    arms = [study.configurations[t.configuration].arm for t in study.trials]
    assert len(set(labels)) == len(set(arms))
    assert sum(count for _, count in study.aliases) > 0


# ---------------------------------------------------------------------------------------- failures


class NotStartedError(ServerError):
    def __init__(self, failure_class):
        super().__init__("it did not start", hint=None)
        self.failure_class = failure_class


def failing(engine, failures):
    """Starts of these fail, by steps: FailureClass, or a list of them to use up."""

    def starts(config):
        steps = number_of(config, "--speculative-num-steps")
        failure = failures.get(steps)
        if isinstance(failure, list):
            failure = failure.pop(0) if failure else None
        if failure is not None:
            raise NotStartedError(failure)

    original = Engine.start_server

    async def start_server(config, **rest):
        starts(config)
        return await original(engine, config, **rest)

    return start_server


def number_of(config, option):
    words = config.arguments
    return int(words[words.index(option) + 1]) if option in words else 0


def with_failures(engine, monkeypatch, failures):
    monkeypatch.setattr("bench.runner.measuring.start_server", failing(engine, failures))


def test_a_third_of_the_launches_fails_and_the_answer_is_right(engine, tmp_path, monkeypatch):
    with_failures(
        engine,
        monkeypatch,
        {
            5: FailureClass.CUDA_OOM,
            4: FailureClass.SPEC_RUNTIME_BUG,
            1: FailureClass.GRAPH_CAPTURE_FAILED,
            3: [FailureClass.PORT_IN_USE],
            0: [FailureClass.HANG],
        },
    )
    study = read_study(run(*begin(tmp_path, TUNE.replace("12", "14"))))
    failed = [t for t in study.trials if t.state is TrialState.FAILED]
    assert len(failed) >= 4
    labels = {c.place: c.label for c in study.configurations}
    assert labels[study.conclusion.deploy] == "EAGLE3 3-1-4"
    assert study.conclusion.verdict is Verdict.FASTER
    counts = [labels[t.configuration] for t in failed]
    assert counts.count("EAGLE3 5-1-6") == 1  # never proposed again
    excluded = {c.label: c.excluded for c in study.configurations if c.excluded}
    assert "EAGLE3 5-1-6" in excluded
    assert "EAGLE3 3-1-4" not in excluded  # the moment's fault


def test_neighbours_that_need_more_memory_are_left_out(engine, tmp_path, monkeypatch):
    with_failures(engine, monkeypatch, {4: FailureClass.CUDA_OOM, 5: FailureClass.CUDA_OOM})
    tune = TUNE.replace("[1, 2, 3, 4, 5]", "[1, 2, 3, 4, 5, 6, 7, 8]")
    study = read_study(run(*begin(tmp_path, tune)))
    failed = [t for t in study.trials if t.state is TrialState.FAILED]
    labels = {c.place: c.label for c in study.configurations}
    assert [labels[t.configuration] for t in failed] == ["EAGLE3 5-1-6", "EAGLE3 4-1-5"]
    for label in ("EAGLE3 6-1-7", "EAGLE3 7-1-8", "EAGLE3 8-1-9"):
        [why] = [c.excluded for c in study.configurations if c.label == label]
        assert "needs at least the memory of EAGLE3 5-1-6" in why


def test_a_baseline_that_does_not_start_ends_the_sweep_with_the_reason(
    engine, tmp_path, monkeypatch
):
    with_failures(engine, monkeypatch, {0: FailureClass.BAD_ARGUMENTS})
    with pytest.raises(ServerError, match="the baseline failed twice"):
        run(*begin(tmp_path))


def test_what_ran_before_is_tried_again_and_no_neighbours_fault(engine, tmp_path, monkeypatch):
    with_failures(
        engine,
        monkeypatch,
        {4: FailureClass.CUDA_OOM, 3: [None, FailureClass.GRAPH_CAPTURE_FAILED]},
    )
    study = read_study(run(*begin(tmp_path)))
    labels = {c.place: c.label for c in study.configurations}
    failed = [labels[t.configuration] for t in study.trials if t.state is TrialState.FAILED]
    assert {"EAGLE3 4-1-5", "EAGLE3 3-1-4"} <= set(failed)
    excluded = {c.label for c in study.configurations if c.excluded}
    assert "EAGLE3 5-1-6" not in excluded  # it was the first of all, and ran
    assert "EAGLE3 3-1-4" not in excluded
    assert labels[study.conclusion.deploy] == "EAGLE3 3-1-4"


def test_nothing_but_the_baseline_ends_the_search_early(engine, tmp_path):
    study = read_study(run(*begin(tmp_path, TUNE + "  constraints: {ttft_p99_ms: 0.01}\n")))
    assert (study.status, study.conclusion) == ("complete", None)
    assert len(study.trials) < study.launches_budget
    [told] = answer(study)
    assert told.startswith("No final: whatever was to be compared with the baseline failed or")
    assert "The baseline breaks a limit too: p99 TTFT" in told


def test_launches_that_end_before_a_final_can_be_raised(engine, tmp_path, monkeypatch):
    with_failures(
        engine, monkeypatch, dict.fromkeys((2, 3, 4, 5), FailureClass.GRAPH_CAPTURE_FAILED)
    )
    folder = run(*begin(tmp_path, TUNE.replace("12", "4")))
    study = read_study(folder)
    assert (study.status, study.conclusion) == ("interrupted", None)
    monkeypatch.undo()
    engine.install(monkeypatch)
    resumed = resume_sweep(
        str(folder), tmp_path / "results", command_line=["tuner", "resume"], launches=12
    )
    study = read_study(run(*resumed))
    assert study.status == "complete"
    assert study.conclusion is not None


def test_hours_for_less_than_a_sweep_are_refused(tmp_path):
    with pytest.raises(InputError, match="h are not enough: a launch takes about"):
        begin(tmp_path, hours=1e-6)


def test_leave_it_off_is_an_answer(engine, tmp_path, monkeypatch):
    for steps in (1, 2, 3, 4, 5):
        monkeypatch.setitem(STEP_MS, steps, 60.0)
    told = read_study(run(*begin(tmp_path))).conclusion
    assert (told.deploy, told.answer, told.verdict) == (0, "leave_off", Verdict.SLOWER)


def test_what_is_within_noise_of_what_is_in_use_is_worth_no_change(engine, tmp_path, monkeypatch):
    monkeypatch.setitem(STEP_MS, 2, 11.35)  # half a per cent better than three steps
    study = read_study(run(*begin(tmp_path, TUNE + "  present: eagle3\n")))
    told = study.conclusion
    labels = {c.place: c.label for c in study.configurations}
    assert (labels[told.deploy], told.answer) == ("EAGLE3 3-1-4", "keep_present")
    assert told.verdict is Verdict.FASTER  # than no speculation


def test_two_step_counts_are_compared_inside_one_launch_at_the_end(engine, tmp_path):
    tune = TUNE.replace("12", "14") + "  stop: {expected_gain: 0.01}\n  adaptive: true\n"
    prepared, writer = begin(tmp_path, tune, overrides=("server.environment.NCCL_DEBUG=WARN",))
    study = read_study(run(prepared, writer))
    [steps] = [t for t in study.trials if t.why == "steps"]
    assert steps.number == len(study.trials) - 1
    told = [note for note in study.notes if "one launch" in note]
    assert len(told) == 2  # a cell each; stand-ins write no log that tells the phases
    own = [t for t in study.trials if t.configuration == steps.configuration and t != steps]
    assert study.configurations[steps.configuration].launches == len(own)
    # The adaptive mode that SGLang may be asked for beside the others is none of the space.
    counts = study.counts
    assert counts.distinct == len(prepared.candidates.searched) == len(study.configurations) - 1
    assert counts.distinct == counts.legal - sum(count for _, count in study.aliases)
    assert study.environment == (("NCCL_DEBUG", "WARN"),)
    labels = {c.place: c.label for c in study.configurations}
    assert labels[study.conclusion.deploy] == "EAGLE3 3-1-4"


def test_comparing_steps_takes_no_launch_that_the_verdict_needs(engine, tmp_path):
    tune = TUNE.replace("12", "5") + "  adaptive: true\n"
    study = read_study(run(*begin(tmp_path, tune)))
    assert [t.why for t in study.trials] == ["baseline", "first", "final", "final", "final"]
    assert study.conclusion.verdict is not None
    assert any("one more than the 5 launches of a verdict" in note for note in study.notes)


def test_what_breaks_a_limit_is_not_handed_over(engine, tmp_path):
    limit_ms = (STEP_MS[2] + STEP_MS[3]) / 2  # the first token comes after one step
    tune = TUNE + f"  constraints: {{ttft_p99_ms: {limit_ms}}}\n"
    study = read_study(run(*begin(tmp_path, tune)))
    labels = {c.place: c.label for c in study.configurations}
    broken = {labels[t.configuration] for t in study.trials if t.breaks and t.why != "guest"}
    assert "EAGLE3 5-1-6" in broken
    excluded = {c.label: c.excluded for c in study.configurations if c.excluded}
    assert broken <= set(excluded)
    assert "breaks a limit: p99 TTFT 19 ms" in excluded["EAGLE3 5-1-6"]
    assert labels[study.conclusion.deploy] == "EAGLE3 2-1-3"


# ------------------------------------------------------------------------------ stopped and killed


def stop_after(writer_folder, count):
    """Whether so many cells are on the disk."""
    return len(list((writer_folder / "cells").glob("*/cell.json"))) >= count


def test_a_stopped_sweep_goes_on_where_it_was(engine, tmp_path):
    prepared, writer = begin(tmp_path)

    async def until_stopped():
        sweep = Sweep(prepared, writer, on_event=lambda _e: None, on_trial=lambda _e: None)
        seen = [0]

        def loads(_cell):
            seen[0] += 1
            if seen[0] == 8:  # in the second cell of the fourth launch
                os.kill(os.getpid(), 2)
                return forever()
            return None

        engine.loads = loads
        with pytest.raises(Interrupted):
            await sweep.run()

    with writer:
        asyncio.run(until_stopped())
    engine.loads = None
    [found] = studies_in(tmp_path / "results")
    assert read_study(found).status == "interrupted"
    assert len(list((found / "cells").iterdir())) == 7
    events = []
    study = read_study(run(*again(tmp_path), events))
    assert study.status == "complete"
    assert [t.state for t in study.trials].count(TrialState.STALE) == 1
    stale = next(t for t in study.trials if t.state is TrialState.STALE)
    assert (stale.number, sum(v is not None for v in stale.value)) == (3, 1)
    labels = {c.place: c.label for c in study.configurations}
    assert labels[study.conclusion.deploy] == "EAGLE3 3-1-4"
    assert any("was cut off" in getattr(e, "text", "") for e in events)
    assert len(load_run(found.with_name(study.study_id)).measurements) == 7 + 2 * 9


def test_a_finished_study_is_not_taken_up_again(engine, tmp_path):
    run(*begin(tmp_path))
    with pytest.raises(StoreError, match="is complete"):
        again(tmp_path)


def test_two_sweeps_on_one_study_are_refused(engine, tmp_path):
    _, writer = begin(tmp_path)
    with writer:
        (writer.folder / STUDY).write_bytes(b"")  # whatever it says
        with pytest.raises(StoreError):
            resume_sweep(
                str(writer.folder), tmp_path / "results", command_line=["tuner", "resume"]
            )


def stopped_at(tmp_path, engine, cells, tune=TUNE):
    """A sweep that ended after so many cells as if killed: nothing was told any more."""
    prepared, writer = begin(tmp_path, tune)

    class Killed(BaseException):
        pass

    async def whole():
        sweep = Sweep(prepared, writer, on_event=lambda _e: None, on_trial=lambda _e: None)
        seen = [0]

        def loads(_cell):
            seen[0] += 1
            if seen[0] > cells:
                raise Killed

        engine.loads = loads
        await sweep.run()

    with writer, pytest.raises(Killed):
        asyncio.run(whole())
    engine.loads = None
    return writer.folder


def test_a_killed_sweep_loses_no_finished_cell(engine, tmp_path):
    folder = stopped_at(tmp_path, engine, 6)
    before = {path.name for path in (folder / "cells").iterdir()}
    assert len(before) == 6
    study = read_study(run(*again(tmp_path)))
    stored = load_run(folder.with_name(study.study_id))
    assert before <= {m.cell_id for m in stored.measurements}
    assert study.conclusion.verdict is Verdict.FASTER


def test_a_launch_that_was_cut_off_is_named_and_beside_the_budget(engine, tmp_path):
    stopped_at(tmp_path, engine, 4)
    events = []
    study = read_study(run(*again(tmp_path), events))
    [stale] = [t for t in study.trials if t.state is TrialState.STALE]
    [noted] = [e.text for e in events if "was cut off" in getattr(e, "text", "")]
    assert noted.startswith(f"launch {stale.number + 1} was cut off")
    starting = [e for e in events if isinstance(e, TrialStarting)]
    assert {e.cut_off for e in starting} == {1}
    assert starting[-1].trial.number + 1 == study.launches_budget + 1


@pytest.mark.parametrize("cells", [7, 9, 11])
def test_a_launch_of_the_final_that_was_cut_off_is_held_again(engine, tmp_path, cells):
    stopped_at(tmp_path, engine, cells, TUNE.replace("12", "6"))
    study = read_study(run(*again(tmp_path)))
    whole = [t for t in study.trials if t.state is TrialState.MEASURED]
    [stale] = [t for t in study.trials if t.state is TrialState.STALE]
    assert sum(v is not None for v in stale.value) == 1  # of two cells: told, and kept
    assert len(whole) == 6
    assert study.conclusion.verdict is Verdict.FASTER


def test_a_baseline_that_was_cut_off_is_measured_whole(engine, tmp_path):
    stopped_at(tmp_path, engine, 1)
    study = read_study(run(*again(tmp_path)))
    first, second = study.trials[:2]
    assert (first.state, second.state) == (TrialState.STALE, TrialState.MEASURED)
    assert second.configuration == 0
    assert all(t.gain is not None for t in study.trials[1:])


def test_what_was_tried_again_before_a_stop_is_not_tried_again_after_it(
    engine, tmp_path, monkeypatch
):
    with_failures(engine, monkeypatch, {5: [FailureClass.HANG]})
    stopped_at(tmp_path, engine, 5)  # the baseline, the second try, half of a third
    study = read_study(run(*again(tmp_path)))
    labels = {c.place: c.label for c in study.configurations}
    first = [t.state for t in study.trials if t.why == "first"]
    assert first == [TrialState.FAILED, TrialState.MEASURED]
    assert "EAGLE3 5-1-6" not in {labels[c.place] for c in study.configurations if c.excluded}


def test_why_neighbours_are_left_out_outlives_a_stop(engine, tmp_path, monkeypatch):
    with_failures(engine, monkeypatch, {5: FailureClass.CUDA_OOM})
    tune = TUNE.replace("[1, 2, 3, 4, 5]", "[1, 2, 3, 5, 8]")
    stopped_at(tmp_path, engine, 5, tune)
    study = read_study(run(*again(tmp_path)))
    [why] = [c.excluded for c in study.configurations if c.label == "EAGLE3 8-1-9"]
    assert why == "needs at least the memory of EAGLE3 5-1-6, which failed (cuda_oom)"


def test_a_baseline_that_failed_may_be_mended_and_taken_up(engine, tmp_path, monkeypatch):
    with_failures(engine, monkeypatch, {0: FailureClass.BAD_ARGUMENTS})
    prepared, writer = begin(tmp_path)
    with pytest.raises(ServerError, match="the baseline failed twice"):
        run(prepared, writer)
    monkeypatch.undo()
    engine.install(monkeypatch)
    study = read_study(run(*again(tmp_path)))
    assert study.conclusion.verdict is Verdict.FASTER


def test_half_a_line_of_the_journal_and_its_lock_are_no_obstacle(engine, tmp_path):
    folder = stopped_at(tmp_path, engine, 6)
    with (folder / JOURNAL).open("ab") as journal:
        journal.write(b'{"op_code": 4, "worker_')
    (folder / f"{JOURNAL}.lock").touch()
    study = read_study(run(*again(tmp_path)))
    assert study.status == "complete"


@pytest.mark.parametrize("damage", ["gone", "garbage"])
def test_a_lost_journal_is_made_anew_from_the_study(engine, tmp_path, damage):
    folder = stopped_at(tmp_path, engine, 6)
    journal = folder / JOURNAL
    journal.unlink() if damage == "gone" else journal.write_bytes(b"no journal\nat all\n")
    study = read_study(run(*again(tmp_path)))
    assert study.status == "complete"
    assert len([t for t in study.trials if t.state is TrialState.MEASURED]) >= 11
    assert not [t for t in study.trials if t.state is TrialState.RUNNING]


def test_a_damaged_study_is_made_anew_from_the_journal(engine, tmp_path):
    folder = stopped_at(tmp_path, engine, 6)
    (folder / STUDY).write_bytes((folder / STUDY).read_bytes()[:500])
    with pytest.raises(StoreError, match="cannot be read"):
        read_study(folder)
    study = read_study(run(*again(tmp_path)))
    assert (study.status, study.launches_budget) == ("complete", 12)
    assert len([t for t in study.trials if t.state is not TrialState.STALE]) == 12


def test_a_study_is_not_taken_up_as_a_run(engine, tmp_path):
    folder = stopped_at(tmp_path, engine, 4)
    with pytest.raises(StoreError, match="tuning study") as refused:
        runner.resume_run(str(folder), tmp_path / "results", command_line=["bench", "resume"])
    assert "tuner resume" in refused.value.hint


def test_study_json_is_strict_json(engine, tmp_path):
    folder = run(*begin(tmp_path))

    def no_constants(name):
        raise AssertionError(name)

    json.loads((folder / STUDY).read_text(), parse_constant=no_constants)
    assert Path(folder / "manifest.json").is_file()


def test_optuna_is_told_what_cannot_run_as_infeasible_and_no_figure_as_none(
    engine, tmp_path, monkeypatch
):
    import optuna
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend

    with_failures(
        engine,
        monkeypatch,
        {4: FailureClass.SPEC_RUNTIME_BUG, 5: [FailureClass.PORT_IN_USE]},
    )
    folder = run(*begin(tmp_path))
    study = read_study(folder)
    storage = JournalStorage(JournalFileBackend(str(folder / JOURNAL)))
    told = optuna.load_study(study_name=None, storage=storage).trials
    for trial, of_optuna in zip(study.trials, told, strict=True):
        if trial.failure_class == "port_in_use" or (trial.gain is None and not trial.failure):
            assert of_optuna.state is optuna.trial.TrialState.FAIL
        elif trial.failure_class is not None:
            assert (of_optuna.value, of_optuna.constraints["launch"]) == (-1.0, 1.0)
        else:
            assert of_optuna.value == pytest.approx(trial.gain)
    assert "port_in_use" in {t.failure_class for t in study.trials}
