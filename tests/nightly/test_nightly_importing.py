"""Past runs of ours and other tools' files: taken in once, dated, never mixed."""

import json
import sys
from datetime import date
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "reports"))
from report_examples import stored_run

from bench.errors import InputError
from bench.nightly import ForeignNames, import_runs, read_history
from bench.nightly.facts import by_arm, changed
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
    assert changed({"a": "1", "b": "1"}, {"a": "2", "c": "3"}) == [
        ("a", "1", "2"),
        ("b", "1", "–"),
        ("c", "–", "3"),
    ]


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
