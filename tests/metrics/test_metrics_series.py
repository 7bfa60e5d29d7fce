import pytest
from metrics_cells import T0, S, point

from bench.metrics.cache import cache_use
from bench.metrics.energy import window_energy
from bench.metrics.series import counter_delta, gauge_max, gauge_mean, group_series, went_backwards
from bench.metrics.window import Window

TEN = Window(rule="r", start_ns=T0, end_ns=T0 + 10 * S)


def at(name, *pairs, rank=None, source="server"):
    return [point(name, T0 + round(t * S), v, rank=rank, source=source) for t, v in pairs]


def delta(points, name="c", first=0, last=10):
    return counter_delta(group_series(points), name, T0 + first * S, T0 + last * S)


def test_counters_are_differences_and_not_totals():
    assert delta(at("c", (-5, 900), (-1, 1000), (5, 1100), (11, 1500))) == 500


def test_counters_add_up_over_ranks():
    points = at("c", (-1, 1000), (11, 1400), rank=0) + at("c", (-1, 0), (11, 100), rank=1)
    assert delta(points) == 500


def test_label_sets_of_one_scrape_are_added_up():
    points = at("c", (-1, 1), (11, 5)) + at("c", (-1, 10), (11, 50))
    assert delta(points) == 44


def test_a_counter_not_listed_yet_was_zero():
    assert delta(at("other", (-1, 3), (11, 3)) + at("c", (5, 7), (11, 9))) == 9


@pytest.mark.parametrize(
    "pairs",
    [
        [],  # never read
        [(1, 0), (11, 5)],  # the first scrape came after the first send
        [(-1, 0), (9, 5)],  # the last one before the last response
        [(-1, 10), (11, 5)],  # another server
    ],
)
def test_what_scrapes_do_not_enclose_is_unknown(pairs):
    assert delta(at("c", *pairs)) is None


def test_a_value_that_was_not_there_is_not_zero():
    points = at("g", (1, None), (2, 4.0), (3, 6.0), (20, 100.0))
    series = group_series(points)
    assert gauge_mean(series, "g", TEN) == 5
    assert gauge_max(series, "g", TEN) == 6
    assert gauge_mean(series, "h", TEN) is None
    assert gauge_max(group_series(at("g", (20, 1.0))), "g", TEN) is None


def test_gauges_add_up_over_ranks_and_need_each():
    points = at("g", (1, 2.0), rank=0) + at("g", (1, 3.0), (2, 5.0), rank=1)
    assert gauge_mean(group_series(points), "g", TEN) == 6
    silent = [*points, *at("g", (50, 1.0), rank=2)]
    assert gauge_mean(group_series(silent), "g", TEN) is None


def test_only_a_fall_is_going_backwards():
    series = group_series(at("c", (0, 5), (1, 5), (2, 6)) + at("d", (0, 5), (1, 4)))
    assert went_backwards(series, ["c", "d", "e"]) == ("d",)


def test_order_of_readings_does_not_matter():
    points = at("c", (-1, 1), (5, 2), (11, 4))
    assert delta(points[::-1]) == 3


def energy(points, gpus=1):
    return window_energy(group_series(points), TEN, gpus=gpus)


def counter(rank=0, *pairs):
    return at("total_energy_j", *pairs, rank=rank, source="gpu")


def power(rank, *pairs):
    return at("power_w", *pairs, rank=rank, source="gpu")


def test_energy_is_the_counters_difference_between_the_edges():
    found = energy(counter(0, (-1, 900), (1, 1100), (9, 4300), (11, 4500)))
    assert found.energy_j == pytest.approx(4400 - 1000)
    assert found.coverage == 1


@pytest.mark.parametrize("readings", [(500, 900, 100, 400), (500, 500, 500, 500)])
def test_a_counter_that_began_anew_or_never_counts_gives_way_to_power(readings):
    counted = counter(0, *zip((-1, 3, 6, 11), readings, strict=True))
    assert energy(counted) is None
    found = energy(counted + power(0, *((t, 100.0) for t in range(-2, 14))))
    assert found.energy_j == pytest.approx(1000)


def test_energy_adds_up_over_gpus():
    found = energy(counter(0, (-1, 0), (11, 1200)) + counter(1, (-1, 0), (11, 2400)), gpus=2)
    assert found.energy_j == pytest.approx(3000)


def test_a_gpu_that_tells_nothing_makes_the_sum_missing():
    assert energy(counter(0, (-1, 0), (11, 1200)), gpus=2) is None
    assert energy(counter(0, (-1, 0), (11, 1200)) + power(1, (3, 100)), gpus=2) is None
    assert energy([]) is None
    assert energy(counter(0, (-1, 0), (11, 1)), gpus=0) is None


def test_a_counter_that_misses_an_edge_covers_less():
    found = energy(counter(0, (1, 100), (9.5, 950)))
    assert (found.energy_j, found.coverage) == pytest.approx((850, 0.85))


def test_power_is_integrated_by_trapezoids_between_the_edges():
    found = energy(power(0, *((t, 100.0 + 10 * t) for t in range(-2, 14))))
    assert found.energy_j == pytest.approx(1500)
    assert found.coverage == pytest.approx(1)


def test_edges_between_readings_are_interpolated():
    found = energy(power(0, *((t + 0.5, 200.0) for t in range(-2, 14))))
    assert (found.energy_j, found.coverage) == pytest.approx((2000, 1))


def test_gaps_over_three_periods_are_left_out_and_reported():
    times = [t for t in range(-1, 12) if t not in (3, 4, 5)]  # a gap of 4 periods, from 2 to 6
    found = energy(power(0, *((t, 100.0) for t in times)))
    assert (found.energy_j, found.coverage) == pytest.approx((600, 0.6))
    times = [t for t in range(-1, 12) if t not in (3, 4)]  # exactly 3 periods
    assert energy(power(0, *((t, 100.0) for t in times))).coverage == pytest.approx(1)


def test_power_stands_in_where_one_gpu_has_no_counter():
    points = counter(0, (-1, 0), (11, 1200)) + power(0, (-1, 9), (11, 9))
    points += power(1, *((t, 50.0) for t in range(-1, 12)))
    assert energy(points, gpus=2).energy_j == pytest.approx(1000 + 500)


def test_no_samples_have_no_cache_use():
    assert cache_use([], [], group_series([])) is None
