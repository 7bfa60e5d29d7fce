"""The scenario that docs/hardware.md offers; needs no GPU."""

from pathlib import Path

from bench.plan import make_plan
from bench.scenario import load_scenario

DOCS = Path(__file__).parents[2] / "docs" / "hardware.md"


def test_the_scenario_in_the_docs_can_be_planned(tmp_path):
    text = DOCS.read_text().split("```yaml\n")[1].split("```")[0]
    path = tmp_path / "mine.yaml"
    path.write_text(text)
    plan = make_plan(load_scenario(path))
    assert [launch.arm for launch in plan.launches] == ["baseline", "eagle3"]
    assert all(launch.server.gpus == 1 for launch in plan.launches)
