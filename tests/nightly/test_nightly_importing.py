"""Past runs of ours and other tools' files: taken in once, dated, never mixed."""

import json
import sys
from dataclasses import replace
from datetime import date
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "reports"))
from report_examples import stored_run

from bench.errors import InputError
from bench.metrics.change_words import changed_facts
from bench.nightly import ForeignNames, import_runs, read_history
from bench.nightly.facts import by_arm, facts_of
from bench.nightly.model_files import model_facts

NAMES = ForeignNames(scenario="past", arm="eagle3", hardware="8x H200", night=None)
ROW = {
    "backend": "sglang",
    "dataset_name": "sharegpt",
    "max_concurrency": 8,
    "completed": 64,
    "duration": 60.0,
    "output_throughput": 812.4,
    "mean_ttft_ms": 120.0,
    "median_ttft_ms": 110.0,
    "p99_ttft_ms": 300.0,
    "mean_tpot_ms": 7.5,
    "accept_length": 2.86,
    "server_info": {"version": "0.5.22", "attention_backend": "fa3", "api_key": "hunter2"},
}


def take_in(tmp_path, *paths, names=NAMES, hardware=None):
    history = tmp_path / "history"
    done = import_runs(paths, history, names=names, hardware=hardware)
    return done, read_history(history)


def test_a_run_of_ours_is_points_with_its_environment(tmp_path):
    run = stored_run(tmp_path / "results")
    done, history = take_in(tmp_path, tmp_path / "results")
    assert (done.sources, done.known, done.refused) == (1, 0, ())
    metrics = {(k.arm, k.metric) for k in history.series}
    assert {
        ("baseline", "output_tok_per_s"),
        ("eagle3", "speedup"),
        ("eagle3", "ttft_p99_ms"),
    } <= (metrics)
    [speedup] = [
        points for k, points in history.series.items() if (k.metric, k.load) == ("speedup", "1")
    ]
    [compared] = [c for c in run.comparisons if c.load == "1"]
    assert speedup[0].value == compared.speedup
    assert speedup[0].night == date(2026, 11, 29) or speedup[0].night  # the run's own date
    facts = history.facts[speedup[0].fingerprint]
    assert any(name.startswith("work: asked of chat") for name in facts)
    assert any(name.startswith("work: prompts of chat") for name in facts)
    assert "boot_id" not in facts


def test_what_is_in_already_is_left(tmp_path):
    stored_run(tmp_path / "results")
    take_in(tmp_path, tmp_path / "results")
    done, history = take_in(tmp_path, tmp_path / "results")
    assert (done.sources, done.known, done.points) == (0, 1, 0)
    assert len(history.entries) == 1


def test_part_runs_are_refused_by_name(tmp_path):
    stored_run(tmp_path / "results", published=False)
    done, history = take_in(tmp_path, tmp_path / "results")
    assert done.sources == 0
    assert "bench resume" in done.refused[0][1]
    assert not history.series


def test_a_file_of_bench_serving_is_series_of_its_own(tmp_path):
    path = tmp_path / "sglang_20261103_8.jsonl"
    text = json.dumps(ROW) + "\n" + json.dumps(ROW | {"output_throughput": float("nan")}) + "\n"
    path.write_text(text)
    done, history = take_in(tmp_path, path)
    assert done.sources == 2
    keys = {k.metric: k for k in history.series}
    assert set(keys) == {
        f"sglang:{name}"
        for name in (
            *("output_tok_per_s", "accept_len_tok", "ttft_p99_ms", "ttft_p50_ms"),
            "tpot_mean_ms",
        )
    }
    key = keys["sglang:output_tok_per_s"]
    assert (key.workload, key.load, key.arm, key.hardware) == (
        "sharegpt",
        "8",
        "eagle3",
        "8x H200",
    )
    [point] = history.series[key]
    assert (point.value, point.night, point.source) == (812.4, date(2026, 11, 3), "sglang")
    facts = history.facts[point.fingerprint]
    assert facts["eagle3: attention_backend"] == "fa3"
    assert "hunter2" not in json.dumps(facts)
    done, _ = take_in(tmp_path, path)
    assert (done.sources, done.known) == (0, 2)


def test_a_folder_of_result_files_is_taken_in(tmp_path):
    folder = tmp_path / "sglang"
    folder.mkdir()
    for day in (1, 2, 3):
        text = json.dumps(ROW | {"output_throughput": 800.0 + day})
        (folder / f"r_2026110{day}.jsonl").write_text(text)
    (folder / "notes.json").write_text("no JSON")
    done, history = take_in(tmp_path, folder)
    assert (done.sources, len(done.refused)) == (3, 1)
    assert "notes.json" in done.refused[0][0]
    assert {len(series) for series in history.series.values()} == {3}


def test_a_folder_with_nothing_in_it_is_told(tmp_path):
    (tmp_path / "empty").mkdir()
    done, _ = take_in(tmp_path, tmp_path / "empty")
    assert done.sources == 0
    assert "no run of ours" in done.refused[0][1]


