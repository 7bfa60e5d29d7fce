"""The limit's bar: measured, what the model expects, what memory bandwidth allows."""

import csv
from dataclasses import replace

import pytest
from report_examples import stored_run

from reports import page_html, run_page, write_data
from reports.expectation import expectations_of
from reports.view import pooled

CARDS = "sim: {hardware: rtx-pro-6000-x8, target: kimi-k2.5}"


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return stored_run(tmp_path_factory.mktemp("limit"), cards=CARDS, gpus=8)


def test_the_model_is_below_the_limit_and_above_nothing(run, tmp_path):
    cells = pooled(run)
    told = expectations_of(run, cells)
    assert set(told) == {(p.arm, p.place) for p in cells}
    write_data(run_page(run), tmp_path)
    rows = list(csv.DictReader((tmp_path / "limit.csv").read_text().splitlines()))
    assert len(rows) == len(cells)
    for p, row in zip(cells, rows, strict=True):
        assert float(row["model_tok_per_s"]) == told[p.arm, p.place]
        assert 0 < float(row["model_tok_per_s"]) < float(row["limit_tok_per_s"])
        share = float(row["output_tok_per_s"]) / float(row["limit_tok_per_s"])
        assert float(row["limit_share"]) == pytest.approx(share)


def test_more_accepted_tokens_make_the_model_faster(run):
    (low, *_) = [p for p in pooled(run) if p.arm == "eagle3"]
    high = replace(low, accept_len_tok=2 * low.accept_len_tok)
    at = (low.arm, low.place)
    assert 1 < expectations_of(run, [high])[at] / expectations_of(run, [low])[at] < 2


def test_without_cards_it_is_absent_and_said_so(tmp_path):
    stored = stored_run(tmp_path, loads=(1,), pairs=1, gpus=0, gpu=False)
    assert "names no cards" in expectations_of(stored, pooled(stored))
    html = page_html(run_page(stored))
    assert "Neither the limit nor the model&#39;s figure is shown" in html
    assert "tok/s a GPU" not in html
    assert "What the server did" in html


def test_a_scenario_that_cannot_be_planned_is_told(tmp_path):
    stored = stored_run(tmp_path, loads=(1,), pairs=1, cards=CARDS, gpus=8)
    (stored.folder / "scenario.yaml").write_text("name: [")
    assert "cannot be planned here" in expectations_of(stored, pooled(stored))
    assert "The model&#39;s figure is absent" in page_html(run_page(stored))
