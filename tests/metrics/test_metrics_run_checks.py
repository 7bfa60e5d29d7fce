import dataclasses

import pytest
from metrics_cells import (
    closed,
    healthy_samples,
    make_cell,
    make_effective,
    make_workload,
    run_summarize,
)

from bench.metrics.run_checks import (
    Output,
    common_chars,
    cycles_too_short,
    run_findings,
    sign_test_p_value,
)
from bench.model import FindingKind, Load, Sampling, Severity

K = FindingKind


def arm_cell(arm, pair=0, *, samples=None, **cell_changes):
    """(cell, measurement, samples) of one arm in one launch."""
    cell = make_cell(arm=arm, pair=pair, **cell_changes)
    own = healthy_samples(speculative=arm != "baseline") if samples is None else samples
    measurement, _ = run_summarize(speculative=arm != "baseline", cell=cell, samples=own)
    return cell, dataclasses.replace(measurement, launch_id=f"{arm}-{pair}"), own


def findings_of(*cells, effective=None, pairs_planned=3, **more):
    by_id = {cell.cell_id: samples for cell, _, samples in cells}
    return run_findings(
        [(cell, m) for cell, m, _ in cells],
        by_id.__getitem__,
        effective or {},
        pairs_planned=pairs_planned,
        **more,
    )


def with_texts(parting_blocks):
    """Healthy samples whose texts part after so many blocks, by index; None: the same text."""
    return [parted(s, parting_blocks(s.index)) for s in healthy_samples()]


def parted(sample, shared):
    if shared is None:
        return sample
    rest = len(sample.text_block_hashes) - shared
    return dataclasses.replace(
        sample,
        text_block_hashes=(*sample.text_block_hashes[:shared], *[-1] * rest),
        text_sha256=f"other{sample.index}",
    )


def test_the_same_work_and_the_same_texts_have_no_finding():
    assert (
        findings_of(
            arm_cell("baseline"),
            arm_cell("baseline", 1),
            arm_cell("eagle3"),
            arm_cell("eagle3", 1),
        )
        == ()
    )


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            lambda s: [*s[:5], dataclasses.replace(s[5], prompt_sha256="x"), *s[6:]],
            "in 1 of 20 requests",
        ),
        (lambda s: [dataclasses.replace(r, seed=r.seed + 1) for r in s], "in 20 of 20 requests"),
        (lambda s: s[:-1], "19 requests instead of 20"),
    ],
)
def test_other_work_is_invalid(change, words):
    other = arm_cell("eagle3", samples=change(healthy_samples(speculative=True)))
    (found,) = findings_of(arm_cell("baseline"), other)
    assert (found.kind, found.severity) == (K.WORK_NOT_THE_SAME, Severity.INVALID)
    assert (found.cell_id, found.arm) == (other[0].cell_id, "eagle3")
    assert words in found.message


def test_order_of_samples_and_other_warmup_are_no_other_work():
    samples = healthy_samples(speculative=True)[::-1]
    samples = [
        dataclasses.replace(s, prompt_sha256="w") if s.phase == "warmup" else s for s in samples
    ]
    assert findings_of(arm_cell("baseline"), arm_cell("eagle3", samples=samples)) == ()


def test_a_capacity_search_may_do_other_work():
    load = Load(kind="capacity")
    other = arm_cell("eagle3", samples=healthy_samples(speculative=True)[:-1], load=load)
    assert findings_of(arm_cell("baseline", load=load), other) == ()


def test_other_loads_are_other_work():
    assert (
        findings_of(
            arm_cell("baseline"),
            arm_cell("eagle3", load=closed(4), samples=healthy_samples()[:-2]),
        )
        == ()
    )


def test_with_one_baseline_launch_divergence_is_a_note():
    half = arm_cell("eagle3", samples=with_texts(lambda i: 2 if i % 2 else None))
    (found,) = findings_of(arm_cell("baseline"), half)
    assert (found.kind, found.severity) == (K.OUTPUT_DIVERGES, Severity.NOTE)
    assert "50% of greedy answers" in found.message
    assert "before character 192" in found.message


def test_parting_earlier_than_the_baseline_from_itself_is_suspect():
    baseline, again = (
        arm_cell("baseline"),
        arm_cell("baseline", 1, samples=with_texts(lambda _: 7)),
    )
    early = arm_cell("eagle3", samples=with_texts(lambda _: 1))
    (found,) = findings_of(baseline, again, early)
    assert (found.kind, found.severity) == (K.OUTPUT_DIVERGES, Severity.SUSPECT)
    assert "20 of 20" in found.message


@pytest.mark.parametrize("parting", [lambda _: 7, lambda _: 9, lambda i: 1 if i % 2 else None])
def test_parting_as_the_baseline_does_from_itself_is_fine(parting):
    baseline, again = (
        arm_cell("baseline"),
        arm_cell("baseline", 1, samples=with_texts(lambda _: 7)),
    )
    arm = arm_cell("eagle3", samples=with_texts(parting))
    assert findings_of(baseline, again, arm) == ()


