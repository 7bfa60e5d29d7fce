"""How faults are written, and what is said of those that are none."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.errors import InputError
from bench.model.faults import FAULT_KINDS, parse_fault, parse_faults
from bench.simulator.settings import read_settings


def test_a_fault_with_every_key():
    fault = parse_fault("stall:s=2.5:launch=L00-*:cell=2:after=3:at=4:for=5:p=0.01")
    assert (fault.name, fault.amount, fault.launch) == ("stall", 2.5, "L00-*")
    assert (fault.cell, fault.after, fault.at_s, fault.for_s) == (2, 3, 4.0, 5.0)
    assert fault.share == 0.01


@pytest.mark.parametrize("name", FAULT_KINDS)
def test_every_fault_works_without_keys(name):
    (fault,) = parse_faults(name)
    assert fault.amount == FAULT_KINDS[name].default
    assert (fault.launch, fault.cell, fault.after, fault.share) == (None, None, 0, 1.0)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "'' is no fault"),
        ("stal:p=1", "'stal' is no fault. Did you mean stall?"),
        ("fire", "There are slow-boot, oom-load"),
        ("stall:p", "'p' does not fit stall, which takes s=…, launch=…"),
        ("stall:p=", "'p=' does not fit"),
        ("stall:p=1:p=1", "does not fit"),
        ("crash:p=0.5", "'p=0.5' does not fit crash, which takes launch=…, cell=…"),
        ("oom-load:cell=1", "does not fit oom-load, which takes launch=…"),
        ("stall:p=2", "p must be a number from 0 to 1, found '2'"),
        ("stall:p=nan", "p must be a number from 0 to 1, found 'nan'"),
        ("throttle:by=0.5", "by must be a number from 1 to 1000, found '0.5'"),
        ("crash:cell=-1", "cell must be a whole number, found '-1'"),
        ("crash:after=1.5", "after must be a whole number"),
        ("crash:launch=a,b", "one fault has no comma in it"),
    ],
)
def test_what_is_no_fault_is_told(text, told):
    with pytest.raises(ValueError, match=re.escape(told)):
        parse_fault(text)


@given(st.text(alphabet="stallcrhp:=,.0123 -*\n", max_size=30))
@settings(max_examples=100, deadline=None)
def test_any_text_is_faults_or_a_told_mistake(text):
    try:
        faults = parse_faults(text)
    except ValueError as error:
        faults, told = (), str(error)
    else:
        told = ""
    assert bool(told) is not bool(faults)
    assert {fault.name for fault in faults} <= set(FAULT_KINDS)


def test_the_simulator_takes_several_and_says_what_is_wrong():
    argv = ["--model-path", "x", "--tp-size", "8", "--sim-faults"]
    read = read_settings([*argv, "crash:cell=2,stall:p=0.1", "--sim-launch", "L00-baseline-p0"])
    assert [fault.name for fault in read.faults] == ["crash", "stall"]
    assert read.launch == "L00-baseline-p0"
    with pytest.raises(InputError, match="Did you mean crash") as caught:
        read_settings([*argv, "crahs"])
    assert "docs/faults.md" in (caught.value.hint or "")
