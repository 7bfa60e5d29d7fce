import dataclasses
from pathlib import Path

import pytest

from bench.model import Comparison, FindingKind, Measurement

DOCS = Path(__file__).parents[2] / "docs"
# Where a number belongs, not what it is.
NAMES = {"cell_id", "comparison_key", "launch_id", "arm", "workload", "load", "pair"}
NAMES |= {"simulated", "status"}


@pytest.mark.parametrize("record", [Measurement, Comparison])
def test_every_number_is_defined(record):
    text = (DOCS / "metrics.md").read_text()
    fields = {field.name for field in dataclasses.fields(record)} - NAMES
    assert {name for name in fields if f"`{name}`" not in text} == set()


def test_every_kind_of_finding_is_explained():
    text = (DOCS / "metrics.md").read_text()
    assert {kind.value for kind in FindingKind if f"`{kind.value}`" not in text} == set()
