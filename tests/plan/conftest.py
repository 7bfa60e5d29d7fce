from __future__ import annotations

import copy
import json
from typing import TYPE_CHECKING, Any

import pytest

from bench.scenario import LoadedScenario, load_scenario

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

CHAIN = {"algorithm": "EAGLE3", "num_steps": 3, "eagle_topk": 1, "num_draft_tokens": 4}
SMALL: dict[str, Any] = {
    "name": "small",
    "question": "Does it pay?",
    "seed": 3,
    "target": {"path": "org/model", "revision": "main"},
    "draft": {"path": "org/draft", "revision": "main"},
    "server": {
        "gpus": 8,
        "arguments": ["--tp-size 8", "--max-running-requests 64"],
        "environment": {"B": "2", "A": "1"},
    },
    "arms": {"baseline": {}, "eagle3": {"speculative": CHAIN}},
    "workloads": {
        "chat": {
            "input_tok": 512,
            "max_output_tok": 128,
            "sampling": {"temperature": 0},
            "chat_template_kwargs": {"thinking": False, "more": 1},
        },
        "long": {
            "input_tok": 4096,
            "max_output_tok": 64,
            "sampling": {"temperature": 0.5, "top_p": 0.9},
            "loads": {"concurrency": [2]},
        },
    },
    "loads": {"concurrency": [8, 1], "rates": [{"rate_per_s": 2}]},
    "slo": {"ttft_ms": 500},
}
SIM: dict[str, Any] = {
    "hardware": "h200-x8",
    "target": "kimi-k2.5",
    "acceptance": [0.6, 0.4, 0.3],
    "speed": 10,
    "seed": 5,
    "measure": {"pairs": 2, "steady_s": 4},
}


@pytest.fixture
def small() -> dict[str, Any]:
    """A scenario without cards, as plain data to be changed."""
    return copy.deepcopy(SMALL)


@pytest.fixture
def with_sim(small) -> dict[str, Any]:
    """The same with cards."""
    return {**small, "sim": copy.deepcopy(SIM)}


@pytest.fixture(scope="session")
def written() -> dict[str, Any]:
    """The same for many examples of one test, not to be changed."""
    return {**SMALL, "sim": SIM}


@pytest.fixture
def loaded(tmp_path: Path) -> Callable[..., LoadedScenario]:
    """Plain data as a loaded scenario."""

    def load(data: dict[str, Any], *overrides: str) -> LoadedScenario:
        path = tmp_path / "s.yaml"
        path.write_text(json.dumps(data, indent=1), encoding="utf-8")
        return load_scenario(path, overrides)

    return load
