"""Half a year with everything that happens in one: each change is found and its cause named."""

import pytest
from nightly_examples import (
    COOL,
    DEFAULT,
    DRAFT,
    DRIVER,
    HOT,
    NCCL,
    ODD,
    judged_half_year,
    key,
    night,
)

from bench.model.nightly import Cause, SeriesState


@pytest.fixture(scope="module", params=range(5))
def verdict(request):
    return judged_half_year(seed=request.param)


def changes(verdict, **where):
    [judged] = [j for j in verdict.series if j.key == key(**where)]
    return {c.night: c for c in judged.changes}


def near(found, number):
    """The change of a night, a night earlier or later."""
    hits = [c for day, c in found.items() if abs((day - night(number)).days) <= 1]
    assert len(hits) == 1, (night(number), sorted(found))
    return hits[0]


def likely(change):
    return [f.name for f in change.attribution.fields if f.fits]


def test_nothing_else_is_found(verdict):
    assert len(changes(verdict)) == 6
    assert len(changes(verdict, arm="baseline")) == 4
    assert len(changes(verdict, metric="accept_len_tok")) == 1


def test_a_driver_that_moves_the_baseline_too_is_the_environment(verdict):
    change = near(changes(verdict), DRIVER)
    why = change.attribution
    assert change.ln_change == pytest.approx(-0.04, abs=0.01)
    assert (why.cause, why.confidence) == (Cause.ENVIRONMENT, "sole change")
    assert likely(change) == ["gpus.driver"]
    assert why.baseline.moved
    assert not why.accept_len.moved
    assert not why.residual.moved


def test_a_draft_that_was_swapped_is_acceptance(verdict):
    change = near(changes(verdict), DRAFT)
    why = change.attribution
    assert (why.cause, why.confidence) == (Cause.ACCEPTANCE, "sole change")
    assert likely(change) == ["draft.weights"]
    assert why.accept_len.ln_change == pytest.approx(-0.06, abs=0.01)
    assert not why.cycle.moved
    assert not why.baseline.moved


def test_nccl_that_moves_the_cycle_alone_is_speculation(verdict):
    change = near(changes(verdict), NCCL)
    why = change.attribution
    assert (why.cause, why.confidence) == (Cause.SPECULATION, "sole change")
    assert likely(change) == ["packages.nvidia-nccl-cu12"]
    assert why.cycle.ln_change == pytest.approx(0.05, abs=0.01)
    assert not why.baseline.moved


def test_a_new_version_and_the_default_it_changed_are_one_of_two(verdict):
    for arm in ("baseline", "eagle3"):
        change = near(changes(verdict, arm=arm), DEFAULT)
        assert change.attribution.cause is Cause.ENVIRONMENT
        assert change.attribution.confidence == "one of 2"
        assert set(likely(change)) == {"server: version", "server: attention_backend"}


def test_a_hot_fortnight_has_no_recorded_cause_and_is_made_up_for(verdict):
    for number in (HOT, COOL):
        change = near(changes(verdict), number)
        assert change.attribution.cause is Cause.ENVIRONMENT
        assert change.attribution.confidence == "none recorded: suspect hardware or heat"
    assert not near(changes(verdict), HOT).standing
    assert near(changes(verdict), DRIVER).standing


def test_the_odd_night_is_an_incident_and_missing_nights_are_none(verdict):
    [judged] = [j for j in verdict.series if j.key == key(arm="baseline")]
    assert [(i.night, i.nights, i.ended) for i in judged.incidents] == [(night(ODD), 1, True)]
    assert judged.incidents[0].ln_change == pytest.approx(-0.15, abs=0.03)


def test_what_stands_is_told_the_last_first(verdict):
    told = [c for c in verdict.regressions if c.key == key()]
    assert [c.attribution.cause for c in told] == [
        Cause.ENVIRONMENT,
        Cause.SPECULATION,
        Cause.ACCEPTANCE,
        Cause.ENVIRONMENT,
    ]
    [judged] = [j for j in verdict.series if j.key == key()]
    assert judged.state is SeriesState.REGRESSION
