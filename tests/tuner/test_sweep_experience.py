"""Sweeps that begin with what earlier ones measured, over stand-in servers."""

import asyncio
import json
import shutil

import numpy as np
import pytest
from bench_stand_ins import MS, SCENARIO, World
from decoded import decoded

from bench.store.study import STUDY, read_study, studies_in
from tuner.predict.published import SPECBUNDLE
from tuner.sweep.beginning import Asked, prepare, resume_sweep, start_sweep
from tuner.sweep.experience import EXPERIENCE, experience_of, lengths_of
from tuner.sweep.running import Sweep

CHAIN, TREE = 0.7, 0.85
"""P(each draft is accepted, given the one before it was): trees do better than foreseen."""
TREES = """\
tune:
  num_steps: [2, 3, 5]
  eagle_topk: [1, 4]
  num_draft_tokens: [8]
  budget: {launches: 12}
"""
CHAINS = TREES.replace("[1, 4]", "[1]")
STEP_MS = {0: 10.0, 1: 12.0, 2: 12.5, 3: 13.2, 4: 16.0, 5: 19.0}
VERIFY_CT = 200


class Engine(World):
    """Servers whose trees accept more than the rule of ranks foresees."""

    def __init__(self):
        super().__init__()
        self.samples = self.made

    def made(self, cell):
        words = cell.arm.split("-")
        speculative = cell.arm != "baseline" and "off" not in words
        steps, topk = (int(words[2]), int(words[3])) if speculative else (0, 0)
        reach = [(TREE if topk > 1 else CHAIN) ** k for k in range(1, steps + 1)]
        at_least = [VERIFY_CT, *(round(VERIFY_CT * r) for r in reach), 0]
        return decoded(
            cell,
            steps=steps,
            step_ns=int(STEP_MS[steps] * MS),
            verify_ct=VERIFY_CT,
            tokens=sum(at_least),
            at_least=at_least,
        )


@pytest.fixture
def engine(monkeypatch):
    made = Engine()
    made.install(monkeypatch)
    return made


def begun(folder, tune=TREES, *, simulated=True, **asked):
    path = folder / "tuned.yaml"
    path.write_text(SCENARIO.replace("stand-in", "tuned") + tune)
    ready = prepare(Asked(scenario=path, simulated=simulated, **asked))
    return ready, start_sweep(ready, folder / "results", command_line=["tuner", "sweep"])


def run(prepared, writer):
    async def whole():
        sweep = Sweep(prepared, writer, on_event=lambda _e: None, on_trial=lambda _e: None)
        return await sweep.run()

    with writer:
        return asyncio.run(whole())


def foreseen(folder, **asked):
    """What a sweep that begins now foresees: excesses of trees, and the notes."""
    ready, writer = begun(folder, **asked)
    with writer:
        experience, notes = experience_of(ready, writer.folder)
    shutil.rmtree(writer.folder)
    return experience, notes


@pytest.fixture(scope="module")
def first(tmp_path_factory):
    """A study that began without any experience."""
    with pytest.MonkeyPatch.context() as patch:
        Engine().install(patch)
        return run(*begun(tmp_path_factory.mktemp("first")))


@pytest.fixture
def swept(first, tmp_path):
    """The same, in a results folder of the test's own."""
    folder = tmp_path / "results" / first.parent.name / first.name
    shutil.copytree(first, folder)
    return folder


def errors_of_trees(study):
    """Log errors of the accept lengths that were predicted of trees never launched before."""
    found, known = [], set()
    for trial in study.trials:
        c = study.configurations[trial.configuration]
        if (c.eagle_topk or 1) > 1 and not known and trial.predicted_accept_len_tok:
            found += list(np.log(np.array(trial.predicted_accept_len_tok) / trial.accept_len_tok))
        known |= {c.place} if (c.eagle_topk or 1) > 1 else set()
    return found


def test_a_second_sweep_begins_with_the_experience_of_the_first(swept, engine, tmp_path):
    earlier = read_study(swept)
    second = read_study(run(*begun(tmp_path)))
    assert not any("foreseen" in note for note in earlier.notes)
    [note] = [note for note in second.notes if "foreseen" in note]
    records = sum(shape[1] > 1 for by_shape in lengths_of(earlier).values() for shape in by_shape)
    assert note == (
        f"What trees accept is foreseen from {records} accept lengths of trees with this target "
        f"model ({earlier.study_id})."
    )
    before, after = errors_of_trees(earlier), errors_of_trees(second)
    assert np.abs(before).min() > 0.1
    assert np.abs(after).max() < 0.05


def test_a_sweep_that_is_taken_up_foresees_what_it_foresaw(swept, engine, tmp_path):
    ready, writer = begun(tmp_path)
    with writer:
        sweep = Sweep(ready, writer, on_event=lambda _e: None, on_trial=lambda _e: None)
        sweep._record("interrupted")
    kept = (writer.folder / EXPERIENCE).read_bytes()
    shutil.rmtree(swept)
    again, writer = resume_sweep(str(writer.folder), tmp_path / "results", command_line=["t"])
    study = read_study(run(again, writer))
    assert any(swept.name in note for note in study.notes)
    assert np.abs(errors_of_trees(study)).max() < 0.05
    assert (tmp_path / "results" / "tuned" / study.study_id / EXPERIENCE).read_bytes() == kept


def test_an_experience_that_is_damaged_is_told_and_not_looked_up_anew(swept, tmp_path):
    ready, writer = begun(tmp_path)
    with writer:
        experience_of(ready, writer.folder)
        (writer.folder / EXPERIENCE).write_text('{"format": 1')
        experience, [note] = experience_of(ready, writer.folder)
    assert experience.records == ()
    assert "is damaged" in note
    assert "predictions are others than before" in note


