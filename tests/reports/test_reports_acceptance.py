"""Acceptance by category is counted from the requests, and shown where there are categories."""

import csv
import io

import pytest
from report_examples import stored_run

from bench.model import RequestStatus
from bench.store import load_samples
from reports import page_html, run_page
from reports.blocks import Drawing, Table
from reports.render import blocks_of, table_csv

CATEGORIES = ("code", "chat")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("categories")
    return stored_run(folder, categories=CATEGORIES, failed_share=0.2, per_slot=8)


def table(page, name):
    (found,) = (b for b in blocks_of(page) if isinstance(b, Table) and b.name == name)
    return list(csv.DictReader(io.StringIO(table_csv(found))))


def test_accept_length_by_category_is_a_ratio_of_sums_over_ok_requests(run):
    arms = {m.cell_id: m.arm for m in run.measurements}
    rows = table(run_page(run), "categories")
    assert [(row["category"], row["arm"]) for row in rows] == [
        ("chat", "eagle3"),
        ("code", "eagle3"),
    ]
    for row in rows:
        counted = [
            s
            for s in load_samples(run.folder)
            if s.phase == "measure"
            and s.status is RequestStatus.OK
            and arms[s.cell_id] == "eagle3"
            and s.prompt_id.endswith(row["category"])
        ]
        steps = sum(s.spec_verify_ct for s in counted)
        correct = sum(s.spec_num_correct_drafts for s in counted)
        assert int(row["requests"]) == len(counted) > 0
        assert int(row["spec_verify_ct"]) == steps
        assert float(row["accept_len_tok"]) == pytest.approx(1 + correct / steps)
    assert float(rows[1]["accept_len_tok"]) == 4.0


@pytest.mark.parametrize("categories", [(), ("chat",)], ids=["none", "one"])
def test_without_two_categories_there_is_nothing_to_compare(tmp_path, categories):
    page = run_page(stored_run(tmp_path, categories=categories, loads=(1,), pairs=1))
    assert not [b for b in blocks_of(page) if getattr(b, "name", "") == "categories"]


def test_the_figure_names_its_categories(run):
    page = run_page(run)
    assert [b for b in blocks_of(page) if isinstance(b, Drawing) and b.name == "categories"]
    html = page_html(page)
    assert all(f">{category}<" in html for category in CATEGORIES)
