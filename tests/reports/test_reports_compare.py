"""Two runs side by side: refused where they did different work, attributed where they did not."""

from dataclasses import replace

import pytest
from report_examples import stored_run

from bench.errors import InputError
from bench.model import Verdict
from reports import changes_of, compare_page, page_html, page_markdown


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    before = stored_run(tmp_path_factory.mktemp("before"))
    after = stored_run(tmp_path_factory.mktemp("after"), gain=lambda _: 1.0)
    return before, after


def test_a_slower_step_is_found_and_named(runs):
    page = compare_page(*runs)
    slower, faster = page.answer
    assert slower.startswith("eagle3 in chat at 1 request became 21.4 % slower [0.786, 0.786]")
    assert faster.startswith("eagle3 in chat at 4 requests at once became 10.3 % faster")
    assert all(sentence.endswith("mostly the step's time.") for sentence in page.answer)
    assert page_markdown(page)
    assert "mostly the step" in page_html(page)


def test_a_run_against_itself_changes_nothing(runs):
    before, _ = runs
    changes = changes_of(before, before)
    assert {change.verdict for change in changes} == {Verdict.SAME}
    assert compare_page(before, before).answer == (
        "Nothing changed: all 4 cells are the same; after / before is 1.000 to 1.000.",
    )


def test_what_else_changed_is_listed(runs):
    before, after = runs
    fingerprint = {"identity": {"python": "3.12", "gpus": []}, "context": {"boot_id": None}}
    after = replace(after, manifest=replace(after.manifest, fingerprint=fingerprint))
    html = page_html(compare_page(before, after))
    assert "identity.python" in html
    assert "3.12" in html


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"loads": (1, 8)}, "loads.concurrency"),
        ({"workload": "code"}, "workloads.code.input_tok"),
        ({"per_slot": 7}, "measure.requests_per_slot"),
        ({"simulated": True}, "simulated"),
    ],
)
def test_other_work_is_refused_with_the_keys_that_differ(runs, tmp_path, changes, key):
    other = stored_run(tmp_path, **changes)
    with pytest.raises(InputError, match=key):
        compare_page(runs[0], other)


def test_more_pairs_are_no_other_work(runs, tmp_path):
    assert changes_of(runs[0], stored_run(tmp_path, pairs=3))


def test_a_run_without_cells_is_told(runs, tmp_path):
    nothing = stored_run(tmp_path, measured=lambda *_: False)
    page = compare_page(runs[0], nothing)
    assert "the second run did not measure it" in page.answer[0]
