from __future__ import annotations

import statistics

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.load.arrivals import arrival_offsets_ns
from bench.model import Load


def offsets(count: int, seed: int = 3, **changes) -> list[int]:
    load = Load(kind="open", **({"rate_per_s": 50.0} | changes))
    return arrival_offsets_ns(load, seed=seed, count=count)


def gaps(of: list[int]) -> list[int]:
    return [b - a for a, b in zip([0, *of], of, strict=False)]


@pytest.mark.parametrize("kind", ["constant", "poisson", "gamma"])
def test_the_mean_rate_is_the_one_asked_for(kind):
    assert statistics.mean(gaps(offsets(20_000, gaps=kind, gap_cv=0.5))) == pytest.approx(
        20_000_000, rel=0.03
    )


@pytest.mark.parametrize(
    ("changes", "cv"),
    [
        ({"gaps": "poisson"}, 1.0),
        ({"gaps": "gamma", "gap_cv": 2.0}, 2.0),
        ({"gaps": "constant"}, 0),
    ],
)
def test_gaps_spread_as_asked(changes, cv):
    drawn = gaps(offsets(20_000, **changes))
    spread = statistics.pstdev(drawn) / statistics.mean(drawn)
    assert spread == pytest.approx(cv, rel=0.05, abs=1e-6)


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 2**31), st.integers(0, 40), st.integers(0, 40))
def test_a_longer_schedule_begins_with_the_shorter_one(seed, shorter, more):
    long = offsets(shorter + more, seed)
    assert long[:shorter] == offsets(shorter, seed)
    assert long == sorted(long)


def test_seeds_give_different_schedules():
    assert offsets(10, 1) != offsets(10, 2)


def test_a_rate_is_needed():
    with pytest.raises(ValueError, match="positive rate"):
        offsets(1, rate_per_s=None)
