"""The scenario that an export writes, and the accept lengths."""

from __future__ import annotations

import json
from dataclasses import replace
from statistics import mean

import pytest
import yaml
from studies import (
    KIMI,
    LOSING,
    ONE_WINNER,
    OTHER,
    make_study,
    study_folder,
    with_configuration,
    with_steps_launch,
)

from bench.errors import InputError
from bench.model.study import TrialState
from bench.plan import make_plan
from bench.scenario import load_scenario
from tuner.export import export_study
from tuner.export.accepting import accept_lengths
from tuner.export.scenario_text import tuned_name
from tuner.export.yaml_writing import block


def exported(tmp_path, study, text=None, **folder):
    """The exported scenario's path."""
    if text is not None:
        folder["scenario"] = tmp_path / "asked.yaml"
        folder["scenario"].write_text(text)
    told = export_study(
        study_folder(tmp_path / "results", study, **folder), study, tmp_path / "out"
    )
    return tmp_path / "out" / told.scenario


def arms(path, *, simulated=False):
    """Each arm's server as it is planned."""
    plan = make_plan(load_scenario(path), simulated=simulated)
    return {launch.arm: launch.server for launch in plan.launches}


def test_the_winner_is_launched_as_the_study_launched_it(tmp_path):
    study = make_study()
    path = exported(tmp_path, study)
    words = arms(path)["tuned"].arguments
    assert sorted(words) == sorted(study.argv[3:])


def test_settings_and_what_the_baseline_adds_are_in_the_arms(tmp_path):
    text = KIMI.read_text().replace(
        "  baseline: {}\n",
        "  baseline: {arguments: [--page-size 16], environment: {OMP_NUM_THREADS: 4}}\n",
    )
    study = with_configuration(
        make_study(deploy=18), 18, arguments=(("--enable-symm-mem", "true"), ("--log", "a b"))
    )
    path = exported(tmp_path, study, text)
    arm = yaml.safe_load(path.read_text())["arms"]["tuned"]
    assert arm["arguments"] == ["--page-size 16", "--enable-symm-mem", "--log 'a b'"]
    assert arm["environment"] == {"OMP_NUM_THREADS": "4", **dict(OTHER)}
    script = (tmp_path / "out" / "launch.sh").read_text()
    assert "export NCCL_PROTO=LL" in script
    assert "export OMP_NUM_THREADS=4" in script


@pytest.mark.parametrize(
    ("study", "names"),
    [
        (make_study(law=ONE_WINNER), ["baseline", "tuned"]),
        (make_study(law=ONE_WINNER, answer="keep_present", present=3), ["baseline", "tuned"]),
        (
            make_study(law=ONE_WINNER, present=2),
            ["baseline", "tuned", "present"],
        ),
        (
            make_study(law=ONE_WINNER, answer="keep_present", present=2),
            ["baseline", "tuned", "best-speculative"],
        ),
        (
            make_study(law=ONE_WINNER, answer="leave_off", present=2),
            ["baseline", "best-speculative", "present"],
        ),
        (
            make_study(law=LOSING, answer="leave_off", deploy=15),
            ["baseline", "tuned", "best-speculative"],
        ),
    ],
)
def test_every_server_is_one_arm(study, names, tmp_path):
    path = exported(tmp_path, study)
    assert list(yaml.safe_load(path.read_text())["arms"]) == names
    assert set(arms(path)) == set(names)


def test_comments_inside_blocks_that_stay_are_kept_and_the_tune_block_is_not(tmp_path):
    text = KIMI.read_text()  # it has a tune block
    path = exported(tmp_path, make_study(), text)
    written = path.read_text()
    assert "# every batch runs as a graph, in all arms" in written
    assert "# KV memory sets the loads" in written
    assert "9 launches of 12 minutes" not in written  # it was said of the other scenario
    assert "tune" not in yaml.safe_load(written)
    asked, made = yaml.safe_load(text), yaml.safe_load(written)
    for key in ("target", "draft", "server", "workloads", "measure", "slo", "sim", "seed"):
        assert made[key] == asked[key], key


def test_overrides_of_the_run_are_in_it(tmp_path):
    path = exported(tmp_path, make_study(), overrides=("measure.pairs=5", "slo.ttft_ms=900"))
    scenario = load_scenario(path).scenario
    assert scenario.measure.pairs == 5
    assert scenario.slo.ttft_ms == 900


