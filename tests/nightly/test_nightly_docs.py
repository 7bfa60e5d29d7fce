"""docs/nightly.md names every key, metric, column, state and cause there is."""

from pathlib import Path

import pytest

from bench.metrics.watched import METRICS
from bench.model.nightly import Cause, SeriesState
from bench.nightly.points_file import _schema
from bench.nightly.suite import Suite, SuiteScenario

TEXT = (Path(__file__).parents[2] / "docs" / "nightly.md").read_text()

CODE = (*METRICS, *Suite.model_fields, *SuiteScenario.model_fields, *_schema().names)
WORDS = [
    *(state.value for state in SeriesState),
    *(cause.value.replace("_", " ") for cause in Cause),
]


@pytest.mark.parametrize("name", dict.fromkeys(CODE))
def test_every_name_is_there(name):
    assert f"`{name}`" in TEXT


@pytest.mark.parametrize("word", WORDS)
def test_every_word_is_there(word):
    assert word in TEXT
