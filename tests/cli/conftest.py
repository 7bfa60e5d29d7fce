import json
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from bench_command import TINY, run_bench

from bench.cli import main


@pytest.fixture
def bench(monkeypatch, capsys, tmp_path):
    """The command in this process, for what starts nothing: (exit code, stdout, stderr)."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).with_name("without_sglang")))

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["bench", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        out, err = capsys.readouterr()
        return ended.value.code, out, err

    return run


@pytest.fixture(scope="session")
def finished(tmp_path_factory):
    """A whole run, made once: its results folder, its answer as JSON, what was said on the way."""
    place = tmp_path_factory.mktemp("finished")
    code, out, err = run_bench("run", TINY, "--sim", "--json", cwd=place)
    answer = json.loads(out)
    folder = place / "results" / "tiny" / answer["run"]
    return SimpleNamespace(place=place, folder=folder, code=code, answer=answer, said=err)