def test_only_what_the_study_measured_is_measured_again(tmp_path):
    study = make_study(law=ONE_WINNER)
    cells = tuple(replace(cell, weight=0.5) for cell in study.cells[:2])
    study = replace(
        study,
        cells=cells,
        conclusion=replace(study.conclusion, cells=study.conclusion.cells[:2]),
    )
    path = exported(tmp_path, study)
    plan = make_plan(load_scenario(path))
    found = {
        (cell.workload.name, cell.load.label) for launch in plan.launches for cell in launch.cells
    }
    assert found == {("chat-2k", "1"), ("chat-2k", "8")}


def test_rates_and_capacity_stay_where_they_were_measured(tmp_path):
    loads = "loads: {concurrency: [1, 8, 64], rates: [{rate_per_s: 2}, {rate_per_s: 3}]}"
    text = KIMI.read_text().replace("loads:\n  concurrency: [1, 8, 64]", loads)
    study = make_study()
    study = replace(study, cells=(replace(study.cells[0], load="rate=2"), *study.cells[1:]))
    path = exported(tmp_path, study, text)
    assert yaml.safe_load(path.read_text())["loads"]["rates"] == [{"rate_per_s": 2}]


def test_files_beside_the_original_are_found_from_anywhere(tmp_path):
    folder = tmp_path / "asked"
    folder.mkdir()
    (folder / "prompts.jsonl").write_text('{"prompt": "Hello"}\n')
    text = KIMI.read_text().replace(
        "    categories: [chat, code]\n    input_tok: 2048\n",
        "    dataset: jsonl\n    dataset_path: ./prompts.jsonl\n    input_tok: 2048\n",
    )
    text = text.replace("path: moonshotai/Kimi-K2.5", "path: ../model")
    text = text.replace("- --tp-size 8", "- --tp-size 8 --chat-template ./t.jinja")
    (folder / "kimi.yaml").write_text(text)
    path = exported(tmp_path, make_study(), scenario=folder / "kimi.yaml")
    words = arms(path)["tuned"].arguments
    assert str(tmp_path / "model") in words
    assert str(folder / "t.jinja") in words
    loaded = load_scenario(path)
    assert loaded.scenario.workloads["chat-2k"].dataset_path == str(folder / "prompts.jsonl")


def test_a_scenario_whose_files_are_gone_is_told(tmp_path):
    scenario = tmp_path / "asked.yaml"
    (tmp_path / "prompts.jsonl").write_text('{"prompt": "Hello"}\n')
    scenario.write_text(
        KIMI.read_text().replace(
            "    categories: [chat, code]\n    input_tok: 2048\n",
            "    dataset: jsonl\n    dataset_path: ./prompts.jsonl\n    input_tok: 2048\n",
        )
    )
    study = make_study()
    folder = study_folder(tmp_path / "results", study, scenario=scenario)
    (tmp_path / "prompts.jsonl").unlink()
    with pytest.raises(InputError, match=r"prompts\.jsonl is no file"):
        export_study(folder, study, tmp_path / "out")


def test_an_edited_original_does_not_count(tmp_path):
    scenario = tmp_path / "asked.yaml"
    scenario.write_text(KIMI.read_text())
    study = make_study()
    folder = study_folder(tmp_path / "results", study, scenario=scenario)
    scenario.write_text(KIMI.read_text().replace("steady_s: 60", "steady_s: 1"))
    told = export_study(folder, study, tmp_path / "out")
    assert load_scenario(tmp_path / "out" / told.scenario).scenario.measure.steady_s == 60


def test_blocks_that_hang_together_by_anchors_are_written_out(tmp_path):
    text = KIMI.read_text().replace("  concurrency: [1, 8, 64]", "  concurrency: &all [1, 8, 64]")
    text = text.replace("loads: {concurrency: [1]}", "loads: {concurrency: *all}")
    # An alias may stand before its anchor in no YAML text: the shared loads come first.
    head, rest = text.split("workloads:\n")
    workloads, loads = rest.split("loads:\n  concurrency: &all", 1)
    text = f"{head}loads:\n  concurrency: &all{loads.splitlines()[0]}\n\nworkloads:\n{workloads}"
    text += "\n".join(loads.splitlines()[1:]) + "\n"
    path = exported(tmp_path, make_study(), text)
    assert "&all" not in path.read_text()
    assert "*all" not in path.read_text()
    assert load_scenario(path).scenario.workloads["agent-32k"].loads.concurrency == (1,)


