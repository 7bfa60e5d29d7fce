"""Sizes that no server starts with on the GPUs it is given are told before one is started."""

import pytest

from bench.errors import ScenarioError
from bench.model import FindingKind
from bench.plan import make_plan

BATCH = "--max-running-requests 64"


def _said(loaded, scenario, *overrides, **options) -> str:
    with pytest.raises(ScenarioError) as caught:
        make_plan(loaded(scenario, *overrides), **options)
    return str(caught.value)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("--tp-size 16", "--tp-size 16 takes 16 GPUs, and server.gpus is 8"),
        ("--tp 16", "takes 16 GPUs"),
        ("--tp-size 4 --pp-size 4", "--tp-size 4 x --pp-size 4 takes 16 GPUs"),
        ("--tp-size 8 --dp-size 2", "takes 16 GPUs"),
        ("--tp-size 32 --nnodes 2", "on each of 2 nodes"),
        ("--tp-size=0", "--tp-size is 0, wanted 1 or more"),
        ("--mem-fraction-static 8", "--mem-fraction-static is 8, wanted a share"),
        ("--mem-fraction-static 0", "between 0 and 1"),
    ],
)
def test_what_does_not_fit_is_told_with_its_line(loaded, small, line, said):
    small["server"]["arguments"] = [BATCH, line]
    told = _said(loaded, small)
    assert said in told
    assert "server.arguments.1: " in told


@pytest.mark.parametrize(
    "line",
    [
        "--tp-size 8 --dp-size 8 --enable-dp-attention",
        "--tp-size 16 --nnodes 2",
        "--tp-size 4 --pp-size 2",
        "--mem-fraction-static 0.85",
    ],
)
def test_what_fits_is_planned(loaded, small, line):
    small["server"]["arguments"] = [BATCH, line]
    assert make_plan(loaded(small)).launches


def test_one_gpu_less_is_too_few_and_one_override_names_itself(loaded, small):
    assert "server.gpus is 7" in _said(loaded, small, "server.gpus=7")
    said = _said(loaded, small, f"server.arguments=['--tp-size 9', '{BATCH}']")
    assert said.startswith("--set server.arguments.0: --tp-size 9")


def test_a_simulated_card_has_gpus_too(loaded, with_sim):
    said = _said(loaded, with_sim, simulated=True, sim_hardware="h100-x1")
    assert "takes 8 GPUs, and the simulated h100-x1 has 1" in said


def test_an_attached_server_is_not_counted(loaded, small):
    small["server"]["gpus"] = 1
    assert make_plan(loaded(small), attach={"baseline": "http://h:1"}).launches


def test_a_fault_that_cannot_happen_is_told(loaded, with_sim):
    with_sim["arms"]["eagle3"]["sim"] = {"faults": ["stall:cell=4", "crash:cell=9"]}
    said = _said(loaded, with_sim, simulated=True)
    assert "arms.eagle3.sim.faults.1: crash:cell=9 never happens" in said
    assert "Give cell=4 or less" in said
    with_sim["arms"]["eagle3"]["sim"] = {}
    with_sim["arms"]["baseline"]["sim"] = {"faults": ["accept-collapse"]}
    assert "does not speculate" in _said(loaded, with_sim, simulated=True)


def test_an_unknown_option_is_told_with_the_nearest(loaded, small):
    small["server"]["arguments"] = [BATCH, "--chunked-prefil-sise 4096"]
    found = [f for f in make_plan(loaded(small)).findings if "prefil" in f.message]
    assert found
    assert "Did you mean --chunked-prefill-size?" in found[0].message
    assert "does not start with it" in found[0].advice


def test_a_lowered_speed_names_the_load(loaded, with_sim):
    with_sim["sim"]["speed"] = 10
    with_sim["loads"] = {"concurrency": [64]}
    plan = make_plan(loaded(with_sim), simulated=True)
    told = [f.message for f in plan.findings if f.kind is FindingKind.SIMULATION_SPEED]
    assert len(told) == 1
    assert told[0].startswith(f"sim.speed 10 was lowered to {plan.speed}: arm ")
    assert "chat load 64" in told[0]
    with_sim["sim"]["speed"] = 1
    plan = make_plan(loaded(with_sim), simulated=True)
    assert not [f for f in plan.findings if f.kind is FindingKind.SIMULATION_SPEED]
