"""What the cells of a launch say: objective, limits, memory."""

from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.errors import ScenarioError
from bench.model import CellStatus, TelemetryPoint
from tuner.evaluate.readings import measured, memory_headroom_gib
from tuner.space.schema import Constraints
from tuner.sweep.beginning import Asked, prepare

GIB = 2**30


def point(rank, used_gib, name="memory_used_bytes", source="gpu"):
    value = None if used_gib is None else used_gib * GIB
    return TelemetryPoint(t_ns=0, source=source, name=name, rank=rank, value=value)


def test_the_fullest_gpu_at_its_fullest_counts():
    points = [point(0, 70), point(1, 75), point(0, 78), point(1, 60)]
    assert memory_headroom_gib(points, [80 * GIB, 80 * GIB]) == pytest.approx(2.0)


def test_what_was_not_read_is_not_free():
    others = [point(0, None), point(5, 10), point(0, 10, name="power_w"), point(0, 1, source="x")]
    assert memory_headroom_gib(others, [80 * GIB]) is None
    assert memory_headroom_gib([point(0, 10)], [None]) is None
    assert memory_headroom_gib([], [80 * GIB]) is None


@given(used=st.lists(st.floats(0, 80), min_size=1, max_size=20))
def test_more_readings_never_leave_more_free(used):
    points = [point(0, gib) for gib in used]
    free = [memory_headroom_gib(points[:n], [80 * GIB]) for n in range(1, len(points) + 1)]
    assert free == sorted(free, reverse=True)
    assert free[-1] == pytest.approx(80 - max(used))


def test_a_broken_limit_is_told_with_the_digits_that_break_it():
    cell = SimpleNamespace(
        cell_id="c",
        workload=SimpleNamespace(name="chat"),
        load=SimpleNamespace(label="8", kind="closed"),
    )
    found = SimpleNamespace(
        cell_id="c",
        status=CellStatus.VALID,
        output_tok_per_s=9.0,
        output_tok_per_s_per_user=None,
        goodput_request_per_s=1.0,
        energy_j_per_output_tok=None,
        accept_len_tok=None,
        accept_at_position=None,
        ttft_ms=SimpleNamespace(p99=19.25),
        tpot_ms=SimpleNamespace(p99=8.17),
    )
    limits = Constraints(ttft_p99_ms=12.85, tpot_p99_ms=8.0, memory_headroom_gib=4.0)
    told = measured(
        [cell], [found], [], objective="goodput", constraints=limits, memory_headroom_gib=3.98
    )
    assert told.breaks == (
        "p99 TTFT 19 ms at chat load 8, limit 12.85 ms",
        "p99 TPOT 8.2 ms at chat load 8, limit 8 ms",
        "3.98 GiB free on the fullest GPU, limit 4 GiB",
    )


def test_a_limit_that_cannot_be_read_is_refused():
    kimi = Path(__file__).parents[2] / "scenarios" / "kimi.yaml"
    limited = ("tune.constraints={memory_headroom_gib: 4}",)
    with pytest.raises(ScenarioError, match="simulated GPUs have no memory to read"):
        prepare(Asked(scenario=kimi, simulated=True, overrides=limited))
    prepare(Asked(scenario=kimi, overrides=limited))