def test_the_draft_of_the_launches_counts_where_the_deployed_command_has_none(tmp_path):
    """The scenario's first speculative arm has another draft than the study launched."""
    path = exported(tmp_path, make_study(law=LOSING, answer="leave_off", simulated=True))
    words = arms(path, simulated=True)["best-speculative"].arguments
    assert "/models/kimi-k2.5-eagle3-rewired" in words


def test_the_simulated_card_is_the_studys(tmp_path):
    study = make_study(simulated=True)
    folder = study_folder(tmp_path / "results", study)
    manifest = folder / "manifest.json"
    told = json.loads(manifest.read_text())
    told["plan_arguments"]["sim_hardware"] = "h200-x8"
    manifest.write_text(json.dumps(told))
    export_study(folder, study, tmp_path / "out")
    assert "hardware: h200-x8" in (tmp_path / "out" / "kimi-eagle3-tuned.yaml").read_text()


def test_names_stay_within_what_a_name_may_be():
    assert tuned_name("kimi") == "kimi-tuned"
    assert tuned_name("kimi-tuned") == "kimi-tuned"
    assert tuned_name("k" * 64) == "k" * 58 + "-tuned"


def test_texts_that_yaml_would_read_otherwise_are_quoted():
    data = {"environment": {"A": "1", "B": "yes", "C": "a: b", "D": "", "E": "#x"}}
    assert yaml.safe_load(block("arm", data)) == {"arm": data}
    deep = {"a": [{"b": 1}, {"b": [1, 2]}], "c": "x" * 200, "d": {}, "e": []}
    assert yaml.safe_load(block("arm", deep)) == {"arm": deep}


# --------------------------------------------------------------------------------- accept lengths


def by_label(study):
    return {entry["configuration"]: entry for entry in accept_lengths(study)}


def test_launched_configurations_are_measured_and_others_predicted():
    study = make_study()
    found = by_label(study)
    for configuration in study.configurations:
        entry = found.get(configuration.label)
        if configuration.algorithm is None or (
            configuration.excluded and not configuration.launches
        ):
            assert entry is None
            continue
        measured = [
            trial.accept_len_tok
            for trial in study.trials
            if trial.configuration == configuration.place and trial.state == TrialState.MEASURED
        ]
        for cell, told in enumerate(entry["cells"]):
            assert told["source"] == ("measured" if measured else "predicted")
            assert told["launches"] == len(measured)
            wanted = (
                mean(lengths[cell] for lengths in measured)
                if measured
                else configuration.accept_len_tok[cell]
            )
            assert told["accept_len_tok"] == pytest.approx(wanted, abs=0.001)


def test_planners_keys_are_of_the_right_kind():
    found = by_label(make_study())
    chain, tree = found["EAGLE3 3-1-4"]["cells"][0], found["EAGLE3 3-4-8"]["cells"][0]
    assert chain["SGLANG_SIMULATE_ACC_LEN"] == chain["accept_len_tok"]
    assert chain["nextn"] == 3
    assert chain["nextn_accepted"] == pytest.approx(chain["accept_len_tok"] - 1)
    assert "nextn" not in tree
    assert found["EAGLE3 3-1-4"]["deployed"] is True
    assert not any(e["deployed"] for label, e in found.items() if label != "EAGLE3 3-1-4")


def test_several_launches_are_weighed_by_their_verifications():
    """Two launches of the same 100 tokens at 2 and at 4 a verification made 75 of them."""
    study = make_study()
    trials = [
        replace(trial, accept_len_tok=(length,) * 4)
        for trial, length in zip(study.trials[1:3], (2.0, 4.0), strict=True)
    ]
    trials = [replace(trial, configuration=3) for trial in trials]
    told = by_label(replace(study, trials=tuple(trials)))["EAGLE3 3-1-4"]["cells"][0]
    assert told["accept_len_tok"] == pytest.approx(200 / 75, abs=1e-3)


def test_the_launch_of_two_step_counts_is_no_launch_of_the_configuration():
    study = make_study()
    assert accept_lengths(with_steps_launch(study)) == accept_lengths(study)


def test_what_is_neither_measured_nor_predicted_is_absent():
    study = with_configuration(make_study(), 6, accept_len_tok=(None, 2.0, None, None))
    cells = by_label(study)["EAGLE3 6-1-7"]["cells"]
    assert [cell["accept_len_tok"] for cell in cells] == [None, 2.0, None, None]
    assert "SGLANG_SIMULATE_ACC_LEN" not in cells[0]