def test_a_study_that_was_begun_without_goes_on_without(swept, tmp_path):
    ready, writer = begun(tmp_path)
    with writer:
        shutil.copy(swept / STUDY, writer.folder / STUDY)
        experience, notes = experience_of(ready, writer.folder)
    assert (experience.records, notes) == ((), ())


def test_another_target_model_is_told_apart(swept, tmp_path):
    same, _ = foreseen(tmp_path, overrides=("target.path=/models/kimi-k2.5",))
    assert {r.target for r in same.records} == {same.target}
    other, [note] = foreseen(tmp_path, overrides=("target.path=Qwen/Qwen3-8B",))
    assert len(other.records) == len(same.records)
    assert other.target not in {r.target for r in other.records}
    assert note.startswith(f"What trees accept is foreseen from {len(other.records)} accept")
    assert note.endswith("with this one none is known.")


def test_a_simulator_tells_nothing_of_real_servers(swept, tmp_path):
    real, [note] = foreseen(tmp_path, simulated=False)
    assert {r.origin for r in real.records} == {SPECBUNDLE}
    assert f"({SPECBUNDLE}); with this one none is known" in note


def edit(folder, change):
    plain = json.loads((folder / STUDY).read_text())
    change(plain)
    (folder / STUDY).write_text(json.dumps(plain))


def test_real_servers_tell_of_real_ones_and_not_of_simulated_ones(swept, tmp_path):
    edit(swept, lambda plain: plain.update(simulated=False))
    simulated, notes = foreseen(tmp_path)
    assert (simulated.records, notes) == ((), ())
    real, [note] = foreseen(tmp_path, simulated=False)
    assert {r.origin for r in real.records} == {SPECBUNDLE, swept.name}
    assert "with this target model" in note
    assert f"and less so from 88 with others ({SPECBUNDLE})" in note


def test_chains_need_no_experience(swept, tmp_path):
    experience, notes = foreseen(tmp_path, tune=CHAINS)
    assert (experience.records, notes) == ((), ())


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        (STUDY, "{", "cannot be read"),
        (STUDY, '{"format": 99}', "has format 99"),
        (STUDY, '{"format": 1, "study_id": 7}', "is damaged"),
        (STUDY, '{"format": 1, "trials": ' + "[" * 100_000, "cannot be read"),
        (EXPERIENCE, "[]", "Expected `object`"),
        (EXPERIENCE, '{"other": ' + "[" * 100_000, "recursion"),
        (EXPERIENCE, None, "does not say of which models it is"),
    ],
)
def test_a_study_that_cannot_be_read_is_left_out_with_a_note(swept, tmp_path, name, text, why):
    if text is None:
        (swept / name).unlink()
    else:
        (swept / name).write_text(text)
    experience, [note] = foreseen(tmp_path)
    assert experience.records == ()
    assert note.startswith("Earlier studies from which nothing was learnt: ")
    assert why in note
    assert swept.name in note


def test_figures_that_cannot_be_are_left_out(swept, tmp_path):
    whole, _ = foreseen(tmp_path)

    def spoil(plain):
        trees = {c["place"] for c in plain["configurations"] if (c["eagle_topk"] or 1) > 1}
        for trial in plain["trials"]:
            if trial["configuration"] in trees:
                trial["accept_len_tok"] = [-3.0, 1e6]

    edit(swept, spoil)
    assert whole.records
    assert foreseen(tmp_path) == (
        whole.__class__(
            records=(), target=whole.target, draft=whole.draft, workloads=whole.workloads
        ),
        (),
    )


@pytest.mark.parametrize(
    ("key", "value"), [("eagle_topk", 10**6), ("num_steps", 10**9), ("num_draft_tokens", 10**30)]
)
def test_drafts_larger_than_any_server_takes_are_not_learnt_from(swept, tmp_path, key, value):
    whole, _ = foreseen(tmp_path)
    spoilt = []

    def spoil(plain):
        measured = {t["configuration"] for t in plain["trials"] if t["accept_len_tok"][0]}
        tree = next(
            c
            for c in plain["configurations"]
            if (c["eagle_topk"] or 1) > 1 and c["place"] in measured
        )
        spoilt.append(tree["label"])
        tree[key] = value

    edit(swept, spoil)
    experience, notes = foreseen(tmp_path)
    assert set(experience.records) < set(whole.records)
    assert notes[-1] == (
        f"Drafts of earlier studies that are too large to learn from: {swept.name} ({spoilt[0]})."
    )


def test_a_study_that_does_not_hold_together_is_left_out_with_a_note(swept, tmp_path):
    edit(swept, lambda plain: plain["trials"][1].update(configuration=999))
    experience, [note] = foreseen(tmp_path)
    assert experience.records == ()
    assert f"{swept.name}/{STUDY} does not hold together: trial 1 is of configuration 999" in note


@pytest.mark.parametrize("changes", [{"num_steps": 10**9}, {"excess": 1e300}])
def test_stored_records_that_nobody_can_have_measured_are_told(swept, tmp_path, changes):
    ready, writer = begun(tmp_path)
    with writer:
        experience_of(ready, writer.folder)
        plain = json.loads((writer.folder / EXPERIENCE).read_text())
        plain["records"][0].update(changes)
        (writer.folder / EXPERIENCE).write_text(json.dumps(plain))
        experience, [note] = experience_of(ready, writer.folder)
    assert experience.records == ()
    assert "is damaged (its record 0 is none that can be measured)" in note


def test_a_copy_of_a_study_counts_once(swept, tmp_path):
    whole, _ = foreseen(tmp_path)
    shutil.copytree(swept, tmp_path / "results" / "copies" / swept.name)
    assert len(studies_in(tmp_path / "results")) == 2
    assert foreseen(tmp_path)[0] == whole
