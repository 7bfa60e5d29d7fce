"""The JSON answer: every field of every cell, names as documented, missing as null."""

import json
from dataclasses import fields, replace

import pytest
import store_examples as ex

from bench.model import Comparison, Finding, Measurement
from bench.store import answer_json, load_run


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return load_run(ex.published(tmp_path_factory.mktemp("results")))


def test_the_answer_has_every_field_of_cells_comparisons_and_findings(run):
    answer = answer_json(run)
    keys = "run scenario question status simulated speed cells comparisons findings"
    assert list(answer) == keys.split()
    assert (answer["run"], answer["simulated"], answer["speed"]) == (ex.RUN_ID, True, 2)
    for rows, record in (
        ("cells", Measurement),
        ("comparisons", Comparison),
        ("findings", Finding),
    ):
        assert [list(row) for row in answer[rows]] == [[f.name for f in fields(record)]] * len(
            answer[rows]
        )
    assert [cell["cell_id"] for cell in answer["cells"]] == ["c0000", "c0002", "c0001", "c0003"]


def test_the_answer_is_strict_json_with_plain_values(run):
    answer = answer_json(run)
    again = json.loads(json.dumps(answer, allow_nan=False))
    assert again == answer
    cell = again["cells"][1]
    assert cell["ttft_ms"] == {
        "mean": 12.0,
        "p50": 9.0,
        "p90": 12.0,
        "p95": 13.0,
        "p99": 14.5,
        "n": 4,
    }
    assert (cell["ttfo_ms"], cell["queue_share"], cell["cache_hit_ratio"]) == (None, None, 0.0)
    assert (cell["status"], cell["accept_at_position"]) == ("VALID", [1.0, 0.5])
    assert cell["failures_by_kind"] == {"refused": 1}
    assert again["comparisons"][0]["verdict"] == "FASTER"
    assert again["comparisons"][0]["config_differences"] == [
        {"name": "page_size", "baseline": "1", "arm": "64"}
    ]
    assert again["findings"][0]["kind"] == "window_too_short"


def test_a_part_run_answers_with_its_finished_cells(tmp_path):
    with ex.begin(tmp_path) as writer:
        ex.fill(writer, limit=1)
    answer = answer_json(load_run(writer.folder))
    assert (answer["status"], len(answer["cells"]), answer["comparisons"]) == (
        "interrupted",
        1,
        [],
    )


def test_a_number_that_is_not_finite_is_null(run):
    run = replace(run, comparisons=(replace(ex.COMPARISON, ci95_high=float("inf")),))
    assert answer_json(run)["comparisons"][0]["ci95_high"] is None
