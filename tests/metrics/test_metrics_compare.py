import dataclasses
import math

import pytest
from metrics_cells import closed, make_cell, make_effective, run_summarize

from bench.metrics import checks
from bench.metrics.compare import compare
from bench.model import (
    CellStatus,
    Distribution,
    FindingKind,
    Load,
    Severity,
    Verdict,
)

HEALTHY = {spec: run_summarize(speculative=spec)[0] for spec in (False, True)}


def measured(arm, pair, value, *, load=None, launch=None, tag="", **changes):
    cell = make_cell(arm=arm, pair=pair, load=load)
    cell = dataclasses.replace(cell, cell_id=cell.cell_id + tag)
    measurement = dataclasses.replace(
        HEALTHY[arm != "baseline"],
        cell_id=cell.cell_id,
        launch_id=launch or f"{arm}-{pair}",
        arm=arm,
        pair=pair,
        load=cell.load.label,
        output_tok_per_s=value,
        **changes,
    )
    return cell, measurement


def cells_of(baseline, arm, **changes):
    return [
        *(measured("baseline", i, v, **changes) for i, v in enumerate(baseline)),
        *(measured("eagle3", i, v, **changes) for i, v in enumerate(arm)),
    ]


def compare_one(cells, *, margin=0.02, pairs_planned=3, effective=None, **more):
    (found,) = compare(cells, effective or {}, margin=margin, pairs_planned=pairs_planned, **more)
    return found


def test_pairs_are_compared_within_themselves():
    # Launches drift by a factor of two; within each pair the arm is 10 % faster.
    found = compare_one(cells_of([100, 150, 200], [110, 165, 220]))
    assert found.speedup == pytest.approx(1.1)
    assert (found.ci95_low, found.ci95_high) == pytest.approx((1.1, 1.1))
    assert (found.pairs, found.degrees_of_freedom, found.verdict) == (3, 2, Verdict.FASTER)
    assert (found.baseline_value, found.arm_value) == pytest.approx((150, 165))
    assert (found.reason, found.metric, found.status) == (
        None,
        "output_tok_per_s",
        CellStatus.VALID,
    )


def test_the_speedup_is_the_geometric_mean():
    found = compare_one(cells_of([100, 100], [100, 400]))
    assert found.speedup == pytest.approx(2)
    assert found.verdict is Verdict.UNDECIDED
    assert found.more_pairs_needed > 0


def test_order_of_cells_changes_nothing():
    cells = cells_of([100, 103, 99], [120, 118, 131])
    assert compare_one(cells[::-1]) == compare_one(cells)


def test_one_pair_has_a_speedup_and_no_verdict():
    found = compare_one(cells_of([100], [150]))
    assert found.speedup == 1.5
    assert (found.ci95_low, found.verdict, found.degrees_of_freedom) == (None, None, None)
    assert "one pair of launches of 3 planned" in found.reason


def test_blocks_of_one_pair_are_averaged_and_are_no_replicates():
    cells = [
        measured("baseline", 0, 90, tag="a"),
        measured("baseline", 0, 110, tag="b"),
        measured("eagle3", 0, 130, tag="a"),
        measured("eagle3", 0, 170, tag="b"),
    ]
    found = compare_one(cells)
    assert (found.speedup, found.pairs, found.verdict) == (1.5, 1, None)
    assert (found.baseline_value, found.arm_value) == (100, 150)


def test_invalid_cells_never_enter():
    cells = cells_of([100, 100], [150, 150])
    cells.append(measured("baseline", 2, 1.0, status=CellStatus.INVALID))
    cells.append(measured("eagle3", 2, 900.0))
    found = compare_one(cells)
    assert (found.speedup, found.pairs, found.status) == (pytest.approx(1.5), 2, CellStatus.VALID)


def test_why_nothing_could_be_compared_is_said():
    bad = measured("baseline", 0, 100.0, status=CellStatus.INVALID)
    cells = [bad, measured("eagle3", 0, 150.0), measured("eagle3", 1, 150.0)]
    findings = [
        checks.make_finding(FindingKind.ERROR_RATE, Severity.INVALID, "x", cell_id=bad[0].cell_id),
        checks.make_finding(FindingKind.SIMULATED, Severity.NOTE, "x", cell_id=bad[0].cell_id),
    ]
    found = compare_one(cells, findings=findings)
    assert (found.speedup, found.verdict, found.pairs) == (None, None, 0)
    assert found.status is CellStatus.INVALID
    assert "pair 0: baseline cell is INVALID (error_rate)" in found.reason
    assert "pair 1: baseline cell was not measured" in found.reason


def test_a_value_that_was_not_measured_is_no_zero():
    found = compare_one(cells_of([None, 100], [150, 150]))
    assert (found.pairs, found.speedup) == (1, 1.5)
    assert "has no output_tok_per_s" in found.reason


