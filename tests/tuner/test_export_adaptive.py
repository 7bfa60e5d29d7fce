"""The adaptive configurations of an export: from what is best at each load to SGLang's file."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from studies import (
    CELLS,
    KIMI,
    LOSING,
    ONE_WINNER,
    argv_of,
    make_study,
    study_folder,
    with_cells,
    with_configuration,
)

from bench.model.study import StudyCell
from bench.sglang.arguments import EffectiveSpeculative, effective_speculative, parse_arguments
from bench.simulator.adaptive import Adaptive as SimulatedAdaptive
from bench.simulator.adaptive import read_tiers
from tuner.export import export_study
from tuner.export.adaptive import choose, config_json
from tuner.export.adaptive_checks import refusal
from tuner.export.ground import ground_of


@pytest.fixture(scope="module")
def ground(tmp_path_factory):
    """The ground of a study of kimi.yaml; `at` puts another study on it."""
    study = make_study()
    return ground_of(study_folder(tmp_path_factory.mktemp("results"), study), study)


def at(ground, study, **overrides):
    server = replace(
        ground.server, arguments=(*ground.server.arguments, *overrides.get("add", ()))
    )
    return replace(ground, study=study, conclusion=study.conclusion, server=server)


def counts(tiers):
    return {tier.batch: tier.steps for tier in tiers}


# ----------------------------------------------------------------------------- what is best where


def test_each_measured_load_takes_its_best_step_count(ground):
    found = choose(ground)
    assert [(level.batch, level.steps) for level in found.levels] == [(1, 5), (8, 3), (64, 2)]
    assert counts(found.pinned) == {1: (5,), 3: (3,), 24: (2,)}
    assert counts(found.responsive) == {1: (3, 5), 3: (2, 3, 5), 24: (2, 3)}
    assert found.initial_steps == 3


def test_one_step_count_everywhere_needs_no_configuration(ground):
    found = choose(at(ground, make_study(law=ONE_WINNER)))
    assert not found.forms
    assert found.reason.startswith("none is needed: 3 steps are the best at every load")


def test_what_is_within_noise_stays_as_deployed(ground):
    study = with_cells(make_study(), (5, True), (3, True), (2, False), (5, True))
    assert counts(choose(at(ground, study)).pinned) == {1: (3,), 24: (2,)}
    study = with_cells(make_study(), (5, True), (3, True), (2, True), (5, True))
    assert "none is needed" in choose(at(ground, study)).reason


def test_workloads_at_one_load_share_a_step_count_by_their_weights(ground):
    study = with_cells(make_study(), (5, False), (3, True), (2, False), (3, True))
    chat, *others, agent = CELLS
    light = (replace(chat, weight=0.01), *others, replace(agent, weight=0.49))
    # At one user chat wants 5 and the agent 3: the weighted sum decides, here for both as chat.
    assert choose(at(ground, replace(study, cells=light))).levels[0].steps == 5
    worse = with_configuration(study, 5, cell_gain=(0.9, 0.5, 0.0, 0.1))
    assert choose(at(ground, replace(worse, cells=light))).levels[0].steps == 3
    heavy = (replace(chat, weight=0.45), *others, replace(agent, weight=0.05))
    assert choose(at(ground, replace(worse, cells=heavy))).levels[0].steps == 5


@pytest.mark.parametrize(
    ("best", "why"),
    [
        (10, "EAGLE3 3-4-8, is no chain of these settings"),
        (20, "EAGLE3 5-1-6 NCCL_PROTO=LL, is no chain of these settings"),
        (8, "EAGLE3 8-1-9, is only predicted"),
    ],
)
def test_what_a_server_cannot_switch_to_or_was_never_launched_is_not_taken(ground, best, why):
    study = with_cells(make_study(), (best, False), (3, True), (2, False), (best, False))
    found = choose(at(ground, study))
    assert found.levels[0].steps == 3
    assert any(why in note and "3 steps stay there" in note for note in found.notes)


def test_speculation_off_at_a_load_is_zero_steps_with_a_warning(ground):
    study = with_cells(make_study(), (5, False), (3, True), (0, False), (5, False))
    study = with_configuration(study, 3, cell_gain=(0.73, 0.57, -0.1, 0.7))
    found = choose(at(ground, study))
    assert counts(found.pinned) == {1: (5,), 3: (3,), 24: (0,)}
    assert any("0 steps are not quite" in note for note in found.notes)
    entry = config_json(found.responsive, {})["24"]
    assert entry == {"candidate_steps": [0, 3], "up_hysteresis": 0.0, "down_hysteresis": 0.0}


def test_where_speculation_is_left_off_it_may_still_be_on_for_few_users(ground):
    found = choose(at(ground, make_study(law=LOSING, answer="leave_off")))
    assert counts(found.pinned) == {1: (3,), 3: (0,)}
    study = with_cells(make_study(law=LOSING, answer="leave_off"), *(((0, True)),) * len(CELLS))
    assert "speculation off is the best" in choose(at(ground, study)).reason


def test_left_off_with_other_settings_than_the_best_has_no_form(ground):
    study = make_study(law=LOSING, answer="leave_off", deploy=15)
    assert "other settings" in choose(at(ground, study)).reason


def test_loads_without_a_batch_size_are_left_out_and_told(ground):
    study = make_study()
    cells = (*CELLS[:2], replace(CELLS[2], load="rate=4"), CELLS[3])
    found = choose(at(ground, replace(study, cells=cells)))
    assert [level.batch for level in found.levels] == [1, 8]
    assert any("rate=4 has no batch size" in note for note in found.notes)
    cells = tuple(replace(cell, load="rate=4") for cell in CELLS)
    found = choose(at(ground, replace(study, cells=cells)))
    assert found.reason == "only one batch size was measured."


def test_replicas_share_a_load(ground):
    found = choose(at(ground, make_study(), add=("--dp-size", "4")))
    assert [level.batch for level in found.levels] == [1, 2, 16]
    assert counts(found.pinned) == {1: (5,), 2: (3,), 6: (2,)}


def test_batches_of_one_graph_cannot_be_told_apart(ground):
    cells = (
        StudyCell(workload="chat-2k", load="62", weight=0.25),
        *CELLS[1:3],
        replace(CELLS[3], load="62"),
    )
    found = choose(at(ground, replace(make_study(), cells=cells)))
    assert "padded to the same CUDA graph" in found.reason


# ------------------------------------------------------------------------- where there is no such


@pytest.mark.parametrize(
    ("add", "why"),
    [
        (("--attn-dp-size", "8"), "attention data parallelism cannot adapt (rule C28"),
        (("--dp-size", "8", "--enable-dp-attention"), "attention data parallelism cannot adapt"),
        (("--enable-two-batch-overlap",), "two-batch overlap cannot adapt (rule C28"),
        (("--enable-pdmux",), "pdmux cannot adapt (rule C28"),
        (("--enable-multi-layer-eagle",), "multi-layer EAGLE cannot adapt (rule C28"),
        (("--attention-backend", "flex_attention"), "(rule C32"),
    ],
)
def test_a_server_that_would_turn_it_off_has_none(ground, add, why):
    found = choose(at(ground, make_study(), add=add))
    assert not found.forms
    assert why in found.reason


def test_a_tree_has_none(ground):
    found = choose(at(ground, make_study(deploy=10)))
    assert "topk is 4, and only chains adapt (rule C28" in found.reason


@pytest.mark.parametrize(
    ("algorithm", "changes"),
    [
        ("NGRAM", {"num_steps": None, "eagle_topk": None, "num_draft_tokens": 12}),
        ("STANDALONE", {}),
    ],
)
def test_other_algorithms_have_none(ground, algorithm, changes):
    study = with_configuration(make_study(), 3, algorithm=algorithm, **changes)
    found = choose(at(ground, study))
    assert f"{algorithm} cannot adapt (rule C28" in found.reason


@pytest.mark.parametrize(
    ("version", "has"),
    [("0.5.12", False), ("0.4.9.post2", False), ("0.5.23", True), ("0.6.0", True), (None, True)],
)
def test_versions_without_it_have_none_and_unknown_ones_are_told(ground, version, has):
    found = choose(at(ground, replace(make_study(), engine_version=version)))
    assert bool(found.forms) is has
    told = [note for note in found.notes if "rules of SGLang 0.5.23" in note]
    assert bool(told) is (has and version != "0.5.23")
    if not has:
        assert f"SGLang {version}" in found.reason


def test_a_form_that_only_the_plan_refuses_is_left_out_with_the_reason(tmp_path):
    """The deepest candidate keeps 6 tokens of the context for drafts, the winner 4."""
    scenario = tmp_path / "kimi.yaml"
    text = KIMI.read_text()
    scenario.write_text(text.replace("- --tp-size 8", "- --tp-size 8 --context-length 32900"))
    study = make_study()
    folder = study_folder(tmp_path / "results", study, scenario=scenario)
    told = export_study(folder, study, tmp_path / "out")
    assert "6 that speculation keeps for drafts" in told.adaptive_reason
    assert "arm adaptive-pinned" in told.adaptive_reason
    assert str(tmp_path) not in told.adaptive_reason
    assert not list((tmp_path / "out").glob("adaptive*"))
    assert "adaptive" not in (tmp_path / "out" / "kimi-eagle3-tuned.yaml").read_text()


def test_a_form_that_another_argument_makes_illegal_is_refused(ground):
    found = choose(ground)
    adaptive = ("--speculative-adaptive", "--attn-dp-size", "8")
    words = {form: (*ground.words(ground.deployed), *adaptive) for form in found.forms}
    assert refusal(ground, found, words).startswith("pinned: SGLang would turn adaptive mode off")


def test_a_form_that_reads_another_file_is_refused(tmp_path, ground):
    found = choose(ground)
    path = tmp_path / "other.json"
    path.write_text('{"1": {"candidate_steps": [3, 7]}}')
    adaptive = ("--speculative-adaptive", "--speculative-adaptive-config", str(path))
    words = {form: (*ground.words(ground.deployed), *adaptive) for form in found.forms}
    assert refusal(ground, found, words) == "pinned: SGLang would verify up to 8 tokens, not 6."


# --------------------------------------------------------------------------- across its thresholds


@settings(deadline=None, max_examples=60)
@given(
    loads=st.lists(st.integers(1, 64), min_size=2, max_size=4, unique=True).map(sorted),
    bests=st.lists(st.integers(0, 5), min_size=4, max_size=4),
)
def test_the_simulated_server_takes_the_steps_meant_at_every_measured_batch(
    ground, tmp_path_factory, loads, bests
):
    """The file as the simulator's own reading of SGLang's policy routes it, graphs included."""
    loads = [*loads, *loads[-1:] * (4 - len(loads))]
    cells = tuple(replace(cell, load=str(load)) for cell, load in zip(CELLS, loads, strict=True))
    by_load = dict(zip(loads, bests, strict=True))  # one best a load
    study = with_cells(
        replace(make_study(), cells=cells),
        *((by_load[load], by_load[load] == 3) for load in loads),
    )
    study = replace(
        study,
        configurations=tuple(
            replace(
                c,
                launches=1,
                cell_gain=tuple(float(by_load[load] == c.place) for load in loads),
            )
            if c.place <= 8
            else c
            for c in study.configurations
        ),
    )
    found = choose(at(ground, study))
    if not found.forms:
        assert found.reason
        return
    path = Path(tmp_path_factory.mktemp("form")) / "pinned.json"
    path.write_text(json.dumps(config_json(found.pinned, {"study": "x"})))
    server = SimulatedAdaptive(
        read_tiers(str(path)),
        initial_steps=found.initial_steps,
        graph_batch_sizes=found.graph_sizes,
        log=[].append,
    )
    for load, best in by_load.items():
        assert server.steps_for(load) == best
    union = {steps for tier in found.responsive for steps in tier.steps}
    assert found.initial_steps in union
    assert union == {tier.steps[0] for tier in found.pinned}


@pytest.mark.parametrize("form", ["pinned", "responsive"])
def test_the_written_form_starts_and_stays_on_by_the_rules(form, tmp_path):
    study = make_study()
    out = tmp_path / "out"
    export_study(study_folder(tmp_path / "results", study), study, out)
    argv = argv_of(study.configurations[3])[3:]
    path = str(out / f"adaptive-{form}.json")
    asked = parse_arguments(
        [*argv, "--speculative-adaptive", "--speculative-adaptive-config", path]
    )
    outcome = effective_speculative(asked)
    assert isinstance(outcome, EffectiveSpeculative)
    assert dict(outcome.values)["speculative_adaptive"] is True
    assert outcome.most_draft_tokens == 6
    assert not outcome.without_effect
    tiers = read_tiers(path)
    assert [tier.batch for tier in tiers] == [1, 3, 24]
