"""What figures show of requests is what the metrics say of them."""

from itertools import pairwise

import numpy as np
import pytest
from report_examples import stored_run

from bench.metrics.latency import chunk_gaps_ms, tpot_ms, ttft_ms
from bench.model import RequestStatus
from bench.store import load_samples
from reports.samples import QUANTILES, request_views
from reports.timeline import timeline_rows
from reports.view import Place, pooled


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return stored_run(tmp_path_factory.mktemp("samples"), failed_share=0.2, per_slot=10)


def ok_samples(run, arm, load):
    cells = {m.cell_id for m in run.measurements if (m.arm, m.load) == (arm, load)}
    return [
        s
        for s in load_samples(run.folder)
        if s.cell_id in cells and s.phase == "measure" and s.status is RequestStatus.OK
    ]


@pytest.mark.parametrize("arm", ["baseline", "eagle3"])
@pytest.mark.parametrize("load", ["1", "4"])
def test_latencies_are_those_of_the_metrics(run, arm, load):
    samples = ok_samples(run, arm, load)
    latencies = request_views(run).latencies[arm, Place(workload="chat", load=load)]
    assert latencies.requests == len(samples) > 0
    expected = {
        "ttft_ms": [ttft_ms(s) for s in samples],
        "tpot_ms": [tpot_ms(s) for s in samples],
        "chunk_gap_ms": [gap for s in samples for gap in chunk_gaps_ms(s)],
    }
    for name, values in expected.items():
        np.testing.assert_allclose(getattr(latencies, name), np.quantile(values, QUANTILES))


def test_tokens_an_event_are_a_ratio_of_sums_without_first_and_last_event(run):
    place = Place(workload="chat", load="4")
    along = request_views(run).along_output["eagle3", place]
    tokens = events = 0
    for s in ok_samples(run, "eagle3", "4"):
        running = s.event_tok
        for before, after in pairwise(running[:-1]):
            if after <= 32:
                tokens, events = tokens + after - before, events + 1
    assert along.tok[0] == 16
    assert along.tok_per_event[0] == pytest.approx(tokens / events)


def test_acceptance_over_time_adds_up_to_the_counters_of_the_measurements(run):
    acceptance = request_views(run).acceptance
    for launch_id, rows in acceptance.items():
        cells = [m for m in run.measurements if m.launch_id == launch_id]
        assert rows[:, 1].sum() == sum(m.spec_num_correct_drafts for m in cells)
        assert rows[:, 2].sum() == sum(m.spec_verify_ct for m in cells)


def test_the_timeline_adds_gpus_up_and_leaves_out_what_was_not_read(run, tmp_path):
    labels = {row.label.split(",")[0]: row for row in timeline_rows(run, {})}
    power = labels["power"].series[0].value
    assert power == pytest.approx(np.full(len(power), 801.0))
    assert "SM clock" not in labels
    without = stored_run(tmp_path, gpu=False)
    assert all("power" not in row.label for row in timeline_rows(without, {}))


def test_pooling_is_a_ratio_of_sums(run):
    for p in pooled(run):
        correct = sum(m.spec_num_correct_drafts or 0 for m in p.cells)
        verify = sum(m.spec_verify_ct or 0 for m in p.cells)
        if verify:
            assert p.accept_len_tok == pytest.approx(1 + correct / verify)
            assert p.accept_at_position[0] == pytest.approx(
                sum(p.histogram[1:]) / sum(p.histogram)
            )
        else:
            assert p.accept_len_tok is None
