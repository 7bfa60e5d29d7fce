"""All-reduces: tables, NCCL's cost model, and the other paths."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.errors import InputError
from bench.physics import (
    Communication,
    allreduce_us,
    decode_step,
    load_hardware,
    load_target,
    nccl_us,
    with_communication,
)
from bench.physics.allreduce import ALGORITHMS, PROTOCOLS, path_us

QUICK = settings(deadline=None, max_examples=80)
RTX = load_hardware("rtx-pro-6000-x8")
H200 = load_hardware("h200-x8")
B200 = load_hardware("b200-x8")
KIMI = load_target("kimi-k2.5")
boxes = st.sampled_from([RTX, H200, B200])
sizes = st.floats(1, 1e9)


@QUICK
@given(boxes, sizes)
def test_all_reduces_grow_with_the_message(card, size):
    assert allreduce_us(card, size) <= allreduce_us(card, size * 1.1)
    for message, us in card.allreduce_us:
        assert allreduce_us(card, message) == pytest.approx(us)


def test_beyond_the_table_the_bandwidth_goes_on():
    size, us = RTX.allreduce_us[-1]
    assert allreduce_us(RTX, 2 * size) == pytest.approx(2 * us, rel=0.01)


@QUICK
@given(boxes, sizes)
def test_fewer_ranks_are_never_slower(card, size):
    times = [allreduce_us(card, size, ranks) for ranks in (2, 4, 8)]
    assert times[0] <= times[1] * 1.0001
    assert times[1] <= times[2] * 1.0001
    assert times[2] == allreduce_us(card, size)


@pytest.mark.parametrize(
    ("box", "protocol", "us"),
    [
        (H200, "LL", 15.0),
        (H200, "LL128", 40.6),
        (H200, "Simple", 56.0),
        (RTX, "LL", 20.6),
        (RTX, "LL128", 49.0),
        (RTX, "Simple", 88.2),
    ],
)
def test_nccls_own_latencies_of_a_ring_of_eight(box, protocol, us):
    asked = Communication(nccl_algorithms=("ring",), nccl_protocols=(protocol,))
    assert nccl_us(box.links, 1, 8, asked)[0] == pytest.approx(us, abs=0.05)


@QUICK
@given(boxes, sizes, st.integers(2, 8))
def test_nccl_takes_what_it_thinks_is_fastest(card, size, ranks):
    chosen = nccl_us(card.links, size, ranks)
    for algorithm in ALGORITHMS:
        for protocol in PROTOCOLS:
            only = Communication(nccl_algorithms=(algorithm,), nccl_protocols=(protocol,))
            us, *what = nccl_us(card.links, size, ranks, only)
            assert chosen[0] <= us
            assert what == [algorithm, protocol]


def test_small_messages_go_by_ll_and_large_ones_by_simple():
    assert nccl_us(RTX.links, 4096, 8)[2] == "LL"
    assert nccl_us(RTX.links, 1e9, 8)[1:] == ("ring", "Simple")


def test_more_channels_help_large_messages_until_the_bus_is_full():
    def us(channels: int, size: float) -> float:
        return nccl_us(RTX.links, size, 8, Communication(nccl_channels=channels))[0]

    assert us(1, 1e8) > us(2, 1e8) == us(8, 1e8)
    assert us(1, 1024) == pytest.approx(us(8, 1024), rel=0.02)


def test_a_setting_scales_the_nodes_own_table():
    """Only what is asked changes: a table of measurements stays the ground."""
    simple = with_communication(RTX, Communication(nccl_protocols=("Simple",)))
    for (size, before), (_, after) in zip(RTX.allreduce_us, simple.allreduce_us, strict=True):
        model = nccl_us(RTX.links, size, 8, Communication(nccl_protocols=("Simple",)))[0]
        assert after / before == pytest.approx(model / nccl_us(RTX.links, size, 8)[0])
    assert with_communication(RTX, Communication()) is RTX
    one = decode_step(RTX, KIMI, batch=1).allreduce_ms
    assert decode_step(simple, KIMI, batch=1).allreduce_ms > one


def test_paths_where_there_is_nvlink():
    by = {
        path: with_communication(H200, Communication(path=path))
        for path in ("custom", "fused", "nccl", "nvls")
    }
    token = 14336
    assert by["custom"].allreduce_us == H200.allreduce_us
    small = {path: allreduce_us(card, token) for path, card in by.items()}
    assert small["fused"] < small["custom"] < small["nccl"] < small["nvls"]
    large = {path: path_us(H200.links, path, 1e9, 8) for path in by}
    assert large["nvls"] < large["nccl"] == large["custom"]  # too large for SGLang's own


def test_two_shots_beat_one_where_they_are_used():
    size = 512 * 1024
    one_shot = H200.links.one_shot_us + 7 * size / (H200.links.link_gb_per_s * 1e3)
    assert path_us(H200.links, "custom", size, 8) < one_shot


@pytest.mark.parametrize(("transport", "most_mib"), [("nvlink", 16), ("pcie", 8)])
def test_large_messages_go_through_nccl_whatever_the_path(transport, most_mib):
    links = replace(H200.links, transport=transport)
    by_nccl = [
        path_us(links, "custom", size, 8) == nccl_us(links, size, 8)[0]
        for size in (most_mib << 20, (most_mib << 20) + 1)
    ]
    assert by_nccl == [False, True]


@pytest.mark.parametrize("path", ["custom", "fused", "nvls"])
def test_paths_that_pcie_has_not(path):
    with pytest.raises(InputError, match=RTX.name) as caught:
        with_communication(RTX, Communication(path=path))
    assert caught.value.hint


def test_one_gpu_has_no_all_reduce():
    one = load_hardware("h100-x1")
    assert allreduce_us(one, 1e6) == 0.0
    assert with_communication(one, Communication(path="nccl")) is one
    assert decode_step(one, load_target("llama-3.1-8b"), batch=1).allreduce_ms == 0.0


def test_a_node_without_links_keeps_its_table_for_any_ranks():
    bare = replace(RTX, links=None)
    assert allreduce_us(bare, 14336, 2) == allreduce_us(bare, 14336)
