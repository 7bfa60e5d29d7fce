from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bench.scenario import json_schema

ROOT = Path(__file__).parents[2]
COMMITTED = ROOT / "bench/scenario/scenario.schema.json"


def _blocks() -> dict[str, dict[str, Any]]:
    schema: Any = json_schema()
    return {"Scenario": schema, **schema["$defs"]}


def test_the_committed_schema_is_current():
    """`bench schema > bench/scenario/scenario.schema.json` makes it so."""
    assert json.loads(COMMITTED.read_text(encoding="utf-8")) == json_schema()


def test_every_key_is_described_in_one_line():
    blocks = _blocks()
    for name, block in blocks.items():
        for key, value in block["properties"].items():
            referred = blocks.get(value.get("$ref", "").rpartition("/")[2], {})
            description = value.get("description") or referred.get("description", "")
            assert description.endswith((".", "…")), f"{name}.{key}"
            assert "\n" not in description


def test_no_block_takes_unknown_keys():
    assert all(block["additionalProperties"] is False for block in _blocks().values())


def test_sim_measure_has_only_keys_of_measure():
    blocks = _blocks()
    assert set(blocks["SimMeasure"]["properties"]) < set(blocks["Measure"]["properties"])


@pytest.mark.parametrize("block", sorted(_blocks()))
def test_every_key_is_in_the_docs(block):
    text = (ROOT / "docs/scenario.md").read_text(encoding="utf-8")
    for key in _blocks()[block]["properties"]:
        assert f"`{key}`" in text, f"docs/scenario.md does not say what {key} is"


def test_the_categories_are_those_of_the_generated_prompts():
    from typing import get_args

    prompts = pytest.importorskip("bench.load.prompts")
    from bench.scenario.fields import Category

    assert set(get_args(Category)) == set(prompts.CATEGORIES)
