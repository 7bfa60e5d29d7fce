"""`pytest tests/cases --cases-dir DIR` runs the case folders of DIR; default: those in `data`."""

from __future__ import annotations

from pathlib import Path

import pytest

HERE = Path(__file__).parent


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--cases-dir", type=Path, default=None, help="folder of case folders")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """`case_folder` is each case in turn, `stream_folder` each of kind `stream`."""
    wanted = {"case_folder", "stream_folder"} & set(metafunc.fixturenames)
    if not wanted:
        return
    asked = metafunc.config.getoption("cases_dir", default=None)
    folder = HERE / "data" if asked is None else metafunc.config.invocation_params.dir / asked
    cases = sorted(path.parent for path in folder.glob("*/case.json"))
    if not cases:
        raise pytest.UsageError(f"no case folder with a case.json in {folder}")
    if "stream_folder" in wanted:
        cases = [case for case in cases if '"stream"' in (case / "case.json").read_text()]
    metafunc.parametrize(wanted.pop(), cases, ids=[case.name for case in cases])
