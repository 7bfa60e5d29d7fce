"""How series stand: standing and made up for, expected, silent, and why."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from nightly_examples import FACTS, Event, history, key, night, points

from bench.clock import utc_now
from bench.metrics.change_words import change_line, headline, warnings
from bench.model.nightly import Ack, Cause, ChangeKind, NightFailure, SeriesState
from bench.nightly.attribute import NONE_RECORDED, fits
from bench.nightly.judge import Watch, judge, one_a_night


def verdict(events, *, nights=60, acks=(), failures=(), watch=None, **more):
    held = history(*points(events, nights=nights, **more), acks=acks, failures=failures)
    return judge(held, watch or Watch(suite="kimi"), judged_at=utc_now())


def series(judged, **where):
    [found] = [j for j in judged.series if j.key == key(**where)]
    return found


def test_a_quiet_history_is_steady():
    judged = verdict(())
    assert {j.state for j in judged.series} == {SeriesState.STEADY}
    assert judged.regressions == ()
    assert headline(judged).startswith("no regression")


def test_a_few_nights_are_not_enough_and_say_how_many_more():
    judged = verdict((), nights=5)
    assert {(j.state, j.nights_wanted) for j in judged.series} == {(SeriesState.NOT_ENOUGH, 3)}


def test_a_loss_that_was_made_up_for_does_not_stand():
    events = (Event(night=20, step=0.06), Event(night=40, step=-0.06))
    found = series(verdict(events))
    assert [(c.worse, c.standing) for c in found.changes] == [(True, False), (False, True)]
    assert found.state is not SeriesState.REGRESSION


def test_a_rise_of_the_cycle_is_for_the_worse_and_of_speed_is_not():
    judged = verdict((Event(night=30, step=-0.06),))
    assert series(judged).state is not SeriesState.REGRESSION
    assert not series(judged).changes[0].worse
    assert not series(judged, metric="cycle_ms").changes[0].worse
    judged = verdict((Event(night=30, step=0.06),))
    assert series(judged, metric="cycle_ms").state is SeriesState.REGRESSION


def test_an_expected_change_sounds_no_alarm_and_a_further_one_does():
    ack = Ack(key=key(), night=night(31), reason="known", by="ann", at=utc_now())
    one = (Event(night=30, accept=-0.06),)
    found = series(verdict(one, acks=[ack], nights=40))
    assert found.changes[0].ack == ack
    assert found.state is SeriesState.CHANGED_AS_EXPECTED
    two = (*one, Event(night=45, accept=-0.06))
    judged = verdict(two, acks=[ack])
    assert [c.night for c in judged.regressions if c.key == key()] == [night(45)]


def test_an_ack_of_another_series_or_night_expects_nothing():
    acks = [
        Ack(key=key(metric="speedup"), night=night(30), reason="r", by="b", at=utc_now()),
        Ack(key=key(), night=night(20), reason="r", by="b", at=utc_now()),
    ]
    assert series(verdict((Event(night=30, accept=-0.06),), acks=acks)).changes[0].ack is None


def test_changes_within_the_margin_are_none_but_add_up():
    watch = Watch(suite="kimi", margins={"output_tok_per_s": 0.05})
    small = (Event(night=30, step=0.03),)
    assert series(verdict(small, watch=watch)).changes == ()
    steps = (Event(night=30, step=0.03), Event(night=60, step=0.03))
    found = series(verdict(steps, nights=90, watch=watch))
    assert [abs((c.night - night(60)).days) <= 1 for c in found.changes] == [True]


def again(point, hours, **more):
    source_id = f"{point.source_id}-{hours}"
    return replace(point, at=point.at + timedelta(hours=hours), source_id=source_id, **more)


def test_several_runs_of_one_night_are_one_point_of_it():
    rows, _ = points((), nights=1)
    first = replace(rows[0], value=100.0)
    [merged] = one_a_night([first, again(first, 1, value=400.0, suspect=True)])
    assert merged.value == pytest.approx(200.0)
    assert merged.suspect
    later = again(first, 2, value=300.0, fingerprint="another")
    [last] = one_a_night([first, later])
    assert last == later


def test_a_slow_night_that_is_measured_thrice_makes_no_change():
    rows, environments = points((), nights=40, odd=(39,))
    rows += [again(p, hours) for p in rows if p.night == night(39) for hours in (1, 2)]
    judged = judge(history(rows, environments), Watch(suite="kimi"), judged_at=utc_now())
    found = series(judged, arm="baseline")
    assert len(found.points) == 40
    assert (found.state, found.changes) == (SeriesState.INCIDENT, ())


def test_a_change_in_suspect_nights_says_so():
    rows, environments = points((Event(night=30, accept=-0.06),), nights=36)
    rows = [replace(p, suspect=p.night >= night(32)) for p in rows]
    judged = judge(history(rows, environments), Watch(suite="kimi"), judged_at=utc_now())
    [change] = series(judged).changes
    assert (change.nights, change.suspect_nights) == (6, 4)
    assert "(4 of 6 nights SUSPECT)" in change_line(change)


def test_other_hardware_is_another_series():
    rows, environments = points((), nights=40)
    moved = [replace(p, key=replace(p.key, hardware="8x B200"), value=p.value * 2) for p in rows]
    held = history([*rows, *moved[-60:]], environments)
    judged = judge(held, Watch(suite="kimi"), judged_at=utc_now())
    assert judged.regressions == ()
    assert len(series(judged).points) == 40
    assert len(series(judged, hardware="8x B200").points) == 10


def test_a_night_later_than_today_says_that_a_clock_is_wrong():
    rows, environments = points((), nights=10)
    held = history(rows, environments)
    for days, told in ((0, False), (-2, True)):
        at = datetime.combine(night(9), datetime.min.time(), tzinfo=UTC) + timedelta(days=days)
        judged = judge(held, Watch(suite="kimi"), judged_at=at)
        assert any("clock" in line for line in warnings(judged)) is told
    simulated = history(*points((), nights=10, simulated=True))
    judged = judge(simulated, Watch(suite="kimi"), judged_at=at)
    assert warnings(judged) == []


def test_a_slide_that_goes_on_is_a_drift():
    events = tuple(Event(night=30 + day, step=0.003) for day in range(40))
    found = series(verdict(events, nights=70))
    assert found.state is SeriesState.DRIFT
    [change] = found.changes
    assert (change.kind, change.last_index) == (ChangeKind.DRIFT, None)
    assert change.attribution.cause is Cause.ENVIRONMENT
    assert change.attribution.confidence == NONE_RECORDED


def test_a_series_without_the_newest_night_is_silent():
    rows, environments = points((), nights=40)
    kept = [p for p in rows if p.key.arm == "baseline" or p.night < night(39)]
    judged = judge(history(kept, environments), Watch(suite="kimi"), judged_at=utc_now())
    assert series(judged).state is SeriesState.SILENT
    assert series(judged, arm="baseline").state is SeriesState.STEADY


def test_the_last_night_far_off_is_an_incident_until_the_next_tells():
    assert series(verdict((), nights=40, odd=(39,))).state is SeriesState.INCIDENT


def test_what_neither_acceptance_nor_cycle_explains_is_outside_decoding():
    [change] = series(verdict((Event(night=30, residual=-0.05),))).changes
    assert change.attribution.cause is Cause.OUTSIDE_DECODING
    assert change.attribution.residual.ln_change == pytest.approx(-0.05, abs=0.01)


def test_other_work_is_the_workload_whatever_moved():
    events = (Event(night=30, accept=-0.06, facts={"work: asked of chat, load 8": "k2"}),)
    [change] = series(verdict(events)).changes
    assert change.attribution.cause is Cause.WORKLOAD
    assert [f.name for f in change.attribution.fields if f.fits] == ["work: asked of chat, load 8"]


def test_a_driver_and_a_draft_in_one_night_are_several():
    events = (Event(night=30, accept=-0.06, step=0.06, facts={"gpus.driver": "9"}),)
    [change] = series(verdict(events)).changes
    assert change.attribution.cause is Cause.SEVERAL


def test_a_fact_that_cannot_do_it_is_told_and_does_not_count():
    events = (Event(night=30, accept=-0.06, facts={"gpus.driver": "9", "draft.weights": "x"}),)
    [change] = series(verdict(events)).changes
    why = change.attribution
    assert [(f.name, f.fits) for f in why.fields] == [
        ("draft.weights", True),
        ("gpus.driver", False),
    ]
    assert why.confidence == "sole change"


def test_factors_add_up_to_the_change_of_speed():
    events = (Event(night=30, accept=-0.04, cycle=0.03),)
    [change] = series(verdict(events)).changes
    why = change.attribution
    parts = why.accept_len.ln_change - why.cycle.ln_change + why.residual.ln_change
    assert parts == pytest.approx(change.ln_change, abs=0.005)


def test_facts_fit_what_they_can_do():
    assert fits(Cause.ACCEPTANCE, "eagle3", "eagle3: speculative.num_steps")
    assert not fits(Cause.ACCEPTANCE, "eagle3", "other: speculative.num_steps")
    assert not fits(Cause.SPECULATION, "eagle3", "baseline: page_size")
    assert all(fits(Cause.UNCLEAR, "eagle3", name) for name in FACTS)


def test_a_change_is_told_in_one_line():
    [change] = series(
        verdict((Event(night=30, accept=-0.06, facts={"draft.weights": "x"}),))
    ).changes
    line = change_line(change)
    assert line.startswith("kimi chat load 8 eagle3: output tok/s changed by -5.")
    assert "draft.weights aaaa → x (sole change)" in line


def test_failures_of_other_scenarios_are_not_this_suites():
    failures = [
        NightFailure(night=night(1), scenario=name, reason="r") for name in ("kimi", "x", None)
    ]
    watch = Watch(suite="kimi", scenarios=("kimi",))
    judged = verdict((), failures=failures, watch=watch)
    assert [f.scenario for f in judged.failures] == ["kimi", None]
