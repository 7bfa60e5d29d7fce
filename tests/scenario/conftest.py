from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from bench.scenario import load_scenario

if TYPE_CHECKING:
    from pathlib import Path

GOOD = """\
name: small
question: Does it pay?
target: {path: org/model, revision: main}
draft: {path: org/draft, revision: v1}
server:
  gpus: 2
  arguments:
    - --tp-size 2
    - --max-running-requests 8
arms:
  baseline: {}
  eagle3:
    speculative: {algorithm: EAGLE3, num_steps: 3, eagle_topk: 1, num_draft_tokens: 4}
workloads:
  chat:
    input_tok: 512
    max_output_tok: 128
    sampling: {temperature: 0}
loads:
  concurrency: [1, 8]
"""


@pytest.fixture
def good() -> str:
    """A whole scenario, to be changed by `replace`."""
    return GOOD


@pytest.fixture
def load(tmp_path: Path):
    """Load a scenario's text from a file called s.yaml."""

    def loaded(text: str | bytes, *overrides: str):
        path = tmp_path / "s.yaml"
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        return load_scenario(path, overrides)

    return loaded


@pytest.fixture
def mistakes(load, tmp_path: Path):
    """The lines of the error that a text gives, without the folder's name."""

    def told(text: str | bytes, *overrides: str) -> list[str]:
        from bench.errors import ScenarioError

        with pytest.raises(ScenarioError) as caught:
            load(text, *overrides)
        return str(caught.value).replace(f"{tmp_path}/", "").splitlines()

    return told
