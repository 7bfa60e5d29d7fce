"""NCCL's variables are searched only where decoding goes through NCCL."""

from pathlib import Path

import pytest

from tuner.sweep.beginning import Asked, prepare
from tuner.sweep.idle_settings import WHY

KIMI = Path(__file__).parents[2] / "scenarios" / "kimi.yaml"


def prepared(*overrides):
    return prepare(Asked(scenario=KIMI, simulated=True, overrides=overrides))


@pytest.mark.parametrize(("hardware", "searched"), [("rtx-pro-6000-x8", True), ("h200-x8", False)])
def test_where_custom_kernels_carry_decoding_the_variables_are_not_searched(hardware, searched):
    candidates = prepared(f"sim.hardware={hardware}").candidates
    settings = {c.environment for c in candidates.space.configurations}
    assert (len(settings) > 1) is searched
    assert (WHY in dict(candidates.space.aliases)) is not searched
    assert len(candidates.arms) == len(candidates.space.configurations)
    assert candidates.arms[0] == "baseline"
    present = candidates.space.configurations[candidates.present]
    assert present.label == "EAGLE3 3-1-4"


def test_arguments_beside_the_variables_keep_a_setting():
    bundle = "{default: {}, other: {arguments: {--page-size: 1}, environment: {NCCL_ALGO: Ring}}}"
    candidates = prepared(
        "sim.hardware=h200-x8", f"tune.bundles={{communication: {bundle}}}"
    ).candidates
    assert {bool(c.arguments) for c in candidates.space.configurations} == {True, False}
