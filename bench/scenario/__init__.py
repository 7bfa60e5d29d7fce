"""The scenario: a question in YAML, read, checked and kept with the position of every key.

The format is described in docs/scenario.md.

loaded = load_scenario(Path("scenarios/kimi.yaml"), ["measure.pairs=1"])
loaded.scenario.arms["eagle3-rewired"].speculative.num_steps
loaded.source.position("arms.eagle3-rewired.speculative.num_steps")  # scenarios/kimi.yaml:57
"""

from __future__ import annotations

from bench.scenario.arguments import split_arguments
from bench.scenario.schema import (
    ApiKey,
    Arm,
    Launcher,
    Loads,
    Measure,
    ModelRef,
    Scenario,
    Speculative,
    Workload,
)
from bench.scenario.source import LoadedScenario, Source, load_scenario
from bench.scenario.validating import json_schema

__all__ = [
    "ApiKey",
    "Arm",
    "Launcher",
    "LoadedScenario",
    "Loads",
    "Measure",
    "ModelRef",
    "Scenario",
    "Source",
    "Speculative",
    "Workload",
    "json_schema",
    "load_scenario",
    "split_arguments",
]