def test_suspect_cells_mark_the_comparison():
    cells = cells_of([100, 100], [150, 150])
    cells[2] = measured("eagle3", 0, 150.0, status=CellStatus.SUSPECT)
    assert compare_one(cells).status is CellStatus.SUSPECT


def test_loads_and_workloads_are_kept_apart():
    cells = [*cells_of([100], [150]), *cells_of([100], [50], load=closed(8))]
    found = compare(cells, {}, margin=0.02, pairs_planned=1)
    assert [(c.load, c.speedup) for c in found] == [("2", 1.5), ("8", 0.5)]


def tpot(mean):
    return Distribution(mean=mean, p50=1, p90=1, p95=1, p99=1, n=5)


def test_open_loops_are_compared_by_the_inverse_of_mean_tpot():
    load = Load(kind="open", rate_per_s=4)
    cells = [
        measured("baseline", 0, 77.0, load=load, tpot_ms=tpot(20.0)),
        measured("eagle3", 0, 77.0, load=load, tpot_ms=tpot(10.0)),
    ]
    found = compare_one(cells)
    assert (found.speedup, found.metric) == (2, "inverse_mean_tpot")
    assert (found.baseline_value, found.arm_value) == (50, 100)


def test_capacity_is_compared_by_the_rates_found():
    cells = cells_of([1.0], [1.0], load=Load(kind="capacity"))
    assert compare_one(cells).speedup is None
    found = compare_one(
        [
            (cell, dataclasses.replace(m, capacity_rate_per_s=rate))
            for (cell, m), rate in zip(cells, (4.0, 5.0), strict=True)
        ]
    )
    assert (found.speedup, found.metric) == (1.25, "capacity_rate_per_s")


def test_break_even_is_cycle_over_baseline_step_pooled_by_steps():
    cells = [
        measured("baseline", 0, 100.0, cycle_ms=10.0, output_tok_sum=100),
        measured("baseline", 1, 100.0, cycle_ms=13.0, output_tok_sum=200),
        measured(
            "eagle3", 0, 150.0, cycle_ms=20.0, spec_verify_ct=300, spec_num_correct_drafts=300
        ),
        measured("eagle3", 1, 150.0, cycle_ms=28.0, spec_verify_ct=100, spec_num_correct_drafts=0),
    ]
    found = compare_one(cells)
    assert found.cycle_ms == pytest.approx(22)
    assert found.baseline_step_ms == pytest.approx(12)
    assert found.break_even_accept_len_tok == pytest.approx(22 / 12)
    assert found.accept_len_tok == pytest.approx(1.75)


def test_missing_acceptance_leaves_the_speedup_and_no_break_even():
    cells = cells_of([100, 100], [150, 150])
    cells[3] = measured("eagle3", 1, 150.0, spec_num_correct_drafts=None, cycle_ms=None)
    found = compare_one(cells)
    assert found.speedup == pytest.approx(1.5)
    assert (found.cycle_ms, found.break_even_accept_len_tok, found.accept_len_tok) == (None,) * 3


def test_configuration_differences_beside_speculation_are_listed():
    effective = {
        "baseline-0": make_effective(),
        "eagle3-0": make_effective(
            speculative=True,
            other=(
                ("attention_backend", "triton"),
                ("max_running_requests", "64"),
                ("random_seed", "99"),
                ("speculative_num_steps", "3"),
            ),
            max_total_num_tokens=90_000,
        ),
    }
    found = compare_one(cells_of([100], [150]), effective=effective)
    assert found.config_differences == (
        ("attention_backend", "fa3", "triton"),
        ("max_total_num_tokens", "100000", "90000"),
    )


def test_what_varies_between_launches_of_one_arm_is_no_difference_between_arms():
    sizes = {"baseline-0": 100, "baseline-1": 101, "eagle3-0": 101, "eagle3-1": 102}
    effective = {k: make_effective(max_total_num_tokens=v) for k, v in sizes.items()}
    found = compare_one(cells_of([100, 100], [150, 150]), effective=effective)
    assert found.config_differences == ()


def test_an_arm_without_a_baseline_says_so():
    found = compare_one([measured("eagle3", 0, 150.0)])
    assert found.speedup is None
    assert "baseline cell was not measured" in found.reason


def test_a_noisy_speedup_of_launches_is_undecided_and_says_how_many_more():
    found = compare_one(cells_of([100, 100, 100], [104, 97, 106]))
    assert found.verdict is Verdict.UNDECIDED
    half = (math.log(found.ci95_high) - math.log(found.ci95_low)) / 2
    assert half > 0.02
    assert 1 <= found.more_pairs_needed <= 100
