"""Which running trials are stale: by the process table here, by their age elsewhere."""

import math
import os
import subprocess
import sys
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tuner.study.lease import (
    MISSED,
    SKEW_S,
    Condition,
    Here,
    Lease,
    as_attribute,
    here,
    judge,
    own_lease,
    read_attribute,
    renewed,
)

HERE = Here(host="a", boot_id="b1", pid_namespace="pid:[1]", started_ticks={7: 100, 8: None})
MINE = Lease(
    host="a", boot_id="b1", pid_namespace="pid:[1]", pid=7, started_ticks=100, renewed_at_s=1000.0
)
TIMES = st.floats(0, 2e9)
OTHERS = st.sampled_from(
    [
        {"host": "elsewhere"},
        {"boot_id": "b0"},
        {"pid_namespace": "pid:[2]"},
        {"boot_id": ""},
        {"host": "elsewhere", "pid": 9},
    ]
)


def condition(lease, now_s, where=HERE, **more):
    [judged] = judge({3: lease}, now_s, where, **more)
    assert judged.number == 3
    assert judged.why
    return judged.condition


@settings(deadline=None, max_examples=100)
@given(now_s=TIMES, renewed_at_s=TIMES)
def test_here_the_process_table_decides_whatever_the_clock_says(now_s, renewed_at_s):
    lease = replace(MINE, renewed_at_s=renewed_at_s)
    assert condition(lease, now_s) is Condition.LIVING
    assert condition(replace(lease, pid=9), now_s) is Condition.STALE
    assert condition(replace(lease, started_ticks=99), now_s) is Condition.STALE
    assert condition(replace(lease, pid=8, started_ticks=99), now_s) is Condition.LIVING


@settings(deadline=None, max_examples=100)
@given(
    other=OTHERS,
    interval_s=st.floats(1, 600),
    share=st.floats(0, 0.999),
    skew=st.floats(-1, 0.999),
)
def test_elsewhere_a_lease_that_is_renewed_in_time_lives_whatever_the_clocks(
    other, interval_s, share, skew
):
    lease = replace(MINE, interval_s=interval_s, **other)
    now_s = lease.renewed_at_s + share * MISSED * interval_s + skew * SKEW_S
    assert condition(lease, now_s) is Condition.LIVING


@settings(deadline=None, max_examples=100)
@given(other=OTHERS, interval_s=st.floats(1, 600), late_s=st.floats(1, 1e6))
def test_elsewhere_a_lease_that_is_not_renewed_ends(other, interval_s, late_s):
    lease = replace(MINE, interval_s=interval_s, **other)
    end_s = lease.renewed_at_s + MISSED * interval_s + SKEW_S
    assert condition(lease, end_s + late_s) is Condition.STALE
    assert condition(renewed(lease, end_s), end_s + late_s / 1e7) is Condition.LIVING


@settings(deadline=None, max_examples=50)
@given(age_s=st.floats(-1e4, 1e4), grace_s=st.floats(0, 5e3))
def test_a_stated_grace_is_the_age_that_counts(age_s, grace_s):
    found = condition(replace(MINE, host="z"), 1000.0 + age_s, grace_s=grace_s)
    assert (found is Condition.STALE) is (1000.0 + age_s - 1000.0 > grace_s)


def test_what_cannot_be_told_is_said_to_be_so():
    assert condition(None, 1000.0) is Condition.UNKNOWN
    elsewhere = replace(MINE, host="z")
    assert condition(replace(elsewhere, renewed_at_s=math.nan), 1000.0) is Condition.UNKNOWN
    assert condition(replace(elsewhere, renewed_at_s=9e8), 1000.0) is Condition.UNKNOWN


def test_without_names_of_boot_and_namespace_no_process_is_trusted():
    nameless = replace(HERE, boot_id="")
    assert condition(replace(MINE, boot_id="", pid=9), 1000.0, nameless) is Condition.LIVING


def test_trials_are_judged_each_by_its_own():
    leases = {5: MINE, 2: None, 4: replace(MINE, pid=1)}
    assert [(j.number, j.condition.value) for j in judge(leases, 0.0, HERE)] == [
        (2, "unknown"),
        (4, "stale"),
        (5, "living"),
    ]


# ---------------------------------------------------------------------------- real processes


def test_a_process_lives_until_it_ends_and_its_number_alone_is_not_it():
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        began = here([child.pid]).started_ticks[child.pid]
        lease = replace(own_lease(), pid=child.pid, started_ticks=began)
        assert condition(lease, 0.0, here([child.pid])) is Condition.LIVING
        other = replace(lease, started_ticks=began - 1)
        assert condition(other, 0.0, here([child.pid])) is Condition.STALE
        child.stdin.close()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # it has ended: a zombie
        assert condition(lease, 0.0, here([child.pid])) is Condition.STALE
    finally:
        child.wait()
    assert condition(lease, 0.0, here([child.pid])) is Condition.STALE


def test_ones_own_lease_is_living():
    lease = own_lease()
    assert condition(lease, 0.0, here([lease.pid])) is Condition.LIVING
    later = renewed(lease)
    assert later.renewed_at_s >= lease.renewed_at_s
    assert replace(later, renewed_at_s=lease.renewed_at_s) == lease


def test_a_process_that_may_not_be_looked_at_lives(monkeypatch):
    def refuse(_pid, _signal):
        raise PermissionError

    monkeypatch.setattr("tuner.study.lease._read_stat", lambda _pid: None)
    monkeypatch.setattr(os, "kill", refuse)
    assert here([7]).started_ticks == {7: None}


@pytest.mark.parametrize("pid", [0, -1, 2**40])
def test_no_process_has_such_a_number(pid):
    assert here([pid]).started_ticks == {}


# -------------------------------------------------------------------------------- as attribute


def test_an_attribute_is_read_back():
    assert read_attribute(as_attribute(MINE)) == MINE


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=4,
)


@settings(deadline=None, max_examples=100)
@given(name=st.sampled_from(list(Lease.__slots__)), value=JSON, whole=JSON)
def test_a_damaged_attribute_is_no_lease_and_never_an_error(name, value, whole):
    assert read_attribute(whole) is None or isinstance(whole, dict)
    found = read_attribute(as_attribute(MINE) | {name: value})
    assert found is None or judge({0: found}, 1000.0, HERE)[0].condition in Condition
