"""docs/faults.md names every fault and key, and every test that it names is there."""

import ast
import re
from pathlib import Path

import pytest

from bench.model.faults import FAULT_KINDS, parse_fault

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "faults.md").read_text(encoding="utf-8")
FAULTS_HEADING, BECOMES_HEADING = "## Faults of a simulated server", "## What becomes of it"


def rows(heading):
    """The cells of the rows of the table below a heading."""
    section = TEXT.split(heading, 1)[1].split("\n## ", 1)[0]
    lines = [line for line in section.splitlines() if line.startswith("| ")][1:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def functions_of(path):
    """Names of the test functions of a file."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    return {node.name for node in ast.walk(tree) if isinstance(node, functions)}


def test_every_fault_is_listed_with_its_key_and_default():
    listed = {row[0].strip("`"): row for row in rows(FAULTS_HEADING)}
    assert set(listed) == set(FAULT_KINDS)
    for name, kind in FAULT_KINDS.items():
        _, acts, own, _ = listed[name]
        assert acts == kind.acts
        if kind.amount is None:
            assert own == ""
        else:
            assert own.startswith(f"`{kind.amount}` (")
            assert kind.default is None or f"({kind.default:g})" in own


def test_every_fault_has_a_row_that_says_what_becomes_of_it():
    told = {
        name for row in rows(BECOMES_HEADING) for name in re.findall(r"`([a-z0-9-]+)`", row[0])
    }
    assert set(FAULT_KINDS) <= told


def test_every_row_is_whole():
    for row in rows(BECOMES_HEADING):
        assert len(row) == 4, row
        assert all((row[0], row[1], row[3])), row


NAMED = {name for row in rows(BECOMES_HEADING) for name in row[3].split(", ")}


@pytest.mark.parametrize("named", sorted(NAMED))
def test_every_named_test_is_there(named):
    path, _, name = named.partition("::")
    assert name in functions_of(ROOT / "tests" / path)


def test_the_keys_of_the_docs_are_those_of_the_grammar():
    keys = {row[0].strip("`") for row in rows("## Rehearsing a fault")}
    every = set()
    for name, kind in FAULT_KINDS.items():
        with pytest.raises(ValueError, match="which takes") as caught:
            parse_fault(f"{name}:?")
        every |= set(re.findall(r"(\w+)=…", str(caught.value))) - {kind.amount}
    assert keys == every