def test_a_result_that_speculates_is_no_baselines(tmp_path):
    path = tmp_path / "r_20261103.jsonl"
    path.write_text(json.dumps(ROW))
    names = ForeignNames(scenario="p", arm="baseline", hardware="h", night=None)
    done, history = take_in(tmp_path, path, names=names)
    [(where, why)] = done.refused
    assert where == f"{path} result 1"
    assert "--arm" in why
    assert not history.series


def test_made_up_prompts_of_other_lengths_are_other_work(tmp_path):
    path = tmp_path / "r_20261103.jsonl"
    rows = [
        ROW | {"dataset_name": "random", "random_input_len": n, "random_output_len": 128}
        for n in (512, 8192)
    ]
    path.write_text("\n".join(map(json.dumps, rows)))
    _, history = take_in(tmp_path, path)
    assert {k.workload for k in history.series} == {"random-512-128", "random-8192-128"}


def test_a_study_is_no_night(tmp_path):
    run = stored_run(tmp_path / "results")
    (run.folder / "study.json").write_text("{}")
    done, history = take_in(tmp_path, tmp_path / "results")
    assert "study" in done.refused[0][1]
    assert not history.series


def test_a_date_that_is_given_wins(tmp_path):
    path = tmp_path / "sglang_20261103_8.jsonl"
    path.write_text(json.dumps(ROW))
    names = ForeignNames(scenario="p", arm="a", hardware="h", night=date(2026, 5, 1))
    _, history = take_in(tmp_path, path, names=names)
    assert {p.night for points in history.series.values() for p in points} == {date(2026, 5, 1)}


def test_a_path_that_is_not_there_is_told(tmp_path):
    with pytest.raises(InputError, match="no such file"):
        take_in(tmp_path, tmp_path / "none")


def test_settings_that_all_arms_share_are_one_fact():
    arms = {"baseline": {"a": "1", "b": "1"}, "eagle3": {"a": "1", "b": "2"}}
    assert by_arm(arms) == {"server: a": "1", "baseline: b": "1", "eagle3: b": "2"}


def test_facts_that_differ_are_named_with_what_is_missing():
    assert changed_facts({"a": "1", "b": "1"}, {"a": "2", "c": "3"}) == [
        ("a", "1", "2"),
        ("b", "1", "–"),
        ("c", "–", "3"),
    ]


def test_prompts_with_another_salt_are_no_change_and_others_are():
    name = "work: prompts of chat, load 8"
    old = {name: "aaaa, salted k1"}
    assert changed_facts(old, {name: "bbbb, salted k2"}) == []
    assert [n for n, *_ in changed_facts(old, {name: "bbbb, salted k1"})] == [name]
    assert [n for n, *_ in changed_facts({}, old)] == [name]


def test_more_draft_steps_are_no_other_work(tmp_path):
    run = stored_run(tmp_path / "results")
    before = facts_of(run)
    plan = tuple(
        replace(
            launch,
            cells=tuple(replace(c, comparison_key=f"{c.comparison_key}x") for c in launch.cells),
        )
        for launch in run.manifest.plan
    )
    more_requests = replace(run, manifest=replace(run.manifest, plan=plan))
    assert changed_facts(before, facts_of(more_requests)) == []
    scenario = run.folder / "scenario.yaml"
    text = scenario.read_text()
    assert "max_output_tok: " in text
    scenario.write_text(text.replace("max_output_tok: ", "max_output_tok: 1"))
    names = [name for name, *_ in changed_facts(before, facts_of(run))]
    assert names
    assert all(name.startswith("work: asked of ") for name in names)


def test_a_draft_trained_again_has_other_weights_and_the_same_tokenizer(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "tokenizer.json").write_text("{}")
    weights = tmp_path / "model.safetensors"
    weights.write_bytes(bytes(5_000_000))
    before = model_facts(str(tmp_path), "main")
    changed_weights = bytearray(5_000_000)
    changed_weights[2_500_000:] = b"\x01" * 2_500_000
    weights.write_bytes(changed_weights)
    after = model_facts(str(tmp_path), "main")
    assert set(before) == {"config", "tokenizer", "weights"}
    assert before["weights"] != after["weights"]
    assert before["tokenizer"] == after["tokenizer"]
    assert model_facts(str(tmp_path / "none"), "main") == {}


def test_a_repository_is_looked_up_in_the_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    model = tmp_path / "models--org--draft"
    (model / "refs").mkdir(parents=True)
    (model / "refs" / "main").write_text("abc123\n")
    (model / "snapshots" / "abc123").mkdir(parents=True)
    (model / "snapshots" / "abc123" / "config.json").write_text("{}")
    facts = model_facts("org/draft", "None")
    assert facts["commit"] == "abc123"
    assert set(facts) == {"commit", "config"}
