"""Fitting overheads: what was put in comes out."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.errors import InputError
from bench.physics import Speculation, decode_step, load_hardware, load_target, prefill_time
from bench.physics.fitting import MeasuredStep, fit_overheads, minimise

H200 = load_hardware("h200-x8")
LLAMA = load_target("llama-3.3-70b")
CHAIN = Speculation(num_steps=3, topk=1, num_draft_tokens=4)


def measured(card, speculation, batches=(1, 4, 16), factor=1.0):
    return [
        MeasuredStep(
            label="any",
            batch=batch,
            context_tok_mean=1000,
            speculation=speculation,
            step_ms=factor
            * decode_step(
                H200, card, batch=batch, context_tok_mean=1000, speculation=speculation
            ).total_ms,
        )
        for batch in batches
    ]


@settings(deadline=None, max_examples=25)
@given(st.floats(0.1, 10), st.floats(0, 5))
def test_known_constants_are_found_again(fixed, cycle):
    true = replace(LLAMA, fixed_ms=fixed, cycle_fixed_ms=cycle)
    fit = fit_overheads(H200, LLAMA, [*measured(true, None), *measured(true, CHAIN)])
    assert fit.target.fixed_ms == pytest.approx(fixed, abs=0.01)
    assert fit.target.cycle_fixed_ms == pytest.approx(cycle, abs=0.01)
    assert max(map(abs, fit.errors)) < 0.005
    assert len(fit.errors) == 6


def test_one_kind_of_step_tells_one_constant():
    true = replace(LLAMA, fixed_ms=2.0, cycle_fixed_ms=1.0)
    plain = fit_overheads(H200, LLAMA, measured(true, None)).target
    assert (plain.fixed_ms, plain.cycle_fixed_ms) == (pytest.approx(2.0, abs=0.01), None)
    drafting = fit_overheads(H200, LLAMA, measured(true, CHAIN)).target
    assert drafting.fixed_ms == pytest.approx(3.0, abs=0.01)
    assert drafting.cycle_fixed_ms is None


def test_no_steps_and_impossible_steps_are_refused():
    with pytest.raises(InputError, match="no measured step"):
        fit_overheads(H200, LLAMA, [])
    with pytest.raises(InputError, match="faster than"):
        fit_overheads(H200, LLAMA, measured(LLAMA, None, factor=0.3))


def test_steps_that_no_constants_meet_are_refused_with_their_cells():
    with pytest.raises(InputError, match=r"fixed_ms would have to be above 30 ms.*any"):
        fit_overheads(H200, LLAMA, measured(LLAMA, None, factor=50))
    spoiled = [
        replace(step, label="spoiled", step_ms=9 * step.step_ms) for step in measured(LLAMA, None)
    ]
    with pytest.raises(InputError, match=r"more than 25% off: .*spoiled"):
        fit_overheads(H200, LLAMA, [*measured(LLAMA, None), *spoiled])
    one = fit_overheads(H200, LLAMA, [*measured(LLAMA, None) * 3, replace(spoiled[0], step_ms=20)])
    assert one.far == (9,)


def test_the_least_is_found_at_a_border_too():
    assert minimise(lambda a, b: (a - 3) ** 2 + (b + 1) ** 2) == (pytest.approx(3, abs=1e-3), 0)


def test_prefills_of_the_others_are_no_overhead():
    true = replace(LLAMA, fixed_ms=2.0)
    prefill = prefill_time(H200, true, chunks=[(500, 100)]).total_ms
    steps = [
        replace(
            step,
            step_ms=step.step_ms + (step.batch - 1) * prefill / 64,
            prompt_tok=500,
            cached_tok=100,
            steps_per_request=64,
        )
        for step in measured(true, None)
    ]
    assert fit_overheads(H200, LLAMA, steps).target.fixed_ms == pytest.approx(2.0, abs=0.01)
