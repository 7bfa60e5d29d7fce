import json
from types import SimpleNamespace

import pytest
from bench_command import TINY, run_bench


@pytest.fixture(scope="session")
def finished(tmp_path_factory):
    """A whole run, made once: its results folder, its answer as JSON, what was said on the way."""
    place = tmp_path_factory.mktemp("finished")
    code, out, err = run_bench("run", TINY, "--sim", "--json", cwd=place)
    answer = json.loads(out)
    folder = place / "results" / "tiny" / answer["run"]
    return SimpleNamespace(place=place, folder=folder, code=code, answer=answer, said=err)
