"""Result files of SpecForge: written here as its tools write them, field by field."""

import json

import pytest

from bench.errors import InputError
from bench.foreign import read_specforge, specforge_runs

# As `benchmarks/bench_eagle3.py` writes it: a list of BenchmarkMetrics for each run of a task.
EAGLE3 = {
    "model": "lmsys/sglang-EAGLE3-LLaMA3.1-Instruct-8B",
    "mtbench": [
        {
            "batch_size": 1,
            "steps": 0,
            "topk": 0,
            "num_draft_tokens": 0,
            "metrics": [
                {
                    "latency": 120.5,
                    "output_throughput": 150.25,
                    "accept_length": 1.0,
                    "accuracy": None,
                    "num_questions": 80,
                    "num_valid_predictions": 0,
                    "categorical_performance": None,
                }
            ],
            "num_samples": 80,
        },
        {
            "batch_size": 1,
            "steps": 3,
            "topk": 1,
            "num_draft_tokens": 4,
            "metrics": [
                {
                    "latency": 60.0,
                    "output_throughput": 301.5,
                    "accept_length": 2.875,
                    "accuracy": 0.5,
                    "num_questions": 80,
                    "num_valid_predictions": 80,
                    "categorical_performance": None,
                }
            ],
            "num_samples": None,
        },
    ],
}
# As `specforge benchmark` writes it: BenchmarkReport, with RunRecord and TaskMetrics.
REPORT = {
    "model": "Qwen/Qwen3-8B",
    "draft_model": "./draft",
    "sampling": {"temperature": 0.7, "top_p": 1.0, "top_k": 1, "max_new_tokens": None},
    "concurrency": 8,
    "created_at": "2026-08-08T10:00:00+0000",
    "runs": [
        {
            "config": {
                "label": "eagle3-s5-k1-d6",
                "batch_size": None,
                "algorithm": "EAGLE3",
                "steps": 5,
                "topk": 1,
                "draft_tokens": 6,
            },
            "task": {"name": "gsm8k", "num_samples": 200, "subset": None, "max_new_tokens": None},
            "metrics": {
                "num_samples": 200,
                "num_requests": 200,
                "output_tokens": 30000,
                "latency_seconds": 20.0,
                "throughput_tokens_per_second": 1500.0,
                "accept_length": 3.0,
                "spec_verify_count": 10000,
                "accuracy": 0.9,
                "num_scored": 200,
            },
        },
        {
            "config": None,
            "task": {"name": "mtbench"},
            "metrics": {"num_samples": 1, "accept_length": None, "spec_verify_count": None},
        },
    ],
}


def test_every_run_of_bench_eagle3(tmp_path):
    path = tmp_path / "results_20260808_100000.jsonl"
    path.write_text(json.dumps(EAGLE3, indent=4))  # JSON over many lines, whatever its name says
    plain, drafted = read_specforge(path)
    assert {run.tool for run in (plain, drafted)} == {"bench_eagle3"}
    assert {run.task for run in (plain, drafted)} == {"mtbench"}
    assert (plain.num_steps, plain.accept_len_tok, plain.output_tok_per_s) == (0, 1.0, 150.25)
    assert (drafted.batch_size, drafted.num_steps, drafted.topk) == (1, 3, 1)
    assert (drafted.num_draft_tokens, drafted.accept_len_tok) == (4, 2.875)
    assert (drafted.samples_ct, drafted.duration_s, drafted.accuracy) == (80, 60.0, 0.5)
    assert drafted.draft_model == EAGLE3["model"]
    assert (drafted.output_tok, drafted.verify_ct, drafted.temperature) == (None, None, None)


def test_every_run_of_specforge_benchmark():
    drafted, running = specforge_runs(REPORT)
    assert (drafted.tool, drafted.task) == ("specforge benchmark", "gsm8k")
    assert (drafted.model, drafted.draft_model) == ("Qwen/Qwen3-8B", "./draft")
    assert (drafted.num_steps, drafted.topk, drafted.num_draft_tokens) == (5, 1, 6)
    assert drafted.batch_size == 8  # the report's, where the configuration has none
    assert drafted.output_tok / drafted.duration_s == drafted.output_tok_per_s
    assert drafted.output_tok / drafted.verify_ct == drafted.accept_len_tok
    assert (drafted.temperature, drafted.top_k) == (0.7, 1)
    assert (running.num_steps, running.accept_len_tok, running.verify_ct) == (None, None, None)


@pytest.mark.parametrize("text", ["{}", "[]", '{"model": "x"}', "no JSON", '{"runs": [1]}'])
def test_what_is_no_result_is_refused(tmp_path, text):
    path = tmp_path / "x.json"
    path.write_text(text)
    with pytest.raises(InputError):
        read_specforge(path)
    with pytest.raises(InputError, match="nowhere"):
        read_specforge(tmp_path / "nowhere")


def test_damage_costs_the_damaged_alone():
    damaged = {**EAGLE3, "gsm8k": [1, {"metrics": 5}, {"metrics": [{"latency": "long"}]}]}
    runs = specforge_runs(damaged)
    assert [run.task for run in runs] == ["mtbench", "mtbench", "gsm8k"]
    assert runs[-1].duration_s is None
    cut = {**REPORT, "runs": [*REPORT["runs"], 5, {"metrics": []}]}
    assert [run.task for run in specforge_runs(cut)] == ["gsm8k", "mtbench", ""]
