"""The simulated times beside published ones; the bandwidth limit above all of them."""

from dataclasses import replace
from statistics import median

import pytest

from bench.physics import limit_tok_per_s, load_hardware, load_target
from benchmarks.published import DATA, read_csv, read_rows
from benchmarks.simulator import MEDIAN_LIMIT, WORST_LIMIT, limit_share, simulate

ROWS = read_rows()
H100, H200, RTX = (load_hardware(name) for name in ("h100-x2", "h200-x8", "rtx-pro-6000-x8"))
GPUS = {
    "H100": H100,
    "H200": H200,
    "RTX PRO 6000": RTX,
    "H20": replace(H100, name="h20", gpus=1, bandwidth_gb_per_s=4000),
}


@pytest.mark.parametrize("target", sorted({row.target for row in ROWS}))
def test_published_speedups_are_met_by_rows_that_were_not_fitted_to(target):
    fitted, outcomes = simulate([row for row in ROWS if row.target == target])
    judged = [abs(outcome.error()) for outcome in outcomes if not outcome.fitted_to]
    assert len(judged) == len(outcomes) // 2
    assert median(judged) <= MEDIAN_LIMIT
    assert max(judged) <= WORST_LIMIT
    card = load_target(target)
    if card.fixed_ms is not None:  # the card ships what the fit finds
        assert card.fixed_ms == pytest.approx(fitted.fixed_ms, abs=0.02)
        assert card.cycle_fixed_ms == pytest.approx(fitted.cycle_fixed_ms, abs=0.02)


def test_every_row_of_the_tables_is_read():
    assert {(row.table, row.target) for row in ROWS} == {
        ("eagle3_sglang_h100_batch", "llama-3.1-8b"),
        ("sglang_eagle3_num_steps_llama31_8b", "llama-3.1-8b"),
        ("specbundle", "llama-3.1-8b"),
        ("specbundle", "qwen3-30b-a3b"),
    }
    assert len(ROWS) == 18 + 5 + 105


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.table} {row.label}")
def test_no_row_is_faster_than_the_limit(row):
    share = limit_share(row)
    assert share is None or share < 1


@pytest.mark.parametrize("line", read_csv(DATA / "speeds.csv"), ids=lambda line: line["source"])
def test_no_other_published_figure_is_faster_than_the_limit(line):
    limit = limit_tok_per_s(
        GPUS[line["gpu"]],
        load_target(line["target"]),
        batch=int(line["batch"]),
        tokens_per_request=int(line["num_draft_tokens"]),
        accept_len_tok=float(line["accept_len"]),
        tp=int(line["tp"]),
    )
    assert float(line["tok_per_s"]) < limit