def test_sampled_texts_may_differ():
    workload = make_workload(sampling=Sampling(temperature=0.7))
    arm = arm_cell("eagle3", samples=with_texts(lambda _: 0), workload=workload)
    assert findings_of(arm_cell("baseline", workload=workload), arm) == ()


def test_the_sign_test_is_the_binomial_tail():
    assert sign_test_p_value(0, 5) == 1
    assert sign_test_p_value(0, 0) == 1
    assert sign_test_p_value(7, 0) == pytest.approx(2**-7)
    assert sign_test_p_value(6, 1) == pytest.approx(8 / 128)


def test_common_beginnings_are_counted_in_blocks():
    a = Output(text_sha256="a", block_hashes=(1, 2, 3))
    assert common_chars(a, Output(text_sha256="b", block_hashes=(1, 2, 9))) == 128
    assert common_chars(a, Output(text_sha256="b", block_hashes=(1, 2, 3, 4))) == 192
    assert common_chars(a, Output(text_sha256="b", block_hashes=())) == 0
    assert common_chars(a, Output(text_sha256="a", block_hashes=(1, 2, 3))) == float("inf")


KV = "the KV cache's tokens (--max-total-tokens)"


def test_configuration_that_differs_beside_speculation_is_noted():
    effective = {
        "baseline-0": make_effective(),
        "eagle3-0": make_effective(speculative=True, max_total_num_tokens=90_000),
    }
    (found,) = findings_of(arm_cell("baseline"), arm_cell("eagle3"), effective=effective)
    assert (found.kind, found.severity, found.arm) == (
        K.CONFIG_DIFFERS_BESIDE_SPECULATION,
        Severity.NOTE,
        "eagle3",
    )
    assert found.message == f"{KV}: 100000 in the baseline, 90000 in eagle3."


def test_a_difference_is_called_by_sglangs_argument():
    effective = {
        "baseline-0": make_effective(other=(("chunked_prefill_size", "8192"),)),
        "eagle3-0": make_effective(
            speculative=True, other=(("chunked_prefill_size", "4096"), ("of_its_own", "1"))
        ),
    }
    (found,) = findings_of(arm_cell("baseline"), arm_cell("eagle3"), effective=effective)
    assert found.message == (
        "--chunked-prefill-size: 8192 in the baseline, 4096 in eagle3; "
        "of_its_own: unset in the baseline, 1 in eagle3."
    )


def test_a_value_that_only_follows_from_another_is_not_told_beside_it():
    derived = (("attention_backend", "fa3"), ("max_req_input_len", "89994"))
    effective = {
        "baseline-0": make_effective(other=(derived[0], ("max_req_input_len", "99994"))),
        "eagle3-0": make_effective(speculative=True, other=derived, max_total_num_tokens=90_000),
    }
    (found,) = findings_of(arm_cell("baseline"), arm_cell("eagle3"), effective=effective)
    assert found.message == f"{KV}: 100000 in the baseline, 90000 in eagle3."
    effective["baseline-0"] = make_effective(
        other=effective["baseline-0"].other, max_total_num_tokens=90_000
    )
    (found,) = findings_of(arm_cell("baseline"), arm_cell("eagle3"), effective=effective)
    assert found.message == (
        "the longest input (--context-length): 99994 in the baseline, 89994 in eagle3."
    )


@pytest.mark.parametrize(("limit", "severity"), [("1", Severity.SUSPECT), ("48", Severity.NOTE)])
def test_a_running_limit_below_the_largest_load_is_suspect(limit, severity):
    other = (("attention_backend", "fa3"), ("max_running_requests", limit))
    effective = {
        "baseline-0": make_effective(),
        "eagle3-0": make_effective(speculative=True, other=other),
    }
    (found,) = findings_of(arm_cell("baseline"), arm_cell("eagle3"), effective=effective)
    assert found.severity is severity


def test_no_repeats_and_simulation_speed_are_said_once():
    cells = (arm_cell("baseline"), arm_cell("eagle3"))
    found = findings_of(*cells, pairs_planned=1, simulated=True, speed=6)
    assert [(f.kind, f.severity) for f in found] == [
        (K.SIMULATION_SPEED, Severity.NOTE),
        (K.NO_REPEATS, Severity.NOTE),
    ]
    assert findings_of(*cells, pairs_planned=2, simulated=True, speed=1) == ()
    assert findings_of(arm_cell("baseline"), pairs_planned=1) == ()


@pytest.mark.parametrize(("step_ms", "expected"), [(1.0, 0), (1000.0, 1)])
def test_a_break_even_below_one_is_suspect(step_ms, expected):
    cells = []
    for arm in ("baseline", "eagle3"):
        speculative = arm != "baseline"
        asked = make_cell(arm=arm)
        measurement, _ = run_summarize(
            speculative=speculative, cell=asked, samples=healthy_samples(speculative=speculative)
        )
        cells.append((asked, measurement))
    cells[0] = (cells[0][0], dataclasses.replace(cells[0][1], cycle_ms=step_ms))
    found = list(cycles_too_short(cells))
    assert [(f.kind, f.severity, f.cell_id) for f in found] == [
        (FindingKind.CYCLE_DISAGREES, Severity.SUSPECT, cells[1][0].cell_id)
    ] * expected
