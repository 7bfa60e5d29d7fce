"""Which way a launch's all-reduces go, from SGLang's flags and NCCL's variables."""

import pytest

from bench.physics import load_hardware
from bench.physics.allreduce import Communication, allreduce_us, with_communication
from bench.simulator.communication import read_communication

PCIE = load_hardware("rtx-pro-6000-x8")
NVLINK = load_hardware("h200-x8")


def asked(hardware, flags=(), environment=None):
    return read_communication(dict.fromkeys(flags, True), hardware.links, environment or {})


def time_us(hardware, flags=(), environment=None, message_bytes=57_344):
    return allreduce_us(
        with_communication(hardware, asked(hardware, flags, environment)), message_bytes
    )


@pytest.mark.parametrize("hardware", [PCIE, NVLINK])
def test_nothing_asked_leaves_the_card_as_it_is(hardware):
    assert asked(hardware) == Communication()
    assert time_us(hardware) == allreduce_us(hardware, 57_344)


def test_nccls_variables_matter_only_where_messages_go_through_nccl():
    slow = {"NCCL_PROTO": "Simple", "NCCL_ALGO": "Ring"}
    assert time_us(PCIE, environment=slow) > time_us(PCIE)
    assert time_us(NVLINK, environment=slow) == time_us(NVLINK)
    off = ("disable_custom_all_reduce",)
    assert time_us(NVLINK, off, slow) > time_us(NVLINK, off)


def test_leaving_the_custom_kernels_costs_small_messages():
    assert time_us(NVLINK, ("disable_custom_all_reduce",)) > time_us(NVLINK)


def test_nvls_is_off_unless_asked_for():
    off = ("disable_custom_all_reduce",)
    assert asked(NVLINK, off).path == "nccl"
    assert asked(NVLINK, (*off, "enable_nccl_nvls")).path == "nvls"
    assert asked(NVLINK, off, {"NCCL_NVLS_ENABLE": "1"}).path == "nvls"
    assert asked(PCIE, ("enable_nccl_nvls",)).path is None


@pytest.mark.parametrize(
    ("text", "allowed"),
    [
        ("LL", ("LL",)),
        ("LL,LL128", ("LL", "LL128")),
        ("^Simple", ("LL", "LL128")),
        ("allreduce:LL", ("LL",)),
        ("nonsense", ("LL", "LL128", "Simple")),
        ("", ("LL", "LL128", "Simple")),
    ],
)
def test_lists_are_read_as_nccl_reads_them(text, allowed):
    assert asked(PCIE, environment={"NCCL_PROTO": text}).nccl_protocols == allowed


def test_channels_are_held_between_least_and_most():
    usual = PCIE.links.nccl_channels
    assert asked(PCIE).nccl_channels is None
    assert asked(PCIE, environment={"NCCL_MIN_NCHANNELS": str(usual + 4)}).nccl_channels == (
        usual + 4
    )
    assert asked(PCIE, environment={"NCCL_MAX_NCHANNELS": "1"}).nccl_channels == 1
    assert asked(PCIE, environment={"NCCL_MAX_NCHANNELS": "many"}).nccl_channels is None


def test_deterministic_inference_takes_trees_over_eight_channels():
    communication = asked(NVLINK, ("enable_deterministic_inference",), {"NCCL_ALGO": "Ring"})
    assert communication == Communication(path="nccl", nccl_algorithms=("tree",), nccl_channels=8)
